"""How a module is cut into buckets, and the torch memory in which a bucket appears when gathered.

A unit is a module that is gathered as a whole for its forward and backward: a transformer block.
Units are the children of the outermost ModuleLists and Sequentials; all other parameters belong to
the root, which stays gathered for a whole pass. A unit's parameters are stored in one bucket for
each format of their optimizer state, usually one, and one for those that are never trained. A tied
parameter is stored once, and whoever uses it gathers the bucket that holds it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from .core_args import DTYPE_NAMES
from .errors import InvalidArgument, Unsupported

ROOT = "(root)"


@dataclass(eq=False)
class Record:
    """Where one parameter lies: elements [begin, begin + numel) of its bucket.

    While that is gathered, the parameter's tensor is a view of it. Otherwise the tensor has its
    shape, but is one NaN expanded: reads give NaN; torch refuses most writes, and the next gather
    the others.
    """

    name: str
    param: nn.Parameter
    shape: torch.Size
    group: int
    id: int = 0  # the core's ParamId: over all buckets, in order
    begin: int = 0
    view: Tensor = field(default_factory=lambda: torch.empty(0))
    nan: Tensor = field(default_factory=lambda: torch.empty(()))  # its own: a write is found in it
    hidden: Tensor = field(default_factory=lambda: torch.empty(0))  # the NaN in the shape
    hidden_version: int = 0  # the param's version counter when it was hidden

    @property
    def numel(self) -> int:
        return self.shape.numel()

    def lay_out(self, begin: int, flat: Tensor) -> None:
        self.begin = begin
        self.view = flat[begin : begin + self.numel].view(self.shape)
        self.nan = torch.full((), torch.nan, dtype=flat.dtype)
        self.hidden = self.nan.expand(self.shape)

    def show(self) -> None:
        self.param.data = self.view

    def hide(self) -> None:
        self.hidden_version = self.param._version
        self.param.data = self.hidden

    @property
    def is_hidden(self) -> bool:
        return self.param.data_ptr() == self.hidden.data_ptr() and self.numel > 0

    def check_memory(self) -> None:
        """The user has not assigned param.data."""
        param = self.param
        if param.shape != self.shape:
            raise InvalidArgument(
                f"the shape of parameter {self.name} changed from {tuple(self.shape)} to "
                f"{tuple(param.shape)}"
            )
        if param.data_ptr() not in (self.view.data_ptr(), self.hidden.data_ptr()):
            raise InvalidArgument(
                f"parameter {self.name} was given other memory (by .data = or assign=True): copy "
                "the new values into it, inside GatheredParameters, instead"
            )

    def check_untouched(self) -> None:
        """What was done to a released parameter is lost: an error, told once."""
        try:
            self.check_memory()
            if not self.is_hidden:  # an interrupt came before it was
                return
            value = self.nan.item()
            if self.param._version != self.hidden_version or value == value:
                raise InvalidArgument(
                    f"parameter {self.name} was written to while it was released: do it inside "
                    "GatheredParameters"
                )
        except InvalidArgument:
            self.nan.fill_(torch.nan)
            self.hide()
            raise


@dataclass(eq=False)
class Bucket:
    """Parameters that are gathered and reduced together, and the flat tensor that shows them.

    The flat tensor lives as long as the engine, its storage only while the bucket is gathered:
    views that autograd saved find the same bytes when the storage is back.
    """

    name: str
    dtype: torch.dtype
    trainable: bool
    format: str = "fp32"  # of the optimizer state
    records: list[Record] = field(default_factory=list)
    id: int = 0
    flat: Tensor = field(default_factory=lambda: torch.empty(0))
    lease_count: int = 0  # ours; the core sees one lease from the first to the last
    forward_count: int = 0  # running forwards that gathered it
    shown: bool = False  # by some of the parameters, at least

    def spec(self) -> dict:
        """What _core.Engine wants to know of it."""
        params = [(record.name, record.numel, record.group, 0) for record in self.records]
        return {
            "name": self.name,
            "dtype": DTYPE_NAMES[self.dtype],
            "trainable": self.trainable,
            "format": self.format,
            "params": params,
        }

    def lay_out(self, layout: dict) -> None:
        """Takes the core's layout and makes the flat tensor, without storage."""
        self.flat = torch.empty(layout["numel"], dtype=self.dtype)
        for record, (begin, _) in zip(self.records, layout["params"], strict=True):
            record.lay_out(begin, self.flat)
        self.flat.untyped_storage().resize_(0)

    @property
    def bytes(self) -> int:
        return self.flat.numel() * self.flat.itemsize

    @property
    def allocated(self) -> bool:
        return self.flat.untyped_storage().size() > 0

    def show(self) -> None:
        """REQUIRES: allocated."""
        self.shown = True
        for record in self.records:
            record.show()

    def hide(self) -> None:
        for record in self.records:
            record.hide()
        self.shown = False

    def check_untouched(self) -> None:
        for record in self.records:
            record.check_untouched()


@dataclass(eq=False)
class Unit:
    """A module whose call needs these buckets. The root's call starts a pass."""

    name: str
    module: nn.Module
    buckets: tuple[Bucket, ...]
    is_root: bool = False


@dataclass(eq=False)
class Cut:
    """A module, cut: `units` are all modules to watch, outer ones before those inside them."""

    buckets: list[Bucket]
    units: list[Unit]

    @property
    def records(self) -> Iterator[tuple[Bucket, Record]]:
        for bucket in self.buckets:
            for record in bucket.records:
                yield bucket, record


def find_blocks(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """The children of the outermost containers that have two children with parameters or more."""
    children = [(f"{prefix}{name}", child) for name, child in module.named_children()]
    full = [(name, child) for name, child in children if any(True for _ in child.parameters())]
    is_container = isinstance(module, (nn.ModuleList, nn.Sequential)) and len(full) > 1
    for name, child in full:
        # A bare list is never called, so its own children are what can be gathered for a call.
        callable_child = not isinstance(child, (nn.ModuleList, nn.ModuleDict, nn.ParameterList))
        if is_container and callable_child:
            yield name, child
        else:
            yield from find_blocks(child, f"{name}.")


def check_parameter(name: str, param: nn.Parameter) -> None:
    if param.device.type != "cpu":
        raise Unsupported(f"parameter {name} is on {param.device}: this version trains on the CPU")
    if not param.is_floating_point():
        raise Unsupported(f"parameter {name} is {param.dtype}: only floating point is supported")
    if param.layout != torch.strided:
        raise Unsupported(f"parameter {name} is {param.layout}: only dense ones are supported")
    if hasattr(param, "zoffload_home"):
        raise InvalidArgument(f"parameter {name} already belongs to an engine: destroy() it first")


def cut_module(
    module: nn.Module,
    groups: Mapping[nn.Parameter, int],
    dtype: torch.dtype,
    format_of: Callable[[str], str] = lambda name: "fp32",
) -> Cut:
    """`groups` maps each parameter to be trained, now or once unfrozen, to its group's number;
    `format_of` a parameter's name to the format of its optimizer state."""
    owners: dict[nn.Parameter, str] = {}
    blocks = list(find_blocks(module))
    names = dict(module.named_parameters(remove_duplicate=False))
    for name in names:  # the root's own come first: what it shares with a block stays gathered
        if not any(name.startswith(f"{block}.") for block, _ in blocks):
            owners.setdefault(names[name], ROOT)
    for block, child in blocks:
        for param in child.parameters():
            owners.setdefault(param, block)

    found: dict[tuple[str, str], Bucket] = {}
    homes: dict[nn.Parameter, Bucket] = {}
    for name, param in module.named_parameters():
        check_parameter(name, param)
        owner, trainable = owners[param], param in groups
        format = format_of(name) if trainable else "fp32"
        kind = format if trainable else "not trained"
        if (owner, kind) not in found:
            label = owner if kind == "fp32" else f"{owner} ({kind})"
            found[owner, kind] = Bucket(label, dtype, trainable, format)
        homes[param] = found[owner, kind]
        homes[param].records.append(Record(name, param, param.shape, groups.get(param, 0)))

    buckets = list(found.values())
    if not buckets:
        raise InvalidArgument("the model has no parameters")
    for number, bucket in enumerate(buckets):
        bucket.id = number
    for number, (_, record) in enumerate(Cut(buckets, []).records):
        record.id = number
    return Cut(buckets, list(_find_units(module, blocks, owners, homes)))


def _find_units(
    module: nn.Module,
    blocks: list[tuple[str, nn.Module]],
    owners: Mapping[nn.Parameter, str],
    homes: Mapping[nn.Parameter, Bucket],
) -> Iterator[Unit]:
    """The root, the blocks, and every module with parameters of its own: it may be called alone."""

    def needed(params) -> tuple[Bucket, ...]:
        return tuple(sorted({homes[p] for p in params}, key=lambda bucket: bucket.id))

    root_params = (p for p in module.parameters() if owners[p] == ROOT)
    yield Unit(ROOT, module, needed(root_params), is_root=True)
    seen = {module}
    for name, child in blocks:
        if child not in seen:
            yield Unit(name, child, needed(child.parameters()))
        seen.add(child)
    for name, child in module.named_modules():
        params = list(child.parameters(recurse=False))
        if params and child not in seen and not isinstance(child, nn.ParameterList):
            yield Unit(name, child, needed(params))
