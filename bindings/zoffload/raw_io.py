"""Asynchronous reads and writes between memory and files; see zoffload.aio."""

from __future__ import annotations

import atexit
import ctypes
import os
import resource
import threading
import warnings
import weakref
from collections import deque
from typing import Any

from . import _core
from .errors import Corruption, Error, InvalidArgument, IoError, Unsupported
from .raw_memory import Memory, is_array, is_tensor, loaded, memory_of

PAGE_BYTES = 4096  # what get_alignment() advises
DESCRIPTORS_MAX = 512  # open files of a handle at once, if the process may have twice as many
COMPARE_BYTES = 1 << 20  # of one step of validate=True

_open_handles: weakref.WeakSet[Handle] = weakref.WeakSet()


class Operation:
    """A read or write that was started. It keeps its buffer alive until it is done."""

    def __init__(
        self, handle: Handle, core: _core.FileOperation, memory: Memory, path: bytes, offset: int
    ) -> None:
        self.path = os.fsdecode(path)
        self.offset = offset
        self.bytes = memory.nbytes
        self._core = core
        self._memory: Memory | None = memory
        self._handle = weakref.ref(handle)  # a handle that goes away waits for its operations
        self._compares = False
        self._error: Error | None = None  # of the comparison

    def done(self) -> bool:
        """Whether it has ended, well or not. Never blocks."""
        return self._core.done

    def wait(self) -> int:
        """Waits until it is done and returns the number of bytes it moved, always all of them.
        Raises its error. Ctrl-C ends the waiting, not the operation."""
        self._join()
        handle = self._handle()
        if handle is not None:
            handle._reported([self])
        self._raise_failure()
        return self.bytes

    def _join(self) -> None:
        self._core.wait()
        memory = self._memory  # None: another thread has been here
        if self._compares and not self._core.failed and memory is not None:
            self._error = _difference(memory, self.path, self.offset)
        self._let_go()

    def _let_go(self) -> None:
        self._memory = None
        self._core.let_go()

    def _failure(self) -> Error | None:
        try:
            self._core.raise_failure()
        except Error as error:
            return error
        return self._error

    def _raise_failure(self) -> None:
        error = self._failure()
        if error is not None:
            raise error

    def __repr__(self) -> str:
        state = "failed" if self._core.failed else "done" if self.done() else "in flight"
        return f"<Operation: {self.bytes} bytes at {self.offset} of {self.path!r}, {state}>"


class Handle:
    """Reads and writes any memory from and to any regular file: CPU tensors, numpy arrays and
    bytes-like objects, contiguous, of any dtype, size and file offset. Direct I/O where the file
    system has it.

    The methods and the first five parameters are those of DeepNVMe's `aio_handle`. `block_size` is
    the largest request to a drive, `queue_depth` the number of them in flight, and
    `intra_op_parallelism` the number of threads that share each operation. `single_submit` and
    `overlap_events` are accepted and have no effect: requests are always sent one by one and
    collected as they come. `io_engine` is "auto", "uring", "libaio" or "threads"; `direct` is
    "auto", "on" (a file without direct I/O is an error) or "off".

    May be used from several threads. A forked child cannot use its parent's handle.
    """

    def __init__(
        self,
        block_size: int = 1 << 20,
        queue_depth: int = 32,
        single_submit: bool = False,
        overlap_events: bool = True,
        intra_op_parallelism: int = 1,
        *,
        io_engine: str = "auto",
        direct: str = "auto",
    ) -> None:
        for name, value in (
            ("block_size", block_size),
            ("queue_depth", queue_depth),
            ("intra_op_parallelism", intra_op_parallelism),
        ):
            if not 0 < value < 1 << 32:
                raise InvalidArgument(f"{name} is {value}")
        self._pid = os.getpid()
        self._lock = threading.Lock()  # guards the three containers
        self._in_flight: deque[Operation] = deque()
        self._unreported: dict[Operation, None] = {}  # in the order in which they were started
        self._locked: dict[int, _core.PinnedMemory] = {}  # by address
        self._settings = (block_size, queue_depth, single_submit, overlap_events)
        self._parallelism = intra_op_parallelism
        self._io = _core.FileIo(block_size, queue_depth, intra_op_parallelism, io_engine, direct)
        self._in_flight_max = _in_flight_max(self._io.descriptors_per_operation)
        self._closed = False
        _open_handles.add(self)

    # ---- settings

    def get_block_size(self) -> int:
        return self._settings[0]

    def get_queue_depth(self) -> int:
        return self._settings[1]

    def get_single_submit(self) -> bool:
        return self._settings[2]

    def get_overlap_events(self) -> bool:
        return self._settings[3]

    def get_intra_op_parallelism(self) -> int:
        return self._parallelism

    def get_alignment(self) -> int:
        """What a file offset and an address are best multiples of. None has to be."""
        return PAGE_BYTES

    @property
    def io_engine(self) -> str:
        """The engine in use: "io_uring", "libaio" or "threads"."""
        return self._io.engine

    # ---- reads and writes

    def async_pread(self, buffer: Any, filename: Any, file_offset: int = 0) -> Operation:
        """Starts to fill `buffer` from the file. The file must have all of these bytes."""
        return self._start(False, buffer, filename, file_offset)

    def async_pwrite(self, buffer: Any, filename: Any, file_offset: int = 0) -> Operation:
        """Starts to write `buffer`, which must not change until it is done. The file is created
        where it is missing, made longer where it is too short, and never made shorter."""
        return self._start(True, buffer, filename, file_offset)

    def sync_pread(self, buffer: Any, filename: Any, file_offset: int = 0) -> int:
        """Fills `buffer` from the file. Returns 1, the number of operations completed."""
        return self.pread(buffer, filename, False, False, file_offset)

    def sync_pwrite(self, buffer: Any, filename: Any, file_offset: int = 0) -> int:
        """Writes `buffer` to the file. Returns 1, the number of operations completed."""
        return self.pwrite(buffer, filename, False, False, file_offset)

    def read(self, buffer: Any, filename: Any, validate: bool = False, file_offset: int = 0) -> int:
        return self.pread(buffer, filename, validate, False, file_offset)

    def write(
        self, buffer: Any, filename: Any, validate: bool = False, file_offset: int = 0
    ) -> int:
        return self.pwrite(buffer, filename, validate, False, file_offset)

    def pread(
        self,
        buffer: Any,
        filename: Any,
        validate: bool = False,
        async_op: bool = False,
        file_offset: int = 0,
    ) -> int | Operation:
        """Reads, and with `validate` compares with what an ordinary read of the file gives. Returns
        1, or with `async_op` the operation."""
        return self._run(False, buffer, filename, validate, async_op, file_offset)

    def pwrite(
        self,
        buffer: Any,
        filename: Any,
        validate: bool = False,
        async_op: bool = False,
        file_offset: int = 0,
    ) -> int | Operation:
        """Writes, and with `validate` compares with what an ordinary read of the file gives.
        Returns 1, or with `async_op` the operation."""
        return self._run(True, buffer, filename, validate, async_op, file_offset)

    def wait(self) -> int:
        """Waits for all operations that were started and not waited for by themselves, and returns
        their number. Raises the error of the first that failed, with the number of others."""
        self._check_usable()
        with self._lock:
            operations = list(self._unreported)
        for operation in operations:
            operation._join()
        reported = self._reported(operations)
        _raise_first([error for o in reported if (error := o._failure()) is not None])
        return len(reported)

    # ---- memory

    def new_cpu_locked_tensor(self, num_elem: int, example_tensor: Any) -> Any:
        """A tensor (or numpy array, as the example is) of one dimension on page-aligned memory in
        huge pages, registered with this handle's threads, which is read and written without a copy.
        Its memory is freed with it and its views, after free_cpu_locked_tensor() or with the
        handle."""
        self._check_usable()
        if num_elem < 0:
            raise InvalidArgument(f"num_elem is {num_elem}")
        torch, numpy = loaded("torch"), loaded("numpy")
        if is_tensor(example_tensor):
            if num_elem == 0:
                return torch.empty(0, dtype=example_tensor.dtype)
            memory = _core.PinnedMemory(self._io, num_elem * example_tensor.element_size())
            result = torch.frombuffer(memory, dtype=example_tensor.dtype, count=num_elem)
            address = result.data_ptr()
        elif is_array(example_tensor):
            if num_elem == 0:
                return numpy.empty(0, dtype=example_tensor.dtype)
            memory = _core.PinnedMemory(self._io, num_elem * example_tensor.dtype.itemsize)
            result = numpy.frombuffer(memory, dtype=example_tensor.dtype, count=num_elem)
            address = result.ctypes.data
        else:
            raise TypeError(
                f"example_tensor is a {type(example_tensor).__name__}: it must be a tensor or a "
                "numpy array"
            )
        with self._lock:
            self._locked[address] = memory
        return result

    new_pinned_tensor = new_cpu_locked_tensor

    def free_cpu_locked_tensor(self, tensor: Any) -> bool:
        """Lets go of a tensor of new_cpu_locked_tensor(), which is empty afterwards; its memory is
        freed when no view and no operation uses it. False: it is none of this handle's."""
        self._check_usable()
        address = memory_of(tensor, writable=False, name="tensor").address
        with self._lock:
            memory = self._locked.pop(address, None)
        if memory is None:
            return False
        if is_tensor(tensor):
            tensor.data = tensor.new_empty(0)
        return True

    free_pinned_tensor = free_cpu_locked_tensor

    # ---- the end

    def close(self) -> None:
        """Waits for everything in flight and ends the threads. Raises as wait() does, when all is
        done. May be repeated."""
        errors = self._end()
        _raise_first(errors)

    def __enter__(self) -> Handle:
        self._check_usable()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        errors = self._end()
        if kind is None:
            _raise_first(errors)

    def __del__(self) -> None:
        if hasattr(self, "_closed"):  # the constructor came to its end
            self._end_quietly()

    # ---- private

    def _run(
        self,
        writes: bool,
        buffer: Any,
        filename: Any,
        validate: bool,
        async_op: bool,
        file_offset: int,
    ) -> int | Operation:
        operation = self._start(writes, buffer, filename, file_offset, validate)
        if async_op:
            return operation
        operation.wait()
        return 1

    def _start(
        self, writes: bool, buffer: Any, filename: Any, file_offset: int, validate: bool = False
    ) -> Operation:
        self._check_usable()
        path = os.fsencode(filename)
        if not path or b"\0" in path:
            raise InvalidArgument(f"filename is {filename!r}")
        if not 0 <= file_offset < 1 << 63:
            raise InvalidArgument(f"file_offset is {file_offset}")
        memory = memory_of(buffer, writable=not writes)
        self._make_room()
        start = self._io.write if writes else self._io.read
        # Ctrl-C may come at any moment from here on: the core keeps the memory by itself.
        core = start(path, file_offset, memory.address, memory.nbytes, memory)
        operation = Operation(self, core, memory, path, file_offset)
        operation._compares = validate
        with self._lock:
            self._in_flight.append(operation)
            self._unreported[operation] = None
        return operation

    def _make_room(self) -> None:
        """Lets go of the buffers of what is done; waits while too many files are open."""
        while True:
            with self._lock:
                while self._in_flight and self._in_flight[0].done():
                    done = self._in_flight.popleft()
                    if not done._compares:
                        done._let_go()
                if len(self._in_flight) < self._in_flight_max:
                    return
                oldest = self._in_flight[0]
            oldest._core.wait()

    def _reported(self, operations: list[Operation]) -> list[Operation]:
        """Those of them that nobody has been told of; they count as told from now on."""
        if os.getpid() != self._pid:
            return []
        with self._lock:
            mine = [o for o in operations if o in self._unreported]
            for operation in mine:
                del self._unreported[operation]
        return mine

    def _end(self) -> list[Error]:
        if os.getpid() != self._pid or self._closed:
            return []
        with self._lock:
            operations = list(self._unreported)
        for operation in operations:
            operation._join()  # Ctrl-C comes through here, not in close()
        self._closed = True
        self._io.close()
        _open_handles.discard(self)
        with self._lock:
            self._in_flight.clear()
            self._locked.clear()
        reported = self._reported(operations)
        return [error for o in reported if (error := o._failure()) is not None]

    def _end_quietly(self) -> None:
        for error in self._end():
            warnings.warn(f"nobody waited for an operation that failed: {error}", stacklevel=2)

    def _check_usable(self) -> None:
        if os.getpid() != self._pid:
            raise Unsupported(
                "the handle belongs to the process that made it; this is a fork of it"
            )
        if self._closed:
            raise InvalidArgument("the handle is closed")


def _in_flight_max(descriptors_per_operation: int) -> int:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = DESCRIPTORS_MAX
    if soft != resource.RLIM_INFINITY:
        descriptors = min(descriptors, soft // 2)
    return max(1, descriptors // descriptors_per_operation)


def _raise_first(errors: list[Error]) -> None:
    if not errors:
        return
    if len(errors) == 1:
        raise errors[0]
    first = type(errors[0])(f"{errors[0]} ({len(errors)} operations failed; this is the first)")
    first.errno = getattr(errors[0], "errno", None)
    raise first from errors[0]


def _difference(memory: Memory, path: str, offset: int) -> Error | None:
    """What an ordinary read of the file finds that is not in the memory; None if all is equal."""
    done = 0
    try:
        with open(path, "rb") as file:
            file.seek(offset)
            while done < memory.nbytes:
                step = min(COMPARE_BYTES, memory.nbytes - done)
                theirs = file.read(step)
                if theirs != ctypes.string_at(memory.address + done, step):
                    where = f"within the {step} bytes at offset {offset + done}"
                    return Corruption(f"{path}: memory and file differ {where}")
                done += step
    except OSError as error:
        failure = IoError(f"{path}: cannot be compared: {error.strerror}")
        failure.errno = error.errno
        return failure
    return None


@atexit.register
def _close_all() -> None:
    """What is in flight at the interpreter's end comes to its own end first."""
    for handle in list(_open_handles):
        handle._end_quietly()
