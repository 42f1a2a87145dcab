"""Where the time went and what was moved, for loggers: one flat dict per step, counters under
Prometheus names, and thin sinks. Nothing is imported here but the standard library.

    csv = zoffload.metrics.CsvWriter("steps.csv")
    for x, y in loader:
        ...; opt.step()
        wandb.log(zoffload.metrics.last_step())
        csv.write()
        zoffload.metrics.write_prometheus("/var/lib/node_exporter/zoffload.prom")

A step's figures cover the time from the end of the step before to its own end: forward, backward
and step(). Where updates run on after step() returned (level 2), those of the step before are in
them. Over all steps nothing is counted twice or left out.

A process may have several optimizers or engines. last_step() is about the one that stepped last, or
about the one given; counters are summed over all. An optimizer whose parameters came in parts has
an engine for each: their bytes, busy and waiting times are added up.
"""

from __future__ import annotations

import contextlib
import csv
import os
import tempfile
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from .errors import Error, InvalidArgument


class Source:
    """What is measured as one: the engines of one optimizer. Its owner keeps it alive."""

    def __init__(self, cores: list):
        self.cores = cores  # the owner's list, which may grow

    def stepped(self) -> None:
        """To be called by the owner when its step() is over."""
        global _latest
        _latest = weakref.ref(self)
        for listener in list(_listeners):
            listener(self)

    def books(self) -> list[dict]:
        """Of each engine; those that could not even say where they ended are left out."""
        books = []
        for core in self.cores:
            with contextlib.suppress(Error):
                books.append(core.books())
        return books


_sources: list[weakref.ref[Source]] = []  # in order of creation
_latest: weakref.ref[Source] | None = None  # that stepped last
_listeners: list[Callable[[Source], None]] = []  # called after each step


def track(cores: list) -> Source:
    source = Source(cores)
    _sources[:] = [ref for ref in _sources if ref() is not None]
    _sources.append(weakref.ref(source))
    return source


def sources() -> list[Source]:
    return [source for ref in _sources if (source := ref()) is not None]


def source_of(owner: Any) -> Source:
    source = getattr(owner, "_metrics", None)
    if not isinstance(source, Source):
        raise InvalidArgument(f"{owner!r} is neither an optimizer nor an engine of zoffload")
    return source


# ---- A step as a flat dict -----------------------------------------------------------------------


def last_step(owner: Any = None) -> dict[str, float | int | str]:
    """The last step of an optimizer or engine; without one, of the one that stepped last. Empty
    before the first step. Times are in seconds; keys with a "/" are parts of the key before it."""
    source = (_latest() if _latest is not None else None) if owner is None else source_of(owner)
    books = [b for b in source.books() if b["step_count"] > 0] if source is not None else []
    if not books:
        return {}
    return {"step": max(b["step_count"] for b in books), **flat([b["step"] for b in books])}


def flat(spents: list[dict]) -> dict[str, float | int | str]:
    """One span of time of several engines as one."""
    seconds = max(spent["seconds"] for spent in spents)
    in_step = sum(spent["in_step_seconds"] for spent in spents)
    stalls = added(spent["stall_seconds"] for spent in spents)
    busy = added(spent["busy_seconds"] for spent in spents)
    moved = added(spent["resource_bytes"] for spent in spents)
    result: dict[str, float | int | str] = {
        "seconds": seconds,
        "seconds/forward_backward": max(0.0, seconds - in_step),
        "seconds/step": in_step,
        "stall_seconds": sum(stalls.values()),
        **{f"stall_seconds/{why}": value for why, value in stalls.items()},
        "worker_seconds": sum(spent["worker_seconds"] for spent in spents),
        **{
            f"busy_seconds/{resource}": value
            for resource, value in busy.items()
            if value > 0 or moved[resource] > 0
        },
    }
    moves: dict[str, int] = {}
    for spent in spents:
        for origin, to, role, count in spent["moves"]:
            key = f"bytes/{origin}_to_{to}"
            moves[key] = moves.get(key, 0) + count
            moves[f"{key}/{role}"] = moves.get(f"{key}/{role}", 0) + count
    result |= moves
    if busy.get("update", 0) > 0:
        result["memory_bytes_per_second"] = moved["update"] / busy["update"]
    bounds = added(spent["bound_seconds"] for spent in spents)
    bounds["user"] = max(0.0, seconds - sum(stalls.values()))
    resource, bound = max(bounds.items(), key=lambda item: item[1])
    result["bound_seconds"] = bound
    result |= {f"bound_seconds/{name}": value for name, value in bounds.items()}
    result["share_of_bound"] = min(1.0, bound / seconds) if seconds > 0 else 0.0
    result["bound_by"] = resource
    return result


def added(dicts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for each in dicts:
        for key, value in each.items():
            total[key] = total.get(key, 0) + value
    return total


# ---- Counters under Prometheus names -------------------------------------------------------------

HELP = {  # name: (type, meaning)
    "zoffload_steps_total": ("counter", "Optimizer steps."),
    "zoffload_skipped_steps_total": (
        "counter",
        "Steps skipped for a gradient that was not finite.",
    ),
    "zoffload_bytes_total": ("counter", "Bytes moved between tiers."),
    "zoffload_stall_seconds_total": ("counter", "Time in which the user's thread waited."),
    "zoffload_busy_seconds_total": ("counter", "Time in which a resource had anything in flight."),
    "zoffload_prefetch_total": ("counter", "Gathers of parameters started ahead, and on demand."),
    "zoffload_ssd_written_bytes_total": (
        "counter",
        "Written to a drive, the first write included.",
    ),
    "zoffload_resident_bytes": ("gauge", "Bytes of training state by where they live."),
    "zoffload_step_seconds": ("gauge", "The last step, by phase."),
    "zoffload_share_of_bound": ("gauge", "Predicted bound of the last step over its time."),
}


def samples() -> list[tuple[str, dict[str, str], float]]:
    """(name, labels, value) of every metric, summed over all optimizers and engines."""
    total: dict[tuple[str, tuple[tuple[str, str], ...]], float] = {}

    def add(name: str, value: float, **labels: str) -> None:
        key = name, tuple((label.rstrip("_"), text) for label, text in labels.items())
        total[key] = total.get(key, 0) + value

    for books in (b for source in sources() for b in source.books()):
        spent = books["total"]
        add("zoffload_steps_total", books["step_count"])
        add("zoffload_skipped_steps_total", books["skipped_step_count"])
        for origin, to, role, count in spent["moves"]:
            add("zoffload_bytes_total", count, from_=origin, to=to, role=role)
        for why, seconds in spent["stall_seconds"].items():
            add("zoffload_stall_seconds_total", seconds, why=why)
        for resource, seconds in spent["busy_seconds"].items():
            add("zoffload_busy_seconds_total", seconds, resource=resource)
        add("zoffload_prefetch_total", books["prefetched_count"], result="ahead")
        add("zoffload_prefetch_total", books["on_demand_count"], result="on_demand")
        for path, first in books["first_written_bytes"].items():
            written = first + spent["resource_bytes"][f"disk write {path}"]
            add("zoffload_ssd_written_bytes_total", written, path=path)
        for tier, role, count in books["resident_bytes"]:
            add("zoffload_resident_bytes", count, tier=tier, role=role)
    step = last_step()
    if step:
        for phase in ("forward_backward", "step"):
            add("zoffload_step_seconds", float(step[f"seconds/{phase}"]), phase=phase)
        add("zoffload_share_of_bound", float(step["share_of_bound"]))
    return [(name, dict(labels), value) for (name, labels), value in total.items()]


def prometheus_text() -> str:
    """All samples in the text format that Prometheus scrapes."""
    lines = []
    by_name: dict[str, list[str]] = {}
    for name, labels, value in samples():
        text = ",".join(f'{label}="{escaped(value)}"' for label, value in labels.items())
        by_name.setdefault(name, []).append(
            f"{name}{{{text}}} {value}" if text else f"{name} {value}"
        )
    for name, series in by_name.items():
        kind, meaning = HELP[name]
        lines += [f"# HELP {name} {meaning}", f"# TYPE {name} {kind}", *series]
    return "".join(f"{line}\n" for line in lines)


def escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def write_prometheus(path: str | os.PathLike) -> None:
    """For the node exporter's textfile collector: replaces the file at once, so that no half of it
    is ever read."""
    path = os.fspath(path)
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path) or ".", suffix=".tmp")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(prometheus_text())
        os.chmod(temporary, 0o644)  # the exporter is another user
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


# ---- Sinks of steps ------------------------------------------------------------------------------


class CsvWriter:
    """A row per step. The first row decides the columns: what a later one has besides is left out,
    what it lacks stays empty."""

    def __init__(self, path: str | os.PathLike):
        self._file = open(path, "w", newline="")  # noqa: SIM115
        self._writer: csv.DictWriter | None = None

    def write(self, row: Mapping[str, Any] | None = None) -> None:
        """Adds a row: last_step() by default, which is left out before the first step."""
        row = last_step() if row is None else row
        if not row:
            return
        if self._writer is None:
            self._writer = csv.DictWriter(self._file, list(row), extrasaction="ignore")
            self._writer.writeheader()
        self._writer.writerow(row)
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> CsvWriter:
        return self

    def __exit__(self, *exception) -> None:
        self.close()


def add_scalars(writer: Any, step: int | None = None, prefix: str = "zoffload/") -> None:
    """Gives the numbers of last_step() to TensorBoard's SummaryWriter, or to anything else that has
    add_scalar(tag, value, global_step)."""
    figures = last_step()
    number = figures.get("step") if step is None else step
    for name, value in figures.items():
        if name != "step" and not isinstance(value, str):
            writer.add_scalar(prefix + name, value, number)
