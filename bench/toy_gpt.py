"""The GPT that the benchmarks of whole steps train: its size on a command line, and its config.

REQUIRES: examples/ is on sys.path.
"""

from __future__ import annotations

import argparse

import torch
from gpt import GPTConfig, cpu_has_native_bf16


def add_size_options(parser: argparse.ArgumentParser, batch: int, dtype: str) -> None:
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--context", type=int, default=256)
    parser.add_argument("--batch", type=int, default=batch)
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default=dtype)


def config_of(options: argparse.Namespace) -> GPTConfig:
    bf16 = options.dtype == "bf16"
    return GPTConfig(
        layers=options.layers,
        width=options.width,
        heads=options.width // 64,
        context=options.context,
        dtype=torch.bfloat16 if bf16 else torch.float32,
        compute_fp32=bf16 and not cpu_has_native_bf16(),
    )
