"""zoffload: tiered offload of training state between device memory, host memory and NVMe.

Nothing here needs torch, a GPU or io_uring at import; what needs torch imports it at first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .errors import Error, unavailable

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .engine import Engine, initialize
    from .optim import Adam, AdamW
    from .placement import NvmeConfig, OffloadConfig
    from .tracing import trace

init_distributed = unavailable("init_distributed()")
add_config_arguments = unavailable("add_config_arguments()")

# Public name -> the module that defines it (None: the name is a module).
_LAZY = {
    "Adam": "optim",
    "AdamW": "optim",
    "Engine": "engine",
    "NvmeConfig": "placement",
    "OffloadConfig": "placement",
    "initialize": "engine",
    "trace": "tracing",
    "metrics": None,
    "aio": None,
    "zero": None,
    "utils": None,
    "config": None,
    "doctor": None,
}

__all__ = [
    "Adam",
    "AdamW",
    "Engine",
    "Error",
    "NvmeConfig",
    "OffloadConfig",
    "initialize",
    "trace",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"module 'zoffload' has no attribute '{name}'")
    home = _LAZY[name]
    if home is None:
        return importlib.import_module(f".{name}", __name__)
    return getattr(importlib.import_module(f".{home}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
