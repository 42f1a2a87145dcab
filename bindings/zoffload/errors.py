"""Errors of the engine, each also the built-in exception that a Python user expects."""

from collections.abc import Callable
from typing import Any, NoReturn


class Error(Exception):
    """Any error of zoffload."""


class InvalidArgument(Error, ValueError):
    """Change the call."""


class OutOfSpace(Error, OSError):
    """Free disk space, or choose another path."""


class OutOfMemory(Error, MemoryError):
    """Raise a budget, or plan for less."""


class IoError(Error, OSError):
    """The storage failed."""


class Corruption(Error, OSError):
    """The bytes read are not the bytes written."""


class DeviceError(Error, RuntimeError):
    """The accelerator, or a worker, failed."""


class CommError(Error, RuntimeError):
    """A peer or the network failed."""


class Timeout(Error, TimeoutError):
    """Nothing moved for stall_timeout."""


class Unsupported(Error, NotImplementedError):
    """This machine or this version cannot do it."""


def unavailable(name: str) -> Callable[..., NoReturn]:
    """Stands for what DeepSpeed has under this name and this version does not."""

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise Unsupported(f"{name}: not available in this version")

    return refuse
