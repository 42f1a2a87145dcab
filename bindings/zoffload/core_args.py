"""What both levels tell the core in the same words, and how they end it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping

import torch

from ._core import Engine as CoreEngine

_NUMBERS = ("lr", "eps", "weight_decay", "momentum", "dampening", "lr_decay")
DTYPE_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}


def hypers_of(groups: Iterable[Mapping]) -> list[dict[str, float]]:
    """What the core wants to know of each of an optimizer's param_groups, under its names."""
    return [_hyper_of(group) for group in groups]


def _hyper_of(group: Mapping) -> dict[str, float]:
    hyper: dict[str, float] = {name: float(group[name]) for name in _NUMBERS if name in group}
    if "betas" in group:
        hyper["beta1"], hyper["beta2"] = map(float, group["betas"])
    if "nesterov" in group:
        hyper["nesterov"] = bool(group["nesterov"])
    return hyper


def close_cores(cores: list[CoreEngine], pid: int) -> None:
    """`pid` is the process that made them. A forked child has neither their threads nor a right to
    their files: there they are leaked."""
    for core in cores:
        if os.getpid() == pid:
            core.close()
        else:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(core))
