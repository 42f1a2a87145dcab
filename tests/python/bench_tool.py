"""Runs the real zoffload-bench. Fixtures for it are in conftest.py."""

import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

MIB = 1 << 20
# Whatever measures: small, short, and also on a temporary folder that is memory.
SMALL = ("--size", "16MiB", "--runtime", "50ms", "--warmup", "0", "--force")


def find_bench():
    """The program that ZOFFLOAD_BENCH names, or the one installed beside this interpreter."""
    folders = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    found = os.environ.get("ZOFFLOAD_BENCH") or shutil.which("zoffload-bench", path=folders)
    if found is None:
        pytest.skip("zoffload-bench is not installed here, and ZOFFLOAD_BENCH does not name it")
    return found


def reset_signals():
    """A background job's child inherits SIGINT as ignored: start as from a terminal."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def start(*arguments, **options):
    return subprocess.Popen(
        [find_bench(), *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=reset_signals,
        **options,
    )


def finish(process, timeout=60):
    """Waits; what it printed and its code."""
    stdout, stderr = process.communicate(timeout=timeout)
    return SimpleNamespace(
        code=process.returncode,
        stdout=stdout.decode(errors="replace"),
        stderr=stderr.decode(errors="replace"),
    )


def wait_until_busy(process, folder):
    """Until the process has a file open in the folder, or has ended."""
    while process.poll() is None:
        try:
            for link in os.scandir(f"/proc/{process.pid}/fd"):
                if os.readlink(link.path).startswith(str(folder) + "/"):
                    return
        except OSError:  # closed, or the process ended, meanwhile
            continue


def bytes_written_by_children():
    """What the kernel has charged to children that have ended, as in /proc/PID/io."""
    return resource.getrusage(resource.RUSAGE_CHILDREN).ru_oublock * 512
