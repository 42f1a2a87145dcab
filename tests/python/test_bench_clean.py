"""zoffload-bench clean: what it removes, what it asks, what it leaves alone."""

import fcntl
import json
import os
import pty
import subprocess
from pathlib import Path

import pytest
from bench_tool import find_bench

STALE, LIVE, YOUNG = (f"zoffload-{number}-0123456789abcdef" for number in (1, 2, 3))


@pytest.fixture
def command():
    return [find_bench(), "clean"]


@pytest.fixture
def drive(tmp_path):
    """A stale store, a live one, one without a lock, and a user's own folder."""
    for name in (STALE, LIVE, YOUNG, "data"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "zo-0.dat").write_bytes(b"x" * 65536)
        if name != YOUNG:
            (tmp_path / name / "lock").touch()
    with open(tmp_path / LIVE / "lock", "r+b") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield tmp_path


def left(drive):
    return {path.name for path in drive.iterdir()}


def run(*arguments):
    return subprocess.run(
        list(map(str, arguments)), stdin=subprocess.DEVNULL, capture_output=True, text=True
    )


def test_only_lists_without_a_terminal(command, drive):
    """Goal: a script that forgot --yes removes nothing, and hears so. Method: no terminal."""
    done = run(*command, drive)
    assert done.returncode == 0, done.stderr
    assert STALE in done.stdout
    assert "64.0 KiB" in done.stdout
    assert "--yes" in done.stderr
    assert left(drive) == {STALE, LIVE, YOUNG, "data"}


def test_removes_only_stale_stores(command, drive):
    """Goal: --yes removes what a dead owner left, and nothing else. Method: look before and after;
    a second run finds nothing."""
    done = run(*command, drive, "--yes", "--output", "json")
    assert done.returncode == 0, done.stderr
    assert left(drive) == {LIVE, YOUNG, "data"}
    document = json.loads(done.stdout)
    states = {Path(r["params"]["path"]).name: r["details"] for r in document["results"]}
    assert {name: s["state"] for name, s in states.items()} == {
        STALE: "stale",
        LIVE: "live",
        YOUNG: "no_lock",
    }
    assert {name for name, s in states.items() if s["removed"]} == {STALE}
    assert document["summary"]["removed_bytes"] >= 65536
    again = run(*command, drive, "--yes")
    assert again.returncode == 0
    assert "no store" in again.stderr


def test_keeps_foreign_files(command, drive):
    """Goal: a user's file in a stale store stays, with its folder, and that is said. Method: a note
    and a link named like a swap file."""
    (drive / STALE / "notes.txt").touch()
    (drive / STALE / "zo-1.dat").symlink_to(drive / "data" / "zo-0.dat")
    done = run(*command, drive, "--yes")
    assert done.returncode == 0, done.stderr
    assert {path.name for path in (drive / STALE).iterdir()} == {"notes.txt", "zo-1.dat"}
    assert (drive / "data" / "zo-0.dat").exists()
    assert "the folder stays" in done.stdout


def test_dry_run_removes_nothing(command, drive):
    """Goal: --dry-run wins over --yes. Method: both."""
    done = run(*command, drive, "--yes", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "would remove 1 store" in done.stderr
    assert STALE in left(drive)


@pytest.mark.parametrize(("answer", "removed"), [(b"y\n", True), (b"n\n", False), (b"\n", False)])
def test_asks_on_a_terminal(command, drive, answer, removed):
    """Goal: on a terminal it asks, and takes only a yes for one. Method: a pseudo-terminal."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*command, str(drive)], stdin=theirs, stderr=theirs, stdout=subprocess.PIPE
    )
    os.close(theirs)
    heard = b""
    while b"[y/N]" not in heard:
        heard += os.read(ours, 4096)
    assert STALE.encode() in heard
    os.write(ours, answer)
    process.communicate(timeout=60)
    os.close(ours)
    assert process.returncode == 0
    assert (STALE in left(drive)) is not removed


def test_usage_errors(command, tmp_path):
    """Goal: a folder that is not there is exit code 2. Method: a missing folder, no folder."""
    assert run(*command, tmp_path / "none").returncode == 2
    assert run(*command).returncode == 2
