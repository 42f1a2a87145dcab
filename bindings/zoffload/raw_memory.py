"""The user's buffers as addresses: torch tensors, numpy arrays, and what has the buffer protocol.

Works without torch and without numpy: a tensor can only come from a torch that is loaded already.
"""

from __future__ import annotations

import sys
from typing import Any, NamedTuple

from ._core import HeldBuffer
from .errors import InvalidArgument, Unsupported


class Memory(NamedTuple):
    """Bytes that stay where they are for as long as `owner` lives."""

    address: int
    nbytes: int
    owner: object
    dtype: str | None  # "float32", "bfloat16" ...; None for plain bytes


def loaded(module: str) -> Any:
    """The module if somebody has imported it, else None."""
    return sys.modules.get(module)


def is_tensor(value: object) -> bool:
    torch = loaded("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def is_array(value: object) -> bool:
    numpy = loaded("numpy")
    return numpy is not None and isinstance(value, numpy.ndarray)


def memory_of(buffer: Any, *, writable: bool, name: str = "buffer") -> Memory:
    """The memory of a contiguous CPU tensor or array, or of a bytes-like object. `writable`: for it
    to be written to. Errors name the argument `name`."""
    if is_tensor(buffer):
        return _of_tensor(buffer, writable, name)
    if is_array(buffer):
        return _of_array(buffer, writable, name)
    return _of_buffer(buffer, writable, name)


def _of_tensor(tensor: Any, writable: bool, name: str) -> Memory:
    torch = loaded("torch")
    if hasattr(tensor, "to_local"):
        raise Unsupported(f"{name} is a DTensor: give its to_local()")
    if tensor.device.type != "cpu":
        raise InvalidArgument(f"{name} is on {tensor.device}: it must be a CPU tensor")
    if tensor.layout != torch.strided:
        raise InvalidArgument(f"{name} is {tensor.layout}: it must be a dense tensor")
    if not tensor.is_contiguous():
        raise InvalidArgument(f"{name} is not contiguous: give its contiguous()")
    if tensor.is_conj() or tensor.is_neg():
        raise InvalidArgument(f"{name} is a lazy view: give its resolve_conj().resolve_neg()")
    storage = tensor.untyped_storage()
    if storage.device.type != "cpu":
        raise InvalidArgument(f"{name} is a fake tensor: it has no memory")
    nbytes = tensor.numel() * tensor.element_size()
    address = tensor.data_ptr() if nbytes > 0 else 0
    if nbytes > storage.nbytes():
        raise InvalidArgument(f"{name} has no memory: its storage was resized to nothing")
    if writable and not tensor.is_inference():
        torch.autograd.graph.increment_version(tensor)  # as every write in place
    # The storage, not the tensor, owns the bytes: `tensor.data = other` changes nothing for us.
    return Memory(address, nbytes, storage, dtype_name(tensor.dtype))


def _of_array(array: Any, writable: bool, name: str) -> Memory:
    numpy = loaded("numpy")
    if array.dtype.hasobject:
        raise InvalidArgument(f"{name} holds Python objects: they have no bytes to store")
    if not array.flags.c_contiguous:
        raise InvalidArgument(f"{name} is not contiguous: give numpy.ascontiguousarray() of it")
    if writable and not array.flags.writeable:
        raise InvalidArgument(f"{name} is read-only")
    # As bytes: the buffer protocol does not know every dtype (bfloat16, datetime64).
    flat = array.reshape(-1).view(numpy.ndarray)
    held = HeldBuffer(flat.view(numpy.uint8) if array.nbytes > 0 else bytearray(), writable)
    return Memory(held.address, held.nbytes, held, dtype_name(array.dtype))


def _of_buffer(buffer: Any, writable: bool, name: str) -> Memory:
    try:
        view = memoryview(buffer)
    except TypeError:
        raise TypeError(
            f"{name} is a {type(buffer).__name__}: it must be a CPU tensor, a numpy array or a "
            "bytes-like object"
        ) from None
    with view:
        if not view.c_contiguous:
            raise InvalidArgument(f"{name} is not contiguous")
        if writable and view.readonly:
            raise InvalidArgument(f"{name} is read-only: a {type(buffer).__name__}")
    held = HeldBuffer(buffer, writable)
    return Memory(held.address, held.nbytes, held, None)


def dtype_name(dtype: Any) -> str:
    """ "float32" of torch.float32, numpy.float32, numpy.dtype("<f4") or "float32"."""
    torch = loaded("torch")
    if torch is not None and isinstance(dtype, torch.dtype):
        return str(dtype).removeprefix("torch.")
    numpy = loaded("numpy")
    if numpy is not None and not isinstance(dtype, str):
        dtype = numpy.dtype(dtype)
        # Another byte order is another type.
        return dtype.name if dtype.isnative else f"{dtype.name} in another byte order"
    return str(dtype)
