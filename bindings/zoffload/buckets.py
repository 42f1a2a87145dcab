"""How a module is cut into buckets, and the torch memory in which a bucket appears when gathered.

A unit is a module that is gathered as a whole for its forward and backward: a transformer block.
Units are the children of the outermost ModuleLists and Sequentials; all other parameters belong to
the root, which stays gathered for a whole pass. A unit's parameters are stored in at most two
buckets, those that are trained and those that never are. A tied parameter is stored once, and
whoever uses it gathers the bucket that holds it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from .errors import InvalidArgument, Unsupported

DTYPE_NAMES = {torch.float32: "fp32", torch.bfloat16: "bf16"}
ROOT = "(root)"


@dataclass(eq=False)
class Record:
    """Where one parameter lies: elements [begin, begin + numel) of its bucket."""

    name: str
    param: nn.Parameter
    shape: torch.Size
    group: int
    id: int = 0  # the core's ParamId: over all buckets, in order
    begin: int = 0

    @property
    def numel(self) -> int:
        return self.shape.numel()


@dataclass(eq=False)
class Bucket:
    """Parameters that are gathered and reduced together, and the flat tensor that shows them.

    The flat tensor lives as long as the engine, its storage only while the bucket is gathered:
    views that autograd saved find the same bytes when the storage is back.
    """

    name: str
    dtype: torch.dtype
    trainable: bool
    records: list[Record] = field(default_factory=list)
    id: int = 0
    flat: Tensor = field(default_factory=lambda: torch.empty(0))
    lease_count: int = 0  # ours; the core sees one lease from the first to the last
    forward_count: int = 0  # running forwards that gathered it

    def spec(self) -> dict:
        """What _core.Engine wants to know of it."""
        params = [(record.name, record.numel, record.group, 0) for record in self.records]
        return {
            "name": self.name,
            "dtype": DTYPE_NAMES[self.dtype],
            "trainable": self.trainable,
            "params": params,
        }

    def lay_out(self, layout: dict) -> None:
        """Takes the core's layout and makes the flat tensor, without storage."""
        for record, (begin, _) in zip(self.records, layout["params"], strict=True):
            record.begin = begin
        self.flat = torch.empty(layout["numel"], dtype=self.dtype)
        self.flat.untyped_storage().resize_(0)

    @property
    def bytes(self) -> int:
        return self.flat.numel() * self.flat.itemsize

    @property
    def allocated(self) -> bool:
        return self.flat.untyped_storage().size() > 0

    def view(self, record: Record) -> Tensor:
        """The parameter's place in the flat tensor. REQUIRES: allocated."""
        return self.flat[record.begin : record.begin + record.numel].view(record.shape)


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


def cut_module(module: nn.Module, groups: Mapping[nn.Parameter, int], dtype: torch.dtype) -> Cut:
    """`groups` maps each parameter to be trained, now or once unfrozen, to its group's number."""
    owners: dict[nn.Parameter, str] = {}
    blocks = list(find_blocks(module))
    names = dict(module.named_parameters(remove_duplicate=False))
    for name in names:  # the root's own come first: what it shares with a block stays gathered
        if not any(name.startswith(f"{block}.") for block, _ in blocks):
            owners.setdefault(names[name], ROOT)
    for block, child in blocks:
        for param in child.parameters():
            owners.setdefault(param, block)

    found: dict[tuple[str, bool], Bucket] = {}
    homes: dict[nn.Parameter, Bucket] = {}
    for name, param in module.named_parameters():
        check_parameter(name, param)
        owner, trainable = owners[param], param in groups
        if (owner, trainable) not in found:
            label = owner if trainable else f"{owner} (not trained)"
            found[owner, trainable] = Bucket(label, dtype, trainable)
        homes[param] = found[owner, trainable]
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
