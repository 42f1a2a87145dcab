"""The storage engine beside fio and beside DeepSpeed's aio_handle, on one path and in one run.

    python bench/compare_storage.py --path /mnt/nvme0 --rounds 7
    python bench/compare_storage.py --path /mnt/nvme0 --deepspeed /opt/ds/bin/python

Every candidate runs once in each round, the order rotating from round to round, since the place in
a round alone moves the speed of a drive. A figure is a ratio of medians; beside it stands the range
of the ratios of the rounds. Writes about 2 GiB for each candidate and round. Exits with 1 if a
figure misses its target.

fio comes from the distribution. DeepSpeed is measured where --deepspeed names the Python of an
environment that has it; its extension is compiled there at first use (libaio's headers are needed).
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

GIB = 2**30
BLOCK = 1 << 20


@dataclass
class Measure:
    bytes_per_s: float
    cpu_s_per_gib: float


@dataclass
class Candidate:
    """One way to move bytes; `run()` measures it once."""

    name: str
    run: object
    measures: list[Measure] = field(default_factory=list)

    @property
    def speed(self) -> float:
        return statistics.median(m.bytes_per_s for m in self.measures)

    @property
    def cpu(self) -> float:
        return statistics.median(m.cpu_s_per_gib for m in self.measures)


def call(command: list[str]) -> str:
    done = subprocess.run(command, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr}")
    return done.stdout


# ---- The three libraries -------------------------------------------------------------------------


class Tool:
    """zoffload-bench."""

    def __init__(self, options):
        self.options = options
        self.program = str(Path(sys.executable).with_name("zoffload-bench"))

    def probe_depth(self, rw: str) -> int:
        out = call([self.program, "tune", "--path", self.options.path, "--rw", rw,
                    "--size", str(self.options.size), "--block-size", str(BLOCK),
                    "--engine", "uring", "--output", "json", "--quiet"])  # fmt: skip
        return json.loads(out)["config"]["aio"]["queue_depth"]

    def io(self, rw: str, depth: int, engine: str = "uring") -> Measure:
        out = call([self.program, "io", "--path", self.options.path, "--rw", rw,
                    "--size", str(self.options.size), "--block-size", str(BLOCK),
                    "--queue-depth", str(depth), "--engine", engine, "--repeats", "1",
                    "--runtime", f"{self.options.seconds}s", "--warmup", "0.3s",
                    "--output", "json", "--quiet"])  # fmt: skip
        result = json.loads(out)["results"][0]
        gib = result["bytes"] / GIB
        return Measure(result["bandwidth_bytes_per_s"]["median"], result["cpu_seconds"] / gib)


def fio(options, file: str, rw: str, depth: int, jobs: int) -> Measure:
    # Huge pages, as ours: glibc asks for them where this says so.
    out = call(["env", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1",
                "fio", "--name=c", f"--filename={file}", f"--size={options.size // jobs}",
                f"--offset_increment={options.size // jobs}", f"--rw={rw}", f"--bs={BLOCK}",
                f"--iodepth={depth}", f"--numjobs={jobs}", "--group_reporting",
                "--ioengine=io_uring", "--direct=1", "--time_based",
                f"--runtime={options.seconds}", "--ramp_time=300ms",
                "--output-format=json"])  # fmt: skip
    job = json.loads(out[out.index("{") :])["jobs"][0]
    side = job[rw]
    cpu = (job["usr_cpu"] + job["sys_cpu"]) / 100 * side["runtime"] / 1000 * jobs
    return Measure(side["bw_bytes"], cpu / (side["io_bytes"] / GIB))


class Handles:
    """A process with one library's aio_handle."""

    def __init__(self, python: str, library: str, options, folder: str):
        self.times = max(1, round(options.seconds * 1.5 * GIB / options.size))
        worker = Path(__file__).with_name("raw_io_worker.py")
        command = [python, str(worker), library, f"{folder}/{library}", str(options.size)]
        self.process = subprocess.Popen(
            command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self.answer()

    def answer(self) -> dict:
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{' '.join(self.process.args)} ended with {self.process.wait()}")
        return json.loads(line)

    def run(self, rw: str, depth: int | None, threads: int) -> Measure:
        request = {"rw": rw, "handle": [BLOCK, depth, threads], "times": self.times}
        print(json.dumps(request), file=self.process.stdin, flush=True)
        moved = self.answer()
        return Measure(
            moved["bytes"] / moved["seconds"], moved["cpu_seconds"] / (moved["bytes"] / GIB)
        )

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.stdin.close()
        self.process.wait()


# ---- Rounds and figures --------------------------------------------------------------------------


def run_rounds(candidates: list[Candidate], rounds: int) -> None:
    for round_number in range(rounds):
        turn = round_number % len(candidates)
        for candidate in candidates[turn:] + candidates[:turn]:
            candidate.measures.append(candidate.run())
        print(f"round {round_number + 1} of {rounds}", file=sys.stderr)


class Figures:
    def __init__(self):
        self.failed = False
        print(f"{'figure':58} {'value':>7}  {'rounds':13} target")

    def add(self, name: str, value: float, rounds: list[float], at_least=None, at_most=None):
        target, met = "", True
        if at_least is not None:
            target, met = f">= {at_least}", value >= at_least
        elif at_most is not None:
            target, met = f"<= {at_most}", value <= at_most
        spread = f"{min(rounds):.2f}..{max(rounds):.2f}" if rounds else ""
        print(f"{name:58} {value:7.3f}  {spread:13} {target}{'' if met else '  MISSED'}")
        self.failed |= not met

    def ratio(self, name: str, ours: Candidate, theirs: Candidate, at_least: float):
        pairs = zip(ours.measures, theirs.measures, strict=True)
        self.add(
            name,
            ours.speed / theirs.speed,
            [a.bytes_per_s / b.bytes_per_s for a, b in pairs],
            at_least=at_least,
        )


def best(candidates: list[Candidate]) -> Candidate:
    return max(candidates, key=lambda candidate: candidate.speed)


def compare_engines(options, tool: Tool, folder: str, figures: Figures) -> None:
    depths = {rw: tool.probe_depth(rw) for rw in ("read", "write", "mixed")}
    print(f"own probed depths: {depths}", file=sys.stderr)
    file = f"{folder}/fio"
    fio(options, file, "write", 32, 1)
    candidates = {}

    def add(key, run):
        candidates[key] = Candidate(str(key), run)

    for rw in ("read", "write"):
        for engine in ("uring", "libaio", "threads"):
            add((rw, engine), lambda rw=rw, e=engine: tool.io(rw, depths[rw], e))
        add((rw, "1M x 8"), lambda rw=rw: tool.io(rw, 8))
        for their_depth in (8, 32, 64):
            for jobs in (1, 2):
                add(
                    (rw, "fio", their_depth, jobs),
                    lambda rw=rw, d=their_depth, j=jobs: fio(options, file, rw, d, j),
                )
    add(("mixed",), lambda: tool.io("mixed", depths["mixed"]))
    run_rounds(list(candidates.values()), options.rounds)

    for rw in ("read", "write"):
        ours = candidates[rw, "uring"]
        theirs = best([c for key, c in candidates.items() if key[:2] == (rw, "fio")])
        figures.ratio(f"{rw}: engine / fio's best ({theirs.name})", ours, theirs, 0.97)
        figures.ratio(f"{rw}: libaio / io_uring", candidates[rw, "libaio"], ours, 0.93)
        figures.ratio(f"{rw}: threads / io_uring", candidates[rw, "threads"], ours, 0.90)
        cpu = candidates[rw, "1M x 8"]
        rounds = [1000 * m.cpu_s_per_gib for m in cpu.measures]
        figures.add(f"{rw}: CPU ms per GiB, 1 MiB x 8", 1000 * cpu.cpu, rounds, at_most=12)
    mean = statistics.harmonic_mean([candidates[rw, "uring"].speed for rw in ("read", "write")])
    mixed = candidates[("mixed",)]
    rounds = [m.bytes_per_s / mean for m in mixed.measures]
    figures.add("mixed / harmonic mean of the two alone", mixed.speed / mean, rounds, at_least=0.95)


def compare_handles(options, tool: Tool, folder: str, figures: Figures) -> None:
    with (
        Handles(sys.executable, "zoffload", options, folder) as ours,
        Handles(options.deepspeed, "deepspeed", options, folder) as theirs,
    ):
        candidates = {}
        for rw in ("read", "write"):
            candidates[rw, "ours"] = Candidate("ours", lambda rw=rw: ours.run(rw, None, 1))
            candidates[rw, "default"] = Candidate("", lambda rw=rw: theirs.run(rw, None, 1))
            for depth in (8, 32, 128):
                for threads in (1, 2):
                    candidates[rw, depth, threads] = Candidate(
                        f"depth {depth}, {threads} threads",
                        lambda rw=rw, d=depth, t=threads: theirs.run(rw, d, t),
                    )
        run_rounds(list(candidates.values()), options.rounds)
    for rw in ("read", "write"):
        mine, default = candidates[rw, "ours"], candidates[rw, "default"]
        tuned = best([c for key, c in candidates.items() if key[0] == rw and len(key) == 3])
        figures.ratio(f"{rw}: Handle / DeepSpeed's best ({tuned.name})", mine, tuned, 1.0)
        figures.ratio(f"{rw}: Handle / DeepSpeed's defaults", mine, default, 1.2)
        figures.add(f"{rw}: CPU per GiB, Handle / DeepSpeed's best", mine.cpu / tuned.cpu, [],
                    at_most=0.333)  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--path", required=True, help="a folder on the drive")
    parser.add_argument("--size", type=int, default=GIB, help="bytes of each file")
    parser.add_argument("--seconds", type=float, default=2, help="of one measurement")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--deepspeed", metavar="PYTHON", help="of an environment with DeepSpeed")
    parser.add_argument("--skip-fio", action="store_true", help="only DeepSpeed")
    options = parser.parse_args()
    if not options.skip_fio and shutil.which("fio") is None:
        parser.error("fio is missing: apt-get install fio, or --skip-fio")

    figures = Figures()
    tool = Tool(options)
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(dir=options.path))
        if not options.skip_fio:
            compare_engines(options, tool, folder, figures)
        if options.deepspeed:
            compare_handles(options, tool, folder, figures)
    return 1 if figures.failed else 0


if __name__ == "__main__":
    sys.exit(main())
