"""How much of the update hides under the next forward and backward, measured in one run.

A GPT is trained by the optimizer of level 1 with `overlap`, and by the engine of level 2 on host
memory. In each round of each: forward and backward alone; an overlapped step, which is step(), the
next forward and backward, and a wait for what is left of the update; and an update alone, which is
step() and that wait. The order of the two levels changes from round to round.

    share hidden = (update alone + forward and backward alone - overlapped step) / update alone

On a machine without an accelerator, forward and update want the same cores: give each its own.

    python bench/overlap_share.py --torch-threads 1 --threads 1 --rounds 7 --at-least 0.9
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import zoffload
from gpt import build_gpt
from toy_gpt import add_size_options, config_of
from zoffload.placement import OffloadConfig

ADAMW = {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1}


def parse_arguments() -> argparse.Namespace:
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_size_options(parser, batch=8, dtype="fp32")
    parser.add_argument("--clip", type=float, default=0.0, help="global norm; 0 does not clip")
    parser.add_argument("--levels", type=int, nargs="+", choices=[1, 2], default=[1, 2])
    parser.add_argument("--torch-threads", type=int, default=max(1, cores - max(1, cores // 2)))
    parser.add_argument("--threads", type=int, default=max(1, cores // 2), help="of the update")
    parser.add_argument("--rounds", type=int, default=7, help="that are measured; two warm up")
    parser.add_argument("--at-least", type=float, help="exit code 1 if a share is below this")
    return parser.parse_args()


class Rig(NamedTuple):
    """One level's training loop, in pieces."""

    name: str
    forward: Callable[[torch.Tensor], torch.Tensor]
    backward: Callable[[torch.Tensor], object]
    step: Callable[[], object]  # and all that belongs to it, such as zero_grad()
    settle: Callable[[], None]
    close: Callable[[], None]


def level_1(model: torch.nn.Module, options: argparse.Namespace) -> Rig:
    optimizer = zoffload.AdamW(
        model.parameters(),
        **ADAMW,
        offload=OffloadConfig("cpu", threads=options.threads),
        max_grad_norm=options.clip or None,
        overlap=model,
    )

    def step() -> None:
        optimizer.step()
        optimizer.zero_grad()

    def forward(text: torch.Tensor) -> torch.Tensor:
        return model(text[:, :-1], text[:, 1:])

    return Rig("level 1", forward, torch.Tensor.backward, step, optimizer.settle, optimizer.close)


def level_2(model: torch.nn.Module, options: argparse.Namespace) -> Rig:
    config = {
        "train_micro_batch_size_per_gpu": options.batch,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": options.clip,
        "zero_optimization": {"stage": 3},
        "bf16": {"enabled": options.dtype == "bf16"},
        "optimizer": {"type": "AdamW", "params": ADAMW},
        "zoffload": {"params": "host", "optimizer": "host", "threads": options.threads},
    }
    engine = zoffload.initialize(model=model, config=config)[0]

    def forward(text: torch.Tensor) -> torch.Tensor:
        return engine(text[:, :-1], text[:, 1:])

    return Rig("level 2", forward, engine.backward, engine.step, engine.settle, engine.destroy)


def seconds_of(*verbs: Callable[[], object]) -> float:
    start = time.perf_counter()
    for verb in verbs:
        verb()
    return time.perf_counter() - start


def one_round(rig: Rig, text: torch.Tensor) -> dict[str, float]:
    """REQUIRES: no gradients, and all is settled; leaves it so."""
    losses: list[torch.Tensor] = []

    def forward() -> None:
        losses.append(rig.forward(text))

    def backward() -> None:
        rig.backward(losses.pop())

    seconds = {"forward": seconds_of(forward)}
    seconds["forward and backward"] = seconds["forward"] + seconds_of(backward)
    seconds["overlapped step"] = seconds_of(rig.step, forward, backward, rig.settle)
    seconds["update"] = seconds_of(rig.step, rig.settle)
    return seconds


def report(name: str, rounds: list[dict[str, float]]) -> float:
    medians = {what: statistics.median(r[what] for r in rounds) for what in rounds[0]}
    for what, median in medians.items():
        spread = [r[what] for r in rounds]
        print(f"{name}  {what:22} {median:8.3f} s ({min(spread):.3f} to {max(spread):.3f})")
    hidden = medians["update"] + medians["forward and backward"] - medians["overlapped step"]
    share = hidden / medians["update"]
    print(f"{name}  share hidden           {share:8.3f}")
    if medians["update"] > medians["forward"]:
        print(f"{name}  the update is longer than the forward: give it a larger --batch")
    return share


def main() -> int:
    options = parse_arguments()
    torch.set_num_threads(options.torch_threads)
    size = config_of(options)
    models = {level: build_gpt(size, seed=1) for level in options.levels}
    numel = sum(p.numel() for p in models[options.levels[0]].parameters())
    make = {1: level_1, 2: level_2}
    rigs = [make[level](model, options) for level, model in models.items()]
    rounds: dict[str, list[dict[str, float]]] = {rig.name: [] for rig in rigs}
    generator = torch.Generator().manual_seed(0)
    for round_number in range(-2, options.rounds):
        text = torch.randint(256, (options.batch, options.context + 1), generator=generator)
        for rig in rigs if round_number % 2 == 0 else reversed(rigs):
            seconds = one_round(rig, text)
            if round_number >= 0:
                rounds[rig.name].append(seconds)
    for rig in rigs:
        rig.close()
    print(
        f"{numel / 1e6:.1f} M parameters, {options.dtype}, state in host memory, "
        f"{options.torch_threads} threads of torch, {options.threads} of the update"
    )
    shares = [report(name, measured) for name, measured in rounds.items()]
    return 1 if options.at_least is not None and min(shares) < options.at_least else 0


if __name__ == "__main__":
    sys.exit(main())
