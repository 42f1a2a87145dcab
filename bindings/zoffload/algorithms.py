"""The optimizers as both levels know them: their settings, what they keep, and what torch calls it.

A new one is a row here, a class in optimizers.py for level 1, and its C++ file with a row in
optim/optimizers.cc.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from .errors import InvalidArgument, Unsupported


@dataclass(frozen=True)
class Algorithm:
    title: str
    name: str  # the core's
    settings: tuple[str, ...]  # of a parameter group, as torch names them
    moments: Mapping[str, str]  # the core's role -> the key in torch's state
    # torch's settings that we have at this value only. The first kind changes the numbers; the
    # second only says how torch computes them, so that a state_dict() may bring any.
    fixed: Mapping[str, Any]
    schemes: Mapping[str, Any]
    # The core's name of it where no group has momentum, and so nothing is kept. Empty: it always
    # keeps its moments.
    name_without_momentum: str = ""
    has_step: bool = True  # torch's state has a "step"; without it ours has one all the same

    @property
    def always_keeps(self) -> bool:
        """Its moments, whatever the settings."""
        return not self.name_without_momentum

    def has_moments(self, state: Mapping | None) -> bool:
        """Whether a parameter's share of a state_dict does."""
        keys = self.moments.values()
        return state is not None and any(state.get(key) is not None for key in keys)

    def needs_moments(self, group: Mapping) -> bool:
        """Whether a group's settings do."""
        return self.always_keeps or float(group["momentum"]) != 0

    def core_name(self, needs_moments: bool) -> str:
        return self.name if needs_moments else self.name_without_momentum

    def check_settings(self, number: int, group: Mapping) -> None:
        """At each step: whoever holds the groups may change them."""
        for setting, value in (*self.fixed.items(), *self.schemes.items()):
            if group.get(setting, value) != value:
                raise Unsupported(
                    f"{setting}={group[setting]!r} in parameter group {number}: "
                    f"{self.title} has no such setting"
                )

    def check_new_group(self, number: int, group: Mapping) -> None:
        """What torch checks of a group at construction only: a scheduler may set anything."""
        self.check_settings(number, group)
        where = f"in parameter group {number}"
        lr = group["lr"]
        if isinstance(lr, Tensor) and lr.numel() != 1:
            raise InvalidArgument(f"lr has {lr.numel()} elements {where}; it must have one")
        for setting in self.settings:
            value = group[setting]
            if setting == "betas":
                if len(value) != 2 or not all(0 <= float(beta) < 1 for beta in value):
                    raise InvalidArgument(f"betas={value!r} {where}; they must be two in [0, 1)")
            elif setting not in ("dampening", "nesterov") and not float(value) >= 0:
                raise InvalidArgument(f"{setting}={value!r} {where}; it must be >= 0")
        if group.get("nesterov") and (group["momentum"] <= 0 or group["dampening"] != 0):
            raise InvalidArgument(
                f"nesterov=True {where}: it needs momentum above 0 and dampening 0"
            )


def _adam(title: str, name: str, decoupled: bool) -> Algorithm:
    return Algorithm(
        title,
        name,
        settings=("lr", "betas", "eps", "weight_decay"),
        moments={"exp_avg": "exp_avg", "exp_avg_sq": "exp_avg_sq"},
        fixed={"amsgrad": False, "maximize": False, "decoupled_weight_decay": decoupled},
        schemes={"foreach": None, "capturable": False, "differentiable": False, "fused": None},
    )


_SCHEMES = {"foreach": None, "differentiable": False, "fused": None}

ADAMW = _adam("AdamW", "adamw", decoupled=True)
ADAM = _adam("Adam", "adam", decoupled=False)
SGD = Algorithm(
    "SGD",
    "momentum_sgd",
    settings=("lr", "momentum", "dampening", "weight_decay", "nesterov"),
    moments={"exp_avg": "momentum_buffer"},
    fixed={"maximize": False},
    schemes=_SCHEMES,
    name_without_momentum="sgd",
    has_step=False,
)
LION = Algorithm(
    "Lion",
    "lion",
    settings=("lr", "betas", "weight_decay"),
    moments={"exp_avg": "exp_avg"},
    fixed={},
    schemes={},
    has_step=False,
)
ADAGRAD = Algorithm(
    "Adagrad",
    "adagrad",
    settings=("lr", "lr_decay", "eps", "weight_decay", "initial_accumulator_value"),
    moments={"exp_avg_sq": "sum"},
    fixed={"maximize": False},
    schemes=_SCHEMES,
)

ALGORITHMS = (ADAMW, ADAM, SGD, LION, ADAGRAD)
