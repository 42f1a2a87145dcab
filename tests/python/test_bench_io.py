"""zoffload-bench io: every workload measures what it says, on small files."""

import contextlib
import os
import subprocess
from pathlib import Path

import pytest
from bench_tool import MIB, SMALL, finish, start, wait_until_busy

JSON = (*SMALL, "--output", "json")
ONCE = ("--repeats", "1")


@pytest.fixture
def measure(bench, check_document, drive):
    """Runs io on a folder; it must succeed. Its document."""

    def run(*arguments):
        done = bench("io", "--path", drive, *JSON, *arguments)
        assert done.code == 0, done.stderr
        return check_document(done.stdout)

    return run


@pytest.mark.parametrize("engine", ["uring", "libaio", "threads"])
@pytest.mark.parametrize(
    "rw, share", [("read", 1), ("write", 0), ("mixed", 0.5), ("mixed:70", 0.7)]
)
def test_every_workload_on_every_engine(bench, check_document, drive, engine, rw, share):
    """Goal: bytes, rates and details agree with each other. Method: each workload, verified."""
    arguments = [
        "--rw",
        rw,
        "--engine",
        engine,
        "--verify",
        "xxh3",
        "--block-size",
        "256KiB",
        *ONCE,
    ]
    done = bench("io", "--path", drive, *JSON, *arguments)
    if done.code == 3:
        pytest.skip(done.stderr)
    assert done.code == 0, done.stderr
    document = check_document(done.stdout)
    (result,) = document["results"]
    assert result["name"] == rw.split(":")[0]
    assert result["params"]["read_share"] == pytest.approx(share)
    assert engine in result["params"]["engine"]
    assert result["verified"] is True and result["errors"] == 0
    assert result["bytes"] > 0 and result["bytes"] % (256 << 10) == 0
    rate = result["bandwidth_bytes_per_s"]["median"]
    assert rate == pytest.approx(result["bytes"] / result["seconds"])
    details = result["details"]
    assert details["path_bytes_per_s"][str(drive)] == pytest.approx(rate)
    read, written = details["read_bytes"], result["bytes"] - details["read_bytes"]
    assert (read > 0) == (share > 0)
    assert (written > 0) == (share < 1)
    assert (details["checked_blocks"] > 0) == (share > 0)
    assert result["written_bytes"] >= 16 * MIB + written  # the file itself is written too
    latency = list(result["latency_ns"].values())
    assert 0 < latency[0] and latency == sorted(latency)


def test_blocks_in_flight_are_not_read_beside_their_write(measure):
    """Goal: verification sees no fault where there is none. Method: more depth than blocks, random
    order, reads and writes."""
    small = ["--block-size", "1MiB", "--queue-depth", "32", "--verify", "xxh3", "--random"]
    (result,) = measure("--rw", "mixed", *small)["results"]
    assert result["verified"] is True and result["details"]["checked_blocks"] > 0


def test_comma_lists_are_swept(measure):
    """Goal: one result for each combination. Method: two blocks, depths and worker counts."""
    lists = ["--block-size", "64KiB,1M", "--queue-depth", "1,4", "--workers", "1,2"]
    results = measure(*lists, "--repeats", "2")["results"]
    seen = {
        (p["block_size_bytes"], p["queue_depth"], p["workers"])
        for p in (result["params"] for result in results)
    }
    assert seen == {(b, d, w) for b in (64 << 10, MIB) for d in (1, 4) for w in (1, 2)}
    assert all(len(r["bandwidth_bytes_per_s"]["samples"]) == 2 for r in results)
    assert sum(r["written_bytes"] for r in results) == 16 * MIB  # one set of files serves all


def measure_paths(bench, check_document, folders):
    paths = [argument for folder in folders for argument in ("--path", folder)]
    done = bench("io", *paths, *JSON, *ONCE, "--random")
    assert done.code == 0, done.stderr
    return check_document(done.stdout)["results"][0]


def test_several_paths_are_loaded_together(bench, check_document, drive):
    """Goal: every path has its share. Method: two folders; their rates add up to the whole."""
    folders = [drive / "a", drive / "b"]
    for folder in folders:
        folder.mkdir()
    result = measure_paths(bench, check_document, folders)
    rates = result["details"]["path_bytes_per_s"]
    assert set(rates) == {str(folder) for folder in folders}
    assert all(rate > 0 for rate in rates.values())
    assert sum(rates.values()) == pytest.approx(result["bandwidth_bytes_per_s"]["median"])
    assert result["params"]["order"] == "random"
    for folder in folders:
        folder.rmdir()


def test_deepspeed_spellings_and_config(measure, tmp_path):
    """Goal: a DeepSpeed user's flags and file work; flags win over the file. Method: both."""
    config = tmp_path / "ds.json"
    config.write_text('{"aio": {"block_size": 524288, "queue_depth": 4, "single_submit": false}}')
    arguments = ["--config", config, "--queue_depth", "2", "--io_parallel=2"]
    params = measure(*arguments)["results"][0]["params"]
    assert params["block_size_bytes"] == 524288
    assert params["queue_depth"] == 2
    assert params["workers"] == 2


def test_sustained_reports_both_speeds(bench, check_document, drive):
    """Goal: a sustained run stops at its limit, says so, and is done. Method: a small limit; the
    search for the knee itself is tested in C++."""
    arguments = ["--rw", "write", "--sustained", "--max-write", "48MiB"]
    done = bench("io", "--path", drive, *JSON, *arguments)
    assert done.code == 0, done.stderr
    document = check_document(done.stdout)
    (result,) = document["results"]
    assert result["name"] == "write.sustained"
    assert result["details"]["knee_found"] is False
    assert result["details"]["early_bytes_per_s"] > 0
    assert document["summary"]["written_bytes"] == 48 * MIB
    assert "did not break in" in done.stderr


def test_a_short_write_run_warns_of_the_cache(measure):
    """Goal: nobody takes a cache's speed for a drive's. Method: a short run's warnings."""
    warnings = measure("--rw", "write")["summary"]["warnings"]
    assert any("write cache" in warning for warning in warnings)
    assert not any("write cache" in w for w in measure("--rw", "read")["summary"]["warnings"])


def corrupt_open_files(pid, folder):
    """Overwrites the files without a name that the process has open in `folder`."""
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            if not os.readlink(link).startswith(str(folder) + "/"):
                continue
            with open(link, "r+b", buffering=0) as file:
                os.pwrite(file.fileno(), b"corrupt" * MIB, 0)
                os.fsync(file.fileno())
        except OSError:  # closed meanwhile
            continue


def test_wrong_bytes_are_found(check_document, drive):
    """Goal: exit code 5, with path and offset. Method: write over the program's open file."""
    long = ["--size", "16MiB", "--runtime", "60s", "--repeats", "1", "--force"]
    arguments = [*long, "--verify", "xxh3", "--output", "json", "--no-fixed-buffers"]
    process = start("io", "--path", drive, *arguments)
    wait_until_busy(process, drive)
    for _ in range(1000):  # it is done after a few; the file may still be being written at first
        corrupt_open_files(process.pid, drive)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=0.05)
            break
    process.kill()
    done = finish(process)
    assert done.code == 5, done.stderr
    assert str(drive) in done.stderr and "at offset" in done.stderr
    (result,) = check_document(done.stdout)["results"]
    assert result["verified"] is False and result["errors"] == 1
