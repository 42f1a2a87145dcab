"""Raw tensor I/O: memory to and from files, asynchronously, without an engine.

`Handle` has the methods of DeepNVMe's `aio_handle`; `TensorFile` is one flat tensor in a file. Both
work with torch tensors, numpy arrays and bytes-like objects, and need neither torch nor numpy.
See docs/raw-io.md.
"""

from .raw_io import Handle, Operation
from .tensor_file import TensorFile

__all__ = ["Handle", "Operation", "TensorFile", "aio_handle"]

aio_handle = Handle  # as AsyncIOBuilder().load().aio_handle
