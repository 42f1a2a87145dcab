"""Parameters made whole for a while, as deepspeed.zero.GatheredParameters does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import NamedTuple

import torch
from torch import nn

from .buckets import Bucket, Record
from .errors import InvalidArgument, unavailable
from .residency import Residency


class Home(NamedTuple):
    """Where an engine keeps a parameter: its attribute `zoffload_home`."""

    residency: Residency
    bucket: Bucket
    record: Record


def home_of(param: nn.Parameter) -> Home:
    home = getattr(param, "zoffload_home", None)
    if home is None:
        raise InvalidArgument(
            f"a parameter of shape {tuple(param.shape)} belongs to no engine: see initialize()"
        )
    return home


class GatheredParameters:
    """Inside the context the parameters hold their values, in memory; nested and repeated use is
    fine. Edits made in place take effect at the end. With `modifier_rank` those of `param.data`
    do too, at the price of a comparison. Parameters of no engine are left as they are.

    Outside, they have their shape and dtype but read as NaN, and writing to them is an error. That
    holds for backward too: of a graph built inside, what needs the values of these parameters is
    to run inside.
    """

    def __init__(
        self,
        params: nn.Parameter | Iterable[nn.Parameter],
        modifier_rank: int | None = None,
        fwd_module: nn.Module | None = None,
        enabled: bool = True,
    ):
        self._params = [params] if isinstance(params, torch.Tensor) else list(params)
        self._always_look = modifier_rank is not None
        self._enabled = enabled
        self._contexts: list[contextlib.ExitStack] = []  # one for each time it was entered

    def __enter__(self) -> None:
        by_engine: dict[Residency, list[tuple[Bucket, Record]]] = {}
        for param in self._params if self._enabled else ():
            if hasattr(param, "zoffload_home"):
                residency, bucket, record = home_of(param)
                by_engine.setdefault(residency, []).append((bucket, record))
        with contextlib.ExitStack() as stack:
            for residency, homes in by_engine.items():
                stack.enter_context(residency.editing(homes, self._always_look))
            self._contexts.append(stack.pop_all())

    def __exit__(self, *exception) -> None:
        self._contexts.pop().close()


gathered = GatheredParameters
Init = unavailable("zero.Init")
