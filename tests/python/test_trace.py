"""zoffload.trace(): files that the viewers of Chrome traces accept, and names that users know."""

import json
import warnings

import pytest

torch = pytest.importorskip("torch")

import zoffload  # noqa: E402
from optim_toys import Net, place, train  # noqa: E402
from toys import train_engine  # noqa: E402
from zoffload import errors, tracing  # noqa: E402


def read(path):
    """The events of a trace by track, checked against the format: complete events with times that
    make sense, in order on each track, on tracks that metadata names."""
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    names = {
        (e["pid"], e["tid"]): e["args"]["name"]
        for e in events
        if e["ph"] == "M" and e["name"] == "thread_name"
    }
    tracks = {}
    ends = {}
    for event in events:
        if event["ph"] == "M":
            continue
        assert event["ph"] == "X"
        assert event["dur"] >= 0
        assert event["ts"] >= 0
        track = event["pid"], event["tid"]
        tracks.setdefault(names[track], []).append(event)
        open_ends = ends.setdefault(track, [])
        mine = tracks[names[track]]
        assert len(mine) == 1 or mine[-2]["ts"] <= event["ts"]
        # On one track, events follow each other or lie inside each other.
        while open_ends and open_ends[-1] <= event["ts"] + 1e-6:
            open_ends.pop()
        end = event["ts"] + event["dur"]
        assert not open_ends or end <= open_ends[-1] + 1e-3
        open_ends.append(end)
    return tracks


def names_on(tracks, begin):
    return {e["name"] for name, es in tracks.items() if name.startswith(begin) for e in es}


def test_the_next_steps_of_an_engine(open_engine, tmp_path):
    """Method: two of three steps, from NVMe; loads, updates, copies and the user's own time are
    there, under the names of the model's parts."""
    engine = open_engine(tier="nvme")
    train_engine(engine, 1)
    zoffload.trace(tmp_path / "step.json", steps=2)
    train_engine(engine, 2, first=1)
    tracks = read(tmp_path / "step.json")
    user = [e["name"] for e in tracks[tracing.USER]]
    assert user.count("step") == 2
    assert user.count("forward and backward") == 2
    assert any(name.startswith("wait for ") for name in user)
    bucket = engine._cut.buckets[0].name
    loads = names_on(tracks, "disk read")
    assert f"load exp_avg of {bucket}, subgroup 0" in loads
    assert f"store exp_avg of {bucket}, subgroup 0" in names_on(tracks, "disk write")
    updates = [name for name in names_on(tracks, "CPU workers") if ": update" in name]
    assert any(name.endswith(f"update subgroup 0 of {bucket}") for name in updates)
    assert names_on(tracks, "link up")
    train_engine(engine, 1, first=3)  # nobody records any more
    assert read(tmp_path / "step.json") == tracks


def test_a_block_ends_it_early(tmp_path):
    """Method: level 1, two steps of nine; an optimizer made inside the block is seen."""
    net = Net()
    with warnings.catch_warnings(), zoffload.trace(tmp_path / "t.json", steps=9):
        warnings.simplefilter("ignore")
        opt = zoffload.AdamW(net.parameters(), offload=place("nvme", tmp_path))
        train(net, opt, 2)
    tracks = read(tmp_path / "t.json")
    assert [e["name"] for e in tracks[tracing.USER]].count("settle") >= 1
    assert names_on(tracks, "disk write")
    opt.close()


def test_an_engine_that_is_closed_loses_only_its_last_step(tmp_path):
    net = Net()
    opt = zoffload.AdamW(net.parameters(), offload="cpu")
    recording = zoffload.trace(tmp_path / "t.json", steps=9)
    train(net, opt, 2)
    opt.close()
    recording.stop()
    recording.stop()
    assert "step" in names_on(read(tmp_path / "t.json"), tracing.USER)


def test_what_does_not_fit_is_said(tmp_path):
    """Method: room for three events."""
    net = Net()
    opt = zoffload.AdamW(net.parameters(), offload="cpu")
    zoffload.trace(tmp_path / "t.json", steps=1, capacity=3)
    with pytest.warns(UserWarning, match="events did not fit"):
        train(net, opt, 1)
    with open(tmp_path / "t.json") as file:
        assert json.load(file)["otherData"]["dropped_events"] > 0
    opt.close()


def test_bad_input_fails_at_the_call(tmp_path):
    for steps in (0, -1, 1.5, True, None):
        with pytest.raises(errors.InvalidArgument, match="steps"):
            zoffload.trace(tmp_path / "t.json", steps=steps)
    with pytest.raises(errors.InvalidArgument, match="capacity"):
        zoffload.trace(tmp_path / "t.json", capacity=0)
    with pytest.raises(errors.IoError) as error:
        zoffload.trace(tmp_path / "missing" / "t.json")
    assert error.value.filename.endswith("t.json")
    with zoffload.trace(tmp_path / "t.json"):
        with pytest.raises(errors.InvalidArgument, match="recorded already"):
            zoffload.trace(tmp_path / "u.json")
    assert read(tmp_path / "t.json") == {}


def test_lanes_hold_what_overlaps():
    """Method: three events, of which two overlap the first."""
    events = [("disk read /a", n, b, e, 0) for n, b, e in (("x", 0, 9), ("y", 3, 5), ("z", 5, 8))]
    lanes = tracing.lanes_of(events)
    assert [[event[1] for event in lane] for lane in lanes] == [["x"], ["y", "z"]]
