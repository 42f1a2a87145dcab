"""`python -m zoffload.doctor`: what this machine has, what is missing, and the remedy.

One line for each thing: `ok`, `warn` (works, but slower or less) or `fail` (does not work). Exits
with 1 when a line says `fail`. Needs neither torch nor a GPU, and runs as a plain file too, so that
it can explain why the package itself does not load.
"""

from __future__ import annotations

import argparse
import ctypes
import errno
import importlib
import os
import platform
import re
import resource
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

SLOW_FILE_SYSTEMS = {"nfs", "nfs4", "cifs", "smb3", "fuse", "9p", "overlay"}
MEMORY_FILE_SYSTEMS = {"tmpfs", "ramfs"}
CAP_IPC_LOCK = 14  # the capability to lock memory beyond the limit
UNLIMITED = 1 << 60  # cgroup v1 writes "no limit" as a number of about 2**63


@dataclass(frozen=True)
class Finding:
    """One line of the report."""

    level: str  # ok, warn or fail
    what: str
    says: str
    remedy: str = ""

    def __str__(self) -> str:
        remedy = f" -> {self.remedy}" if self.remedy else ""
        return f"{self.level:<5} {self.what:<11} {self.says}{remedy}"


def gib(count: float) -> str:
    return f"{count / 2**30:.1f} GiB"


def read(path: Path) -> str:
    """A file of /proc or /sys; empty where this kernel has none."""
    try:
        return path.read_text().strip()
    except OSError:
        return ""


# ---- Python --------------------------------------------------------------------------------------


def check_python() -> Finding:
    return Finding("ok", "python", f"{platform.python_version()} at {sys.executable}")


def check_package() -> Finding:
    try:
        version = metadata.version("zoffload")
    except metadata.PackageNotFoundError:
        return Finding("fail", "zoffload", "is not installed", "pip install . in its repository")
    try:
        importlib.import_module("zoffload._core")
    except ImportError as error:
        return Finding(
            "fail",
            "zoffload",
            f"{version}, whose C++ module does not load: {error}",
            "reinstall it with this interpreter: pip install --force-reinstall .",
        )
    return Finding("ok", "zoffload", f"{version}, C++ module loaded")


def check_torch() -> Finding:
    try:
        torch = importlib.import_module("torch")
    except ImportError:
        return Finding(
            "warn",
            "torch",
            "is not installed: only raw tensor I/O works without it",
            "pip install 'zoffload[torch]'",
        )
    return Finding("ok", "torch", str(torch.__version__))


# ---- Machine: each reads below `root`, which tests replace ---------------------------------------


def check_simd(root: Path) -> Finding:
    info = read(root / "proc/cpuinfo")
    match = re.search(r"^(?:flags|Features)\s*:(.*)$", info, re.MULTILINE)
    flags = set(match[1].split()) if match else set()
    model = re.search(r"^model name\s*:\s*(.*)$", info, re.MULTILINE)
    name = f" ({model[1]})" if model else ""
    levels = [
        ("AVX-512", {"avx512f", "avx512bw", "avx512dq", "avx512vl"}),
        ("AVX2 with FMA", {"avx2", "fma"}),
        ("SVE", {"sve"}),
        ("NEON", {"asimd"}),
    ]
    for level, needed in levels:
        if needed <= flags:
            return Finding("ok", "simd", level + name)
    return Finding("warn", "simd", f"no AVX2, NEON or SVE{name}: updates are several times slower")


def check_cores() -> Finding:
    usable = len(os.sched_getaffinity(0))
    return Finding("ok", "cores", f"{usable} of {os.cpu_count()} usable by this process")


def check_memory(root: Path) -> Finding:
    info = dict(re.findall(r"^(\w+):\s+(\d+) kB", read(root / "proc/meminfo"), re.MULTILINE))
    if not {"MemTotal", "MemAvailable"} <= info.keys():
        return Finding("warn", "memory", "unknown: /proc/meminfo says nothing")
    total, available = (int(info[key]) * 1024 for key in ("MemTotal", "MemAvailable"))
    return Finding("ok", "memory", f"{gib(available)} available of {gib(total)}")


def cgroup_limits(root: Path) -> Iterator[int]:
    """Memory limits of this process's control group and of those that hold it (v2 and v1)."""
    for line in read(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            top, file = root / "sys/fs/cgroup", "memory.max"
        elif "memory" in controllers.split(","):
            top, file = root / "sys/fs/cgroup/memory", "memory.limit_in_bytes"
        else:
            continue
        here = top / path.lstrip("/")
        for folder in (here, *here.parents):
            limit = read(folder / file)
            if limit.isdecimal() and int(limit) < UNLIMITED:
                yield int(limit)
            if folder == top:
                break


def check_cgroup(root: Path) -> Finding:
    limit = min(cgroup_limits(root), default=None)
    if limit is None:
        return Finding("ok", "cgroup", "no memory limit")
    return Finding("ok", "cgroup", f"memory limit {gib(limit)}: keep host_bytes well below it")


def check_memlock(root: Path, limit: int | None = None) -> Finding:
    """`limit` in bytes, RLIM_INFINITY for none; by default this process's own."""
    if limit is None:
        limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit == resource.RLIM_INFINITY:
        return Finding("ok", "memlock", "unlimited")
    says = f"{limit / 2**20:.0f} MiB"
    capabilities = re.search(r"^CapEff:\s*(\w+)", read(root / "proc/self/status"), re.MULTILINE)
    if capabilities and int(capabilities[1], 16) >> CAP_IPC_LOCK & 1:
        return Finding("ok", "memlock", f"{says}, but this process may lock more (CAP_IPC_LOCK)")
    return Finding(
        "warn",
        "memlock",
        f"{says}: larger arenas go unregistered, I/O costs more",
        "ulimit -l unlimited, or memlock in /etc/security/limits.conf",
    )


def check_huge_pages(root: Path) -> Finding:
    state = read(root / "sys/kernel/mm/transparent_hugepage/enabled")
    chosen = re.search(r"\[(\w+)\]", state)
    if chosen and chosen[1] in ("always", "madvise"):
        return Finding("ok", "huge pages", f"transparent ({chosen[1]}); none need be reserved")
    state = "off" if chosen else "unknown to this kernel"
    return Finding(
        "warn",
        "huge pages",
        f"transparent huge pages are {state}",
        "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled",
    )


def io_uring_errno() -> int:
    """0 if this process may make a ring, else why not. Makes one of one entry and closes it."""
    io_uring_setup = 425  # the number on every architecture that zoffload builds for
    libc = ctypes.CDLL(None, use_errno=True)
    params = ctypes.create_string_buffer(120)  # struct io_uring_params, all defaults
    ring = libc.syscall(io_uring_setup, 1, params)
    if ring < 0:
        return ctypes.get_errno()
    os.close(ring)
    return 0


def check_io_uring(root: Path, error: int | None = None) -> Finding:
    """`error` as from io_uring_errno(), which is asked by default."""
    error = io_uring_errno() if error is None else error
    if error == 0:
        return Finding("ok", "io_uring", f"works (Linux {platform.release()})")
    if error == errno.ENOSYS:
        why, remedy = "this kernel has none", "use Linux 5.11 or later"
    elif read(root / "proc/sys/kernel/io_uring_disabled") in ("1", "2"):
        why, remedy = "switched off by the administrator", "sysctl kernel.io_uring_disabled=0"
    elif error == errno.EPERM:
        why = "denied by seccomp, as containers do by default"
        remedy = "a seccomp profile that allows io_uring_setup, io_uring_enter, io_uring_register"
    else:
        why, remedy = os.strerror(error), ""
    return Finding("warn", "io_uring", f"{why}: libaio or threads do the I/O", remedy)


def check_gpu(root: Path) -> Finding:
    driver = re.search(
        r"Kernel Module\s+(?:for \w+\s+)?([\d.]+)", read(root / "proc/driver/nvidia/version")
    )
    if driver:
        return Finding("ok", "gpu", f"NVIDIA driver {driver[1]}")
    return Finding("ok", "gpu", "none: host memory stands in for the accelerator's")


# ---- A folder for swap files ---------------------------------------------------------------------


def file_system(folder: Path, root: Path = Path("/")) -> str:
    """The type of the file system that holds a folder, as the kernel names it."""
    where, kind = Path(), "unknown"
    for line in read(root / "proc/self/mountinfo").splitlines():
        mounted, _, source = line.partition(" - ")
        # Blanks in a path are written as \040. A later line hides an earlier one of the same path.
        mount = Path(re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), mounted.split()[4]))
        if folder.resolve().is_relative_to(mount) and len(mount.parts) >= len(where.parts):
            where, kind = mount, source.split()[0]
    return kind


def direct_io(folder: Path) -> bool:
    """Whether files there can be opened past the page cache. Leaves no file behind."""
    with tempfile.NamedTemporaryFile(dir=folder, prefix=".zoffload-doctor-") as file:
        try:
            os.close(os.open(file.name, os.O_RDWR | os.O_DIRECT))
        except OSError:
            return False
    return True


def check_path(folder: Path) -> Finding:
    if not folder.is_dir():
        return Finding("fail", "nvme path", f"{folder} is not a folder", f"mkdir -p {folder}")
    kind = file_system(folder)
    try:
        direct = direct_io(folder)
    except OSError as error:
        return Finding(
            "fail",
            "nvme path",
            f"{folder} cannot be written: {error.strerror}",
            "choose another folder, or change its owner",
        )
    room = os.statvfs(folder)
    says = f"{folder}: {gib(room.f_bavail * room.f_frsize)} free, {kind}"
    says += ", direct I/O" if direct else ", no direct I/O"
    if kind in MEMORY_FILE_SYSTEMS:
        return Finding(
            "warn",
            "nvme path",
            f"{says}: this is memory, not a disk",
            "choose a folder on an NVMe drive",
        )
    if kind.split(".")[0] in SLOW_FILE_SYSTEMS or not direct:
        return Finding(
            "warn",
            "nvme path",
            f"{says}: slower than a local ext4 or XFS",
            "choose a folder on a local NVMe drive",
        )
    return Finding("ok", "nvme path", says)


# ---- Report --------------------------------------------------------------------------------------


def examine(paths: list[Path], root: Path = Path("/")) -> list[Finding]:
    """Everything that the report says, in its order."""
    return [
        check_python(), check_package(), check_torch(),
        check_simd(root), check_cores(), check_memory(root), check_cgroup(root),
        check_memlock(root), check_huge_pages(root), check_io_uring(root), check_gpu(root),
        *map(check_path, paths),
    ]  # fmt: skip


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m zoffload.doctor",
        description="What is here, what is missing, and the remedy.",
    )
    parser.add_argument(
        "--nvme-path",
        type=Path,
        action="append",
        default=[],
        metavar="DIR",
        help="a folder for swap files; may be repeated",
    )
    findings = examine(parser.parse_args(argv).nvme_path)
    for finding in findings:
        print(finding)
    failed = sum(finding.level == "fail" for finding in findings)
    if failed:
        print(f"{failed} of {len(findings)} checks failed")
    else:
        print("zoffload can run here")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
