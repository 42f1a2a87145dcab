"""Raw I/O and its process: without torch, at the interpreter's end, in a fork, under Ctrl-C."""

import os
import subprocess
import sys
import textwrap

import pytest

PRELUDE = """
import os, signal, sys, threading
import zoffload
from zoffload.aio import Handle, TensorFile
from zoffload.errors import Unsupported
folder = sys.argv[1]
"""


LEAK = "import ctypes; ctypes.pythonapi.Py_IncRef(ctypes.py_object(handle))"


def run(script, folder, status=0):
    """Runs Python in a process of its own; what it printed."""
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + textwrap.dedent(script), str(folder)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("blocked", ["torch", "numpy and torch"])
def test_without_torch(tmp_path, blocked):
    """Goal: level 0 needs neither torch nor numpy. Method: imports of them fail in this process."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(f"""
            import sys
            for name in {blocked.split(" and ")!r}:
                sys.modules[name] = None
            import zoffload
            from zoffload.aio import Handle, TensorFile
            path = {str(tmp_path / "file")!r}
            with Handle() as handle:
                handle.sync_pwrite(bytes(range(256)) * 100, path, 5)
                out = bytearray(10)
                handle.sync_pread(out, path, 10)
                assert out == bytes(range(5, 15)), out
            with TensorFile.create(path + ".zot", (3, 4), "bfloat16") as file:
                file.write(b"12345678", 2)
                assert bytes(file.read(bytearray(12), 1)) == bytes(2) + b"12345678" + bytes(2)
            assert zoffload.aio.Handle is Handle
            """),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("end", ["", "sys.exit(0)", "handle = None", "os._exit(0)", LEAK])
def test_an_end_with_operations_in_flight(tmp_path, end):
    """Goal: no crash and no hang, and, but for os._exit(), every byte in its file. Method: nobody
    waits, and the buffers have no other reference; the last handle is never destroyed."""
    run(
        f"""
        handle = Handle(4096, 2)
        for i in range(20):
            handle.async_pwrite(bytearray(b"x" * 300001), f"{{folder}}/{{i}}")
        {end}
        """,
        tmp_path,
    )
    if end != "os._exit(0)":
        for i in range(20):
            assert (tmp_path / str(i)).read_bytes() == b"x" * 300001


def test_an_end_in_which_a_write_fails(tmp_path):
    """Goal: said, on stderr, and no crash. Method: memory that the kernel cannot read."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            PRELUDE
            + textwrap.dedent("""
            sys.path.insert(0, sys.argv[2])
            from test_aio_errors import start_failing
            handle = Handle()
            start_failing(handle, folder + "/bad")
            """),
            str(tmp_path),
            os.path.dirname(__file__),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0
    assert "nobody waited for an operation that failed" in done.stderr


def test_a_fork(tmp_path):
    """Goal: the child is refused, ends without a word, and can make a handle of its own; the parent
    goes on. Method: fork while operations are in flight and the handle's lock is held; those that
    were done by then can still be waited for."""
    out = run(
        """
        handle = Handle(4096, 2, intra_op_parallelism=2)
        operations = [
            handle.async_pwrite(bytearray(b"x" * 300001), f"{folder}/{i}") for i in range(20)
        ]
        operations.append(handle.async_pwrite(bytearray(16 << 20), folder + "/large"))
        handle._lock.acquire()
        child = os.fork()
        if child == 0:
            def refused(verb):
                try:
                    verb()
                except Unsupported as error:
                    return "this is a fork" in str(error)
                return False

            print(refused(lambda: handle.async_pwrite(b"y", folder + "/0")))
            print(refused(handle.wait))
            print(all(refused(o.wait) == o._core.failed for o in operations))
            handle.close()
            del handle, operations
            with Handle() as own:
                own.sync_pwrite(b"child", folder + "/child")
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        handle._lock.release()
        print(status, handle.wait())
        """,
        tmp_path,
    )
    assert out.split() == ["True", "True", "True", "0", "21"]
    assert (tmp_path / "child").read_bytes() == b"child"
    for i in range(20):
        assert (tmp_path / str(i)).read_bytes() == b"x" * 300001


def test_ctrl_c_ends_the_waiting(tmp_path):
    """Goal: KeyboardInterrupt at once, however long the operation takes, which then finishes with
    its buffer. Method: a write of many small blocks, one after the other; the signal comes from a
    timer while the wait blocks. Where all of them are done by then, a larger write."""
    out = run(
        """
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        handle = Handle(4096, 1)
        for mib in (8, 32, 128, 512, 1024):
            operation = handle.async_pwrite(bytearray(b"x" * (mib << 20)), folder + "/file")
            try:
                signal.setitimer(signal.ITIMER_REAL, 0.005)
                operation.wait()
                while True:  # it was faster than the timer
                    pass
            except KeyboardInterrupt:
                interrupted = not operation.done()
            if interrupted:
                print("interrupted", operation._memory is not None)
                break
            handle.wait()
        print(handle.wait(), os.path.getsize(folder + "/file") == mib << 20)
        """,
        tmp_path,
    )
    assert out.split() == ["interrupted", "True", "1", "True"]
    with open(tmp_path / "file", "rb") as file:
        while piece := file.read(1 << 20):
            assert piece == b"x" * len(piece)
