"""One flat tensor in a file, of which any range can be read and written; see zoffload.aio.

The file is a header of one page and then the elements, in the machine's byte order, so that every
page of elements can go by direct I/O. The header is

    0     8 bytes   b"zotensor"
    8     4 bytes   version, 1
    12    4 bytes   bytes of the description
    16    n bytes   the description, JSON: {"dtype": "bfloat16", "shape": [1024, 4096]}
    ...             zeros
    4088  8 bytes   XXH3-64 of the 4088 bytes before it

with numbers in little-endian order.
"""

from __future__ import annotations

import errno
import json
import math
import operator
import os
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

from . import _core
from .errors import Corruption, Error, InvalidArgument, IoError, OutOfSpace, Unsupported
from .raw_io import Handle, Operation
from .raw_memory import dtype_name, memory_of

MAGIC = b"zotensor"
VERSION = 1
HEADER_BYTES = 4096
_HEAD = struct.Struct("<8sII")
_SUM = struct.Struct("<Q")
_SUMMED_BYTES = HEADER_BYTES - _SUM.size
_DESCRIPTION_BYTES_MAX = _SUMMED_BYTES - _HEAD.size

ELEMENT_BYTES = {
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("int16", "uint16", "float16", "bfloat16"), 2),
    **dict.fromkeys(("int32", "uint32", "float32"), 4),
    **dict.fromkeys(("int64", "uint64", "float64", "complex64"), 8),
    "complex128": 16,
}


class _Header(NamedTuple):
    dtype: str
    shape: tuple[int, ...]

    def pack(self) -> bytes:
        text = json.dumps({"dtype": self.dtype, "shape": self.shape}).encode()
        if len(text) > _DESCRIPTION_BYTES_MAX:
            raise InvalidArgument(
                f"shape has {len(self.shape)} dimensions: too many for the header"
            )
        summed = (_HEAD.pack(MAGIC, VERSION, len(text)) + text).ljust(_SUMMED_BYTES, b"\0")
        return summed + _SUM.pack(_core.xxh3_64(summed))

    @staticmethod
    def unpack(raw: bytes, path: str) -> _Header:
        if len(raw) < _HEAD.size or not raw.startswith(MAGIC):
            raise InvalidArgument(f"{path}: no tensor file of zoffload")
        _, version, text_bytes = _HEAD.unpack_from(raw)
        if version > VERSION:
            raise Unsupported(
                f"{path}: has version {version} of the format; this zoffload knows {VERSION}"
            )
        if len(raw) < HEADER_BYTES:
            raise Corruption(f"{path}: ends within its header, after {len(raw)} bytes")
        (expected,) = _SUM.unpack_from(raw, _SUMMED_BYTES)
        if _core.xxh3_64(raw[:_SUMMED_BYTES]) != expected:
            raise Corruption(f"{path}: its header is not what was written")
        described = json.loads(raw[_HEAD.size : _HEAD.size + text_bytes])
        dtype, shape = described["dtype"], tuple(described["shape"])
        if dtype not in ELEMENT_BYTES:
            raise Unsupported(f"{path}: its dtype is {dtype!r}, which this zoffload does not know")
        return _Header(dtype, shape)


class TensorFile:
    """A tensor in a file, read and written in ranges of elements of its flattened form.

        with TensorFile.create("w.zot", (1024, 4096), torch.bfloat16) as file:
            file.write(weight[:16], start=0)
            file.flush()

    Buffers are what `Handle` takes; a tensor or array must have the file's dtype, plain bytes may
    have any. Without a `handle` the file makes one, and closes it at the end.
    """

    def __init__(self, path: Any, mode: str = "r", *, handle: Handle | None = None) -> None:
        if mode not in ("r", "r+"):
            raise InvalidArgument(f"mode is {mode!r}; it may be 'r' or 'r+'")
        self.path = os.path.abspath(os.fsdecode(path))
        self.mode = mode
        self._fd = -1
        self._writes: list[Operation] = []
        self._flush_error: str | None = None
        self._fd = _open(self.path, os.O_RDONLY if mode == "r" else os.O_RDWR)
        try:
            self.dtype, self.shape = self._read_header()
            self._owns_handle = handle is None
            self._handle = Handle() if handle is None else handle
        except BaseException:
            os.close(self._fd)
            self._fd = -1
            raise

    @classmethod
    def create(
        cls, path: Any, shape: int | Iterable[int], dtype: Any, *, handle: Handle | None = None
    ) -> TensorFile:
        """Makes the file, which must not exist, with its space reserved. Its elements are zero."""
        header = _Header(_checked_dtype(dtype), _checked_shape(shape))
        packed = header.pack()
        name = os.fsdecode(path)
        nbytes = HEADER_BYTES + math.prod(header.shape) * ELEMENT_BYTES[header.dtype]
        fd = _open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL)
        try:
            _reserve(fd, name, nbytes)
            _write_header(fd, name, packed)
            return cls(path, "r+", handle=handle)
        except BaseException:
            os.unlink(name)
            raise
        finally:
            os.close(fd)

    @classmethod
    def open(cls, path: Any, mode: str = "r+", *, handle: Handle | None = None) -> TensorFile:
        """Opens a file that create() made: to read only with mode "r"."""
        return cls(path, mode, handle=handle)

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def element_bytes(self) -> int:
        return ELEMENT_BYTES[self.dtype]

    @property
    def nbytes(self) -> int:
        """Of the elements, without the header."""
        return self.numel * self.element_bytes

    def read(self, out: Any, start: int = 0) -> Any:
        """Fills `out` with the elements from `start` on, and returns it."""
        self.read_async(out, start).wait()
        return out

    def write(self, tensor: Any, start: int = 0) -> None:
        """Writes the elements of `tensor` over those from `start` on."""
        self.write_async(tensor, start).wait()

    def read_async(self, out: Any, start: int = 0) -> Operation:
        offset = self._offset("out", out, start, writable=True)
        return self._handle.async_pread(out, self.path, offset)

    def write_async(self, tensor: Any, start: int = 0) -> Operation:
        offset = self._offset("tensor", tensor, start, writable=False)
        if self.mode == "r":
            raise InvalidArgument(f"{self.path}: opened to read only; open it with mode 'r+'")
        operation = self._handle.async_pwrite(tensor, self.path, offset)
        self._writes = [o for o in self._writes if not o.done() or o._core.failed]
        self._writes.append(operation)
        return operation

    def flush(self) -> None:
        """Waits for the writes and makes them durable. After a failure the file's content is
        unknown: every later flush fails too, whatever the system says by then."""
        self._check_open()
        if self._flush_error is not None:
            raise IoError(self._flush_error)
        self._finish_writes()
        try:
            os.fdatasync(self._fd)
        except OSError as error:
            self._flush_error = f"{self.path}: could not be made durable: {error.strerror}"
            raise _with_errno(IoError(self._flush_error), error) from error

    def close(self) -> None:
        """Waits for its operations. It does not flush(). May be repeated."""
        if self._fd < 0:
            return
        try:
            self._finish_writes()
        finally:
            os.close(self._fd)
            self._fd = -1
            if self._owns_handle:
                self._handle.close()

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            os.close(self._fd)
            self._fd = -1

    def __repr__(self) -> str:
        return f"<TensorFile {self.path!r}: {list(self.shape)} of {self.dtype}>"

    # ---- private

    def _finish_writes(self) -> None:
        """Waits for all of them, and then raises the first error. One that Ctrl-C keeps it from
        waiting for stays on the list."""
        first: Error | None = None
        while self._writes:
            try:
                self._writes[0].wait()
            except Error as error:
                first = first or error
            del self._writes[0]
        if first is not None:
            raise first

    def _check_open(self) -> None:
        if self._fd < 0:
            raise InvalidArgument(f"{self.path}: the file is closed")

    def _check_in_place(self) -> None:
        """Transfers go by path: a write would make a new file where this one is gone."""
        try:
            in_place = os.path.samestat(os.stat(self.path), os.fstat(self._fd))
        except OSError:
            in_place = False
        if not in_place:
            raise IoError(f"{self.path}: was removed or replaced while it was open here")

    def _offset(self, name: str, buffer: Any, start: int, *, writable: bool) -> int:
        """Where in the file the elements of the buffer belong."""
        self._check_open()
        memory = memory_of(buffer, writable=writable, name=name)
        if memory.dtype is not None and memory.dtype != self.dtype:
            raise InvalidArgument(f"{name} is {memory.dtype}: {self.path} holds {self.dtype}")
        numel, rest = divmod(memory.nbytes, self.element_bytes)
        if rest != 0:
            raise InvalidArgument(
                f"{name} has {memory.nbytes} bytes: no whole number of {self.dtype} elements"
            )
        start = operator.index(start)
        if not 0 <= start <= self.numel - numel:
            raise InvalidArgument(
                f"start is {start} and {name} has {numel} elements: {self.path} has {self.numel}"
            )
        self._check_in_place()
        return HEADER_BYTES + start * self.element_bytes

    def _read_header(self) -> _Header:
        try:
            raw = os.pread(self._fd, HEADER_BYTES, 0)
            has = os.fstat(self._fd).st_size
        except IsADirectoryError as error:
            raise InvalidArgument(f"{self.path}: is a folder") from error
        header = _Header.unpack(raw, self.path)
        needs = HEADER_BYTES + math.prod(header.shape) * ELEMENT_BYTES[header.dtype]
        if has < needs:
            raise Corruption(f"{self.path}: has {has} bytes and needs {needs}: it was cut")
        return header


def _checked_dtype(dtype: Any) -> str:
    name = dtype_name(dtype)
    if name not in ELEMENT_BYTES:
        raise InvalidArgument(f"dtype is {name}; it may be {', '.join(sorted(ELEMENT_BYTES))}")
    return name


def _checked_shape(shape: int | Iterable[int]) -> tuple[int, ...]:
    sizes = (shape,) if isinstance(shape, int) else tuple(shape)
    sizes = tuple(operator.index(size) for size in sizes)
    if any(size < 0 for size in sizes) or math.prod(sizes) >= 1 << 58:
        raise InvalidArgument(f"shape is {list(sizes)}")
    return sizes


def _open(path: str, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_CLOEXEC, 0o666)
    except FileExistsError as error:
        message = f"{path}: exists; a file is never overwritten: remove it or use another name"
        raise _with_errno(InvalidArgument(message), error) from error
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        raise _with_errno(InvalidArgument(f"{path}: {error.strerror}"), error) from error
    except OSError as error:
        raise _with_errno(IoError(f"{path}: {error.strerror}"), error) from error


def _reserve(fd: int, path: str, nbytes: int) -> None:
    try:
        space = os.fstatvfs(fd)
        # Asked first: a hopeless attempt would fill the disk for everybody before it fails.
        if nbytes // space.f_frsize > space.f_bfree:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        os.posix_fallocate(fd, 0, nbytes)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        kind = OutOfSpace if full else IoError
        message = f"{path}: cannot reserve {nbytes} bytes: {error.strerror}"
        raise _with_errno(kind(message), error) from error


def _write_header(fd: int, path: str, packed: bytes) -> None:
    try:
        written = os.pwrite(fd, packed, 0)
    except OSError as error:
        raise _with_errno(IoError(f"{path}: {error.strerror}"), error) from error
    if written != len(packed):
        raise OutOfSpace(f"{path}: {written} of {len(packed)} bytes of its header were written")


def _with_errno(error: Error, cause: OSError) -> Error:
    error.errno = cause.errno
    return error
