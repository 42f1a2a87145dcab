"""Gradients on their way out: copied into a slot as autograd produces them, reduced when a bucket
has all of its own, or earlier when slots run out. A parameter's grad is None again at once.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ._core import Engine as CoreEngine
from .buckets import Bucket, Record
from .errors import InvalidArgument, OutOfMemory, Unsupported


@dataclass(eq=False)
class Filling:
    """A slot that holds the gradients of some parameters of a bucket."""

    slot: int
    view: Tensor  # of the slot, in the bucket's layout
    filled: set[int] = field(default_factory=set)  # ParamIds


def _take_weakly(
    gradients: weakref.ref[Gradients], bucket_id: int, index: int, param: nn.Parameter
) -> None:
    """A hook of `param` must not refer to it: the collector does not see through torch's hooks, and
    a forgotten engine would never be closed."""
    alive = gradients()
    if alive is not None:
        bucket = alive.buckets[bucket_id]
        alive.take(bucket, bucket.records[index])


class Gradients:
    """The slots being filled. Its hooks run inside backward."""

    def __init__(self, core: CoreEngine, buckets: list[Bucket]):
        self.core = core
        self.buckets = buckets
        self.on_arrival: Callable[[], object] = lambda: None
        self.on_complete: Callable[[Bucket], object] = lambda bucket: None
        self._filling: dict[Bucket, Filling] = {}  # oldest first
        self._arrived: dict[Bucket, set[int]] = {}  # ParamIds, in this backward
        self._expected: dict[Bucket, int] = {}
        self._hooked: set[int] = set()  # ParamIds
        self._handles: list[Any] = []

    # ---- Hooks

    def hook(self, bucket: Bucket) -> bool:
        """Hooks the parameters that require a gradient and are not hooked yet; true if all are."""
        for index, record in enumerate(bucket.records):
            if record.id not in self._hooked and record.param.requires_grad:
                hook = partial(_take_weakly, weakref.ref(self), bucket.id, index)
                self._handles.append(record.param.register_post_accumulate_grad_hook(hook))
                self._hooked.add(record.id)
        return all(record.id in self._hooked for record in bucket.records)

    def unhook(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def complete(self, bucket: Bucket) -> bool:
        """Every gradient that this backward can bring to the bucket has arrived."""
        expected = self._expected.get(bucket)
        return expected is not None and len(self._arrived[bucket]) >= expected

    def take(self, bucket: Bucket, record: Record) -> None:
        """Moves the parameter's gradient into a slot."""
        param = record.param
        grad, param.grad = param.grad, None
        record.check_memory()
        if grad.layout != torch.strided:
            raise Unsupported(f"the gradient of {record.name} is {grad.layout}: use sparse=False")
        if record.is_hidden and not grad.isfinite().all():
            raise InvalidArgument(
                f"the gradient of {record.name} is not finite: the parameter was read while it was "
                "released; use it inside its module's call, or inside GatheredParameters"
            )
        self.on_arrival()
        if bucket not in self._expected:
            self._expected[bucket] = sum(r.param.requires_grad for r in bucket.records)
            self._arrived[bucket] = set()
        filling = self._filling.get(bucket)
        if filling is not None and record.id in filling.filled:
            self._reduce(bucket)
            filling = None
        if filling is None:
            filling = self._start(bucket)
        place = filling.view[record.begin : record.begin + record.numel].view(record.shape)
        place.copy_(grad.detach())
        filling.filled.add(record.id)
        self._arrived[bucket].add(record.id)
        if self.complete(bucket):
            self._reduce(bucket)
            self.on_complete(bucket)

    # ---- Slots

    def _start(self, bucket: Bucket) -> Filling:
        try:
            slot = self.core.acquire_gradients()
        except OutOfMemory:
            if self._filling:
                self._reduce(next(iter(self._filling)))
            else:
                self.core.reclaim_gradients()  # an interrupt left them to nobody
            slot = self.core.acquire_gradients()
        address, size = self.core.gradient_memory(slot, bucket.id)
        memory = (ctypes.c_char * size).from_address(address)
        filling = Filling(slot, torch.frombuffer(memory, dtype=bucket.dtype))
        self._filling[bucket] = filling
        return filling

    def _reduce(self, bucket: Bucket) -> None:
        filling = self._filling.pop(bucket)
        self.core.reduce(bucket.id, filling.slot, sorted(filling.filled))

    def finish_backward(self) -> None:
        """Reduces what arrived: no more will come from this backward."""
        while self._filling:
            self._reduce(next(iter(self._filling)))
        self._arrived.clear()
        self._expected.clear()

    def recover(self) -> None:
        """Keeps what has arrived, and takes back slots that are nobody's. REQUIRES: no backward
        runs."""
        self.finish_backward()
        self.core.reclaim_gradients()

    def forget(self) -> None:
        """As if no gradient had come since the last step. REQUIRES: no backward runs."""
        self._filling.clear()
        self._arrived.clear()
        self._expected.clear()
        self.core.reclaim_gradients()
        self.core.forget_gradients()
