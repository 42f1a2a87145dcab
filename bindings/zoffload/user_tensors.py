"""The user's parameters and gradients, on which the engine works where they lie, and the state they
bring: what they may be, and how the core is told of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from .algorithms import Algorithm
from .core_args import DTYPE_NAMES
from .errors import InvalidArgument, Unsupported

BUCKET_BYTES = 64 << 20  # small parameters share a bucket of about this size
NORM_CHUNK = 1 << 14  # elements: few enough for torch to add them up in one thread, in one order


class Entry(NamedTuple):
    """A parameter as the user's param_groups have it."""

    group: int
    name: str
    param: Tensor
    format: str  # of its state


def check_parameter(entry: Entry) -> None:
    param = entry.param
    what = f"parameter {entry.name}"
    if hasattr(param, "to_local"):
        raise Unsupported(f"{what} is a DTensor: not available in this version")
    if param.device.type != "cpu":
        raise Unsupported(f"{what} is on {param.device}: this version updates CPU tensors")
    if param.layout != torch.strided:
        raise Unsupported(f"{what} is {param.layout}: only dense ones are supported")
    if param.dtype not in DTYPE_NAMES:
        raise Unsupported(f"{what} is {param.dtype}: only float32 and bfloat16 are supported")
    # Any order of dimensions is fine (channels_last, transposed): an update is by element, and
    # gradients and state are laid out like the parameter. Holes and overlaps are not.
    if torch.empty_like(param, device="meta").stride() != param.stride():
        raise Unsupported(f"{what} is a strided view of other memory: give it memory of its own")


def memory_of(param: Tensor) -> tuple:
    """What the core knows of the memory, and must find unchanged."""
    return param.data_ptr(), param.shape, param.stride(), param.dtype


def check_overlap(named: Iterable[tuple[str, Tensor]]) -> None:
    """Two parameters of one memory would be updated twice, in any order."""
    spans = [(p.data_ptr(), p.data_ptr() + p.nbytes, name) for name, p in named if p.nbytes > 0]
    spans.sort()
    for (_, end, name), (begin, _, other) in zip(spans, spans[1:], strict=False):
        if begin < end:
            raise InvalidArgument(f"parameters {name} and {other} share memory: pass one of them")


def gradient_of(entry: Entry) -> Tensor:
    """The gradient in the dtype and the order of elements of the parameter; a copy if need be."""
    param, grad = entry.param, entry.param.grad
    if grad.layout != torch.strided:
        raise Unsupported(f"the gradient of parameter {entry.name} is sparse: only dense ones are")
    if grad.device.type != "cpu":
        raise Unsupported(f"the gradient of parameter {entry.name} is on {grad.device}")
    is_alike = grad.dtype == param.dtype and grad.stride() == param.stride()
    if is_alike and not grad.is_neg():
        return grad.detach()
    return torch.empty_like(param).copy_(grad)


def cut_buckets(entries: Iterable[Entry]) -> list[list[Entry]]:
    """In order, by dtype and state format. The cut depends on the parameters only, so that norms
    do too."""
    buckets: list[list[Entry]] = []
    last: dict[tuple, tuple[list[Entry], int]] = {}  # the one being filled, and its bytes
    for entry in entries:
        kind, count = (entry.param.dtype, entry.format), entry.param.nbytes
        bucket, filled = last.get(kind, ([], 0))
        if not bucket or filled + count > BUCKET_BYTES:
            bucket, filled = [], 0
            buckets.append(bucket)
        bucket.append(entry)
        last[kind] = bucket, filled + count
    return buckets


def bucket_spec(name: str, bucket: list[Entry]) -> dict:
    """What _core.Engine wants to know of it."""
    return {
        "name": name,
        "dtype": DTYPE_NAMES[bucket[0].param.dtype],
        "trainable": True,
        "in_place": True,
        "format": bucket[0].format,
        "params": [(e.name, e.param.numel(), e.group, e.param.data_ptr()) for e in bucket],
    }


def global_norm(gradients: Iterable[Tensor]) -> float:
    """The same bits for any number of threads: sums in double of chunks, added in order."""
    total = 0.0
    for gradient in gradients:
        for chunk in gradient.reshape(-1).split(NORM_CHUNK):
            total += chunk.double().square().sum().item()
    return math.sqrt(total)


def check_state(entry: Entry, state: Mapping, algorithm: Algorithm) -> None:
    """One parameter's share of a state_dict."""
    keys = tuple(algorithm.moments.values())
    required = keys if algorithm.always_keeps else ()
    for key in ("step", *required) if algorithm.has_step else required:
        if key not in state:
            raise InvalidArgument(f"load_state_dict(): parameter {entry.name} has no {key!r}")
    for key in (*keys, "master"):
        if state.get(key) is not None and state[key].shape != entry.param.shape:
            shape = tuple(state[key].shape)
            raise InvalidArgument(f"load_state_dict(): {key} of parameter {entry.name} is {shape}")
    step = float(state.get("step", 0))
    if not step >= 0 or step % 1 != 0:
        raise InvalidArgument(f"load_state_dict(): step {state['step']} of parameter {entry.name}")
