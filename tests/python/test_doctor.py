"""Goal: the doctor names what is missing and its remedy, and fails only on what is required.

Method: feed each check a made-up machine, a folder with the few files of /proc and /sys that it
reads; then run the program itself in a process of its own.
"""

import errno
import resource
import subprocess
import sys

import pytest


@pytest.fixture
def doctor(load_script):
    return load_script("bindings/zoffload/doctor.py")


@pytest.fixture
def machine(tmp_path):
    """A made-up machine: machine({"proc/cpuinfo": "..."}) -> its root."""

    def make(files):
        for path, text in files.items():
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / path).write_text(text)
        return tmp_path

    return make


@pytest.mark.parametrize(
    "cpuinfo, level, says",
    [
        ("flags\t: fma avx2 avx512f avx512bw avx512dq avx512vl\n", "ok", "AVX-512"),
        ("model name\t: Zen 2\nflags\t: sse2 fma avx2\n", "ok", "AVX2 with FMA (Zen 2)"),
        ("Features\t: fp asimd\n", "ok", "NEON"),
        ("Features\t: fp asimd sve\n", "ok", "SVE"),
        ("flags\t: sse2 avx2\n", "warn", "no AVX2"),  # without FMA the kernels do not use it
        ("", "warn", "no AVX2"),
    ],
)
def test_simd(doctor, machine, cpuinfo, level, says):
    finding = doctor.check_simd(machine({"proc/cpuinfo": cpuinfo}))
    assert finding.level == level
    assert finding.says.startswith(says)


@pytest.mark.parametrize(
    "files, says",
    [
        ({}, "no memory limit"),
        (
            {"proc/self/cgroup": "0::/a/b\n", "sys/fs/cgroup/a/b/memory.max": "max"},
            "no memory limit",
        ),
        (
            {
                "proc/self/cgroup": "0::/a/b\n",
                "sys/fs/cgroup/a/memory.max": str(3 << 30),
                "sys/fs/cgroup/a/b/memory.max": str(8 << 30),
            },
            "memory limit 3.0 GiB",
        ),
        (
            {
                "proc/self/cgroup": "4:cpu,memory:/a\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": str(2 << 30),
            },
            "memory limit 2.0 GiB",
        ),
        (
            {
                "proc/self/cgroup": "4:memory:/a\n",
                "sys/fs/cgroup/memory/a/memory.limit_in_bytes": str((1 << 63) - 4096),
            },
            "no memory limit",
        ),
    ],
)
def test_cgroup_takes_the_smallest_limit_on_the_way_up(doctor, machine, files, says):
    assert doctor.check_cgroup(machine(files)).says.startswith(says)


@pytest.mark.parametrize(
    "limit, capabilities, level",
    [
        (resource.RLIM_INFINITY, "0", "ok"),
        (8 << 20, "0", "warn"),
        (8 << 20, "3fff", "warn"),
        (8 << 20, "4000", "ok"),  # CAP_IPC_LOCK is bit 14
    ],
)
def test_memlock(doctor, machine, limit, capabilities, level):
    root = machine({"proc/self/status": f"Name:\tx\nCapEff:\t{capabilities:0>16}\n"})
    finding = doctor.check_memlock(root, limit)
    assert finding.level == level
    assert ("ulimit -l" in finding.remedy) == (level == "warn")


@pytest.mark.parametrize(
    "enabled, level",
    [
        ("[always] madvise never", "ok"),
        ("always [madvise] never", "ok"),
        ("always madvise [never]", "warn"),
        ("", "warn"),
    ],
)
def test_huge_pages(doctor, machine, enabled, level):
    root = machine({"sys/kernel/mm/transparent_hugepage/enabled": enabled + "\n"})
    assert doctor.check_huge_pages(root).level == level


@pytest.mark.parametrize(
    "error, disabled, level, says, remedy",
    [
        (0, "0", "ok", "works", ""),
        (errno.ENOSYS, "", "warn", "this kernel has none", "5.11"),
        (errno.EPERM, "2", "warn", "switched off", "kernel.io_uring_disabled=0"),
        (errno.EPERM, "0", "warn", "denied by seccomp", "io_uring_setup"),
        (errno.EPERM, "", "warn", "denied by seccomp", "io_uring_setup"),
        (errno.ENOMEM, "0", "warn", "Cannot allocate memory", ""),
    ],
)
def test_io_uring(doctor, machine, error, disabled, level, says, remedy):
    root = machine({"proc/sys/kernel/io_uring_disabled": disabled})
    finding = doctor.check_io_uring(root, error)
    assert finding.level == level
    assert finding.says.startswith(says)
    assert remedy in finding.remedy


def test_memory(doctor, machine):
    meminfo = "MemTotal:       8388608 kB\nMemFree: 1 kB\nMemAvailable:   2097152 kB\n"
    finding = doctor.check_memory(machine({"proc/meminfo": meminfo}))
    assert finding == doctor.Finding("ok", "memory", "2.0 GiB available of 8.0 GiB")


def test_gpu(doctor, machine):
    assert doctor.check_gpu(machine({})).says.startswith("none")
    version = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5\n"
    root = machine({"proc/driver/nvidia/version": version})
    assert doctor.check_gpu(root).says == "NVIDIA driver 550.54.15"


def test_file_system_is_that_of_the_innermost_mount(doctor, machine, tmp_path):
    swap = tmp_path / "my swap"
    swap.mkdir()
    mount = str(swap).replace(" ", "\\040")
    root = machine(
        {
            "proc/self/mountinfo": f"1 0 8:1 / / rw shared:1 - overlay none rw\n"
            f"2 1 9:1 / {mount} rw - xfs /dev/nvme0n1 rw\n"
            f"3 1 9:2 / {mount}/other rw - tmpfs none rw\n"
        }
    )
    assert doctor.file_system(swap, root) == "xfs"
    assert doctor.file_system(tmp_path, root) == "overlay"


@pytest.mark.parametrize(
    "kind, direct, level, says",
    [
        ("ext4", True, "ok", "free, ext4, direct I/O"),
        ("ext4", False, "warn", "no direct I/O"),
        ("tmpfs", True, "warn", "memory, not a disk"),
        ("overlay", True, "warn", "slower than"),
        ("fuse.sshfs", True, "warn", "slower than"),
    ],
)
def test_path(doctor, monkeypatch, tmp_path, kind, direct, level, says):
    monkeypatch.setattr(doctor, "file_system", lambda folder: kind)
    monkeypatch.setattr(doctor, "direct_io", lambda folder: direct)
    finding = doctor.check_path(tmp_path)
    assert finding.level == level
    assert says in finding.says


def test_path_leaves_no_file_behind(doctor, tmp_path):
    doctor.check_path(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_path_that_cannot_be_used(doctor, monkeypatch, tmp_path):
    def refuse(folder):
        raise PermissionError(errno.EACCES, "Permission denied")

    missing = doctor.check_path(tmp_path / "missing")
    assert (missing.level, "mkdir -p" in missing.remedy) == ("fail", True)
    monkeypatch.setattr(doctor, "direct_io", refuse)
    finding = doctor.check_path(tmp_path)
    assert finding.level == "fail"
    assert "cannot be written: Permission denied" in finding.says


def test_torch_is_optional(doctor, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)  # makes `import torch` raise ImportError
    finding = doctor.check_torch()
    assert finding.level == "warn"
    assert "zoffload[torch]" in finding.remedy


def test_a_module_that_does_not_load_is_a_failure(doctor, monkeypatch):
    monkeypatch.setattr(doctor.metadata, "version", lambda name: "1.2.3")
    monkeypatch.setitem(sys.modules, "zoffload._core", None)
    finding = doctor.check_package()
    assert finding.level == "fail"
    assert finding.says.startswith("1.2.3, whose C++ module does not load")


def run_doctor(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "zoffload.doctor", *arguments], capture_output=True, text=True
    )


def test_program(tmp_path):
    run = run_doctor("--nvme-path", str(tmp_path))
    assert run.returncode == 0, run.stdout + run.stderr
    lines = run.stdout.splitlines()
    assert lines[-1] == "zoffload can run here"
    assert {line.split()[0] for line in lines[:-1]} <= {"ok", "warn"}
    assert len(lines) == 13


def test_program_fails_on_a_missing_folder(tmp_path):
    run = run_doctor("--nvme-path", str(tmp_path / "missing"))
    assert run.returncode == 1
    assert run.stdout.splitlines()[-1] == "1 of 12 checks failed"
