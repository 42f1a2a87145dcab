"""zoffload: tiered offload of training state between device memory, host memory and NVMe.

Nothing here needs torch, a GPU or io_uring at import; what needs torch imports it at first use.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .errors import Error, unavailable

__version__ = "0.1.0"

if TYPE_CHECKING:
    from .engine import Engine, initialize
    from .optimizers import SGD, Adagrad, Adam, AdamW, Lion
    from .placement import NvmeConfig, OffloadConfig
    from .tracing import trace

init_distributed = unavailable("init_distributed()")
add_config_arguments = unavailable("add_config_arguments()")

# Public name -> the module that defines it (None: the name is a module).
_LAZY = {
    "Adagrad": "optimizers",
    "Adam": "optimizers",
    "AdamW": "optimizers",
    "Engine": "engine",
    "Lion": "optimizers",
    "NvmeConfig": "placement",
    "OffloadConfig": "placement",
    "SGD": "optimizers",
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
    "Adagrad",
    "Adam",
    "AdamW",
    "Engine",
    "Error",
    "Lion",
    "NvmeConfig",
    "OffloadConfig",
    "SGD",
    "initialize",
    "trace",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name == "Muon":
        known = ", ".join(sorted(n for n, home in _LAZY.items() if home == "optimizers"))
        raise AttributeError(f"zoffload.Muon is not available in this version; there are {known}")
    if name not in _LAZY:
        raise AttributeError(f"module 'zoffload' has no attribute '{name}'")
    home = _LAZY[name]
    if home is None:
        return importlib.import_module(f".{name}", __name__)
    return getattr(importlib.import_module(f".{home}", __name__), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
