"""Which buckets torch's memory shows now: the one place that allocates and frees their storage,
and lets parameters show it.

Leases are counted here, so that a nested one costs an addition. Edits of gathered weights are
found by torch's version counters and become the truth when the lease ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import weakref
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import torch

from ._core import Engine as CoreEngine
from .buckets import Bucket, Cut, Record
from .core_args import close_cores
from .errors import InvalidArgument

HOUSEKEEPING = 0  # signature of a pass that is neither training nor evaluation


def give_back_freed_memory() -> None:
    """To the system: glibc keeps blocks that were freed between others still in use."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class Memory:
    """Gives buckets their storage, and keeps a few that were freed for the next bucket of that
    size: faulting in fresh pages several times a step would take longer than filling them.
    """

    CAN_SWAP = hasattr(torch.UntypedStorage, "_swap_data_ptr_")  # else every free is a real one

    def __init__(self, spare_count_max: int):
        self._spare_count_max = spare_count_max
        self._spares: list[torch.UntypedStorage] = []  # oldest first

    def allocate(self, bucket: Bucket) -> int:
        """Returns the address. What the memory holds is undefined."""
        storage = bucket.flat.untyped_storage()
        if storage.size() == 0:
            spare = next((s for s in reversed(self._spares) if s.size() == bucket.bytes), None)
            if spare is not None:
                self._spares.remove(spare)
                storage._swap_data_ptr_(spare)
            else:
                self._make_room(bucket.bytes)
                storage.resize_(bucket.bytes)
        return bucket.flat.data_ptr()

    def free(self, bucket: Bucket) -> None:
        storage = bucket.flat.untyped_storage()
        if storage.size() == 0:
            return
        if self.CAN_SWAP and len(self._spares) < self._spare_count_max:
            spare = torch.UntypedStorage(0)
            spare._swap_data_ptr_(storage)
            self._spares.append(spare)
        else:
            storage.resize_(0)

    @property
    def spare_bytes(self) -> int:
        return sum(spare.size() for spare in self._spares)

    def _make_room(self, needed: int) -> None:
        """Spares go first, so that with them memory never exceeds the most ever gathered."""
        while self._spares and needed > 0:
            needed -= self._spares.pop(0).size()


class Residency:
    """Gathers and releases buckets. Used by the user's thread only."""

    def __init__(self, core: CoreEngine, cut: Cut, moments: Mapping[str, str]):
        self.core = core
        self.moments = moments  # that the core keeps: its role -> the key in torch's state
        self.buckets = cut.buckets
        self.memory = Memory(spare_count_max=core.plan()["prefetch"] + 2)
        self.close = weakref.finalize(self, close_cores, [core], os.getpid())  # also at exit
        self._signature: int | None = None
        self.edits: list[Edit] = []  # that have begun

    # ---- Passes

    def begin_pass(self, signature: int) -> None:
        self._signature = signature
        self.core.begin_pass(signature)

    def begin_housekeeping(self) -> None:
        """What is gathered from now on belongs to no forward: no schedule is to expect it."""
        if self._signature != HOUSEKEEPING:
            self.begin_pass(HOUSEKEEPING)

    # ---- Leases

    def gather(self, bucket: Bucket) -> None:
        if bucket.lease_count == 0:
            bucket.check_untouched()
            self._lease(bucket)
        bucket.lease_count += 1

    def release(self, bucket: Bucket) -> None:
        bucket.lease_count -= 1
        if bucket.lease_count == 0:
            bucket.hide()
            if self.core.release(bucket.id):
                self.memory.free(bucket)

    def _lease(self, bucket: Bucket) -> None:
        drops, offers = self.core.prepare(bucket.id)
        for other in drops:
            self.memory.free(self.buckets[other])
        for other in offers:
            self.core.offer(other, self.memory.allocate(self.buckets[other]))
        self.core.lease(bucket.id)
        bucket.show()

    def release_strays(self) -> None:
        """Ends the leases that an interrupt, between two lines, left to nobody; the core's end with
        the step. REQUIRES: no forward or backward runs."""
        held = Counter(bucket for edit in self.edits for bucket in edit.gathered)
        for bucket in self.buckets:
            bucket.forward_count = 0
            bucket.lease_count = held[bucket]
            if bucket.shown and bucket.lease_count == 0:
                bucket.hide()

    def drop_all(self) -> None:
        """Nothing that is gathered, or being gathered ahead, survives: the weights will change."""
        leased = [bucket for bucket in self.buckets if bucket.lease_count > 0]
        for bucket in leased:
            if bucket.trainable:
                raise InvalidArgument(
                    f"step() changes {bucket.name}, which is still gathered: leave "
                    "GatheredParameters first"
                )
        for bucket in leased:
            bucket.hide()
        for dropped in self.core.release_all():
            self.memory.free(self.buckets[dropped])
        for bucket in leased:
            self._lease(bucket)

    def write_back(self, bucket: Bucket, edited: Iterable[Record]) -> None:
        """Makes what the user wrote into these parameters of a gathered bucket the truth.

        A 16-bit weight is all that a master can be restored from, so only the masters of edited
        weights are, unless all were edited.
        """
        edited = [record for record in edited if record.numel > 0]
        whole = len(edited) == sum(record.numel > 0 for record in bucket.records)
        if not edited:
            return
        if whole or not bucket.trainable or bucket.dtype == torch.float32:
            self.core.write_back(bucket.id)
            return
        for record in edited:
            self.core.write_state(record.id, "param", record.view.data_ptr())

    # ---- State

    def read_state(self, bucket: Bucket, record: Record, role: str) -> torch.Tensor:
        dtype = bucket.dtype if role == "param" else torch.float32
        value = torch.empty(record.shape, dtype=dtype)
        if record.numel > 0:
            self.core.read_state(record.id, role, value.data_ptr())
        return value

    def write_state(self, bucket: Bucket, record: Record, role: str, value: torch.Tensor) -> None:
        """`value` is broadcast to the parameter's shape. Gathered copies follow."""
        dtype = bucket.dtype if role == "param" else torch.float32
        whole = torch.empty(record.shape, dtype=dtype)
        whole.copy_(value.detach())
        if record.numel == 0:
            return
        self.core.write_state(record.id, role, whole.data_ptr())
        if role in ("param", "master") and bucket.allocated:
            record.view.copy_(whole)

    # ---- Edits

    @contextlib.contextmanager
    def editing(
        self, homes: list[tuple[Bucket, Record]], always_look: bool = False
    ) -> Iterator[None]:
        """These parameters are gathered inside, and edits of them take effect.

        With `always_look`, also edits that torch does not count, such as those of `param.data`.
        """
        edit = Edit(self, homes, always_look)
        edit.begin()
        try:
            yield
        finally:
            edit.end()


class Edit:
    """The two halves of Residency.editing(), for callers whose begin and end are two hooks."""

    def __init__(
        self, residency: Residency, homes: list[tuple[Bucket, Record]], always_look: bool = False
    ):
        self._residency = residency
        self._always_look = always_look
        self._records: dict[Bucket, list[tuple[Record, int]]] = {}
        for bucket, record in homes:
            self._records.setdefault(bucket, []).append((record, record.param._version))
        self.gathered: list[Bucket] = []

    @property
    def buckets(self) -> Iterable[Bucket]:
        return self._records

    def begin(self) -> None:
        self._residency.begin_housekeeping()
        self._residency.edits.append(self)
        try:
            for bucket in self._records:
                self._residency.gather(bucket)
                self.gathered.append(bucket)
        except BaseException:
            self.release()
            raise

    def end(self) -> None:
        try:
            for bucket, records in self._records.items():
                edited = [r for r, version in records if self._was_edited(bucket, r, version)]
                self._residency.write_back(bucket, edited)
        finally:
            self.release()

    def _was_edited(self, bucket: Bucket, record: Record, version: int) -> bool:
        record.check_memory()
        if record.param._version != version:
            return True
        if not self._always_look:
            return False
        home = self._residency.read_state(bucket, record, "param")
        return not same_bits(home, record.param.detach())

    def release(self) -> None:
        """Ends it without a look at what was edited."""
        if self in self._residency.edits:
            self._residency.edits.remove(self)
        while self.gathered:
            self._residency.release(self.gathered.pop())


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    """As torch.equal, but a NaN equals itself."""
    bits = {2: torch.int16, 4: torch.int32}[a.itemsize]
    return torch.equal(a.view(bits), b.view(bits))
