"""Toy models and plain loops that the engine's tests share."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from functools import partial

import torch
import zoffload
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

WIDTH = 24
VOCAB = 40
LR = 0.01


class Block(nn.Module):
    """A residual block with a norm, two linears, and a scale of no dimension."""

    def __init__(self, width: int = WIDTH):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)
        self.scale = nn.Parameter(torch.tensor(0.9))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.scale * self.down(torch.tanh(self.up(self.norm(x))))


class Toy(nn.Module):
    """Embedding, blocks, head. `checkpointed`: None, or whether early stop is on."""

    def __init__(self, blocks: int = 4, tied: bool = False, checkpointed: bool | None = None):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)
        if tied:
            self.head.weight = self.embed.weight
        self.checkpointed = checkpointed
        self.skipped: set[int] = set()

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.embed(tokens)
        for i, block in enumerate(self.blocks):
            if i in self.skipped:
                continue
            if self.checkpointed is None:
                x = block(x)
            else:
                with set_checkpoint_early_stop(self.checkpointed):
                    x = checkpoint(block, x, use_reentrant=False)
        logits = self.head(x)
        return nn.functional.cross_entropy(logits.flatten(0, 1).float(), tokens.flatten())


def make_toy(**kwargs) -> Toy:
    """The same weights every time."""
    torch.manual_seed(7)
    return Toy(**kwargs)


def batch(step: int, micro: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(1000 * step + micro)
    return torch.randint(VOCAB, (3, 5), generator=generator)


def make_config(
    tier: str = "cpu",
    folder=None,
    dtype: str = "fp32",
    clip: float = 0.0,
    accumulate: int = 1,
    **more,
) -> dict:
    """A DeepSpeed config whose parameters and optimizer state are on "cpu" or "nvme"."""
    place = {"device": tier} if tier == "cpu" else {"device": tier, "nvme_path": str(folder)}
    return {
        "train_micro_batch_size_per_gpu": 3,
        "gradient_accumulation_steps": accumulate,
        "gradient_clipping": clip,
        "bf16": {"enabled": dtype == "bf16"},
        "optimizer": {"type": "AdamW", "params": {"lr": LR, "weight_decay": 0.1}},
        "zero_optimization": {"stage": 3, "offload_param": place, "offload_optimizer": place},
        "zoffload": {"threads": 2, **more},
    }


def train_torch(
    model: nn.Module, steps: int, clip: float = 0.0, accumulate: int = 1
) -> list[float]:
    """The loop that the engine has to agree with; returns the losses."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.1)
    losses = []
    for step in range(steps):
        for micro in range(accumulate):
            loss = model(batch(step, micro))
            (loss / accumulate).backward()
            losses.append(loss.item())
        if clip > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
    return losses


def train_engine(engine, steps: int, first: int = 0, accumulate: int = 1) -> list[float]:
    losses = []
    for step in range(first, first + steps):
        for micro in range(accumulate):
            loss = engine(batch(step, micro))
            engine.backward(loss)
            engine.step()
            losses.append(loss.item())
    return losses


@contextlib.contextmanager
def opened_engines(folder) -> Iterator:
    """A function that makes engines: of a toy by default, with make_config()'s settings. They are
    destroyed at the end."""
    engines = []

    def open_(model=None, model_parameters=None, **config):
        model = make_toy() if model is None else model
        if config.get("tier") == "nvme":
            config.setdefault("folder", folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # where tests run, the folder may be in memory
            engine, *_ = zoffload.initialize(
                model=model, model_parameters=model_parameters, config=make_config(**config)
            )
        engines.append(engine)
        return engine

    yield open_
    for engine in engines:
        engine.destroy()


def assert_nothing_is_leased(engine) -> None:
    for bucket in engine._cut.buckets:
        assert bucket.lease_count == 0, bucket.name
        assert bucket.forward_count == 0, bucket.name


def assert_released(engine) -> None:
    """No parameter shows memory of the engine's; all keep their shape."""
    for bucket in engine._cut.buckets:
        for record in bucket.records:
            assert record.param.shape == record.shape, record.name
            assert record.param.untyped_storage().nbytes() <= 4, record.name
            assert record.param.isnan().all(), record.name


def weights(engine) -> dict[str, Tensor]:
    """Copies of all weights."""
    return engine.module.state_dict()


def assert_same_bits(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert torch.equal(a[name], b[name]), name


def assert_close(a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    """Equal but for the order of fp32 additions, over a few steps of a toy model."""
    assert a.keys() == b.keys()
    for name in a:
        message = partial("{}: {}".format, name)
        torch.testing.assert_close(a[name], b[name], rtol=2e-5, atol=2e-6, msg=message)
