#!/usr/bin/env python3
"""Trains a small GPT on Python's own source code, in memory or offloaded, with the same loop.

    python examples/train_gpt.py --engine torch
    python examples/train_gpt.py --params nvme --optimizer nvme --nvme-path /mnt/nvme0 \\
        --host-bytes 64MiB

Progress goes to stderr; a sample of text and a table of what the run cost go to stdout; --report
writes the same figures, and a hash of the final parameters, as JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import hashlib
import itertools
import json
import os
import re
import statistics
import sys
import sysconfig
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from baseline import TorchEngine
from gpt import GPT, GPTConfig, build_gpt, cpu_has_native_bf16
from torch import Tensor

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
DEEPSPEED_DEVICES = {"hbm": "none", "host": "cpu", "nvme": "nvme"}
TEXT_BYTES = 4 << 20


# ---- Arguments -----------------------------------------------------------------------------------


def parse_bytes(text: str) -> int:
    """'256MiB', '1.5 GB' or '4096' -> bytes"""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt])(i?)b?|b)?", text.strip().lower())
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size such as 256MiB")
    number, prefix, binary = match.groups()
    unit = (1024 if binary else 1000) ** ("kmgt".index(prefix) + 1) if prefix else 1
    return int(float(number) * unit)


def parse_count(text: str) -> int:
    """A whole number of at least one."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least 1")
    return int(text)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.ArgumentDefaultsHelpFormatter
    )
    add = parser.add_argument
    add("--engine", choices=["zoffload", "torch"], default="zoffload")
    add("--params", choices=list(DEEPSPEED_DEVICES), default="host", help="home of parameters")
    add("--optimizer", choices=list(DEEPSPEED_DEVICES), default="host", help="home of its state")
    add("--nvme-path", action="append", default=[], metavar="DIR", help="may be repeated")
    add("--host-bytes", type=parse_bytes, metavar="SIZE", help="host memory budget, as in 256MiB")
    add("--layers", type=parse_count, default=6)
    add("--width", type=parse_count, default=384)
    add("--heads", type=parse_count, default=6)
    add("--context", type=parse_count, default=128, help="tokens per sequence")
    add("--batch", type=parse_count, default=8, help="sequences per micro-batch")
    add("--accumulate", type=parse_count, default=1, help="micro-batches per step")
    add("--dtype", choices=list(DTYPES), default="bf16")
    add("--linear", choices=["auto", "native", "fp32"], default="auto", help="linears compute in")
    add("--clip", type=float, default=1.0, help="global gradient norm; 0 is off")
    add("--lr", type=float, default=5e-4)
    add("--steps", type=parse_count, default=60)
    add("--seed", type=int, default=0)
    add("--threads", type=parse_count, default=len(os.sched_getaffinity(0)))
    add("--checkpoint", action="store_true", help="recompute activations in backward")
    add("--sample", type=int, default=200, metavar="BYTES", help="text generated; 0 is none")
    add("--report", type=Path, metavar="FILE", help="write the figures as JSON")
    args = parser.parse_args(argv)

    if args.clip < 0 or args.sample < 0:
        parser.error("--clip and --sample are zero or more")
    nvme = "nvme" in (args.params, args.optimizer)
    if args.width % args.heads != 0:
        parser.error(f"--width {args.width} is not a multiple of --heads {args.heads}")
    if args.engine == "torch" and (args.params, args.optimizer) != ("host", "host"):
        parser.error("--engine torch keeps everything in host memory")
    if args.engine == "torch" and args.host_bytes is not None:
        parser.error("--engine torch knows no --host-bytes")
    if nvme != bool(args.nvme_path):
        parser.error("--nvme-path is needed if, and only if, something lives on nvme")
    for folder in [*args.nvme_path, *([args.report.parent] if args.report else [])]:
        if not Path(folder).is_dir():
            parser.error(f"{folder} is not a folder")
    return args


def deepspeed_config(args: argparse.Namespace) -> dict:
    """What zoffload.initialize() takes, and all that differs between memory, host and NVMe."""

    config = {
        "train_micro_batch_size_per_gpu": args.batch,
        "gradient_accumulation_steps": args.accumulate,
        "gradient_clipping": args.clip,
        "bf16": {"enabled": args.dtype == "bf16"},
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": args.lr, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.01},
        },
        "zero_optimization": {
            "stage": 3,
            "offload_param": {"device": DEEPSPEED_DEVICES[args.params]},
            "offload_optimizer": {"device": DEEPSPEED_DEVICES[args.optimizer]},
        },
        "zoffload": {"threads": args.threads},
    }
    if args.nvme_path:
        config["zoffload"]["nvme_path"] = args.nvme_path
    if args.host_bytes is not None:
        config["zoffload"]["host_bytes"] = args.host_bytes
    return config


# ---- Text ----------------------------------------------------------------------------------------


def load_text(bytes_max: int = TEXT_BYTES) -> Tensor:
    """The first MiBs of the standard library's sources, sorted by path -> [bytes] of uint8.

    Depends on nothing but the Python version; tests and installed packages are left out.
    """
    root = Path(sysconfig.get_path("stdlib"))
    left_out = {"site-packages", "dist-packages", "test", "tests"}
    sources = (path.relative_to(root) for path in root.rglob("*.py"))
    text = bytearray()
    for source in sorted(path for path in sources if left_out.isdisjoint(path.parts)):
        text += (root / source).read_bytes()
        if len(text) >= bytes_max:
            break
    return torch.frombuffer(text[:bytes_max], dtype=torch.uint8)


def draw_batch(text: Tensor, args: argparse.Namespace, generator: torch.Generator):
    """text [bytes] -> tokens and targets (the same, one byte later), both [B, T] of int64"""
    last = len(text) - args.context
    starts = torch.randint(last, (args.batch, 1), generator=generator)
    window = text[starts + torch.arange(args.context + 1)].long()
    return window[:, :-1], window[:, 1:]


@torch.no_grad()
def generate(engine, model: GPT, prompt: str, count: int, seed: int) -> str:
    """Continues the prompt by `count` bytes, drawn at temperature 0.8 from a seeded generator."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.frombuffer(bytearray(prompt.encode()), dtype=torch.uint8).long()[None]  # [1, T]
    model.eval()
    for _ in range(count):
        logits = engine(tokens[:, -model.config.context :])  # [1, V]
        chances = torch.softmax(logits.float() / 0.8, dim=-1)
        next_token = torch.multinomial(chances, num_samples=1, generator=generator)
        tokens = torch.cat([tokens, next_token], dim=1)
    model.train()
    return bytes(tokens[0].tolist()).decode(errors="replace")


# ---- Engine --------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_engine(args: argparse.Namespace, model: GPT) -> Iterator[tuple[Any, Any]]:
    """The engine, and the context manager that makes a list of parameters whole to read them.

    The engine is destroyed on every way out, so that Ctrl-C and errors leave no file behind.
    """
    config = deepspeed_config(args)
    if args.engine == "torch":
        engine, gathered = TorchEngine(model, config), contextlib.nullcontext
    else:
        import zoffload

        engine, _, _, _ = zoffload.initialize(model=model, config=config)
        gathered = zoffload.zero.GatheredParameters
    try:
        yield engine, gathered
    finally:
        engine.destroy()


def train_step(engine, text: Tensor, args: argparse.Namespace, generator: torch.Generator) -> float:
    """One step of `accumulate` micro-batches; returns its mean loss."""
    losses = []
    for _ in range(args.accumulate):
        tokens, targets = draw_batch(text, args, generator)
        loss = engine(tokens, targets)
        engine.backward(loss)
        engine.step()  # acts after the last micro-batch only
        losses.append(loss.item())
    return statistics.fmean(losses)


def hash_parameters(model: GPT, gathered) -> str:
    """SHA-256 over name, bytes, name, bytes, ... in name order; gathers one block at a time."""
    digest = hashlib.sha256()
    parameters = sorted(model.named_parameters())

    def block(named: tuple[str, Tensor]) -> list[str]:
        parts = named[0].split(".")  # blocks.3.mlp.up.weight -> blocks.3, norm.bias -> norm
        return parts[:2] if parts[0] == "blocks" else parts[:1]

    for _, group in itertools.groupby(parameters, key=block):
        group = list(group)
        with gathered([parameter for _, parameter in group]):
            for name, parameter in group:
                digest.update(name.encode())
                flat = parameter.detach().contiguous().flatten()
                digest.update(flat.view(torch.uint8).numpy())
    return digest.hexdigest()


# ---- Measurement ---------------------------------------------------------------------------------


def read_proc(file: str, key: str) -> int | None:
    """One number of /proc/self/FILE, in the kernel's unit; None where the kernel does not tell."""
    try:
        text = Path("/proc/self", file).read_text()
    except OSError:
        return None
    match = re.search(rf"^{key}:\s+(\d+)", text, re.MULTILINE)
    return int(match[1]) if match else None


def resident_bytes(key: str) -> int | None:
    """VmRSS (now) or VmHWM (the high-water mark) of this process."""
    kib = read_proc("status", key)
    return None if kib is None else kib * 1024


def traffic(engine) -> dict[str, int | None]:
    """Bytes moved to and from storage so far: as the kernel counts them, and as the engine does."""
    stats = engine.stats()
    return {
        "read_bytes": read_proc("io", "read_bytes"),
        "written_bytes": read_proc("io", "write_bytes"),
        "engine_read_bytes": stats["nvme_read_bytes"],
        "engine_written_bytes": stats["nvme_written_bytes"],
    }


@dataclasses.dataclass
class Log:
    """What each step cost, and the line that says so while the run goes on.

    An engine may still be writing step n home while step n + 1 computes, so a step's traffic is
    what moved between the return of one step() and the next.
    """

    steps: int
    losses: list[float] = dataclasses.field(default_factory=list)
    seconds: list[float] = dataclasses.field(default_factory=list)
    moved: list[dict[str, int | None]] = dataclasses.field(default_factory=list)

    def add(self, loss: float, seconds: float, before: dict, after: dict) -> None:
        self.losses.append(loss)
        self.seconds.append(seconds)
        known = {key for key in after if None not in (before[key], after[key])}
        self.moved.append({k: after[k] - before[k] if k in known else None for k in after})
        self._show()

    def per_step(self, key: str) -> list[int | None]:
        return [step[key] for step in self.moved]

    def _show(self) -> None:
        done = len(self.losses)
        line = (
            f"step {done:>{len(str(self.steps))}}/{self.steps}   loss {self.losses[-1]:.3f}"
            f" (first {self.losses[0]:.3f})   {self.seconds[-1]:.2f} s"
        )
        if sys.stderr.isatty():
            end = "\n" if done == self.steps else ""
            print(f"\r\033[K{line}", end=end, file=sys.stderr, flush=True)
        elif done in (1, self.steps) or done % max(1, self.steps // 12) == 0:
            print(line, file=sys.stderr, flush=True)


def mib(count: float | None) -> str:
    return "unknown" if count is None else f"{count / 2**20:.1f} MiB"


def print_table(report: dict) -> None:
    """The figures that a reader compares between two runs."""
    tiers = report["bytes_by_tier"]
    seconds = statistics.median(report["step_seconds"])
    tokens = report["batch"] * report["context"] * report["accumulate"]
    rows = {f"state on {tier}": mib(tiers[tier]) for tier in tiers}
    rows["host budget"] = "none" if report["host_bytes"] is None else mib(report["host_bytes"])
    if report["host_bytes_high_water"] is not None:
        rows["host high-water mark"] = mib(report["host_bytes_high_water"])
    rows["process before engine"] = mib(report["resident_bytes_before_engine"])
    rows["process high-water mark"] = mib(report["peak_resident_bytes"])
    rows["loss"] = f"{report['losses'][0]:.3f} -> {report['losses'][-1]:.3f}"
    rows["time per step (median)"] = f"{seconds:.3f} s, {tokens / seconds:.0f} tokens/s"
    for label, key in (("read", "read_bytes_per_step"), ("written", "written_bytes_per_step")):
        known = [moved for moved in report[key] if moved is not None]
        rows[f"{label} per step (median)"] = mib(statistics.median(known) if known else None)
    width = max(map(len, rows))
    for label, value in rows.items():
        print(f"{label:<{width}}  {value}")


# ---- Main ----------------------------------------------------------------------------------------


def set_up_torch(args: argparse.Namespace) -> None:
    """The same seed and thread count give the same bits, run after run."""
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    torch.use_deterministic_algorithms(True)
    # Filling every new tensor with NaN finds bugs in torch's kernels, at the price of a write.
    torch.utils.deterministic.fill_uninitialized_memory = False


def run(args: argparse.Namespace) -> dict:
    """Trains, prints a sample, and returns the report."""
    set_up_torch(args)
    native = args.dtype == "fp32" or cpu_has_native_bf16()
    config = GPTConfig(
        context=args.context,
        layers=args.layers,
        heads=args.heads,
        width=args.width,
        dtype=DTYPES[args.dtype],
        compute_fp32=args.linear == "fp32" or (args.linear == "auto" and not native),
        checkpoint_blocks=args.checkpoint,
    )
    text = load_text()
    model = build_gpt(config, args.seed)
    report = {k: str(v) if isinstance(v, Path) else v for k, v in vars(args).items()}
    report["linear"] = "fp32" if config.compute_fp32 else "native"
    report["parameters"] = sum(parameter.numel() for parameter in model.parameters())
    report["resident_bytes_before_engine"] = resident_bytes("VmRSS")
    print(f"{report['parameters'] / 1e6:.1f} M parameters, {args.dtype}", file=sys.stderr)

    generator = torch.Generator().manual_seed(args.seed)
    log = Log(args.steps)
    with open_engine(args, model) as (engine, gathered):
        before = traffic(engine)
        for _ in range(args.steps):
            start = time.perf_counter()
            loss = train_step(engine, text, args, generator)
            seconds = time.perf_counter() - start
            after = traffic(engine)
            log.add(loss, seconds, before, after)
            before = after
        report["parameters_sha256"] = hash_parameters(model, gathered)
        report["peak_resident_bytes"] = resident_bytes("VmHWM")  # of training, not of the sample
        if args.sample > 0:
            print(generate(engine, model, "def ", args.sample, args.seed), end="\n\n")
        stats = engine.stats()

    report["losses"] = log.losses
    report["step_seconds"] = log.seconds
    for key in before:
        report[f"{key}_per_step"] = log.per_step(key)
    report["bytes_by_tier"] = stats["bytes_by_tier"]
    report["host_bytes"] = stats["host_bytes_budget"]
    report["host_bytes_high_water"] = stats["host_bytes_high_water"]
    return report


def main() -> int:
    args = parse_arguments()
    try:
        report = run(args)
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
    print_table(report)
    if args.report:
        args.report.write_text(json.dumps(report, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
