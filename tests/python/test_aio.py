"""Raw I/O: bytes go to files and come back, whatever they lie in and wherever they go."""

import gc
import os
import threading
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from zoffload.aio import Handle, aio_handle
from zoffload.errors import Corruption, IoError

PAGE = 4096
BLOCK = 4 * PAGE

WAYS = {
    "best": {},
    "direct": {"direct": "on"},
    "libaio": {"io_engine": "libaio"},
    "threads": {"io_engine": "threads"},
    "buffered": {"direct": "off"},
    "parallel": {"intra_op_parallelism": 3},
}


@pytest.fixture(scope="module", params=WAYS)
def handle(request, tmp_path_factory):
    """A handle of each kind; small blocks, so that small operations have many of them."""
    if request.param == "direct":
        skip_without_direct_io(tmp_path_factory.mktemp("probe"))
    with Handle(BLOCK, 4, **WAYS[request.param]) as made:
        yield made


def skip_without_direct_io(folder):
    from zoffload import _core

    if not _core.probe_path(str(folder))["direct"]:
        pytest.skip(f"{folder} has no direct I/O")


def noise(nbytes, seed=0):
    return np.random.default_rng(seed).integers(0, 256, nbytes, np.uint8)


def at_distance(nbytes, distance):
    """Memory that begins `distance` bytes after a page boundary."""
    whole = np.zeros(nbytes + 2 * PAGE, np.uint8)
    begin = -whole.ctypes.data % PAGE + distance
    return whole[begin : begin + nbytes]


sizes = st.one_of(
    st.sampled_from([0, 1, 511, 512, 513, PAGE - 1, PAGE, PAGE + 1, BLOCK, BLOCK + 1, 5 * BLOCK]),
    st.integers(0, 3 * BLOCK),
)
distances = st.sampled_from([0, 0, 1, 16, 64, 512, PAGE - 1])


class Model:
    """A file and what it must hold."""

    def __init__(self, folder):
        self.path = folder / "file"
        self.path.unlink(missing_ok=True)
        self.content = bytearray()

    def write(self, handle, data, offset):
        handle.sync_pwrite(data, self.path, offset)
        if len(data) > 0:
            self.content.extend(bytes(max(0, offset + len(data) - len(self.content))))
            self.content[offset : offset + len(data)] = data.tobytes()

    def check(self, handle, nbytes, offset, distance):
        out = at_distance(nbytes, distance)
        handle.sync_pread(out, self.path, offset)
        assert out.tobytes() == self.content[offset : offset + nbytes]


@given(data=st.data())
@settings(max_examples=25)
def test_any_size_offset_and_alignment(handle, tmp_path_factory, data):
    """Goal: a file that was written here is the file that plain writes would have made. Method:
    random writes and reads in turn, against bytes in memory; at the end the whole file."""
    model = Model(tmp_path_factory.getbasetemp())
    for seed in range(data.draw(st.integers(1, 6))):
        nbytes, offset = data.draw(sizes), data.draw(sizes)
        source = at_distance(nbytes, data.draw(distances))
        source[:] = noise(nbytes, seed)
        model.write(handle, source, offset)
        begin = data.draw(st.integers(0, len(model.content)))
        end = data.draw(st.integers(begin, len(model.content)))
        model.check(handle, end - begin, begin, data.draw(distances))
    assert model.path.read_bytes() == model.content


def test_neighbours_in_flight_at_once(handle, tmp_path):
    """Goal: operations that share pages of a file do not harm each other. Method: the odd pieces of
    a file that holds the even ones are written while the even ones are read."""
    size, count = 2 * PAGE + 333, 30
    content = noise(size * count)
    path = tmp_path / "file"
    path.write_bytes(content.tobytes())
    new = noise(size * count, 1)
    outs = [np.zeros(size, np.uint8) for _ in range(count)]
    for i in range(count):
        piece = slice(i * size, (i + 1) * size)
        if i % 2:
            handle.async_pwrite(new[piece], path, i * size)
            content[piece] = new[piece]
        else:
            handle.async_pread(outs[i], path, i * size)
    assert handle.wait() == count
    for i in range(0, count, 2):
        assert (outs[i] == content[i * size : (i + 1) * size]).all()
    assert path.read_bytes() == content.tobytes()


def test_buffers_of_every_kind(tmp_path):
    """Goal: what holds contiguous bytes can be used. Method: the same bytes with each."""
    path = tmp_path / "file"
    data = noise(5000).tobytes()
    with Handle() as handle:
        sources = [
            data,
            bytearray(data),
            memoryview(data)[:],
            np.frombuffer(data, np.float32),
            np.frombuffer(data, "datetime64[s]"),
            np.frombuffer(data, np.uint8).reshape(50, 100),
            np.frombuffer(data, np.uint16)[::1].T,
        ]
        for source in sources:
            path.unlink(missing_ok=True)
            assert handle.sync_pwrite(source, path) == 1
            assert path.read_bytes() == data
        outs = [bytearray(5000), np.zeros(1250, np.float32), memoryview(bytearray(5000))]
        for out in outs:
            assert handle.sync_pread(out, str(path)) == 1
            assert bytes(memoryview(out).cast("B")) == data
        scalar = np.zeros((), np.int64)
        handle.sync_pread(scalar, os.fsencode(path), 8)
        assert scalar.tobytes() == data[8:16]


def test_torch_tensors_of_every_dtype(tmp_path):
    """Goal: a tensor's bits come back. Method: random bits, as each dtype."""
    torch = pytest.importorskip("torch")
    bits = torch.from_numpy(noise(9000))
    with Handle() as handle:
        for dtype in (torch.bfloat16, torch.float16, torch.float32, torch.int64, torch.float8_e5m2):
            tensor = bits.view(dtype)
            handle.sync_pwrite(tensor[1:], tmp_path / "file")
            out = torch.zeros_like(tensor[1:])
            version = out._version
            handle.sync_pread(out, tmp_path / "file")
            assert torch.equal(out.view(torch.uint8), tensor[1:].view(torch.uint8))
            assert out._version > version  # an edit in place, as autograd counts them


def test_deepnvme_names(tmp_path):
    """Goal: a script for DeepSpeed's aio_handle runs. Method: its calls, as its tests make them."""
    torch = pytest.importorskip("torch")
    handle = aio_handle(1 << 20, 16, False, True, 2)
    assert handle.get_block_size() == 1 << 20
    assert handle.get_queue_depth() == 16
    assert handle.get_single_submit() is False
    assert handle.get_overlap_events() is True
    assert handle.get_intra_op_parallelism() == 2
    assert handle.get_alignment() % 512 == 0
    path = str(tmp_path / "file")
    tensor = handle.new_cpu_locked_tensor(4096, torch.empty(0, dtype=torch.uint8))
    tensor.copy_(torch.from_numpy(noise(4096)))
    assert handle.pwrite(tensor, path, True, False) == 1
    assert handle.write(tensor, path, False) == 1
    out = torch.empty(4096, dtype=torch.uint8)
    assert handle.read(out, path, True, 0) == 1
    assert torch.equal(out, tensor)
    out.zero_()
    handle.pread(out, path, False, True, 0)
    handle.async_pread(torch.empty_like(out), path)
    assert handle.wait() == 2
    assert handle.wait() == 0
    assert torch.equal(out, tensor)
    assert handle.free_cpu_locked_tensor(tensor)
    handle.close()


def test_one_operation_is_awaited_alone(tmp_path):
    """Goal: each operation has its own end. Method: one of three is waited for by itself; wait()
    then counts the others."""
    with Handle() as handle:
        operations = [handle.async_pwrite(bytes(10 + i), tmp_path / "file", i) for i in range(3)]
        assert operations[1].wait() == 11
        assert operations[1].done()
        assert operations[1].bytes == 11
        assert operations[1].wait() == 11
        assert handle.wait() == 2
        assert all(operation.done() for operation in operations)


def test_validate_finds_a_difference(tmp_path):
    """Goal: validate compares with the file. Method: the buffer is changed behind the operation's
    back, after its bytes are written and before they are compared."""
    with Handle() as handle:
        buffer = bytearray(noise(3 << 20).tobytes())
        operation = handle.pwrite(buffer, tmp_path / "file", True, True)
        handle._io.close()  # all is written
        buffer[2_500_000] ^= 1
        with pytest.raises(Corruption, match="offset 2097152"):
            operation.wait()


def test_a_file_that_cannot_be_compared(tmp_path):
    """Goal: validate fails as an operation does, and is told once. Method: the file is removed
    before it is compared."""
    with Handle() as handle:
        handle.pwrite(bytes(10), tmp_path / "file", True, True)
        handle._io.close()  # all is written
        (tmp_path / "file").unlink()
        with pytest.raises(IoError, match="file: cannot be compared: No such file"):
            handle.wait()
        assert handle.wait() == 0


@pytest.mark.parametrize("kind", ["torch", "numpy"])
def test_locked_tensors(tmp_path, kind):
    """Goal: pinned memory lives as long as somebody uses it. Method: it outlives its handle; after
    being freed it is empty, and a view of it still holds."""
    if kind == "torch":
        torch = pytest.importorskip("torch")
        example = torch.empty(0, dtype=torch.bfloat16)
    else:
        example = np.empty(0, np.float64)
    with Handle() as handle:
        tensor = handle.new_pinned_tensor(1000, example)
        address = tensor.data_ptr() if kind == "torch" else tensor.ctypes.data
        assert address % PAGE == 0
        assert tensor.dtype == example.dtype
        assert tensor.shape == (1000,)
        tensor[:] = 3
        handle.sync_pwrite(tensor, tmp_path / "file")
        kept = handle.new_cpu_locked_tensor(1000, example)
        handle.sync_pread(kept, tmp_path / "file")
        assert (kept == 3).all()
        view = tensor[10:20]
        assert handle.free_cpu_locked_tensor(tensor)
        if kind == "torch":
            assert tensor.numel() == 0
            assert not handle.free_cpu_locked_tensor(tensor)
        assert (view == 3).all()
        assert not handle.free_cpu_locked_tensor(kept[:1] + 1)
        assert len(handle.new_cpu_locked_tensor(0, example)) == 0
    assert (kept == 3).all()
    kept[:] = 4


def test_locked_tensors_that_come_and_go(tmp_path):
    """Goal: a tensor's memory may go and come back at the same address, and every byte read is in
    the tensor that was given. Method: many short lives beside an operation in flight; one tensor
    outlives its handle's last reference."""
    handle = Handle(block_size=PAGE, intra_op_parallelism=2)
    busy = handle.new_cpu_locked_tensor(1 << 20, np.empty(0, np.uint8))
    addresses = set()
    for i in range(30):
        operation = handle.async_pwrite(busy, tmp_path / "busy")
        sent = np.random.default_rng(i).integers(0, 256, 5 * PAGE, np.uint8)
        handle.sync_pwrite(sent, tmp_path / "file")
        tensor = handle.new_cpu_locked_tensor(5 * PAGE, sent)
        addresses.add(tensor.ctypes.data)
        handle.sync_pread(tensor, tmp_path / "file")
        assert (tensor == sent).all()
        assert handle.free_cpu_locked_tensor(tensor)
        del tensor
        operation.wait()
    assert len(addresses) < 30, "no address came twice: this test shows nothing"
    kept = handle.new_cpu_locked_tensor(PAGE, np.empty(0, np.uint8))
    del handle
    kept[:] = 1


def test_a_buffer_lives_until_its_operation_is_done(tmp_path):
    """Goal: no write from freed memory. Method: the only references are dropped at once; the file
    has every byte; then the memory is given back, without a wait."""
    with Handle(BLOCK, 2) as handle:
        expected, released = [], []
        for i in range(20):
            array = noise(BLOCK * 3 + i, i)
            expected.append(array.tobytes())
            released.append(weakref.ref(array))
            operation = handle.async_pwrite(array, tmp_path / str(i))
            del array
        operation._core.wait()
        while not all(o.done() for o in handle._in_flight):
            handle._in_flight[0]._core.wait()
            handle._make_room()
        for i, content in enumerate(expected):
            assert (tmp_path / str(i)).read_bytes() == content
        handle._make_room()
        gc.collect()
        assert [reference() for reference in released] == [None] * 20
        assert handle.wait() == 20


@pytest.mark.parametrize("where", ["start", "end"])
def test_an_interrupt_frees_no_buffer_in_flight(tmp_path, monkeypatch, where):
    """Goal: no transfer from or to freed memory, wherever Ctrl-C strikes. Method: it strikes when a
    write of many small blocks has just begun, or in the wait of a handle that is dropped; when its
    array is freed, the file has every byte."""
    path = tmp_path / "file"
    handle = Handle(PAGE, 1)
    array = noise(8 << 20)
    expected, complete = array.tobytes(), []
    weakref.finalize(array, lambda: complete.append(path.read_bytes() == expected))

    class Interrupted:
        def __init__(self, io):
            self.io = io

        def write(self, *arguments):
            self.io.write(*arguments)
            raise KeyboardInterrupt

    def interrupted(*_):
        raise KeyboardInterrupt

    if where == "start":
        core, handle._io = handle._io, Interrupted(handle._io)
        try:
            handle.async_pwrite(array, path)
        except KeyboardInterrupt:
            pass
        handle._io = core
    else:
        handle.async_pwrite(array, path)
        monkeypatch.setattr("zoffload.raw_io.Operation._join", interrupted)
        monkeypatch.setattr("sys.unraisablehook", lambda _: None)
        del handle
    del array
    gc.collect()
    assert complete == [True]


def test_a_bytearray_cannot_be_resized_in_flight(tmp_path):
    """Goal: the bytes cannot move. Method: try it between start and wait; afterwards it works."""
    with Handle() as handle:
        buffer = bytearray(BLOCK)
        operation = handle.async_pwrite(buffer, tmp_path / "file")
        with pytest.raises(BufferError):
            buffer.extend(b"more")
        operation.wait()
        buffer.extend(b"more")


def test_more_operations_than_open_files(tmp_path):
    """Goal: a thousand operations need no thousand descriptors. Method: more files than a handle
    may have open, all started before any is waited for."""
    with Handle() as handle:
        handle._in_flight_max = 8
        for i in range(100):
            handle.async_pwrite(noise(100, i), tmp_path / str(i))
            assert len(handle._in_flight) <= 8
        assert handle.wait() == 100
        for i in range(100):
            assert (tmp_path / str(i)).read_bytes() == noise(100, i).tobytes()


def test_several_threads_share_a_handle(tmp_path):
    """Goal: a handle has no owner. Method: eight threads write and read back their own files."""
    wrong = []

    def work(handle, number):
        for turn in range(10):
            data = noise(BLOCK + number, 100 * number + turn)
            handle.async_pwrite(data, tmp_path / str(number)).wait()
            out = np.zeros_like(data)
            handle.sync_pread(out, tmp_path / str(number))
            if not (out == data).all():
                wrong.append((number, turn))

    with Handle(BLOCK, 4, intra_op_parallelism=2) as handle:
        threads = [threading.Thread(target=work, args=(handle, n)) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert handle.wait() == 0
    assert wrong == []
