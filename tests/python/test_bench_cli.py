"""zoffload-bench's command line: exit codes, messages, units, help, and nonsense."""

import re
import shutil
import subprocess

import pytest
from bench_tool import MIB, SMALL
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

CODES = {0, 1, 2, 3, 4, 5, 6}


def refused(bench, *arguments):
    done = bench(*arguments)
    assert done.code == 2, done.stderr
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    return done.stderr


@pytest.mark.parametrize(
    "flag, value",
    [
        ("--size", "3 apples"),
        ("--size", "0"),
        ("--size", "-4GiB"),
        ("--size", ""),
        ("--size", "99999999999999999999"),
        ("--block-size", "1MiB,,2MiB"),
        ("--block-size", "1MiB;2MiB"),
        ("--queue-depth", "0"),
        ("--queue-depth", "8.5"),
        ("--workers", "two"),
        ("--runtime", "10h"),
        ("--runtime", "nan"),
        ("--runtime", "1e9"),
        ("--engine", "uring,fast"),
        ("--direct", "yes"),
        ("--verify", "crc32"),
        ("--numa", "-3"),
        ("--rw", "mixed:100"),
        ("--rw", "readwrite"),
        ("--min-read", "fast"),
        ("--max-write", "0"),
        ("--output", "xml"),
        ("--config", "/nonexistent.json"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(bench, flag, value):
    """Goal: one line that names the flag. Method: a table of bad values."""
    assert flag in refused(bench, "io", "--path", "/tmp", "--dry-run", f"{flag}={value}")


@pytest.mark.parametrize(
    "arguments, says",
    [
        ([], "a command is missing"),
        (["prob"], "unknown command prob; did you mean probe?"),
        (["io", "--blok-size", "1MiB"], "unknown argument --blok-size; did you mean --block-size?"),
        (["io", "--size"], "--size"),
        (["io"], "--path"),
        (["io", "--path", ""], "--path"),
        (["--completion", "tcsh"], "--completion"),
        (["io", "--path", "/tmp", "--out", "/nonexistent/x"], "--out"),
        (["io", "--path", "/tmp", "--rw", "write", "--min-read", "1MiB/s"], "--min-read"),
        (["io", "--path", "/tmp", "--sustained"], "--sustained"),
        (["io", "--path", "/tmp", "--rw", "write", "--sustained"], "--max-write"),
        (["io", "--path", "/tmp", "--block-size", "5000"], "--block-size"),
    ],
)
def test_usage_errors_say_what_is_wrong(bench, arguments, says):
    """Goal: every mistake is named. Method: a table of command lines."""
    if arguments[:1] == ["io"]:
        arguments = [*arguments, "--quiet"]
    assert says in refused(bench, *arguments)


@pytest.mark.parametrize(
    "arguments, code",
    [
        (["--min-read", "1B/s"], 0),
        (["--min-read", "1000TiB/s"], 1),
        (["--rw", "write", "--min-write", "1000TiB/s"], 1),
        (["--size", "900TiB"], 4),
        (["--numa", "off"], 0),
        (["--numa", "1023"], 3),
        (["--rw", "write", "--max-write", "20MiB", "--runtime", "9s"], 6),
        (["--rw", "read", "--budget", "300ms", "--runtime", "9s"], 6),
    ],
)
def test_exit_codes(bench, drive, arguments, code):
    """Goal: each end has its code. 5 is in test_bench_io, 130 and 143 in test_bench_safety.
    Method: the smallest run that ends so."""
    small = list(SMALL)
    for flag in ("--size", "--runtime"):
        if flag in arguments:
            del small[small.index(flag) : small.index(flag) + 2]
    done = bench("io", "--path", drive, *small, *arguments)
    assert done.code == code, done.stderr


def test_what_the_machine_cannot_do_is_code_3(bench, drive):
    """Goal: what the machine cannot do is 3. Method: direct I/O on memory."""
    shm = "/dev/shm"
    done = bench("io", "--path", shm, "--force", "--direct", "on", "--size", "16MiB", "--dry-run")
    if done.code == 2:
        pytest.skip(done.stderr)
    assert done.code == 3 and "--direct on" in done.stderr


@pytest.mark.parametrize(
    "text, size",
    [
        ("1M", MIB),
        ("1MiB", MIB),
        ("1MB", 10**6),
        ("0.5GB", 5 * 10**8),
        ("4096", 4096),
        ("8k", 8192),
    ],
)
def test_units(bench, drive, text, size):
    """Goal: bare K, M, G are binary, MB is decimal. Method: what a dry run would write."""
    flags = ["--block-size", "4096", "--force", "--dry-run", "--json", "/dev/stdout"]
    done = bench("io", "--path", drive, "--size", text, *flags)
    found = re.search(r'"planned_fill_bytes": (\d+)', done.stdout)
    assert int(found.group(1)) == size // 4096 * 4096


def test_help_ends_with_three_examples_that_work(bench, drive, repository):
    """Goal: what help shows is true. Method: each example of io as a dry run on a folder here."""
    text = bench("io", "--help").stdout
    examples = text[text.index("Examples:") :].replace("\\\n", " ")
    commands = re.findall(r"^ +zoffload-bench (.*)$", examples, re.MULTILINE)
    assert len(commands) == 3
    for command in commands:
        words = [str(drive) if word.startswith("/mnt") else word for word in command.split()]
        done = bench(*words, "--size", "16MiB", "--force", "--dry-run")
        assert done.code == 0, done.stderr
    assert all(line.startswith((" ", "Examples")) for line in examples.splitlines() if line)


def test_help_names_units_and_codes(bench):
    """Goal: --help answers what a script's author asks. Method: look for it."""
    done = bench("--help")
    assert done.code == 0 and done.stderr == ""
    for text in ("1024", "1000", "130", "io "):
        assert text in done.stdout


def test_version(bench):
    """Goal: version, commit and build on one line."""
    assert re.fullmatch(
        r"zoffload-bench \d+\.\d+\.\d+ \(git \S+, .+\)\n", bench("--version").stdout
    )


def test_man_page_is_roff(bench):
    """Goal: a page that man can show, with every flag of io. Method: man's own renderer, if any."""
    page = bench("--man").stdout
    assert page.startswith(".TH ZOFFLOAD-BENCH 1\n")
    flags = set(re.findall(r"--[a-z-]+", bench("io", "--help").stdout.split("Units:")[0]))
    for flag in flags:
        assert flag.replace("-", r"\-") in page
    if shutil.which("groff") is None:
        pytest.skip("no groff to render it with")
    shown = subprocess.run(
        ["groff", "-man", "-Tascii", "-ww"], input=page, capture_output=True, text=True
    )
    assert shown.returncode == 0 and shown.stderr == ""


def test_completion(bench):
    """Goal: bash completes commands and flags. Method: call the function as bash would."""
    script = bench("--completion", "bash").stdout
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    for words, offered in ((["i"], "io"), (["io", "--blo"], "--block-size")):
        line = " ".join(["zoffload-bench", *words])
        ask = f"COMP_WORDS=({line}); COMP_CWORD={len(words)}; _zoffload_bench"
        ask = f'{script}\n{ask}; echo "${{COMPREPLY[*]}}"'
        done = subprocess.run([bash, "-c", ask], capture_output=True, text=True)
        assert offered in done.stdout.split(), done.stderr


FLAGS = st.sampled_from(
    "--path --size --block-size --queue-depth --workers --engine --direct --verify --runtime "
    "--warmup --repeats --budget --max-write --seed --numa --rw --min-read --min-write --output "
    "--label --config --sustained --random --force --quiet --block_size --io_parallel --bogus "
    "--no-fixed-buffers --help --version -h -x --".split()
)
VALUES = st.one_of(
    st.sampled_from(
        "0 1 -1 8,32 1MiB 64K,1M 1e9 NaN inf 10s 5m 1ms 99999999999999999999 1TiB/s auto uring "
        "threads on off xxh3 read write mixed:50 mixed: json csv table / /dev/null /dev/shm "
        "% {} [] [1,2] , ; = --size".split()
    ),
    st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"), max_size=8),
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(FLAGS, st.none() | VALUES), max_size=5))
def test_nonsense_never_crashes(bench, tmp_path_factory, words):
    """Goal: whatever is typed ends with a code of the table, and a refusal names its reason.
    Method: random flags and values, as a dry run."""
    folder = tmp_path_factory.getbasetemp()
    arguments = [word for pair in words for word in pair if word is not None]
    done = bench("io", "--path", folder, "--dry-run", *arguments)
    assert done.code in CODES, (arguments, done.stderr)
    assert "terminate" not in done.stderr and "check failed" not in done.stderr
    assert "unexpected:" not in done.stderr
    if done.code == 2:
        assert done.stderr.strip()
