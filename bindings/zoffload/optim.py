"""Level 1: torch.optim.Optimizer classes whose state lives on the tiers. What they share.

    opt = zoffload.AdamW(model.parameters(), lr=3e-4, offload="nvme", nvme_path="/mnt/nvme0")
    for x, y in loader:
        model(x, y).backward()
        opt.step(); sched.step(); opt.zero_grad()

Parameters and gradients stay in the user's tensors. The engine reads and writes them where they
lie, inside step() only: when it returns, nothing of ours touches them. With `overlap=model` the
updates run on under the next forward; see OffloadedOptimizer.
"""

from __future__ import annotations

import math
import os
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from . import metrics
from ._core import Engine as CoreEngine
from .algorithms import Algorithm
from .core_args import hypers_of
from .errors import InvalidArgument, OutOfMemory, Unsupported
from .overlap import Overlap, close_all
from .placement import (
    Bytes,
    OffloadConfig,
    Paths,
    Placement,
    Plan,
    core_options,
    is_number,
    parse_rules,
)
from .records import Record
from .report import report
from .state_formats import FormatRules, asks_for_split, parse_state_dtype
from .user_tensors import (
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

# ---- The optimizer -------------------------------------------------------------------------------


class OffloadedOptimizer(torch.optim.Optimizer):
    """What the classes of optimizers.py share.

    The memory of a parameter is fixed when it gets its state: at construction, in
    add_param_group(), or, if it was frozen then, in the first step() in which it has a gradient.
    Each of these opens one engine. bf16 parameters have a master in fp32; edits of them in place,
    between steps, are found by torch's version counter, which `param.data` bypasses.

    How state is stored is fixed then too: by OffloadConfig.rules, else by the group's
    "state_dtype", else by the argument. See docs/state-formats.md.

    With `overlap`, the modules that own the parameters, step() returns when the gradient norm is
    known, or at once if nothing asks for it; updates run on, and the modules wait for their own
    parameters when they are called. Results have the same bits. zero_grad(), backward, and the
    state_dict() and load_state_dict() of either wait where they must. Whoever reads or writes
    parameters or gradients without calling their modules, as F.linear(x, model.weight) or
    p.grad.zero_() do, calls settle() first. See docs/overlap.md.
    """

    algorithm: Algorithm

    def __init__(
        self,
        params: Iterable,
        settings: Mapping[str, Any],  # the algorithm's, with their values
        *,
        offload: Placement | OffloadConfig = "cpu",
        nvme_path: Paths | None = None,  # a folder, or one per drive
        host_bytes: Bytes | None = None,  # a hard budget
        state_dtype: torch.dtype | str = torch.float32,  # of the moments, or a format's name
        max_grad_norm: float | None = None,  # clip by the global norm, inside step()
        skip_nonfinite: bool = False,  # do nothing in steps in which a gradient is not finite
        overlap: nn.Module | Iterable[nn.Module] | None = None,  # updates run under their forward
        **torch_settings: Any,
    ):
        rules = offload.rules if isinstance(offload, OffloadConfig) else ()
        default_format = parse_state_dtype("state_dtype", state_dtype)
        self._format_rules = FormatRules(default_format, parse_rules("rules", rules))
        self._formats: dict[Tensor, str] = {}
        self._group_dtypes: list[Any] = []  # their state_dtype, as it was given
        if max_grad_norm is not None and (not is_number(max_grad_norm) or not max_grad_norm >= 0):
            raise InvalidArgument(f"max_grad_norm is {max_grad_norm!r}; it must be at least 0")
        self._options = core_options(offload, nvme_path, host_bytes)
        self.max_grad_norm = max_grad_norm
        self.skip_nonfinite = skip_nonfinite
        self.grad_norm: float | None = None  # of the last step, before clipping; None: not measured
        self._records: dict[Tensor, Record] = {}
        self._cores: list[CoreEngine] = []
        self._metrics = metrics.track(self._cores)
        self._in_use: object = None  # keeps alive what an engine may be at work on
        self._overlap = None if overlap is None else Overlap(overlap)
        self._is_open = False

        defaults = {**settings, **self.algorithm.fixed, **self.algorithm.schemes}
        unknown = torch_settings.keys() - defaults.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__}() has no argument {min(unknown)!r}")
        super().__init__(params, defaults | torch_settings)
        for number in range(len(self.param_groups)):
            self._check_new_group(number)
        self._format_rules.warn_of_unused(stacklevel=3)
        if asks_for_split(self._formats.values()) and not any(
            asks_for_split([format]) and param.dtype == torch.bfloat16
            for param, format in self._formats.items()
        ):
            warnings.warn("state_dtype: no parameter is bf16, so that none is split", stacklevel=3)
        self._open(entry for entry in self._entries() if entry.param.requires_grad)
        self._close = weakref.finalize(  # also at exit
            self, close_all, self._cores, os.getpid(), self._overlap
        )
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
            del self._group_dtypes[number:]
            raise

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Updates every parameter that has a gradient, and returns when they are updated, or with
        `overlap`, when it is known how."""
        self._check_open("step()")
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.settle()
        for number, group in enumerate(self.param_groups):
            self.algorithm.check_settings(number, group)
            if group.get("state_dtype") != self._group_dtypes[number]:
                raise InvalidArgument(
                    f"state_dtype of parameter group {number} was changed: it is fixed; load the "
                    "state_dict() into a new optimizer"
                )
        entries = [entry for entry in self._entries() if entry.param.grad is not None]
        gradients = {entry.param: gradient_of(entry) for entry in entries}
        self._open(entries)
        for param in gradients:
            self._check_memory(param)
        self._check_moments(entries)
        for param in gradients:
            self._records[param].refresh_master(param)
        self._update(gradients)
        return loss

    def settle(self) -> None:
        """Waits until all updates that step() started are in the parameters. Without `overlap` they
        are when it returns."""
        if self._overlap is not None:
            self._overlap.settle()

    def zero_grad(self, set_to_none: bool = True) -> None:
        if not set_to_none:
            self.settle()
        super().zero_grad(set_to_none)

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
            staging_bytes=sum(plan["slot_bytes"] for plan in plans),
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

    def _check_new_group(self, number: int) -> None:
        self.algorithm.check_new_group(number, self.param_groups[number])
        self._choose_formats(number)

    def _choose_formats(self, number: int) -> None:
        group = self.param_groups[number]
        given, names = group.get("state_dtype"), group.get("param_names")
        own = None
        if given is not None:
            own = parse_state_dtype(f"state_dtype in parameter group {number}", given)
        if self._format_rules.rules and not names:
            raise InvalidArgument(
                f"rules: the parameters of group {number} have no names: pass named_parameters()"
            )
        for param, name in zip(group["params"], names or [""] * len(group["params"]), strict=True):
            if param not in self._records:
                self._formats[param] = self._format_rules.format_of(name, own)
        self._group_dtypes.append(given)

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
                label = f"{name} (shape {tuple(param.shape)})"
                yield Entry(number, label, param, self._formats[param])

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
        needs_moments = any(
            self.algorithm.needs_moments(self.param_groups[entry.group]) for entry in entries
        )
        options["optimizer_name"] = self.algorithm.core_name(needs_moments)
        moments = self.algorithm.moments if needs_moments else {}
        buckets = cut_buckets(entries)
        specs = [bucket_spec(f"bucket {i}", bucket) for i, bucket in enumerate(buckets)]
        core = CoreEngine(specs, options)
        self._cores.append(core)
        placed = (entry for bucket in buckets for entry in bucket)
        for id, entry in enumerate(placed):
            memory = memory_of(entry.param)
            record = Record(
                core, id, entry.name, memory, entry.format, moments, self.algorithm.always_keeps
            )
            self._records[entry.param] = record
            if self._initial_moment() != 0:
                record.write_moments(entry.param, {}, self._initial_moment())
        if self._overlap is not None:
            self._overlap.watch(self._records)

    def _check_memory(self, param: Tensor) -> None:
        record = self._records[param]
        if memory_of(param) != record.memory:
            raise InvalidArgument(
                f"parameter {record.name} is in other memory than when it was given to the "
                "optimizer (param.data was assigned, or the model was moved): make a new optimizer"
            )

    def _check_moments(self, entries: Iterable[Entry]) -> None:
        """Those whose settings ask for moments have them, and count the updates of them."""
        for entry in () if self.algorithm.always_keeps else entries:
            record = self._records[entry.param]
            needs_moments = self.algorithm.needs_moments(self.param_groups[entry.group])
            if needs_moments and not record.moments:
                raise InvalidArgument(_no_buffer(entry))
            if needs_moments and not record.counts_moments:
                record.core.set_update_count(record.id, 0)
                record.counts_moments = True
            elif not needs_moments and record.counts_moments:
                record.counts_moments = self._update_count(entry.param) > 0

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
        if self._overlap is not None:
            self._overlap.begin(self._records, gradients)
        skipped = False
        try:
            for core in busy:
                core.present(work[core], measured)
                report = core.step(hypers, max_grad_norm, skip_nonfinite, scale)
                skipped = report["skipped"]
                if measured:
                    self.grad_norm = report["grad_norm"]
            if self._overlap is not None:
                self._overlap.end()
        except BaseException:  # Ctrl-C too: the updates run on in the user's memory until then
            for core in busy:
                core.settle()
            raise
        if self._overlap is None:
            for core in busy:
                core.settle()
        self._in_use = None
        for param in () if skipped else gradients:
            torch.autograd.graph.increment_version(param)
            self._records[param].seen_version = param._version
        if busy:
            self._metrics.stepped()

    # ---- State

    @torch.no_grad()
    def state_dict(self) -> dict:
        """torch's layout, in memory and in fp32 however it is stored. Besides, bf16 parameters have
        a "master" and all a "step", which torch keeps and ignores."""
        self._check_open("state_dict()")
        self.settle()
        entries = [e for e in self._entries() if e.param in self._records]
        entries = [e for e in entries if self._update_count(e.param) > 0]
        needed = sum(e.param.numel() * 4 * len(self._records[e.param].kept()) for e in entries)
        budget = self._options["host_bytes"]
        if 0 < budget < needed:
            raise OutOfMemory(
                f"state_dict(): {needed} bytes of state do not fit in host_bytes={budget}: raise "
                "it; zoffload.checkpoint, which needs no memory, is not available in this version"
            )
        try:
            for entry in entries:
                record = self._records[entry.param]
                if record.reads_param:
                    self._check_memory(entry.param)
                    record.refresh_master(entry.param)
                state = {"step": torch.tensor(float(self._update_count(entry.param)))}
                for role, key in record.kept().items():
                    state[key] = record.read(entry.param, role)
                self.state[entry.param] = state
            result = super().state_dict()
            for group in result["param_groups"]:
                group.pop("state_dtype", None)  # ours, not the state's
            return result
        finally:
            self.state.clear()

    @torch.no_grad()
    def load_state_dict(self, state_dict: dict) -> None:
        """Takes the state of any placement and format, or of torch's optimizer of the same name."""
        self._check_open("load_state_dict()")
        self.settle()
        loaded: list[tuple[Entry, Mapping | None]] = []

        # torch would cast our state to the parameters' dtype, so it gets none to cast. Our hooks
        # run innermost: after the user's that change the state, before those that look at it.
        def take(_, given: dict) -> dict:
            loaded.extend(self._match(given))
            fixed, schemes = self.algorithm.fixed, self.algorithm.schemes
            groups = [{**fixed, **group, **schemes} for group in given["param_groups"]]
            for group, state_dtype in zip(groups, self._group_dtypes, strict=False):
                group.pop("state_dtype", None)
                if state_dtype is not None:
                    group["state_dtype"] = state_dtype
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
        groups = given["param_groups"]
        for number, group in enumerate(groups):
            self.algorithm.check_settings(number, {**group, **self.algorithm.schemes})
        keys = [key for group in groups for key in group["params"]]
        params = [param for group in self.param_groups for param in group["params"]]
        states = {p: given["state"].get(key) for p, key in zip(params, keys, strict=False)}
        matched = [(entry, states.get(entry.param)) for entry in self._entries()]
        for entry, state in matched:
            if state is not None:
                check_state(entry, state, self.algorithm)
            if entry.param in self._records:
                self._check_memory(entry.param)
                needs_moments = self.algorithm.has_moments(state) or any(
                    self.algorithm.needs_moments(group)
                    for number, group in enumerate(groups)
                    if number == entry.group
                )
                if needs_moments and not self._records[entry.param].moments:
                    raise InvalidArgument(f"load_state_dict(): {_no_buffer(entry)}")
        return matched

    def _load(self, param: Tensor, state: Mapping | None) -> None:
        if param not in self._records:
            return
        record = self._records[param]
        has_moments = self.algorithm.has_moments(state)
        record.write_moments(param, state if has_moments else {}, self._initial_moment())
        record.counts_moments = has_moments or self.algorithm.always_keeps
        count = 0 if state is None else int(state.get("step", has_moments))
        record.core.set_update_count(record.id, count)
        record.load_master(param, state)

    def _initial_moment(self) -> float:
        return float(self.defaults.get("initial_accumulator_value", 0.0))

    def _update_count(self, param: Tensor) -> int:
        record = self._records[param]
        return record.core.update_count(record.id)

    def __getstate__(self) -> dict:
        raise Unsupported(f"{type(self).__name__} cannot be copied or pickled: use state_dict()")


def _no_buffer(entry: Entry) -> str:
    return (
        f"parameter {entry.name} has no momentum buffer, as its group had momentum=0 when the "
        "optimizer was made: make it with the momentum"
    )
