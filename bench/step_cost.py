"""What a level-2 step costs beside the same model's plain torch loop, measured in one run.

Both engines train the same GPT in one process, a step each in turn, the order changing from round
to round. The figure is the ratio of the medians; the spread beside it says how much to believe it.

    python bench/step_cost.py --layers 12 --width 768 --rounds 7 --at-most 1.15
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "examples"))
import zoffload
from baseline import TorchEngine
from gpt import build_gpt
from toy_gpt import add_size_options, config_of


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_size_options(parser, batch=4, dtype="bf16")
    parser.add_argument("--where", choices=["hbm", "host", "nvme"], default="host")
    parser.add_argument("--nvme-path", help="folder for --where nvme (default: a temporary one)")
    parser.add_argument("--rounds", type=int, default=7, help="measured steps of each engine")
    parser.add_argument("--at-most", type=float, help="exit code 1 if the ratio is above this")
    return parser.parse_args()


def make_config(options: argparse.Namespace, nvme_path: str) -> dict:
    return {
        "train_micro_batch_size_per_gpu": options.batch,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 1.0,
        "zero_optimization": {"stage": 3},
        "bf16": {"enabled": options.dtype == "bf16"},
        "optimizer": {
            "type": "AdamW",
            "params": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1},
        },
        "zoffload": {
            "params": options.where,
            "optimizer": options.where,
            "nvme_path": nvme_path,
        },
    }


def one_step(engine, tokens: torch.Tensor, targets: torch.Tensor) -> float:
    """Seconds of one forward, backward and step. An update that runs on after step() is paid for
    by the next step, as in training."""
    start = time.perf_counter()
    engine.backward(engine(tokens, targets))
    engine.step()
    return time.perf_counter() - start


def main() -> int:
    options = parse_arguments()
    size = config_of(options)
    models = [build_gpt(size, seed=1) for _ in range(2)]
    numel = sum(p.numel() for p in models[0].parameters())
    with tempfile.TemporaryDirectory() as folder:
        config = make_config(options, options.nvme_path or folder)
        plain = TorchEngine(models[0], config)
        ours = zoffload.initialize(model=models[1], config=config)[0]
        seconds: dict = {plain: [], ours: []}
        generator = torch.Generator().manual_seed(0)
        for round_number in range(-2, options.rounds):  # the first two warm up
            shape = (options.batch, options.context + 1)
            text = torch.randint(256, shape, generator=generator)
            order = [plain, ours] if round_number % 2 == 0 else [ours, plain]
            for engine in order:
                # The other engine's update must not run under this one's step.
                ours.settle()
                elapsed = one_step(engine, text[:, :-1], text[:, 1:])
                if engine is ours:
                    start = time.perf_counter()
                    ours.settle()
                    elapsed += time.perf_counter() - start
                if round_number >= 0:
                    seconds[engine].append(elapsed)
        ours.destroy()
    medians = [statistics.median(seconds[engine]) for engine in (plain, ours)]
    ratio = medians[1] / medians[0]
    print(f"{numel / 1e6:.1f} M parameters, {options.dtype}, state in {options.where}")
    for name, engine, median in zip(("torch", "zoffload"), (plain, ours), medians, strict=True):
        low, high = min(seconds[engine]), max(seconds[engine])
        print(f"{name:10} {median:8.3f} s per step ({low:.3f} to {high:.3f})")
    print(f"ratio      {ratio:8.3f}")
    return 1 if options.at_most is not None and ratio > options.at_most else 0


if __name__ == "__main__":
    sys.exit(main())
