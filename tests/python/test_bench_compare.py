"""zoffload-bench compare: the figures are tested in C++; here exit codes and what is printed."""

import csv
import io
import json
import subprocess

import pytest
from bench_tool import find_bench


def document(**samples_by_name):
    results = [
        {
            "name": name,
            "params": {"block_size_bytes": 1 << 20},
            "bandwidth_bytes_per_s": {"samples": samples},
        }
        for name, samples in samples_by_name.items()
    ]
    return {"schema": "zoffload-bench/1", "host": {}, "results": results}


BEFORE = document(read=[990e6, 1000e6, 1010e6], write=[495e6, 500e6, 505e6])
AFTER = document(write=[445e6, 450e6, 455e6], read=[1090e6, 1100e6, 1110e6])  # +10 %, -10 %


@pytest.fixture
def compare(tmp_path):
    """Runs compare on two documents."""
    program = find_bench()

    def run(a, b, *arguments):
        for name, content in (("a.json", a), ("b.json", b)):
            text = content if isinstance(content, str) else json.dumps(content)
            (tmp_path / name).write_text(text)
        files = [tmp_path / "a.json", tmp_path / "b.json"]
        return subprocess.run(
            [program, "compare", *map(str, files), *arguments], capture_output=True, text=True
        )

    return run


def test_table_and_exit_code(compare):
    """Goal: without a threshold every comparison is a success. Method: a gain and a loss."""
    done = compare(BEFORE, AFTER)
    assert done.returncode == 0, done.stderr
    title, read, write = done.stdout.splitlines()
    assert title.split() == ["figure", "A", "B", "change", "noise", "verdict"]
    assert "+10.0 %" in read
    assert read.endswith("better")
    assert "-10.0 %" in write
    assert write.endswith("worse")


@pytest.mark.parametrize(("limit", "code"), [("5%", 1), ("9.9%", 1), ("15%", 0), ("5", 1)])
def test_threshold(compare, limit, code):
    """Goal: --fail-over ends with 1 just if a loss exceeds it. Method: limits around a loss of 10
    %, and a document with itself."""
    assert compare(BEFORE, AFTER, "--fail-over", limit).returncode == code
    assert compare(BEFORE, BEFORE, "--fail-over", limit).returncode == 0


@pytest.mark.parametrize("limit", ["5x", "-5%", "%", "", "5%%", "nan"])
def test_strict_percent(compare, limit):
    """Goal: a threshold that is none is a usage error. Method: texts that look like one."""
    assert compare(BEFORE, AFTER, "--fail-over", limit).returncode == 2


def test_json(compare):
    """Goal: a script finds figures and verdict of every pair. Method: read the document."""
    done = compare(BEFORE, AFTER, "--output", "json", "--fail-over", "5%")
    assert done.returncode == 1
    content = json.loads(done.stdout)
    read = content["results"][0]["details"]
    assert read["a_median_bytes_per_s"] == 1000e6
    assert read["b_median_bytes_per_s"] == 1100e6
    assert read["change_percent"] == pytest.approx(10)
    assert 0 < read["noise_percent"] < 5
    assert read["verdict"] == "better"
    assert content["summary"]["pairs"] == {"better": 1, "worse": 1, "same": 0, "unclear": 0}
    assert len(content["summary"]["failed"]) == 1


def test_unpaired_and_hosts_are_said(compare):
    """Goal: what was not compared, and what makes a comparison unfair, is said. Method: a result
    that only one document has, another kernel."""
    other = document(read=[1e9, 1e9, 1e9])
    other["host"] = {"kernel": "6.8"}
    done = compare(BEFORE | {"host": {"kernel": "6.18"}}, other)
    assert done.returncode == 0, done.stderr
    assert "kernel: 6.18 in A, 6.8 in B" in done.stderr
    assert "write, block size 1 MiB" in done.stderr
    assert "write" not in done.stdout


def test_single_runs_are_unclear(compare):
    """Goal: without repeats nobody is told that a change is real, but a gate does not pass it.
    Method: one sample each, 20 % apart."""
    done = compare(document(read=[1e9]), document(read=[0.8e9]))
    assert done.stdout.splitlines()[1].endswith("unclear")
    assert "--repeats" in done.stderr
    gate = compare(document(read=[1e9]), document(read=[0.8e9]), "--fail-over", "5%")
    assert gate.returncode == 1


@pytest.mark.parametrize("broken", ["", "{", "[]", '{"schema": "zoffload-bench/2"}'])
def test_broken_files(compare, broken):
    """Goal: a file that is no document is exit code 2 and named. Method: several such."""
    done = compare(BEFORE, broken)
    assert done.returncode == 2
    assert "b.json: " in done.stderr
    assert done.stdout == ""


def test_nothing_in_common(compare):
    """Goal: a gate that compares nothing does not pass. Method: other names."""
    done = compare(BEFORE, document(other=[1, 2, 3]), "--fail-over", "5%")
    assert done.returncode == 2
    assert "--ignore" in done.stderr


def test_ignored_parameters_have_the_names_of_their_flags(compare):
    """Goal: what the user typed to measure, and what the table shows, is what --ignore takes; a
    name that nothing has is a mistake. Method: two drives, several spellings."""

    def on(path):
        params = {"paths": [path], "block_size_bytes": len(path)}
        samples = {"samples": [990e6, 1000e6, 1010e6]}
        results = [{"name": "read", "params": params, "bandwidth_bytes_per_s": samples}]
        return {"schema": "zoffload-bench/1", "host": {}, "results": results}

    for names in ("path,block_size", "paths,block_size_bytes", "--path,--block-size"):
        done = compare(on("/mnt/a"), on("/mnt/bb"), f"--ignore={names}")
        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[1].startswith("read")
    done = compare(on("/mnt/a"), on("/mnt/bb"), "--ignore", "pth")
    assert done.returncode == 2
    assert "--ignore: pth" in done.stderr and "paths" in done.stderr


def test_kinds_of_results_keep_to_their_own_parameters(compare):
    """Goal: a parameter that only one kind of result has tells nothing apart, and is not shown.
    Method: two kinds, one of each."""
    a = document(read=[990e6, 1000e6, 1010e6], write=[495e6, 500e6, 505e6])
    a["results"][1]["params"] = {"optimizer_tier": "nvme"}
    _, read, write = compare(a, a).stdout.splitlines()
    assert read.startswith("read  ") and write.startswith("write  ")


def test_csv_has_both_sides(compare):
    """Goal: the form for spreadsheets says all that the table says. Method: Python's reader."""
    done = compare(BEFORE, AFTER, "--output", "csv")
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["verdict"] for row in rows] == ["better", "worse"]
    assert [float(row["a_median_bytes_per_s"]) for row in rows] == [1000e6, 500e6]
    assert [float(row["b_median_bytes_per_s"]) for row in rows] == [1100e6, 450e6]
