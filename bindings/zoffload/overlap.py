"""Updates of level 1 that run on when step() has returned, under the next forward.

From step() until somebody has waited for it, an updated parameter is pending: its memory, its
gradient's and its state's belong to the engine. Hooks of the modules that own the parameters do the
waiting, so that each is waited for where the forward first needs it.

A pass is one call of a given module. A parameter may be pending in it until its owner is called if
the owner was called in an earlier pass of the same kind; all others are waited for where the pass
begins, since the module that uses them does not call their owner (as nn.MultiheadAttention with its
out_proj). A module that is called outside of any pass waits for everything.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ._core import Engine as CoreEngine
from .core_args import close_cores
from .errors import InvalidArgument
from .records import Record


class Update(NamedTuple):
    """Of one parameter."""

    core: CoreEngine
    id: int
    subgroups: frozenset[int]
    memory: tuple[Tensor, Tensor]  # the parameter's and the gradient's, kept alive


class Pass(NamedTuple):
    kind: tuple[nn.Module, bool, bool]  # the module, whether it trains, whether torch records
    needed: dict[Tensor, None]  # the parameters whose owners were called, in this order


class Hook:
    """One of ours at a module. In a copy of the module, which has none of our parameters, it does
    nothing; what is copied after it is settled."""

    def __init__(self, verb: Callable, overlap: Overlap | None):
        self._verb, self._overlap = verb, overlap

    def __call__(self, module: Any = None, *_: Any) -> None:
        if torch.compiler.is_compiling():
            run_outside_graph(self, module)
        else:
            self.run(module)

    def run(self, module: Any) -> None:
        self._verb(self._overlap, module)

    def __reduce__(self):
        if self._overlap is not None:
            self._overlap.settle()
        return Hook, (do_nothing, None)


@torch._disable_dynamo
def run_outside_graph(hook: Hook, module: Any) -> None:
    """For torch.compile, which would make a new graph whenever something else is pending."""
    hook.run(module)


def do_nothing(overlap: None, module: Any) -> None:
    pass


class ZeroGrad:
    """A given module's zero_grad(), which may write to gradients that updates still read."""

    def __init__(self, overlap: Overlap, module: nn.Module):
        self._overlap, self._module, self._zero_grad = overlap, module, module.zero_grad

    def __call__(self, set_to_none: bool = True) -> None:
        if not set_to_none:
            self._overlap.settle()
        self._zero_grad(set_to_none)

    def __reduce__(self):  # a copy of the module has the usual one
        return getattr, (self._module, "zero_grad")


class Overlap:
    """Used by one thread at a time, as the optimizer is."""

    def __init__(self, modules: nn.Module | Iterable[nn.Module]):
        self._roots = outermost(modules)
        self._params: dict[nn.Module, dict[Tensor, None]] = {}  # of each root, in module order
        self._hooked: set[nn.Module] = set()
        self._handles: list[Any] = []
        self._pending: dict[Tensor, Update] = {}
        self._unsettled: dict[CoreEngine, set[int]] = {}  # subgroups that nobody has waited for
        self._pass: Pass | None = None
        self._known: dict[tuple, set[Tensor]] = {}  # by kind of pass: needed in any
        self._seen: dict[Tensor, None] = {}  # needed since the last step, in this order
        self._order: dict[Tensor, None] = {}  # needed before the last step
        self._told: dict[CoreEngine, list[int]] = {}  # the order that it was given
        self._subgroups: dict[Tensor, frozenset[int]] = {}
        self._mark = f"_zoffload_overlap_{id(self):x}"

    # ---- What the optimizer does

    def watch(self, records: Mapping[Tensor, Record]) -> None:
        """Hooks the modules, and those of these parameters that they own. May be repeated."""
        for root in self._roots:
            if root not in self._hooked:
                root.__dict__["zero_grad"] = ZeroGrad(self, root)
                hook = Hook(Overlap._end_pass, self)
                self._handles.append(root.register_forward_hook(hook, always_call=True))
            for module in root.modules():
                if module not in self._hooked:
                    self._hooked.add(module)
                    self._watch_module(module)
            self._params[root] = dict.fromkeys(root.parameters())
        for param, record in records.items():
            if param in self._subgroups:
                continue
            self._subgroups[param] = frozenset(record.core.subgroups_of(record.id))
            if param.requires_grad and self._owns(param):
                self._watch_gradient(param)

    def begin(self, records: Mapping[Tensor, Record], gradients: Mapping[Tensor, Tensor]) -> None:
        """The updates of these parameters may run from now on. REQUIRES: all is settled."""
        if self._seen:
            self._order, self._seen = self._seen, {}
        module_order = (param for params in self._params.values() for param in params)
        places = {param: i for i, param in enumerate(self._order or module_order)}
        order: dict[CoreEngine, list[int]] = {}
        for param in sorted(records, key=lambda param: places.get(param, -1)):
            order.setdefault(records[param].core, []).append(records[param].id)
        for core, ids in order.items():
            if self._told.get(core) != ids:
                core.set_update_order(ids)
                self._told[core] = ids
        self._unsettled = {core: set() for core in order}
        for param, grad in gradients.items():
            record, subgroups = records[param], self._subgroups[param]
            memory = param.detach(), grad
            self._pending[param] = Update(record.core, record.id, subgroups, memory)
            self._unsettled[record.core] |= subgroups

    def end(self) -> None:
        """step() returns: waits for what no hook will wait for."""
        self._wait(param for param in list(self._pending) if not self._owns(param))

    def settle(self) -> None:
        """Waits for everything that is pending."""
        for core in {update.core: None for update in self._pending.values()}:
            core.settle()
        self._pending.clear()

    def close(self) -> None:
        """REQUIRES: the engines are closed, or belong to another process."""
        for handle in self._handles:
            handle.remove()
        for root in self._roots:
            if getattr(root.__dict__.get("zero_grad"), "_overlap", None) is self:
                del root.__dict__["zero_grad"]
        for module in self._hooked:
            module.__dict__.pop(self._mark, None)
        self._hooked.clear()
        self._handles.clear()
        self._pending.clear()

    # ---- Hooks

    def _watch_module(self, module: nn.Module) -> None:
        settle = Hook(Overlap._settle_for, self)
        # First in the module, so that whoever copies or pickles it settles before the parameters'
        # turn comes: see Hook.
        contents = dict(module.__dict__)
        module.__dict__.clear()
        module.__dict__[self._mark] = settle
        module.__dict__.update(contents)
        self._handles += [
            module.register_forward_pre_hook(Hook(Overlap._enter, self), prepend=True),
            module.register_state_dict_pre_hook(settle),
            module._register_load_state_dict_pre_hook(settle),
        ]

    def _watch_gradient(self, param: Tensor) -> None:
        weak = weakref.ref(param)

        def before_accumulation(_: Tensor) -> None:
            param = weak()
            if param is not None and param.grad is not None and param in self._pending:
                self._wait([param])  # else backward adds to what the update reads

        self._handles.append(param.register_hook(before_accumulation))

    def _settle_for(self, _: Any) -> None:
        self.settle()

    def _enter(self, module: nn.Module) -> None:
        if module in self._params:
            self._begin_pass(module)
        if self._pass is None:
            self.settle()
            return
        for param in module._parameters.values():
            if param is not None:
                self._pass.needed.setdefault(param)
        if self._pending:
            self._wait(module._parameters.values())

    def _begin_pass(self, root: nn.Module) -> None:
        kind = (root, root.training, torch.is_grad_enabled())
        self._pass = Pass(kind, {})
        if not self._pending:
            return
        known = self._known.get(kind, ())
        self._wait(
            param
            for param in list(self._pending)
            if param not in known and not self._is_elsewhere(param, root)
        )

    def _end_pass(self, root: nn.Module) -> None:
        if self._pass is None or self._pass.kind[0] is not root:
            return  # one inside or around it has ended that
        self._known.setdefault(self._pass.kind, set()).update(self._pass.needed)
        for param in self._pass.needed:
            self._seen.setdefault(param)
        self._pass = None

    def _owns(self, param: Tensor) -> bool:
        return any(param in params for params in self._params.values())

    def _is_elsewhere(self, param: Tensor, root: nn.Module) -> bool:
        return param not in self._params[root] and self._owns(param)

    def _wait(self, params: Iterable[Tensor | None]) -> None:
        """For those of them that are pending."""
        wanted: dict[CoreEngine, list[tuple[Tensor, Update]]] = {}
        for param in params:
            update = self._pending.get(param)
            if update is None:
                continue
            if update.subgroups.isdisjoint(self._unsettled[update.core]):
                del self._pending[param]  # settled with another parameter
            else:
                wanted.setdefault(update.core, []).append((param, update))
        for core, updates in wanted.items():
            core.settle_params([update.id for _, update in updates])
            for param, update in updates:
                self._unsettled[core] -= update.subgroups
                self._pending.pop(param, None)


def outermost(modules: nn.Module | Iterable[nn.Module]) -> list[nn.Module]:
    """Those that are in no other of them."""
    given = [modules] if isinstance(modules, nn.Module) else list(modules)
    for module in given:
        if not isinstance(module, nn.Module):
            raise InvalidArgument(f"overlap: {module!r} is not a torch.nn.Module")
    if not given:
        raise InvalidArgument("overlap is empty; give the modules that own the parameters, or None")
    inner = {child for module in given for child in module.modules() if child is not module}
    return [module for module in dict.fromkeys(given) if module not in inner]


def close_all(cores: list[CoreEngine], pid: int, overlap: Overlap | None) -> None:
    """As close_cores(); what was pending is settled then."""
    close_cores(cores, pid)
    if overlap is not None:
        overlap.close()
