"""The optimizers of level 1: torch.optim's of the same names, and Lion, with their state on
`offload`: "cpu", "nvme", their shares, or an OffloadConfig. What else they take is
OffloadedOptimizer's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from . import algorithms
from .optim import OffloadedOptimizer


class AdamW(OffloadedOptimizer):
    """torch.optim.AdamW."""

    algorithm = algorithms.ADAMW

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        **options: Any,
    ):
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, settings, **options)


class Adam(OffloadedOptimizer):
    """torch.optim.Adam: weight decay is added to the gradient."""

    algorithm = algorithms.ADAM

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        **options: Any,
    ):
        settings = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, settings, **options)


class SGD(OffloadedOptimizer):
    """torch.optim.SGD. Parameters whose groups all have momentum 0 when they get their state keep
    no momentum buffer, and cannot get momentum later."""

    algorithm = algorithms.SGD

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        momentum: float = 0.0,
        dampening: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
        **options: Any,
    ):
        settings = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
        }
        super().__init__(params, settings, **options)


class Lion(OffloadedOptimizer):
    """Lion (Chen et al., 2023), which steps by the sign of a momentum; weight decay is decoupled.
    Its lr is usually 3 to 10 times less than AdamW's, and its weight decay more by as much."""

    algorithm = algorithms.LION

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-4,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        **options: Any,
    ):
        settings = {"lr": lr, "betas": betas, "weight_decay": weight_decay}
        super().__init__(params, settings, **options)


class Adagrad(OffloadedOptimizer):
    """torch.optim.Adagrad."""

    algorithm = algorithms.ADAGRAD

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
        **options: Any,
    ):
        settings = {
            "lr": lr,
            "lr_decay": lr_decay,
            "eps": eps,
            "weight_decay": weight_decay,
            "initial_accumulator_value": initial_accumulator_value,
        }
        super().__init__(params, settings, **options)
