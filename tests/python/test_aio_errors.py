"""Raw I/O when it cannot work: errors that name the culprit, one for every failure, and files as
they were."""

import errno
import os
import subprocess
import sys
import textwrap
import warnings

import numpy as np
import pytest
from zoffload.aio import Handle
from zoffload.errors import Error, InvalidArgument, OutOfSpace, Unsupported

PAGE = 4096


@pytest.fixture
def handle():
    with Handle() as made:
        yield made


def run(script, **kwargs):
    """Runs Python in a process of its own; its output."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **kwargs,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- files


def test_missing_files_and_folders(handle, tmp_path):
    """Goal: what is not there, or no file, is told at the call, by name, and nothing is created."""
    for path in (tmp_path / "missing", tmp_path / "no" / "file", tmp_path):
        with pytest.raises(InvalidArgument, match=str(path)):
            handle.async_pread(bytearray(10), path)
    for path in (tmp_path / "no" / "file", tmp_path):
        with pytest.raises(InvalidArgument, match=str(path)):
            handle.async_pwrite(bytes(10), path)
    assert list(tmp_path.iterdir()) == []
    assert handle.wait() == 0


def test_pipes_and_devices(handle, tmp_path):
    """Goal: refused, not waited for. Method: a FIFO without another end, and /dev/null."""
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", "/dev/null"):
        with pytest.raises(InvalidArgument, match="regular file"):
            handle.sync_pread(bytearray(10), path)
        with pytest.raises(InvalidArgument, match="regular file"):
            handle.sync_pwrite(bytes(10), path)


def test_a_folder_that_may_not_be_written(handle):
    """Goal: the kernel's reason and number. Method: a folder where even root can create nothing."""
    path = "/sys/kernel/zoffload_test_aio"
    with pytest.raises(Error, match=path) as raised:
        handle.sync_pwrite(bytes(10), path)
    assert raised.value.errno in (errno.EPERM, errno.EACCES, errno.EROFS)


def test_reading_past_the_end(handle, tmp_path):
    """Goal: never a short read, and the buffer as it was. Method: one byte too many, at the start,
    in the middle, far out."""
    path = tmp_path / "file"
    path.write_bytes(bytes(5000))
    for nbytes, offset in ((5001, 0), (1000, 4001), (1, 5000), (1, 1 << 40)):
        out = bytearray(b"\1" * nbytes)
        with pytest.raises(InvalidArgument, match=f"{nbytes} bytes at offset {offset}.*has 5000"):
            handle.async_pread(out, path, offset)
        assert out == b"\1" * nbytes
    handle.sync_pread(bytearray(1000), path, 4000)


def test_no_more_space(tmp_path):
    """Goal: OutOfSpace, the file as it was, and the handle still works. Method: a child process
    whose files may have 64 KiB; a write that must grow past it, then one that fits."""
    out = run(
        f"""
        import os, resource
        from zoffload.aio import Handle, TensorFile
        from zoffload.errors import OutOfSpace
        handle = Handle(4096, 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        folder = {str(tmp_path)!r}
        path = folder + "/file"
        handle.sync_pwrite(b"x" * 10000, path)
        for target in (path, folder + "/new"):
            try:
                handle.sync_pwrite(b"y" * 70000, target, 5000)
            except OutOfSpace as error:
                assert target in str(error), error
                print(error.errno)
        print([os.path.getsize(folder + "/" + name) for name in ("file", "new")])
        handle.sync_pwrite(b"z" * 65536, path)
        try:
            TensorFile.create(folder + "/tensor", 100000, "uint8")
        except OutOfSpace as error:
            print("tensor", error.errno, os.path.exists(folder + "/tensor"))
        """
    )
    assert out.split("\n")[:4] == ["27", "27", "[10000, 0]", "tensor 27 False"]
    assert (tmp_path / "file").read_bytes() == b"z" * 65536


def test_more_than_the_disk_has(handle, tmp_path):
    """Goal: refused before the disk is full. Method: a sparse array of a thousand terabytes cannot
    be had, so the space is asked for at the core, for memory that is never touched."""
    with pytest.raises(OutOfSpace, match="needs"):
        handle._io.write(os.fsencode(tmp_path / "file"), 0, PAGE, 1 << 50)
    assert os.path.getsize(tmp_path / "file") == 0


def unreadable_bytes(nbytes):
    """An address where the kernel finds no memory."""
    import ctypes
    import mmap

    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    return libc.mmap(None, nbytes, 0, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)


def start_failing(handle, path, nbytes=2 * PAGE, offset=0):
    """A write that starts and fails in the kernel."""
    from zoffload.raw_io import Operation
    from zoffload.raw_memory import Memory

    memory = Memory(unreadable_bytes(nbytes), nbytes, None, None)
    core = handle._io.write(os.fsencode(path), offset, memory.address, nbytes)
    operation = Operation(handle, core, memory, os.fsencode(path), offset)
    handle._in_flight.append(operation)
    handle._unreported[operation] = None
    return operation


@pytest.mark.parametrize("direct", ["auto", "off"])
def test_a_failed_write_restores_the_size(tmp_path, direct):
    """Goal: the file is as long as before, and the error names it and the place. Method: memory
    that the kernel cannot read."""
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    with Handle(direct=direct) as handle:
        operation = start_failing(handle, path, offset=PAGE)
        with pytest.raises(
            Error, match=f"^{path}: writing 8192 bytes at offset 4096: Bad add"
        ) as raised:
            operation.wait()
        assert raised.value.errno == 14
        assert path.read_bytes() == b"x" * 100


def test_every_failure_is_told_once(tmp_path):
    """Goal: wait() raises the first error and says how many there are; who is waited for alone is
    not told again. Method: five failures among ten operations."""
    with Handle() as handle:
        failing = []
        for i in range(5):
            handle.async_pwrite(bytes(100), tmp_path / f"good{i}")
            failing.append(start_failing(handle, tmp_path / f"bad{i}"))
        with pytest.raises(Error, match="bad1"):
            failing[1].wait()
        with pytest.raises(Error, match=r"bad0.*4 operations failed; this is the first"):
            handle.wait()
        assert handle.wait() == 0
        with pytest.raises(Error, match="bad3"):
            failing[3].wait()


def test_closing_tells_what_nobody_waited_for(tmp_path):
    """Goal: a lost write is never silent. Method: close(), `with`, and a handle that is dropped."""
    handle = Handle()
    start_failing(handle, tmp_path / "bad")
    with pytest.raises(Error, match="bad"):
        handle.close()
    handle.close()
    with pytest.raises(Error, match="bad"), Handle() as handle:
        start_failing(handle, tmp_path / "bad")
    with pytest.raises(ZeroDivisionError), Handle() as handle:
        start_failing(handle, tmp_path / "bad")
        raise ZeroDivisionError
    handle = Handle()
    start_failing(handle, tmp_path / "bad")
    with pytest.warns(UserWarning, match="nobody waited.*bad"):
        del handle


# ---- arguments


def test_buffers_that_cannot_be_used(handle, tmp_path):
    """Goal: the argument and the reason, at the call; no file appears."""
    path = tmp_path / "file"
    with pytest.raises(TypeError, match="buffer is a list"):
        handle.async_pwrite([1, 2], path)
    with pytest.raises(TypeError, match="buffer is a NoneType"):
        handle.async_pread(None, path)
    cases = [
        (np.zeros((4, 4))[:, 1], "not contiguous"),
        (np.array([None]), "Python objects"),
        (memoryview(bytes(10))[::2], "not contiguous"),
    ]
    for buffer, why in cases:
        with pytest.raises(ValueError, match=f"buffer.*{why}"):
            handle.async_pwrite(buffer, path)
    assert list(tmp_path.iterdir()) == []
    path.write_bytes(bytes(100))
    frozen = np.zeros(10)
    frozen.flags.writeable = False
    for buffer in (bytes(10), memoryview(bytes(10)), frozen):
        with pytest.raises(ValueError, match="buffer is read-only"):
            handle.async_pread(buffer, path)


def test_tensors_that_cannot_be_used(handle, tmp_path):
    """Goal: as above, for torch."""
    torch = pytest.importorskip("torch")
    resized = torch.zeros(10)
    resized.untyped_storage().resize_(0)
    cases = [
        (torch.zeros(4, 4).t()[1:3], "not contiguous"),
        (torch.zeros(1).expand(5), "not contiguous"),
        (torch.zeros(4, device="meta"), "on meta"),
        (torch.zeros(4, 4).to_sparse(), "sparse"),
        (torch.zeros(4, dtype=torch.complex64).conj(), "lazy view"),
        (resized, "resized to nothing"),
    ]
    for tensor, why in cases:
        with pytest.raises(ValueError, match=f"buffer.*{why}"):
            handle.async_pwrite(tensor, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_settings_that_cannot_work(tmp_path):
    """Goal: the parameter is named. Method: one bad value at a time."""
    bad = [
        ({"block_size": 0}, "block_size is 0"),
        ({"block_size": 1000}, "block_size is 1000.*multiple of 4096"),
        ({"queue_depth": -1}, "queue_depth is -1"),
        ({"intra_op_parallelism": 1000}, "intra_op_parallelism is 1000"),
        ({"io_engine": "magic"}, "io_engine is 'magic'.*uring"),
        ({"direct": "maybe"}, "direct is 'maybe'"),
    ]
    for kwargs, why in bad:
        with pytest.raises(InvalidArgument, match=why):
            Handle(**kwargs)
    with Handle() as handle:
        for offset in (-1, 1 << 63):
            with pytest.raises(InvalidArgument, match="file_offset"):
                handle.async_pwrite(b"x", tmp_path / "file", offset)
        for name in ("", "a\0b"):
            with pytest.raises(InvalidArgument, match="filename"):
                handle.async_pwrite(b"x", name)
        with pytest.raises(InvalidArgument, match="past what a file can have"):
            handle.async_pwrite(b"xy", tmp_path / "file", (1 << 63) - 1)
        with pytest.raises(TypeError, match="example_tensor is a list"):
            handle.new_cpu_locked_tensor(10, [1])
    assert list(tmp_path.iterdir()) == []


def test_direct_on_where_there_is_none():
    """Goal: the file system's lack is told, and what to set. Method: a tmpfs, which is memory."""
    path = f"/dev/shm/zoffload_test_aio_{os.getpid()}"
    if not os.path.isdir("/dev/shm"):
        pytest.skip("there is no /dev/shm here")
    with Handle(direct="on") as handle, pytest.raises(Unsupported, match='direct to "auto"'):
        handle.sync_pwrite(bytes(PAGE), path)
    assert os.path.getsize(path) == 0
    try:
        with Handle() as handle:
            handle.sync_pwrite(bytes(PAGE), path)
            assert os.path.getsize(path) == PAGE
    finally:
        os.unlink(path)


def test_a_closed_handle(tmp_path):
    """Goal: it says so. Method: every verb."""
    handle = Handle()
    operation = handle.async_pwrite(b"x", tmp_path / "file")
    handle.close()
    assert operation.wait() == 1
    for verb in (
        lambda: handle.async_pwrite(b"x", tmp_path / "file"),
        lambda: handle.sync_pread(bytearray(1), tmp_path / "file"),
        lambda: handle.wait(),
        lambda: handle.new_cpu_locked_tensor(1, np.empty(0)),
        lambda: handle.__enter__(),
    ):
        with pytest.raises(InvalidArgument, match="the handle is closed"):
            verb()


def test_names_that_are_no_unicode(handle, tmp_path):
    """Goal: any name of a file works, in errors too. Method: a byte that is no UTF-8."""
    path = os.fsencode(tmp_path) + b"/\xff"
    handle.sync_pwrite(b"abc", path)
    out = bytearray(3)
    handle.sync_pread(out, os.fsdecode(path))
    assert out == b"abc"
    with pytest.raises(InvalidArgument, match=r"\\xff.*has 3 bytes"):
        handle.sync_pread(bytearray(4), path)


def test_no_warning_in_the_ordinary_case(tmp_path):
    """Goal: a handle that was used as meant is silent at its end."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        handle = Handle()
        handle.async_pwrite(b"x", tmp_path / "file")
        del handle
    assert (tmp_path / "file").read_bytes() == b"x"


def test_descriptors_come_back(tmp_path):
    """Goal: no file stays open, whether an operation works or fails. Method: count them."""

    def count():
        return len(os.listdir("/proc/self/fd"))

    with Handle() as handle:
        before = count()
        for i in range(20):
            handle.async_pwrite(bytes(PAGE), tmp_path / str(i))
            start_failing(handle, tmp_path / "bad")
            with pytest.raises(InvalidArgument):
                handle.async_pread(bytearray(2 * PAGE), tmp_path / str(i))
        with pytest.raises(Error):
            handle.wait()
        assert count() == before
