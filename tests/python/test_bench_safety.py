"""zoffload-bench touches nothing but files of its own, keeps to its limits, and ends cleanly."""

import hashlib
import os
import random
import signal
import subprocess

import pytest
from bench_tool import (
    MIB,
    SMALL,
    bytes_written_by_children,
    find_bench,
    finish,
    start,
    wait_until_busy,
)

# A run that something must end.
UNTIL_STOPPED = (
    *("--size", "16MiB", "--runtime", "60s", "--warmup", "0", "--repeats", "2"),
    *("--force", "--output", "json"),
)


def test_existing_files_are_untouched(bench, tmp_path):
    """Goal: what lies in the folder stays as it is. Method: decoys with likely names, their hashes
    and times before and after."""
    for name in ("data", ".hidden", "zoffload-bench", "(unnamed)", "ds_io_test.pt"):
        (tmp_path / name).write_bytes(os.urandom(10_000))
    (tmp_path / "link").symlink_to(tmp_path / "data")

    def state():
        return {
            path.name: (hashlib.sha256(path.read_bytes()).hexdigest(), path.lstat().st_mtime_ns)
            for path in tmp_path.iterdir()
        }

    before = state()
    for rw in ("read", "write"):
        assert bench("io", "--path", tmp_path, *SMALL, "--rw", rw).code == 0
    assert state() == before


@pytest.mark.parametrize(
    "path, says",
    [
        ("/dev/null", "raw device"),
        ("/dev/vda", "raw device"),
        ("/nonexistent", "no such folder"),
        ("/etc/passwd", "not a folder"),
        ("/proc", "/proc"),
        ("/dev/shm", "--force"),
    ],
)
def test_what_is_no_folder_on_a_drive_is_refused(bench, path, says):
    """Goal: a mistyped path never becomes a target. Method: a table of dangerous ones."""
    if path == "/dev/vda" and not os.path.exists(path):
        pytest.skip("no /dev/vda here")
    done = bench("io", "--path", path, "--rw", "write", "--size", "16MiB", "--runtime", "50ms")
    if path == "/dev/shm" and done.code == 0:
        pytest.skip("/dev/shm is no tmpfs here")
    assert done.code in (2, 4)
    assert says in done.stderr


@pytest.mark.parametrize("limit", [20 * MIB, 24 * MIB + 12345])
def test_max_write_is_kept_to_the_byte(bench, check_document, drive, limit):
    """Goal: never a byte more, and no fewer than whole blocks allow; the document tells the truth.
    Method: the kernel's own count of what the child wrote, where the folder is on a drive."""
    block = 64 << 10
    arguments = ["--rw", "write", "--max-write", limit, "--block-size", block, "--workers", "2"]
    before = bytes_written_by_children()
    done = bench("io", "--path", drive, *UNTIL_STOPPED, *arguments)
    charged = bytes_written_by_children() - before
    assert done.code == 6, done.stderr
    summary = check_document(done.stdout)["summary"]
    written = summary["written_bytes"]
    assert written == limit // block * block
    if charged > 0:  # a file system in memory charges nothing
        assert written <= charged <= written + MIB  # with the file system's own notes
    assert "cut short by --max-write: a larger one would finish it" in summary["warnings"]


def test_files_larger_than_max_write_are_not_begun(bench, drive):
    """Goal: a limit that leaves nothing to measure is said at once. Method: a file above it."""
    done = bench("io", "--path", drive, *SMALL, "--max-write", "1MiB")
    assert done.code == 2 and "--max-write" in done.stderr


@pytest.mark.parametrize("number", range(6))
def test_a_signal_ends_it_with_what_was_measured(check_document, drive, number):
    """Goal: at any moment: the right code, one valid document that says so, no file left.
    Method: SIGINT and SIGTERM after a random number of looks at the process."""
    chance = random.Random(number)
    sent, code = ((signal.SIGINT, 130), (signal.SIGTERM, 143))[number % 2]
    rw = chance.choice(["read", "write", "mixed"])
    process = start("io", "--path", drive, *UNTIL_STOPPED, "--rw", rw, "--verify", "xxh3")
    wait_until_busy(process, drive)
    for _ in range(chance.randrange(2000)):
        os.stat(drive)
    process.send_signal(sent)
    done = finish(process)
    assert done.code == code, done.stderr
    document = check_document(done.stdout)
    assert document["summary"]["interrupted"] is True
    assert all(result["interrupted"] for result in document["results"])


def cpu_seconds(pid):
    """Of the process so far, as the kernel has counted: never more than it has had time for."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_what_was_measured_before_a_signal_is_kept(check_document, drive):
    """Goal: whole repeats survive. Method: a signal when the child has computed for many times as
    long as a repeat lasts, on any number of threads; small blocks keep the CPU busy."""
    lists = ["--block-size", "4KiB,8KiB", "--repeats", "10000", "--direct", "off"]
    short = ["--size", "16MiB", "--runtime", "1ms", "--warmup", "0", "--force", "--output", "json"]
    process = start("io", "--path", drive, *short, *lists)
    wait_until_busy(process, drive)
    begun = cpu_seconds(process.pid)
    while process.poll() is None and cpu_seconds(process.pid) < begun + 0.3:
        pass
    process.send_signal(signal.SIGINT)
    done = finish(process)
    assert done.code == 130
    results = check_document(done.stdout)["results"]
    assert results and all(r["bandwidth_bytes_per_s"]["samples"] for r in results)


def test_a_second_signal_ends_it_at_once(drive):
    """Goal: nobody is trapped. Method: stop the process, send two, let it go on."""
    process = start("io", "--path", drive, *UNTIL_STOPPED)
    wait_until_busy(process, drive)
    process.send_signal(signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGTERM)
    process.send_signal(signal.SIGCONT)
    done = finish(process)
    assert done.code in (-signal.SIGTERM, -signal.SIGINT)


def test_a_background_job_can_be_interrupted(drive):
    """Goal: the handler is installed where SIGINT came in ignored. Method: start it so."""
    process = subprocess.Popen(
        [find_bench(), "io", "--path", drive, *UNTIL_STOPPED],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    )
    wait_until_busy(process, drive)
    process.send_signal(signal.SIGINT)
    assert finish(process).code == 130


def test_kill_leaves_nothing(drive):
    """Goal: even SIGKILL leaves no file; the fixture looks. Method: kill it while it writes."""
    process = start("io", "--path", drive, *UNTIL_STOPPED, "--rw", "write")
    wait_until_busy(process, drive)
    process.kill()
    assert finish(process).code == -signal.SIGKILL
