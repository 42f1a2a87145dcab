"""zoffload.trace(): what happened in the next steps, as a file that opens in Perfetto
(https://ui.perfetto.dev) or chrome://tracing.

    zoffload.trace("step.json", steps=2)     # of the steps that come next; the file is then written

    with zoffload.trace("step.json", steps=2):   # or earlier, where the block ends
        train()

There is one track per resource; where a resource has several things in flight at once, each of them
has a track of its own. A step's updates that run on under the next step are there.
"""

from __future__ import annotations

import atexit
import json
import os
import warnings
from typing import Any

from . import metrics
from .errors import Error, InvalidArgument, IoError

CAPACITY = 1 << 16  # events between two steps, per engine
USER = "user's thread"

Event = tuple[str, str, int, int, int]  # track, name, begin_ns, end_ns, bytes

_active: Trace | None = None


class Trace:
    """A recording that goes on. It ends by itself when any optimizer or engine has done `steps`."""

    def __init__(self, path: str | os.PathLike, steps: int, capacity: int):
        self.path = os.fspath(path)
        self._steps = steps
        self._capacity = capacity
        self._events: dict[Any, list[Event]] = {}  # by core, in order of their start
        self._dropped: dict[Any, int] = {}
        self._done: dict[metrics.Source, int] = {}  # steps
        self._ended = False
        try:
            self._write([])  # what cannot be written is known now
        except OSError as error:
            raise IoError(error.errno, f"trace(): {error.strerror}", self.path) from None
        self._start()
        metrics._listeners.append(self._after_step)
        atexit.register(self.stop)

    def _start(self) -> None:
        """On the engines that do not record yet."""
        for source in metrics.sources():
            for core in source.cores:
                if core in self._events:
                    continue
                try:
                    core.start_trace(self._capacity)
                except Error:  # it is closed
                    continue
                self._events[core] = []

    def _after_step(self, source: metrics.Source) -> None:
        self._start()
        self._take()
        self._done[source] = self._done.get(source, 0) + 1
        if self._done[source] >= self._steps:
            self.stop()

    def _take(self, last: bool = False) -> None:
        for core, events in self._events.items():
            try:
                if last:
                    core.stop_trace()
                taken, self._dropped[core] = core.take_trace()
            except Error:  # it was closed
                continue
            events += taken

    def stop(self) -> None:
        """Ends it and writes the file; may be repeated."""
        global _active
        if self._ended:
            return
        self._ended = True
        _active = None
        metrics._listeners.remove(self._after_step)
        atexit.unregister(self.stop)
        self._take(last=True)
        dropped = sum(self._dropped.values())
        if dropped > 0:
            warnings.warn(
                f"trace {self.path}: {dropped} events did not fit and are missing", stacklevel=2
            )
        try:
            self._write(chrome_events(list(self._events.values())), dropped)
        except OSError as error:  # no reason to end a training run
            warnings.warn(f"trace {self.path} was not written: {error}", stacklevel=2)

    def _write(self, events: list[dict], dropped: int = 0) -> None:
        text = json.dumps({"traceEvents": events, "otherData": {"dropped_events": dropped}})
        with open(self.path, "w") as file:
            file.write(text)

    def __enter__(self) -> Trace:
        return self

    def __exit__(self, *exception) -> None:
        self.stop()


def trace(path: str | os.PathLike, steps: int = 1, capacity: int = CAPACITY) -> Trace:
    """Records the next `steps` steps and writes them to `path`, which is replaced. `capacity` is
    the number of events for which memory is reserved, per engine and step; more are counted and
    left out."""
    global _active
    for name, value in (("steps", steps), ("capacity", capacity)):
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value < 1 << 31:
            raise InvalidArgument(f"trace(): {name} is {value!r}; it must be at least 1")
    if _active is not None:
        raise InvalidArgument(f"trace(): one is recorded already, for {_active.path}")
    _active = Trace(path, steps, capacity)
    return _active


# ---- The format ----------------------------------------------------------------------------------


def track_rank(track: str) -> tuple[int, str]:
    """From the top: the user, then storage, link, CPU."""
    order = (USER, "disk", "link", "device", "CPU", "collectives")
    rank = next((i for i, begin in enumerate(order) if track.startswith(begin)), len(order))
    return rank, track


def lanes_of(events: list[Event]) -> list[list[Event]]:
    """Events that overlap go to different lanes."""
    lanes: list[list[Event]] = []
    for event in sorted(events, key=lambda e: (e[2], e[3])):
        free = next((lane for lane in lanes if lane[-1][3] <= event[2]), None)
        if free is None:
            lanes.append([event])
        else:
            free.append(event)
    return lanes


def chrome_events(engines: list[list[Event]]) -> list[dict]:
    """A process per engine, a thread per lane, complete ("X") events in microseconds."""
    begin_ns = min((event[2] for events in engines for event in events), default=0)
    result: list[dict] = []
    for pid, events in enumerate(engines, 1):
        result.append(named("process_name", pid, 0, name=f"zoffload engine {pid}"))
        tracks: dict[str, list[Event]] = {}
        for event in events:
            tracks.setdefault(event[0], []).append(event)
        tid = 0
        for track in sorted(tracks, key=track_rank):
            mine = tracks[track]
            # The user does one thing at a time: waits lie inside of what they are a part of.
            nested = sorted(mine, key=lambda e: (e[2], -e[3]))
            for number, lane in enumerate([nested] if track == USER else lanes_of(mine), 1):
                tid += 1
                name = track if number == 1 else f"{track} ({number})"
                result.append(named("thread_name", pid, tid, name=name))
                result.append(named("thread_sort_index", pid, tid, sort_index=tid))
                result += [complete(event, pid, tid, begin_ns) for event in lane]
    return result


def named(what: str, pid: int, tid: int, **args: Any) -> dict:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": args}


def complete(event: Event, pid: int, tid: int, begin_ns: int) -> dict:
    _, name, begin, end, count = event
    times = {"ts": (begin - begin_ns) / 1e3, "dur": (end - begin) / 1e3}
    return {"ph": "X", "name": name, "pid": pid, "tid": tid, **times, "args": {"bytes": count}}
