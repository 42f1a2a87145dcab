"""Where optimizer state goes: what `offload=` may be, checked, and turned into the core's options;
and the plan that comes of it.

    offload="cpu"  "nvme"  {"cpu": 0.6, "nvme": 0.4}
    offload=OffloadConfig("nvme", nvme=NvmeConfig(["/mnt/nvme0", "/mnt/nvme1"]), threads=8)
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from ._core import parse_bytes
from .errors import InvalidArgument, Unsupported
from .state_formats import FormatRule, compile_rule, parse_state_dtype

Placement = str | Mapping[str, float]  # a tier's name, or the share of each tier
Paths = str | os.PathLike | Sequence[str | os.PathLike]
Bytes = int | str  # 1 << 30, or "1GiB"

TIERS = ("cpu", "nvme")
IO_ENGINES = ("auto", "uring", "libaio", "threads")
ALIGNMENT = 4096  # of what a drive reads and writes


@dataclass(frozen=True)
class NvmeConfig:
    """The drives, and how they are read and written. Several paths share the state in proportion to
    their speed: the profile's, or measured."""

    paths: Paths = ()
    io_engine: str = "auto"
    block_bytes: Bytes | None = None  # of one request; None is the profile's, or 1 MiB
    queue_depth: int | None = None  # requests in flight, per path; None: the profile's, or measured
    verify_reads: bool = True  # compare every byte that is read with the sum of what was written
    allow_memory_paths: bool = False  # take a folder that is memory (tmpfs), an error otherwise
    max_bytes: Any = None  # not available in this version

    def __post_init__(self) -> None:
        refuse_unavailable(self, "max_bytes")
        if self.io_engine not in IO_ENGINES:
            raise InvalidArgument(f"io_engine is {self.io_engine!r}; it may be one of {IO_ENGINES}")
        if self.block_bytes is not None:
            block_bytes = check_bytes("block_bytes", self.block_bytes)
            if block_bytes == 0 or block_bytes % ALIGNMENT != 0:
                raise InvalidArgument(
                    f"block_bytes is {block_bytes}; it must be a multiple of 4 KiB"
                )
        if self.queue_depth is not None:
            check_int("queue_depth", self.queue_depth, minimum=1)
        for name in ("verify_reads", "allow_memory_paths"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidArgument(f"{name} is {getattr(self, name)!r}, not a bool")
        check_paths("nvme.paths", self.paths)


@dataclass(frozen=True)
class OffloadConfig:
    """The settings that are rarely needed. Parameters and gradients stay in the user's tensors."""

    optimizer: Placement = "cpu"
    nvme: NvmeConfig = field(default_factory=NvmeConfig)
    host_bytes: Bytes | None = None  # a hard budget; None is no limit
    threads: int = 0  # of the update; 0 is one per core
    subgroup_bytes: Bytes | None = None  # of state, updated as one; None: 16 MiB, or the profile's
    stall_timeout: float = 60.0  # seconds in which nothing moves before that is an error
    profile: str | os.PathLike | None = None  # a file from `zoffload-bench profile`
    # (regex, {"state_dtype": ...}) on parameter names; the first whose regex is found in it wins.
    rules: Sequence[tuple[str, Mapping]] = ()
    # Not available in this version:
    params: Any = None
    grads: Any = None
    device_bytes: Any = None
    prefetch: Any = None
    numa: Any = None

    def __post_init__(self) -> None:
        refuse_unavailable(self, *(f.name for f in fields(self) if f.type == "Any"))
        parse_placement("optimizer", self.optimizer)
        parse_rules("rules", self.rules)
        if not isinstance(self.nvme, NvmeConfig):
            raise InvalidArgument(f"nvme is {self.nvme!r}, not an NvmeConfig")
        if self.host_bytes is not None:
            check_bytes("host_bytes", self.host_bytes, minimum=1)
        check_int("threads", self.threads)
        if self.subgroup_bytes is not None:
            check_bytes("subgroup_bytes", self.subgroup_bytes, minimum=1)
        if self.profile is not None and not isinstance(self.profile, (str, os.PathLike)):
            raise InvalidArgument(f"profile is {self.profile!r}, not a file name")
        if not is_number(self.stall_timeout) or not 0 < self.stall_timeout < math.inf:
            raise InvalidArgument(
                f"stall_timeout is {self.stall_timeout!r}; it must be seconds, more than 0"
            )


@dataclass(frozen=True)
class Plan:
    """Where the state lives and what a step moves, if every parameter gets a gradient."""

    state_bytes: dict[str, int]  # by tier
    host_bytes: int  # reserved in all, buffers included
    read_bytes_per_step: int  # from nvme
    written_bytes_per_step: int  # to nvme
    staging_bytes: int = 0  # of host_bytes, for what is on its way between the tiers

    def __str__(self) -> str:
        lines = [f"state on {tier}: {mib(count)}" for tier, count in self.state_bytes.items()]
        staging = f"of that for staging: {mib(self.staging_bytes)}"
        lines.append(f"host memory in all: {mib(self.host_bytes)}, {staging}")
        lines.append(f"read from nvme per step: {mib(self.read_bytes_per_step)}")
        lines.append(f"written to nvme per step: {mib(self.written_bytes_per_step)}")
        return "\n".join(lines)


def core_options(
    offload: Placement | OffloadConfig, nvme_path: Paths | None, host_bytes: Bytes | None
) -> dict:
    """The options of _core.Engine. What is given twice must be given once."""
    if isinstance(offload, OffloadConfig):
        config = offload
    else:
        parse_placement("offload", offload)
        config = OffloadConfig(offload)
    paths = check_paths("nvme.paths", config.nvme.paths)
    if nvme_path is not None:
        if paths:
            raise InvalidArgument("nvme_path and OffloadConfig.nvme.paths: give one of them")
        paths = check_paths("nvme_path", nvme_path)
    if host_bytes is not None and config.host_bytes is not None:
        raise InvalidArgument("host_bytes and OffloadConfig.host_bytes: give one of them")
    budget = config.host_bytes if host_bytes is None else host_bytes
    shares = parse_placement("offload", config.optimizer)
    if shares[2] > 0 and not paths:
        raise InvalidArgument(
            "nvme_path is missing: the state that is offloaded to nvme needs a folder on a drive"
        )
    return {
        "optimizer": shares,
        "host_bytes": 0 if budget is None else check_bytes("host_bytes", budget, minimum=1),
        "subgroup_bytes": check_bytes("subgroup_bytes", config.subgroup_bytes or 0),
        "threads": config.threads,
        "nvme_paths": paths,
        "io_engine": config.nvme.io_engine,
        "block_bytes": check_bytes("block_bytes", config.nvme.block_bytes or 0),
        "queue_depth": config.nvme.queue_depth or 0,
        "profile": os.fspath(config.profile or ""),
        "verify_reads": config.nvme.verify_reads,
        "allow_memory_paths": config.nvme.allow_memory_paths,
        "stall_timeout": float(config.stall_timeout),
    }


def parse_placement(name: str, placement: Placement) -> tuple[float, float, float]:
    """The shares of (hbm, host, nvme), which add up to 1. `name` is the argument's, for errors."""
    if isinstance(placement, str):
        placement = {placement: 1.0}
    if not isinstance(placement, Mapping):
        raise InvalidArgument(
            f'{name} is {placement!r}; it may be "cpu", "nvme", their shares as in '
            '{"cpu": 0.6, "nvme": 0.4}, or an OffloadConfig'
        )
    for tier, share in placement.items():
        if tier not in TIERS:
            near = difflib.get_close_matches(str(tier).lower(), TIERS, n=1)
            hint = f": did you mean {near[0]!r}?" if near else ""
            raise InvalidArgument(f"{name}: there is no tier {tier!r} among {TIERS}{hint}")
        if not is_number(share) or not 0 <= share <= 1:
            raise InvalidArgument(f"{name}[{tier!r}] is {share!r}; it must be a share from 0 to 1")
    total = math.fsum(placement.values())
    if abs(total - 1) > 1e-6:
        raise InvalidArgument(f"{name}: the shares in {dict(placement)} add up to {total}, not 1")
    return 0.0, float(placement.get("cpu", 0)), float(placement.get("nvme", 0))


def parse_rules(name: str, rules: Any) -> tuple[FormatRule, ...]:
    """`name` is the argument's, for errors."""
    if isinstance(rules, str) or not isinstance(rules, Sequence):
        raise InvalidArgument(f"{name} is {rules!r}; it must be a list of (regex, settings)")
    parsed = []
    for number, rule in enumerate(rules):
        which = f"{name}[{number}]"
        if isinstance(rule, str) or not isinstance(rule, Sequence) or len(rule) != 2:
            raise InvalidArgument(f"{which} is {rule!r}; it must be a pair: (regex, settings)")
        pattern, settings = rule
        if isinstance(settings, str) or not isinstance(settings, Mapping):
            parse_placement(which, settings)  # a mistake, or what we do not have
            raise Unsupported(f"{which}: a placement for some parameters is not available")
        for key in settings:
            if key != "state_dtype":
                raise Unsupported(f"{which}[{key!r}]: a rule may have 'state_dtype' only")
        if not settings:
            raise InvalidArgument(f"{which} has no 'state_dtype'")
        format = parse_state_dtype(f"{which}['state_dtype']", settings["state_dtype"])
        parsed.append(compile_rule(which, pattern, format))
    return tuple(parsed)


def is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def check_int(name: str, value: Any, minimum: int = 0) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise InvalidArgument(f"{name} is {value!r}; it must be an integer, at least {minimum}")
    return value


def check_bytes(name: str, value: Any, minimum: int = 0) -> int:
    if isinstance(value, str):
        try:
            value = parse_bytes(value)
        except InvalidArgument as error:
            raise InvalidArgument(f"{name}: {error}") from None
    return check_int(name, value, minimum)


def check_paths(name: str, paths: Any) -> list[str]:
    if isinstance(paths, (str, os.PathLike)):
        paths = [paths]
    if not isinstance(paths, Sequence):
        raise InvalidArgument(f"{name} is {paths!r}; it must be a path or a list of paths")
    for path in paths:
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path):
            raise InvalidArgument(f"{name}: {path!r} is not a path")
    return [os.fspath(path) for path in paths]


def refuse_unavailable(config: Any, *names: str) -> None:
    for name in names:
        if getattr(config, name) is not None:
            raise Unsupported(f"{type(config).__name__}.{name}: not available in this version")


def mib(count: int) -> str:
    return f"{count / (1 << 20):.2f} MiB"
