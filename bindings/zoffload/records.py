"""What level 1 knows of a parameter that has state: where that is, and which of the two is right,
the user's bf16 weight or the engine's fp32 master.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from ._core import Engine as CoreEngine

LOADED = -1  # no version of a param


@dataclass(eq=False)
class Record:
    """A parameter that has state, and its memory as its engine knows it."""

    core: CoreEngine
    id: int  # the core's ParamId
    name: str
    memory: tuple  # of user_tensors.memory_of(): not to change
    format: str  # of its state
    moments: Mapping[str, str]  # that its engine keeps: the core's role -> the key in torch's state
    # Its update count is of updates that moved these. Only in SGD it may be of others, without
    # momentum, after which torch starts the momentum as if they had not been.
    counts_moments: bool
    # bf16 only: the param's _version when its master was last known to be right. None: the master
    # is to become what the param is. LOADED: they are to be compared.
    seen_version: int | None = None
    # Of a split master, whose other half is the param, what a state_dict brought: until step(),
    # when the weights are loaded too.
    loaded_master: Tensor | None = None

    @property
    def is_split(self) -> bool:
        return self.has_master and self.format.startswith("split")

    @property
    def reads_param(self) -> bool:
        """The param, if its master is asked for."""
        return self.is_split and self.seen_version not in (None, LOADED)

    @property
    def has_master(self) -> bool:
        return self.memory[-1] != torch.float32

    def kept(self) -> dict[str, str]:
        """What a state_dict has of it: the core's role -> the key."""
        kept = dict(self.moments) if self.counts_moments else {}
        if self.has_master and self.seen_version is not None:
            kept["master"] = "master"
        return kept

    def write_moments(self, param: Tensor, state: Mapping | None, initial: float) -> None:
        """From a parameter's share of a state_dict, or what a new one starts from."""
        for role, key in self.moments.items():
            self.write(param, role, state[key] if state else torch.tensor(initial))

    def read(self, param: Tensor, role: str) -> Tensor:
        """In fp32, with the parameter's strides."""
        value = torch.empty_like(param, dtype=torch.float32)
        if role == "master" and self.loaded_master is not None:
            return value.copy_(self.loaded_master)
        self.core.read_state(self.id, role, value.data_ptr())
        return value

    def write(self, param: Tensor, role: str, value: Tensor) -> None:
        value = torch.empty_like(param, dtype=torch.float32).copy_(value)
        self.core.write_state(self.id, role, value.data_ptr())

    def load_master(self, param: Tensor, state: Mapping | None) -> None:
        """From a parameter's share of a state_dict. Its weights may have been loaded before, or may
        be after: refresh_master() will compare."""
        self.seen_version = self.loaded_master = None
        if not self.has_master or state is None or "master" not in state:
            return
        self.seen_version = LOADED
        if self.is_split:
            self.loaded_master = state["master"].detach()
        else:
            self.write(param, "master", state["master"])

    def refresh_master(self, param: Tensor) -> None:
        """An edited element's master becomes what the param is; the others keep theirs. Where one
        is the half of the other, there is no telling which were edited: all become what the param
        is."""
        if not self.has_master or self.seen_version == param._version:
            return
        if self.loaded_master is not None:
            self._write_where_alike(param, self.loaded_master)
            torch.autograd.graph.increment_version(param)
            self.loaded_master = None
        elif self.seen_version is None or self.is_split:
            self.core.write_state(self.id, "param", param.data_ptr())
        else:
            self._write_where_alike(param, self.read(param, "master"))
        self.seen_version = param._version

    def _write_where_alike(self, param: Tensor, master: Tensor) -> None:
        master = torch.empty_like(param, dtype=torch.float32).copy_(master)
        bits = param.view(torch.int16)
        alike = master.bfloat16().view(torch.int16) == bits
        if self.seen_version == LOADED:  # by a run that may have stored split masters
            rounded_half_up = (master.view(torch.int32) + 0x8000) >> 16
            alike |= rounded_half_up.to(torch.int16) == bits
        self.write(param, "master", torch.where(alike, master, param.float()))
