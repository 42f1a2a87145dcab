"""The tuner and the profile of zoffload-bench, end to end on small files.

What the search finds is tested on model drives (tests/unit/bench_path_tuner_test.cc); here: that
it is said in the right places, fits our own config, keeps to its budgets and leaves nothing behind.
"""

import json
import subprocess

import pytest
from bench_tool import MIB, find_bench
from zoffload import _core

SMALL = ["--size", "16MiB", "--repeats", "1"]
SMALL += ["--engine", "threads", "--force"]  # forced: the temporary folder may be memory
NARROW = ["--block-size", "1MiB", "--workers", "1", "--max-depth", "2", "--runtime", "50ms"]


def run(*arguments):
    return subprocess.run([find_bench(), *map(str, arguments)], capture_output=True, text=True)


def test_tune_says_what_it_tried_and_chose(check_document, drive):
    """Goal: the document is valid, holds every candidate, the choice is one of them, and our own
    reader takes the fragment. Method: a narrow search."""
    done = run("tune", "--path", drive, *SMALL, *NARROW, "--output", "json")
    assert done.returncode == 0, done.stderr
    document = check_document(done.stdout)

    params = [result["params"] for result in document["results"]]
    assert {p["queue_depth"] for p in params} == {1, 2}
    (choice,) = document["summary"]["paths"]
    assert choice["path"] == str(drive.resolve())
    assert choice["complete"] is True
    keys = ("engine", "workers", "block_size_bytes", "queue_depth")
    assert {key: choice[key] for key in keys} in [{key: p[key] for key in keys} for p in params]

    aio = document["config"]["aio"]
    # No key whose value is DeepSpeed's default: those without effect here bring a warning each.
    assert aio == {"block_size": MIB, "queue_depth": choice["queue_depth"]}
    assert document["config"]["zoffload"]["io_engine"] == "threads"
    file = {"train_batch_size": 1, "zero_optimization": {"stage": 3}} | document["config"]
    config = _core.parse_config(json.dumps(file), 1)
    assert config.io_queue_depth == choice["queue_depth"]
    assert config.io_engine == "threads"


def test_tune_prints_the_choice_and_the_config(drive):
    """Goal: the table ends in what a user pastes. Method: parse the last block of it."""
    done = run("tune", "--path", drive, *SMALL, *NARROW)
    assert done.returncode == 0, done.stderr
    table, config = done.stdout.split("\n\n{")
    assert f"{drive.resolve()}: threads, 1MiB x " in table
    assert "aio" in json.loads("{" + config)


@pytest.mark.parametrize("limit", [8 * MIB, 20 * MIB])
def test_tune_keeps_to_its_write_budget(drive, limit):
    """Goal: not a byte above --max-write, and what was found until then is told. Method: no room
    for the file of 16 MiB; room for the file but not for the search."""
    arguments = [*SMALL, "--max-depth", "2", "--workers", "1", "--runtime", "100ms"]
    arguments += ["--output", "json"]
    done = run("tune", "--path", drive, *arguments, "--max-write", limit)
    assert done.returncode == 6, done.stderr
    assert "cut short by --max-write" in done.stderr
    document = json.loads(done.stdout)
    written = sum(result["written_bytes"] for result in document["results"])
    assert written <= limit
    assert written == 0 or limit > 16 * MIB
    assert all(not choice["complete"] for choice in document["summary"]["paths"])


def test_tune_refuses_what_cannot_be(drive, tmp_path):
    """Goal: mistakes are told before anything is written. Method: one command line each."""
    for arguments, message in [
        ([], "--path is missing"),
        (["--path", tmp_path / "none"], "none"),
        (["--path", drive, "--block-size", "5000"], "not a multiple of 4096"),
        (["--path", drive, "--engine", "mmap"], "none of auto, uring, libaio, threads"),
    ]:
        done = run("tune", *arguments)
        assert done.returncode in (2, 4), arguments
        assert message in done.stderr
        assert done.stdout == ""


def test_dry_runs_say_what_would_be_written(drive, tmp_path):
    """Goal: a dry run writes nothing. Method: the folder and the profile afterwards."""
    file = tmp_path / "profile.json"
    for command in (["tune"], ["profile", "--profile-out", file]):
        done = run(*command, "--path", drive, "--force", "--dry-run")
        assert done.returncode == 0, done.stderr
        assert "would write at most 32GiB" in done.stdout
        assert str(drive.resolve()) in done.stdout
    assert not file.exists()


def profile(drive, file, *more):
    # Long enough for something to move in each measurement on a busy machine; few of them.
    brief = ["--runtime", "50ms", "--max-depth", "1", "--numel", "64Ki"]
    return run("profile", "--path", drive, *SMALL, *brief, "--profile-out", file, *more)


def test_profile_holds_every_figure(drive, tmp_path):
    """Goal: the file has all that the engine and the planner read, and the config names it.
    Method: one profile; the reader's own rules are tested in tests/unit/profile_test.cc."""
    file = tmp_path / "profile.json"
    file.write_text('{"schema": "zoffload-profile/0"}')  # an older one is replaced
    done = profile(drive, file, "--output", "json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    written = json.loads(file.read_text())
    assert written == document["summary"]["profile"]
    assert document["config"] == {"zoffload": {"profile": str(file)}}
    assert written["schema"] == "zoffload-profile/1"
    (path,) = written["paths"]
    assert path["path"] == str(drive.resolve())
    assert path["io_engine"] == "threads"
    assert path["queue_depth"] == 1
    figures = [path[f"{way}_bytes_per_s"] for way in ("read", "write", "mixed")]
    figures += [update["numel_per_s"] for update in written["updates"]]
    figures += [written["memory_bytes_per_s"], *written["link"].values()]
    assert min(figures) > 0
    assert {update["dtype"] for update in written["updates"]} == {"fp32", "bf16"}
    assert len(written["link"]) == 3
    assert sorted(tmp_path.iterdir()) == [drive, file]  # and no draft


def test_profile_keeps_files_that_are_not_its_own(drive, tmp_path):
    """Goal: no file of the user's is overwritten. Method: other JSON, other text."""
    file = tmp_path / "profile.json"
    for text in ('{"schema": "zoffload-bench/1"}', "[1]", "notes"):
        file.write_text(text)
        done = profile(drive, file)
        assert done.returncode == 2
        assert "no zoffload profile" in done.stderr
        assert file.read_text() == text


def test_profile_writes_nothing_half_measured(drive, tmp_path):
    """Goal: a profile that is cut short leaves the old one as it was. Method: a write budget
    with no room for the search."""
    file = tmp_path / "profile.json"
    old = '{"schema": "zoffload-profile/1"}'
    file.write_text(old)
    done = profile(drive, file, "--max-write", 20 * MIB)
    assert done.returncode == 6, done.stderr
    assert "no profile was written" in done.stderr
    assert file.read_text() == old
