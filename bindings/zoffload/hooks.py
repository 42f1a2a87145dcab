"""Gathers a unit before its forward and its backward, and releases it after each.

A forward is watched from around the module's call, hooks of the user included, so that an
exception or Ctrl-C inside it releases what it held. A backward is watched at the tensors that
enter and leave the unit: autograd runs nodes in the reverse of the order in which they were made,
so when it reaches the node that made an input, the unit's own nodes are done. A unit without such
an input is done when its gradients have arrived. Whatever is left goes when autograd finishes.

A forward that is run again inside backward, by checkpointing, is a forward like any other: it
counts its own lease beside that of the backward around it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import Variable

from .buckets import Bucket, Cut, Unit
from .errors import Unsupported
from .gradients import Gradients
from .residency import Edit, Residency

graph_task_id: Callable[[], int] = torch._C._current_graph_task_id
NO_TASK = -1  # no backward runs on this thread


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in nested sequences, mappings and dataclasses."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple, set)):
        for item in value:
            yield from tensors_in(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for item in vars(value).values():
            yield from tensors_in(item)


def differentiable(value: Any) -> Iterator[Tensor]:
    """Those of them that have a node of the graph behind them."""
    return (tensor for tensor in tensors_in(value) if tensor.grad_fn is not None)


class Call:
    """One forward of a unit, and its backward."""

    def __init__(self, unit: Unit):
        self.unit = unit
        self.forward: list[Bucket] = []  # leased by the forward
        self.backward: list[Bucket] = []  # leased by the backward
        self.has_inputs = False  # that tell when its backward is done


class Edge:
    """A tensor between units: when its gradient is there, its consumers are done with their
    backward and its producers begin theirs. One hook does both, in this order."""

    def __init__(self, version: int):
        self.version = version  # after an in-place change the tensor has another node behind it
        self.producers: list[Call] = []
        self.consumers: list[Call] = []


class Hooks:
    """Watches the units of one model. Used by the thread that runs forward and backward."""

    def __init__(self, cut: Cut, residency: Residency, gradients: Gradients):
        self._residency = residency
        self._gradients = gradients
        self._units = cut.units
        self._tasks: dict[int, list[Call]] = {}  # backwards that run, and what they gathered
        self._open: list[list[Bucket]] = []  # gathered for state_dict, innermost last
        self._edits: list[Edit] = []  # of load_state_dict, innermost last
        self._loading: set[Bucket] = set()
        self._handles: list[Any] = []
        gradients.on_arrival = self._enter_task
        gradients.on_complete = self._end_inputless
        trainable = [bucket for bucket in cut.buckets if bucket.trainable]
        self._unhooked = {bucket for bucket in trainable if not gradients.hook(bucket)}
        self._watch_zero_grad(cut.units[0].module)
        for unit in self._units:
            self._watch_calls(unit)
            self._watch_state_dict(unit)

    def remove(self) -> None:
        for unit in self._units:
            unit.module.__dict__.pop("_call_impl", None)
            unit.module.__dict__.pop("zero_grad", None)
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def recover(self) -> None:
        """Releases what an exception left behind. REQUIRES: no forward or backward runs."""
        self._end_tasks()
        while self._open:
            self._release(self._open.pop())
        while self._edits:
            self._edits.pop().release()
        self._loading.clear()
        self._residency.release_strays()
        self._gradients.recover()

    def forget_gradients(self) -> None:
        """As if none had come since the last step. REQUIRES: no forward or backward runs."""
        self.recover()
        self._gradients.forget()

    def _watch_zero_grad(self, root: nn.Module) -> None:
        zero_grad = root.zero_grad

        def forgetting_zero_grad(set_to_none: bool = True) -> None:
            zero_grad(set_to_none)
            self.forget_gradients()

        root.__dict__["zero_grad"] = forgetting_zero_grad

    def _gather(self, needed, gathered: list[Bucket]) -> None:
        for bucket in needed:
            self._residency.gather(bucket)
            gathered.append(bucket)

    def _release(self, gathered: list[Bucket]) -> None:
        while gathered:
            self._residency.release(gathered.pop())

    # ---- Forward

    def _watch_calls(self, unit: Unit) -> None:
        call_impl = unit.module._call_impl  # the call with all its hooks

        def gathered_call(*args, **kwargs):
            call = self._enter(unit)
            if call is None:
                return call_impl(*args, **kwargs)
            try:
                self._begin_forward(call, args, kwargs)
                output = call_impl(*args, **kwargs)
                if torch.is_grad_enabled():
                    self._watch_outputs(call, output)
                return output
            finally:
                self._end_forward(call)

        unit.module.__dict__["_call_impl"] = gathered_call

    def _enter(self, unit: Unit) -> Call | None:
        """None: a forward around this one has gathered all it needs."""
        if graph_task_id() == NO_TASK:
            self._end_tasks()  # that failed
            if unit.is_root:
                self._residency.begin_pass(1 + unit.module.training + 2 * torch.is_grad_enabled())
        if all(bucket.forward_count for bucket in unit.buckets):
            return None
        return Call(unit)

    def _begin_forward(self, call: Call, args: tuple, kwargs: dict) -> None:
        for bucket in call.unit.buckets:
            self._residency.gather(bucket)
            bucket.forward_count += 1
            call.forward.append(bucket)
            if bucket in self._unhooked and self._gradients.hook(bucket):
                self._unhooked.discard(bucket)
        if not torch.is_grad_enabled():
            return
        for tensor in differentiable((args, kwargs)):
            call.has_inputs = True
            self._edge(tensor).consumers.append(call)

    def _watch_outputs(self, call: Call, output: Any) -> None:
        for tensor in differentiable(output):
            edge = self._edge(tensor)
            if call not in edge.consumers:  # else it was only passed through
                edge.producers.append(call)

    def _end_forward(self, call: Call) -> None:
        for bucket in call.forward:
            bucket.forward_count -= 1
        self._release(call.forward)

    def _edge(self, tensor: Tensor) -> Edge:
        edge = getattr(tensor, "zoffload_edge", None)
        if edge is None or edge.version != tensor._version:
            edge = Edge(tensor._version)
            tensor.zoffload_edge = edge
            tensor.register_hook(partial(self._cross, edge))
        return edge

    # ---- Backward

    def _cross(self, edge: Edge, grad: Tensor) -> None:
        for call in edge.consumers:
            self._release(call.backward)
        for call in edge.producers:
            self._begin_backward(call)

    def _begin_backward(self, call: Call) -> None:
        if call.backward:
            return
        self._enter_task().append(call)
        self._gather(call.unit.buckets, call.backward)

    def _enter_task(self) -> list[Call]:
        task = graph_task_id()
        if task not in self._tasks:
            if torch.is_grad_enabled():
                raise Unsupported("create_graph=True: weights are released after their backward")
            if not self._tasks:
                self._gradients.finish_backward()  # of one that was interrupted
            self._tasks[task] = []
            Variable._execution_engine.queue_callback(partial(self._end_task, task))
        return self._tasks[task]

    def _end_inputless(self, bucket: Bucket) -> None:
        for calls in self._tasks.values():
            for call in calls:
                if call.has_inputs or bucket not in call.backward:
                    continue
                trained = [b for b in call.backward if b.trainable]
                if all(self._gradients.complete(b) for b in trained):
                    self._release(call.backward)

    def _end_task(self, task: int) -> None:
        for call in self._tasks.pop(task, []):
            self._release(call.backward)
        if not self._tasks:
            self._gradients.finish_backward()

    def _end_tasks(self) -> None:
        for task in list(self._tasks):
            self._end_task(task)

    # ---- state_dict and load_state_dict: unit by unit, so that the model is never gathered whole

    def _watch_state_dict(self, unit: Unit) -> None:
        module = unit.module
        self._handles += [
            module.register_state_dict_pre_hook(partial(self._begin_save, unit)),
            module._register_state_dict_hook(self._end_save),
            module._register_load_state_dict_pre_hook(partial(self._begin_load, unit)),
            module.register_load_state_dict_post_hook(self._end_load),
        ]

    def _begin_save(self, unit: Unit, module: nn.Module, prefix: str, keep_vars: bool) -> None:
        self._residency.begin_housekeeping()
        self._open.append([])
        self._gather(unit.buckets, self._open[-1])

    def _end_save(self, module: nn.Module, state: dict, prefix: str, metadata: dict) -> None:
        for name, param in module._parameters.items():
            saved = state.get(prefix + name)
            if saved is not None and saved is not param:
                state[prefix + name] = saved.clone()
        self._release(self._open.pop())

    def _begin_load(self, unit: Unit, state: dict, prefix: str, metadata: dict, *_: Any) -> None:
        if metadata.get("assign_to_params_buffers", False):
            raise Unsupported("load_state_dict(assign=True): the engine owns the parameters")
        mine = [bucket for bucket in unit.buckets if bucket not in self._loading]
        homes = [(bucket, record) for bucket in mine for record in bucket.records]
        edit = Edit(self._residency, homes)
        edit.begin()
        self._loading.update(mine)
        self._edits.append(edit)

    def _end_load(self, module: nn.Module, incompatible_keys: Any) -> None:
        edit = self._edits.pop()
        self._loading.difference_update(edit.buckets)
        edit.end()
