"""Goal: the quickstart's verdict cannot be PASSED when its promise is broken.

Method: two reports that fulfil it, then the same with one figure changed.
"""

import json
import subprocess
import sys

import pytest

MIB = 1 << 20


def report(**changes):
    whole = {
        "losses": [5.5, 4.5],
        "parameters_sha256": "ab" * 32,
        "step_seconds": [0.5, 0.7],
        "peak_resident_bytes": 300 * MIB,
        "resident_bytes_before_engine": 200 * MIB,
        "bytes_by_tier": {"hbm": 0, "host": 0, "nvme": 100 * MIB},
        "host_bytes": 25 * MIB,
        "host_bytes_high_water": 25 * MIB,
        "read_bytes_per_step": [80 * MIB, None],
        "written_bytes_per_step": [None, None],
    }
    return whole | changes


def in_memory(**changes):
    return (
        report(
            bytes_by_tier={"hbm": 0, "host": 100 * MIB, "nvme": 0},
            host_bytes=None,
            host_bytes_high_water=100 * MIB,
        )
        | changes
    )


@pytest.fixture
def compare(load_script):
    return load_script("tools/compare_reports.py")


def test_two_equal_runs(compare):
    assert compare.problems(report(), in_memory()) == []


@pytest.mark.parametrize(
    "offloaded, other, what",
    [
        ({"parameters_sha256": "cd" * 32}, {}, "the final parameters differ"),
        ({"losses": [5.5, 4.25]}, {}, "differ from step 2 on"),
        ({"losses": [5.5]}, {}, "the losses differ"),
        ({"losses": [float("nan")]}, {"losses": [float("nan")]}, "not finite"),
        ({"losses": []}, {"losses": []}, "not finite"),
        ({"bytes_by_tier": {"host": 100 * MIB, "nvme": 0}}, {}, "nothing on NVMe"),
        ({}, {"bytes_by_tier": {"host": 99, "nvme": 1}}, "kept state on NVMe"),
        ({"host_bytes": 26 * MIB}, {}, "no limit"),
        ({"host_bytes": None}, {}, "no limit"),
        ({"host_bytes_high_water": 25 * MIB + 1}, {}, "more host memory than its budget"),
    ],
)
def test_one_broken_promise(compare, offloaded, other, what):
    found = compare.problems(report(**offloaded), in_memory(**other))
    assert what in "; ".join(found)


def test_a_sha_alone_may_not_differ(compare):
    assert len(compare.problems(report(parameters_sha256="0"), in_memory())) == 1


@pytest.mark.parametrize(
    "sha, code, verdict",
    [
        ("ab" * 32, 0, "zoffload quickstart: PASSED - both runs ended with the same bits"),
        ("cd" * 32, 1, "zoffload quickstart: FAILED - the final parameters differ"),
    ],
)
def test_program(repository, tmp_path, sha, code, verdict):
    (tmp_path / "a.json").write_text(json.dumps(report(parameters_sha256=sha)))
    (tmp_path / "b.json").write_text(json.dumps(in_memory()))
    run = subprocess.run(
        [sys.executable, repository / "tools/compare_reports.py", "a.json", "b.json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert run.returncode == code, run.stderr
    assert run.stdout.splitlines()[-1] == verdict
    assert "80.0 MiB" in run.stdout
