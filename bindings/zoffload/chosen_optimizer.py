"""Which optimizer initialize() trains with, by the caller or by the config, and its settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from . import _core
from .algorithms import ADAGRAD, ADAM, ADAMW, ALGORITHMS, SGD, Algorithm
from .errors import InvalidArgument, Unsupported

TORCH_OPTIMIZERS = {
    torch.optim.AdamW: ADAMW,
    torch.optim.Adam: ADAM,
    torch.optim.SGD: SGD,
    torch.optim.Adagrad: ADAGRAD,
}


class Chosen(NamedTuple):
    params: Iterable  # or groups of them
    defaults: Mapping[str, Any]  # of the groups' settings
    algorithm: Algorithm


def choose_optimizer(
    client: Any, module: nn.Module, params: Iterable | None, config: _core.Config
) -> Chosen:
    """From the caller's optimizer, one of torch.optim's, or from the config's "optimizer" block."""
    if callable(client) and not isinstance(client, torch.optim.Optimizer):
        client = client(list(module.parameters()) if params is None else params)
    if client is None:
        if not config.optimizer_given:
            raise InvalidArgument(
                'neither an "optimizer" block in the config nor an optimizer given'
            )
        params = module.parameters() if params is None else params
        (algorithm,) = (a for a in ALGORITHMS if a.title == config.optimizer_title)
        return Chosen(params, _settings_of(config, algorithm), algorithm)
    algorithm = TORCH_OPTIMIZERS.get(type(client))
    if algorithm is None:
        known = ", ".join(cls.__name__ for cls in TORCH_OPTIMIZERS)
        raise Unsupported(f"optimizer {type(client).__name__}: give one of torch.optim: {known}")
    if any(state.get("step", 1) > 0 for state in client.state.values()):
        raise Unsupported("an optimizer that has stepped already: its state would be lost")
    # The groups themselves: a scheduler that was made for the caller's optimizer goes on working,
    # and is not to complain that this one never steps.
    client._opt_called = True
    if algorithm is ADAM and client.param_groups[0].get("decoupled_weight_decay"):
        algorithm = ADAMW
    return Chosen(client.param_groups, client.defaults, algorithm)


def _settings_of(config: _core.Config, algorithm: Algorithm) -> dict[str, Any]:
    """What the config's "optimizer" block says, or DeepSpeed's defaults."""
    values = {"betas": (config.beta1, config.beta2)}
    return {name: values.get(name) or getattr(config, name) for name in algorithm.settings}
