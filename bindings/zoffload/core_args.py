"""What both levels tell the core in the same words, and how they end it."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable, Mapping

import torch

from ._core import Engine as CoreEngine

DTYPE_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}


def hypers_of(groups: Iterable[Mapping]) -> list[tuple[float, float, float, float, float]]:
    """(lr, beta1, beta2, eps, weight_decay) of each of an optimizer's param_groups."""
    return [
        (float(g["lr"]), *map(float, g["betas"]), float(g["eps"]), float(g["weight_decay"]))
        for g in groups
    ]


def close_cores(cores: list[CoreEngine], pid: int) -> None:
    """`pid` is the process that made them. A forked child has neither their threads nor a right to
    their files: there they are leaked."""
    for core in cores:
        if os.getpid() == pid:
            core.close()
        else:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(core))
