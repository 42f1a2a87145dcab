"""What zoffload-bench refuses, before it measures or writes anything: flags that contradict each
other, outputs in each other's way, and figures that could never be kept."""

import json

import pytest
from bench_tool import SMALL

PIPELINE = ("pipeline", "--force", "--numel", "64Ki")


def refused(bench, *arguments, code=2, **options):
    """The one line that says why; nothing was printed, planned or done."""
    done = bench(*arguments, **options)
    assert done.code == code, done.stderr
    assert done.stdout == ""
    (line,) = done.stderr.splitlines()
    return line


@pytest.mark.parametrize(
    "arguments, named",
    [
        (["adam", "link"], ["link"]),
        (["io", "--json", "a", "--out", "b"], ["--json", "--out"]),
        (["io", "--json", "a", "--output", "csv"], ["--json", "--output"]),
        (["io", "--fixed-buffers", "--no-fixed-buffers"], ["--no-fixed-buffers"]),
        (["io", "--engine", "uring,libaio", "--direct", "off"], ["--engine libaio", "--direct"]),
        ([*PIPELINE, "--model", "m.json"], ["--numel", "--model"]),
        (["pipeline", "--checksums", "on", "--no-verify-reads"], ["--no-verify-reads"]),
    ],
)
def test_contradictions_are_refused(bench, drive, arguments, named):
    """Goal: of two flags that cannot both be meant, neither is quietly dropped. Method: pairs."""
    path = [] if arguments[0] == "adam" else ["--path", drive]
    line = refused(bench, *arguments, *path, "--dry-run", cwd=drive)
    assert all(name in line for name in named), line


def test_outputs_do_not_replace_each_other(bench, drive, tmp_path):
    """Goal: every output that was asked for is there at the end. Method: one file named twice, in
    two spellings."""
    file, other = tmp_path / "file", f"{tmp_path}/./file"
    for arguments, named in (
        (["io", "--out", file, "--html", other], ("--out", "--html")),
        (["profile", "--json", file, "--profile-out", other], ("--json", "--profile-out")),
    ):
        line = refused(bench, *arguments, "--path", drive, "--dry-run")
        assert all(flag in line for flag in named), line
    assert not file.exists()


def test_outputs_do_not_replace_what_is_read(bench, drive, tmp_path):
    """Goal: an input outlives the command. Method: each command that reads a file, told to write
    there."""
    file = tmp_path / "file.json"
    text = json.dumps({"aio": {}, "schema": "zoffload-bench/1", "results": []})
    file.write_text(text)
    for arguments in (
        ["compare", file, file],
        ["io", "--path", drive, "--config", file],
        [*PIPELINE[:2], "--path", drive, "--model", file],
        [*PIPELINE, "--path", drive, "--profile", file],
    ):
        for flag in ("--out", "--html", "--json"):
            assert f"{flag}: {file}" in refused(bench, *arguments, flag, file)
            assert file.read_text() == text


def test_a_dash_is_stdout(bench, drive):
    """Goal: `--json -` does what it does elsewhere, and no file is called "-". Method: read it; a
    page has no place there."""
    done = bench("io", "--path", drive, *SMALL, "--dry-run", "--json", "-", cwd=drive)
    assert done.code == 0 and json.loads(done.stdout)["summary"]["dry_run"] is True
    assert "--html" in refused(bench, "io", "--path", drive, *SMALL, "--html", "-", cwd=drive)


@pytest.mark.parametrize("command", ["tune", "profile"])
def test_every_path_is_looked_at_first(bench, drive, command):
    """Goal: a second path that cannot be used is not found out when the first has been measured.
    Method: memory without --force, as a dry run too."""
    paths = ["--path", drive, "--path", "/dev/shm", "--size", "16MiB"]
    for more in ([], ["--dry-run"]):
        line = refused(bench, command, *paths, "--runtime", "10ms", *more, cwd=drive)
        assert "is memory" in line


@pytest.mark.parametrize(
    "arguments, named, code",
    [
        (["tune", "--max-depth", "5000"], "--max-depth", 2),
        (["profile", "--max-depth", "5000"], "--max-depth", 2),
        (["profile", "--numel", "1000B"], "--numel 1000B", 3),
        (["io", "--size", "64MiB", "--max-write", "1MiB"], "--max-write", 2),
        (["io", "--config", "."], "--config: .: ", 2),
        (["io", "--json", "nowhere/x"], "--json: nowhere", 2),
        (["io", "--path", "nowhere"], "--path: nowhere", 2),
        ([*PIPELINE, "--profile", "nowhere"], "--profile: nowhere", 2),
        ([*PIPELINE, "--profile", "."], "--profile: .", 2),
    ],
)
@pytest.mark.parametrize("dry", [[], ["--dry-run"]])
def test_what_cannot_be_is_told_first(bench, drive, arguments, named, code, dry):
    """Goal: a mistake costs no time and no writes, and a dry run finds it too; the flag that is
    named is one that the command has. Method: a table."""
    paths = [] if "--path" in arguments else ["--path", drive]
    assert named in refused(bench, *arguments, "--force", *paths, *dry, code=code, cwd=drive)


def test_sustained_writes_one_combination(bench, drive):
    """Goal: nothing is promised that will be refused. Method: two block sizes."""
    flags = ["--rw", "write", "--sustained", "--max-write", "64MiB", "--block-size", "1MiB,2MiB"]
    assert "--sustained" in refused(bench, "io", "--path", drive, *SMALL, *flags)


def test_clean_names_an_empty_folder(bench):
    """Goal: an unset variable in a script is told as such."""
    assert "DIR" in refused(bench, "clean", "")
