"""AdamW and Adam whose state lives on the tiers: torch.optim.Optimizer classes (level 1).

    opt = zoffload.AdamW(model.parameters(), lr=3e-4, offload="nvme", nvme_path="/mnt/nvme0")
    for x, y in loader:
        model(x, y).backward()
        opt.step(); sched.step(); opt.zero_grad()

Parameters and gradients stay in the user's tensors. The engine reads and writes them where they
lie, inside step() only: when it returns, nothing of ours touches them.
"""

from __future__ import annotations

import math
import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from . import metrics
from ._core import Engine as CoreEngine
from .core_args import close_cores, hypers_of
from .errors import InvalidArgument, OutOfMemory, Unsupported
from .placement import Bytes, OffloadConfig, Paths, Placement, Plan, core_options, is_number
from .report import report
from .user_tensors import (
    MOMENTS,
    Entry,
    bucket_spec,
    check_overlap,
    check_parameter,
    check_state,
    cut_buckets,
    global_norm,
    gradient_of,
    memory_of,
)

# torch's settings that we have at this value only. The first kind changes the numbers; the second
# only says how torch computes them, so that a state_dict() may bring any.
ARITHMETIC_SETTINGS = {"amsgrad": False, "maximize": False}
SCHEME_SETTINGS = {"foreach": None, "capturable": False, "differentiable": False, "fused": None}


@dataclass(eq=False)
class Record:
    """A parameter that has state, and its memory as its engine knows it."""

    core: CoreEngine
    id: int  # the core's ParamId
    name: str
    memory: tuple  # of memory_of(): not to change
    # bf16 only: the param's _version when its master was last known to be right. None: the master
    # is to become what the param is.
    seen_version: int | None = None


# ---- The optimizer -------------------------------------------------------------------------------


class OffloadedOptimizer(torch.optim.Optimizer):
    """What AdamW and Adam share.

    The memory of a parameter is fixed when it gets its state: at construction, in
    add_param_group(), or, if it was frozen then, in the first step() in which it has a gradient.
    Each of these opens one engine. bf16 parameters have a master in fp32; edits of them in place,
    between steps, are found by torch's version counter, which `param.data` bypasses.
    """

    algorithm: str  # the core's name of it
    decoupled_weight_decay: bool

    def __init__(
        self,
        params: Iterable,
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float | None = None,  # None: as torch, 0.01 for AdamW and 0 for Adam
        *,
        offload: Placement | OffloadConfig = "cpu",
        nvme_path: Paths | None = None,  # a folder, or one per drive
        host_bytes: Bytes | None = None,  # a hard budget
        state_dtype: torch.dtype = torch.float32,
        max_grad_norm: float | None = None,  # clip by the global norm, inside step()
        skip_nonfinite: bool = False,  # do nothing in steps in which a gradient is not finite
        **torch_settings: Any,
    ):
        if state_dtype != torch.float32:
            raise Unsupported(f"state_dtype is {state_dtype}: this version has torch.float32 only")
        if max_grad_norm is not None and (not is_number(max_grad_norm) or not max_grad_norm >= 0):
            raise InvalidArgument(f"max_grad_norm is {max_grad_norm!r}; it must be at least 0")
        self._options = core_options(offload, nvme_path, host_bytes)
        self._options["optimizer_name"] = self.algorithm
        self.max_grad_norm = max_grad_norm
        self.skip_nonfinite = skip_nonfinite
        self.grad_norm: float | None = None  # of the last step, before clipping; None: not measured
        self._records: dict[Tensor, Record] = {}
        self._cores: list[CoreEngine] = []
        self._metrics = metrics.track(self._cores)
        self._in_use: object = None  # keeps alive what an engine may be at work on
        self._is_open = False

        if weight_decay is None:
            weight_decay = 0.01 if self.decoupled_weight_decay else 0.0
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        defaults |= self._fixed_settings()
        unknown = torch_settings.keys() - defaults.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__}() has no argument {min(unknown)!r}")
        super().__init__(params, defaults | torch_settings)
        for number in range(len(self.param_groups)):
            self._check_new_group(number)
        self._open(entry for entry in self._entries() if entry.param.requires_grad)
        self._close = weakref.finalize(self, close_cores, self._cores, os.getpid())  # also at exit
        self._is_open = True

    def add_param_group(self, param_group: dict) -> None:
        super().add_param_group(param_group)
        if not self._is_open:  # one of the constructor's
            return
        number = len(self.param_groups) - 1
        try:
            self._check_open("add_param_group()")
            self._check_new_group(number)
            new = (e for e in self._entries() if e.group == number and e.param.requires_grad)
            self._open(new)
        except BaseException:
            self.param_groups.pop()
            raise

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient, and returns when they are updated."""
        self._check_open("step()")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for number, group in enumerate(self.param_groups):
            self._check_settings(number, group)
        entries = [entry for entry in self._entries() if entry.param.grad is not None]
        gradients = {entry.param: gradient_of(entry) for entry in entries}
        self._open(entries)
        for param in gradients:
            self._check_memory(param)
        for param in gradients:
            self._refresh_master(param)
        self._update(gradients)
        return loss

    def plan(self) -> Plan:
        """For people: print(opt.plan())."""
        plans = [core.plan() for core in self._cores]
        on_nvme = sum(plan["home_bytes"]["nvme"] for plan in plans)
        on_cpu = sum(plan["home_bytes"]["host"] for plan in plans)
        return Plan(
            state_bytes={"cpu": on_cpu, "nvme": on_nvme},
            host_bytes=sum(plan["host_bytes"] for plan in plans),
            read_bytes_per_step=on_nvme,
            written_bytes_per_step=on_nvme,
        )

    def report(self) -> str:
        """For people, after a run: where the time went, and what bounded it."""
        return report(self._metrics)

    def close(self) -> None:
        """Ends the engines and removes their files; may be repeated. The state is gone, the
        parameters are the user's."""
        self._close()

    def __enter__(self):
        return self

    def __exit__(self, *exception) -> None:
        self.close()

    # ---- Groups and their parameters

    def _fixed_settings(self) -> dict:
        decoupled = {"decoupled_weight_decay": self.decoupled_weight_decay}
        return ARITHMETIC_SETTINGS | SCHEME_SETTINGS | decoupled

    def _check_settings(self, number: int, group: Mapping) -> None:
        for setting, value in self._fixed_settings().items():
            if group.get(setting, value) != value:
                raise Unsupported(
                    f"{setting}={group[setting]!r} in parameter group {number}: "
                    f"{type(self).__name__} has no such setting"
                )

    def _check_new_group(self, number: int) -> None:
        """What torch checks of a group at construction only: a scheduler may set anything."""
        group = self.param_groups[number]
        self._check_settings(number, group)
        for setting in ("lr", "eps", "weight_decay"):
            if not float(group[setting]) >= 0:
                raise InvalidArgument(
                    f"{setting}={group[setting]!r} in parameter group {number}; it must be >= 0"
                )
        betas = group["betas"]
        if len(betas) != 2 or not all(0 <= float(beta) < 1 for beta in betas):
            raise InvalidArgument(
                f"betas={betas!r} in parameter group {number}; they must be two in [0, 1)"
            )

    def _entries(self) -> Iterator[Entry]:
        """All parameters, each once."""
        seen = set()
        for number, group in enumerate(self.param_groups):
            names = group.get("param_names")
            for i, param in enumerate(group["params"]):
                if param in seen:
                    continue
                seen.add(param)
                name = names[i] if names else f"{i} of group {number}"
                yield Entry(number, f"{name} (shape {tuple(param.shape)})", param)

    def _open(self, entries: Iterable[Entry]) -> None:
        """Opens an engine for those that have no state yet."""
        entries = [entry for entry in entries if entry.param not in self._records]
        if not entries:
            return
        for entry in entries:
            check_parameter(entry)
        owned = ((record.name, param) for param, record in self._records.items())
        check_overlap([*owned, *((entry.name, entry.param) for entry in entries)])
        options = dict(self._options)
        if options["host_bytes"] > 0:  # what the engines before left
            options["host_bytes"] -= sum(core.plan()["host_bytes"] for core in self._cores)
            if options["host_bytes"] <= 0:
                raise OutOfMemory("host_bytes: nothing is left for more parameters: raise it")
        buckets = cut_buckets(entries)
        specs = [bucket_spec(f"bucket {i}", bucket) for i, bucket in enumerate(buckets)]
        core = CoreEngine(specs, options)
        self._cores.append(core)
        placed = (entry for bucket in buckets for entry in bucket)
        for id, entry in enumerate(placed):
            self._records[entry.param] = Record(core, id, entry.name, memory_of(entry.param))

    def _check_memory(self, param: Tensor) -> None:
        record = self._records[param]
        if memory_of(param) != record.memory:
            raise InvalidArgument(
                f"parameter {record.name} is in other memory than when it was given to the "
                "optimizer (param.data was assigned, or the model was moved): make a new optimizer"
            )

    def _check_open(self, what: str) -> None:
        if not self._close.alive:
            raise InvalidArgument(f"{what}: the optimizer is closed")

    # ---- The update

    def _update(self, gradients: dict[Tensor, Tensor]) -> None:
        work: dict[CoreEngine, list[tuple[int, int]]] = {core: [] for core in self._cores}
        for param, grad in gradients.items():
            record = self._records[param]
            work[record.core].append((record.id, grad.data_ptr()))
        busy = [core for core in self._cores if work[core]]

        max_grad_norm = self.max_grad_norm or 0.0
        measured = max_grad_norm > 0 or self.skip_nonfinite
        skip_nonfinite, scale = self.skip_nonfinite, 1.0
        self.grad_norm = None
        if measured and len(busy) != 1:  # an engine knows the norm of its own gradients only
            self.grad_norm = norm = global_norm(gradients.values())
            if skip_nonfinite and not math.isfinite(norm):
                return
            scale = min(1.0, max_grad_norm / (norm + 1e-6)) if max_grad_norm > 0 else 1.0
            max_grad_norm, measured, skip_nonfinite = 0.0, False, False

        hypers = hypers_of(self.param_groups)
        if self._in_use is not None:  # the last step was cut short
            for core in self._cores:
                core.forget_gradients()
        self._in_use = [gradients, *(param.detach() for param in gradients)]
        skipped = False
        try:
            for core in busy:
                core.present(work[core], measured)
                report = core.step(hypers, max_grad_norm, skip_nonfinite, scale)
                skipped = report["skipped"]
                if measured:
                    self.grad_norm = report["grad_norm"]
        finally:  # Ctrl-C too: the updates run on in the user's memory until then
            for core in busy:
                core.settle()
        self._in_use = None
        for param in () if skipped else gradients:
            torch.autograd.graph.increment_version(param)
            self._records[param].seen_version = param._version
        if busy:
            self._metrics.stepped()

    def _refresh_master(self, param: Tensor) -> None:
        """An edited element's master becomes what the param is; the others keep theirs."""
        record = self._records[param]
        if param.dtype == torch.float32 or record.seen_version == param._version:
            return
        if record.seen_version is None:
            record.core.write_state(record.id, "param", param.data_ptr())
        else:
            master = self._read(param, "master")
            same = master.bfloat16().view(torch.int16) == param.view(torch.int16)
            self._write(param, "master", torch.where(same, master, param.float()))
        record.seen_version = param._version

    # ---- State

    @torch.no_grad()
    def state_dict(self) -> dict:
        """torch's layout, in memory; bf16 parameters have a "master" besides, which torch keeps
        and ignores."""
        self._check_open("state_dict()")
        entries = [e for e in self._entries() if e.param in self._records]
        entries = [e for e in entries if self._update_count(e.param) > 0]
        needed = sum(e.param.numel() * 4 * len(self._roles(e.param)) for e in entries)
        budget = self._options["host_bytes"]
        if 0 < budget < needed:
            raise OutOfMemory(
                f"state_dict(): {needed} bytes of state do not fit in host_bytes={budget}: raise "
                "it; zoffload.checkpoint, which needs no memory, is not available in this version"
            )
        try:
            for entry in entries:
                state = {"step": torch.tensor(float(self._update_count(entry.param)))}
                for role in self._roles(entry.param):
                    state[role] = self._read(entry.param, role)
                self.state[entry.param] = state
            return super().state_dict()
        finally:
            self.state.clear()

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict) -> None:
        """Takes the state of any placement, or of torch's optimizer of the same name."""
        self._check_open("load_state_dict()")
        loaded: list[tuple[Entry, Mapping | None]] = []

        # torch would cast our state to the parameters' dtype, so it gets none to cast. Our hooks
        # run innermost: after the user's that change the state, before those that look at it.
        def take(_, given: dict) -> dict:
            loaded.extend(self._match(given))
            fixed = self._fixed_settings()
            groups = [{**fixed, **group, **SCHEME_SETTINGS} for group in given["param_groups"]]
            return {**given, "state": {}, "param_groups": groups}

        def put(_) -> None:
            self._open(entry for entry, state in loaded if state is not None)
            for entry, state in loaded:
                self._load(entry.param, state)

        hooks = [
            self.register_load_state_dict_pre_hook(take),
            self.register_load_state_dict_post_hook(put, prepend=True),
        ]
        try:
            super().load_state_dict(state_dict)
        finally:
            for hook in hooks:
                hook.remove()

    def _match(self, given: dict) -> list[tuple[Entry, Mapping | None]]:
        """Each parameter with its share of a state_dict, all checked. That the groups are as many
        and as long as ours, torch checks next."""
        for number, group in enumerate(given["param_groups"]):
            self._check_settings(number, {**group, **SCHEME_SETTINGS})
        keys = [key for group in given["param_groups"] for key in group["params"]]
        params = [param for group in self.param_groups for param in group["params"]]
        states = {p: given["state"].get(key) for p, key in zip(params, keys, strict=False)}
        matched = [(entry, states.get(entry.param)) for entry in self._entries()]
        for entry, state in matched:
            if state is not None:
                check_state(entry, state)
            if entry.param in self._records:
                self._check_memory(entry.param)
        return matched

    def _load(self, param: Tensor, state: Mapping | None) -> None:
        if param not in self._records:
            return
        record = self._records[param]
        for role in MOMENTS:
            self._write(param, role, torch.zeros(()) if state is None else state[role])
        record.core.set_update_count(record.id, 0 if state is None else int(state["step"]))
        record.seen_version = None
        if state is not None and "master" in state and param.dtype != torch.float32:
            self._write(param, "master", state["master"])
            record.seen_version = -1  # the weights may be loaded after us: step() will compare

    def _roles(self, param: Tensor) -> tuple[str, ...]:
        has_master = param.dtype != torch.float32 and self._records[param].seen_version is not None
        return (*MOMENTS, "master") if has_master else MOMENTS

    def _update_count(self, param: Tensor) -> int:
        record = self._records[param]
        return record.core.update_count(record.id)

    def _read(self, param: Tensor, role: str) -> Tensor:
        value = torch.empty_like(param, dtype=torch.float32)  # the same strides
        record = self._records[param]
        record.core.read_state(record.id, role, value.data_ptr())
        return value

    def _write(self, param: Tensor, role: str, value: Tensor) -> None:
        value = torch.empty_like(param, dtype=torch.float32).copy_(value)
        record = self._records[param]
        record.core.write_state(record.id, role, value.data_ptr())

    def __getstate__(self) -> dict:
        raise Unsupported(f"{type(self).__name__} cannot be copied or pickled: use state_dict()")


class AdamW(OffloadedOptimizer):
    """torch.optim.AdamW with its state on `offload`: "cpu", "nvme", their shares, or an
    OffloadConfig."""

    algorithm = "adamw"
    decoupled_weight_decay = True


class Adam(OffloadedOptimizer):
    """torch.optim.Adam with its state on `offload`: weight decay is added to the gradient."""

    algorithm = "adam"
    decoupled_weight_decay = False
