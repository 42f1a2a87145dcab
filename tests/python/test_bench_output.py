"""zoffload-bench's results: one document, in three forms, in the right place."""

import csv
import io
import json
import os
import subprocess

import pytest
from bench_tool import SMALL, find_bench

SWEEP = (*SMALL, "--block-size", "64KiB,1MiB", "--repeats", "1")


def test_json_is_one_document_and_nothing_else(bench, check_document, drive):
    """Goal: stdout is exactly one valid document with all that identifies the run; the rest is on
    stderr. Method: parse, and compare with what was asked."""
    done = bench("io", "--path", drive, *SMALL, "--output", "json", "--label", 'a "b", \N{SNOWMAN}')
    document = check_document(done.stdout)
    assert done.stdout == json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    assert document["label"] == 'a "b", \N{SNOWMAN}'
    assert document["argv"][1:4] == ["io", "--path", str(drive)]
    assert document["tool"]["version"] and document["tool"]["git"]
    assert document["host"]
    assert "writes 16.0 MiB" in done.stderr


def test_csv_has_a_line_for_each_result(bench, drive):
    """Goal: a file that spreadsheets read. Method: Python's reader, a label that needs quotes."""
    done = bench("io", "--path", drive, *SWEEP, "--output", "csv", "--label", 'x,"y"')
    rows = list(csv.DictReader(io.StringIO(done.stdout)))
    assert [row["block_size_bytes"] for row in rows] == ["65536", "1048576"]
    for row in rows:
        assert row["name"] == "read" and row["label"] == 'x,"y"'
        assert float(row["bandwidth_median_bytes_per_s"]) > 0
        assert int(row["latency_p50_ns"]) <= int(row["latency_p99_ns"])


def test_table_says_both_units(bench, drive):
    """Goal: GiB/s and GB/s side by side; shared parameters once. Method: read the lines."""
    done = bench("io", "--path", drive, *SWEEP)
    common, table = done.stdout.split("\nwhat ")
    titles, *rows = ("what " + table).splitlines()
    assert "queue_depth 8" in common and "queue_depth" not in titles
    assert all(len(line) <= 120 for line in common.splitlines())
    assert titles.split()[:2] == ["what", "block_size"]
    assert [row.split()[1] for row in rows] == ["64KiB", "1MiB"]
    assert all("iB/s (" in row and "B/s)" in row for row in rows)


def test_out_and_json_write_a_file(bench, check_document, drive, tmp_path):
    """Goal: --out replaces stdout, and --json FILE is short for it. Method: both forms."""
    for number, flags in enumerate((["--output", "json", "--out"], ["--json"])):
        file = tmp_path / f"{number}.json"
        done = bench("io", "--path", drive, *SMALL, *flags, file)
        assert (done.code, done.stdout) == (0, "")
        assert check_document(file.read_text())["results"]


def test_quiet_says_nothing(bench, drive):
    """Goal: --quiet leaves only warnings. Method: a read run on a drive has none."""
    done = bench("io", "--path", drive, *SMALL, "--quiet", "--output", "csv")
    assert all(line.startswith("warning: ") for line in done.stderr.splitlines())


def test_dry_run_writes_nothing_and_says_what_it_would(bench, check_document, drive):
    """Goal: the plan, and no bytes. Method: file, table and document."""
    done = bench("io", "--path", drive, "--size", "64MiB", "--force", "--dry-run")
    assert done.code == 0 and "writes 64.0 MiB" in done.stdout
    done = bench(
        "io", "--path", drive, "--size", "64MiB", "--force", "--dry-run", "--output", "json"
    )
    document = check_document(done.stdout)
    assert document["results"] == []
    assert document["summary"]["planned_fill_bytes"] == 64 << 20
    assert "written_bytes" not in document["summary"]


@pytest.mark.parametrize(
    "command", ["io", "tune", "profile", "pipeline", "link", "adam", "collective"]
)
def test_the_plan_is_the_result_of_a_dry_run(bench, check_document, drive, command):  # noqa: F811
    """Goal: --dry-run of every command prints its plan where results go, in each form, also with
    --quiet. Method: table and document."""
    flags = ["--dry-run", "--quiet"]
    if command in ("io", "tune", "profile", "pipeline"):
        flags += ["--path", drive, "--force"]
    table = bench(command, *flags)
    assert table.code == 0, table.stderr
    assert table.stdout and table.stderr == ""
    summary = check_document(bench(command, *flags, "--output", "json").stdout)["summary"]
    assert summary["dry_run"] is True
    assert summary["plan"] == table.stdout.splitlines()


def test_findings_are_a_table_too(bench):  # noqa: F811
    """Goal: `probe --output csv` has a line for each finding. Method: the lines of the table."""
    rows = list(csv.DictReader(io.StringIO(bench("probe", "--output", "csv").stdout)))
    table = bench("probe").stdout.splitlines()
    assert [row["what"] for row in rows] == [line[6:17].strip() for line in table]
    assert all(row["level"] in ("ok", "warn", "fail") and row["says"] for row in rows)


def test_csv_has_the_figures_of_the_command(bench):  # noqa: F811
    """Goal: what only this command measures is in its CSV. Method: the bus bandwidth, and a time
    that the table can show."""
    brief = ["--runtime", "1ms", "--repeats", "1", "--op", "all_gather", "--ranks", "2"]
    done = bench("collective", *brief, "--size", "1KiB", "--output", "csv")
    (row,) = csv.DictReader(io.StringIO(done.stdout))
    assert float(row["bus_bytes_per_s"]) == pytest.approx(float(row["algorithm_bytes_per_s"]) / 2)
    (_, shown) = bench("collective", *brief, "--size", "1B").stdout.splitlines()
    assert shown.split()[2] == "1B"
    assert shown.split()[3] != "0"


def test_cpu_time_is_of_a_gib(bench, drive):  # noqa: F811
    """Goal: measurements of different length can be compared. Method: the title, and the figure
    of the document."""
    file = drive.parent / "result.json"
    assert bench("io", "--path", drive, *SMALL, "--json", file).code == 0
    (result,) = json.loads(file.read_text())["results"]
    per_gib = result["cpu_seconds"] / (result["bytes"] / 2**30)
    assert result["details"]["cpu_seconds_per_gib"] == pytest.approx(per_gib)
    assert "CPU per GiB" in bench("io", "--path", drive, *SMALL).stdout


def test_what_was_not_measured_is_no_result(bench, check_document, drive):  # noqa: F811
    """Goal: no figure of 0 GiB/s for a write that never began. Method: a budget that the file
    alone takes."""
    done = bench(
        *("io", "--path", drive, *SMALL, "--rw", "write", "--max-write", "16MiB"),
        *("--output", "json"),
    )
    assert done.code == 6
    assert check_document(done.stdout)["results"] == []


@pytest.mark.parametrize("flags", [[], ["--output", "json"]])
def test_a_reader_that_goes_away_is_no_noise(drive, flags):
    """Goal: `| head` ends quietly. Method: a pipe whose reading end is closed."""
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [find_bench(), "io", "--path", drive, *SMALL, *flags, "--quiet"],
        stdout=writing,
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(writing)
    assert done.returncode == 0
    assert all(line.startswith("warning: ") for line in done.stderr.splitlines())


def test_a_full_stdout_is_an_error(drive):
    """Goal: a result that is lost is not a success. Method: /dev/full."""
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [find_bench(), "io", "--path", drive, *SMALL], stdout=full, stderr=subprocess.PIPE
        )
    assert done.returncode == 4
    assert b"No space left" in done.stderr


def test_bytes_that_are_no_text_do_not_break_the_document(bench, check_document, drive):
    """Goal: any argument fits into JSON. Method: a label that is not UTF-8."""
    label = os.fsdecode(b"\xff\xfe")
    done = bench("io", "--path", drive, *SMALL, "--output", "json", "--label", label)
    assert done.code == 0, done.stderr
    assert check_document(done.stdout)["label"]
