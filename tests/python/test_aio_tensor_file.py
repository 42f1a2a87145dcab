"""TensorFile: one tensor in a file, any range of which can be read and written."""

import itertools
import json
import os
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zoffload import _core
from zoffload.aio import Handle, TensorFile
from zoffload.errors import Corruption, InvalidArgument, IoError, Unsupported


@pytest.fixture
def path(tmp_path):
    return tmp_path / "tensor.zot"


@pytest.fixture(scope="module")
def handle():
    with Handle(16384, 4) as made:
        yield made


numbers = itertools.count()


@given(data=st.data())
@settings(max_examples=20)
def test_ranges_against_an_array(handle, tmp_path_factory, data):
    """Goal: reads give what the last writes left, zero where there was none. Method: random ranges,
    against an array in memory; then the file is opened again."""
    path = tmp_path_factory.getbasetemp() / f"ranges{next(numbers)}"
    numel = data.draw(st.integers(0, 20000))
    model = np.zeros(numel, np.int32)

    def drawn():
        start = data.draw(st.integers(0, numel))
        return start, data.draw(st.integers(start, numel))

    with TensorFile.create(path, numel, np.int32, handle=handle) as file:
        for turn in range(data.draw(st.integers(0, 5))):
            start, end = drawn()
            values = np.arange(start, end, dtype=np.int32) * (turn + 3)
            file.write(values, start)
            model[start:end] = values
            start, end = drawn()
            out = np.full(end - start, -1, np.int32)
            assert file.read(out, start) is out
            assert (out == model[start:end]).all()
        file.flush()
    with TensorFile.open(path, "r", handle=handle) as file:
        assert (file.shape, file.dtype, file.numel) == ((numel,), "int32", numel)
        assert (file.read(np.zeros(numel, np.int32)) == model).all()
    path.unlink()


def test_torch(path):
    """Goal: bfloat16 by its name, shapes kept. Method: a matrix row by row, several at once."""
    torch = pytest.importorskip("torch")
    weight = torch.randn(30, 1000).to(torch.bfloat16)
    with TensorFile.create(path, weight.shape, weight.dtype) as file:
        for row in range(30):
            file.write_async(weight[row], row * 1000)
        file.flush()
        out = torch.empty(3, 1000, dtype=torch.bfloat16)
        operation = file.read_async(out, 5000)
        assert operation.wait() == 6000
        assert torch.equal(out, weight[5:8])
        assert repr(file) == f"<TensorFile {str(path)!r}: [30, 1000] of bfloat16>"
        assert (file.shape, file.dtype, file.nbytes) == ((30, 1000), "bfloat16", 60000)


def test_every_way_to_say_a_dtype(tmp_path):
    """Goal: names, numpy types and torch types mean the same."""
    torch = pytest.importorskip("torch")
    for i, dtype in enumerate(("float32", np.float32, np.dtype("float32"), torch.float32)):
        with TensorFile.create(tmp_path / str(i), (2, 3), dtype) as file:
            assert file.dtype == "float32"
            file.write(torch.ones(6))
            assert (file.read(np.zeros((2, 3), np.float32)) == 1).all()
    for dtype in ("float31", np.dtype(">f4"), np.dtype("S3"), object):
        with pytest.raises(InvalidArgument, match="dtype is"):
            TensorFile.create(tmp_path / "bad", 3, dtype)
    for shape in (-1, (2, -1), (1 << 40, 1 << 40)):
        with pytest.raises(InvalidArgument, match="shape is"):
            TensorFile.create(tmp_path / "bad", shape, "int8")
    with pytest.raises(InvalidArgument, match="too many"):
        TensorFile.create(tmp_path / "bad", (1,) * 5000, "int8")
    assert not (tmp_path / "bad").exists()


def test_what_does_not_fit(path):
    """Goal: range, dtype and mode are checked, by name, before a byte moves."""
    with TensorFile.create(path, 100, np.float32) as file:
        for start in (-1, 91, 101):
            with pytest.raises(InvalidArgument, match=f"start is {start}.*10 elements.*has 100"):
                file.read(np.zeros(10, np.float32), start)
            with pytest.raises(InvalidArgument, match=f"start is {start}"):
                file.write(np.zeros(10, np.float32), start)
        with pytest.raises(InvalidArgument, match="out is float64.*holds float32"):
            file.read(np.zeros(10))
        with pytest.raises(InvalidArgument, match="tensor is int32.*holds float32"):
            file.write(np.zeros(10, np.int32))
        with pytest.raises(InvalidArgument, match="10 bytes: no whole number"):
            file.write(bytes(10))
        with pytest.raises(InvalidArgument, match="out is read-only"):
            file.read(bytes(8))
    with pytest.raises(InvalidArgument, match="the file is closed"):
        file.read(bytearray(4))
    with TensorFile.open(path, "r") as file:
        with pytest.raises(InvalidArgument, match="to read only"):
            file.write(np.zeros(1, np.float32))
    with pytest.raises(InvalidArgument, match="mode is 'w'"):
        TensorFile(path, "w")
    with pytest.raises(InvalidArgument, match="exists; a file is never overwritten"):
        TensorFile.create(path, 1, np.float32)
    assert os.path.getsize(path) == 4096 + 400


def test_files_that_are_none(path, tmp_path):
    """Goal: foreign, cut, damaged and newer files are told apart. Method: one thing is wrong with a
    good file at a time."""
    TensorFile.create(path, (10, 10), "float32").close()
    good = path.read_bytes()

    def opened(content):
        path.write_bytes(content)
        return TensorFile.open(path)

    for content in (b"", b"zot", b"\x93NUMPY" + good, bytes(5000)):
        with pytest.raises(InvalidArgument, match="no tensor file"):
            opened(content)
    with pytest.raises(Corruption, match="ends within its header, after 4095 bytes"):
        opened(good[:4095])
    with pytest.raises(Corruption, match="has 4495 bytes and needs 4496"):
        opened(good[:-1])
    for place in (12, 20, 3000, 4095):
        damaged = bytearray(good)
        damaged[place] ^= 1
        with pytest.raises(Corruption, match="header is not what was written"):
            opened(damaged)
    with pytest.raises(Unsupported, match="version 2"):
        opened(good[:8] + struct.pack("<I", 2) + good[12:])
    text = json.dumps({"dtype": "float4", "shape": [3]}).encode()
    summed = (struct.pack("<8sII", b"zotensor", 1, len(text)) + text).ljust(4088, b"\0")
    with pytest.raises(Unsupported, match="'float4'"):
        opened(summed + struct.pack("<Q", _core.xxh3_64(summed)))
    with opened(good + b"more") as file:
        assert file.shape == (10, 10)
    for missing in (tmp_path / "missing", tmp_path / "no" / "file", tmp_path):
        with pytest.raises(InvalidArgument, match=str(missing)):
            TensorFile.open(missing)


def test_the_header_is_what_the_documentation_says(path):
    """Goal: files of today are read for ever. Method: the bytes of a known header."""
    TensorFile.create(path, (2, 3), "bfloat16").close()
    raw = path.read_bytes()
    text = b'{"dtype": "bfloat16", "shape": [2, 3]}'
    assert raw[:16] == b"zotensor" + struct.pack("<II", 1, len(text))
    assert raw[16:4088] == text.ljust(4072, b"\0")
    assert raw[4088:4096] == struct.pack("<Q", 0xB47FEF282289964E)
    assert raw[4096:] == bytes(12)


def test_a_failed_flush_is_not_forgotten(path, monkeypatch):
    """Goal: after one failure every flush fails: the system tells of an error only once. Method:
    the system call fails once."""

    def failing(_):
        raise OSError(5, "Input/output error")

    with TensorFile.create(path, 10, "int8") as file:
        file.flush()
        with monkeypatch.context() as patched:
            patched.setattr(os, "fdatasync", failing)
            with pytest.raises(IoError, match="could not be made durable"):
                file.flush()
        with pytest.raises(IoError, match="could not be made durable"):
            file.flush()


def test_flush_and_close_tell_of_writes_that_failed(path, handle):
    """Goal: no write is lost in silence. Method: memory that the kernel cannot read, under flush()
    and under close()."""
    from test_aio_errors import start_failing

    for end in (TensorFile.flush, TensorFile.close):
        file = TensorFile.create(path, 8192, "int8", handle=handle)
        file._writes.append(start_failing(handle, path, offset=4096))
        with pytest.raises(IoError, match="offset 4096"):
            end(file)
        file.close()
        path.unlink()
    assert handle.wait() == 0


def test_a_file_that_is_gone_is_not_written_anew(path):
    """Goal: no elements go to a file that is none. Method: the file is removed, then replaced,
    while it is open."""
    with TensorFile.create(path, 10, "int8") as file:
        path.unlink()
        with pytest.raises(IoError, match="removed or replaced"):
            file.write(bytes(10))
        assert not path.exists()
        path.write_bytes(bytes(5000))
        for verb in (file.write, file.read):
            with pytest.raises(IoError, match="removed or replaced"):
                verb(bytearray(10))
        assert path.read_bytes() == bytes(5000)


def test_close_waits_for_every_write(path):
    """Goal: after close() nothing is in flight, whatever failed before. Method: a write that fails,
    then many small blocks one after the other; the file has a handle of its own."""
    from test_aio_errors import start_failing

    file = TensorFile.create(path, 8 << 20, "int8")
    file._handle.close()
    file._handle = Handle(4096, 1)
    file._writes.append(start_failing(file._handle, path, offset=4096))
    last = file.write_async(bytes(8 << 20))
    with pytest.raises(IoError, match="offset 4096"):
        file.close()
    assert last.done()
    with pytest.raises(InvalidArgument, match="the handle is closed"):
        file._handle.wait()


def test_an_interrupted_flush_can_be_repeated(path, handle, monkeypatch):
    """Goal: a flush after Ctrl-C waits again, and tells of the failure. Method: the first wait for
    a write that fails is interrupted."""
    from test_aio_errors import start_failing

    def interrupted():
        raise KeyboardInterrupt

    with TensorFile.create(path, 8192, "int8", handle=handle) as file:
        operation = start_failing(handle, path, offset=4096)
        file._writes.append(operation)
        with monkeypatch.context() as patched:
            patched.setattr(operation, "wait", interrupted)
            with pytest.raises(KeyboardInterrupt):
                file.flush()
        with pytest.raises(IoError, match="offset 4096"):
            file.flush()
