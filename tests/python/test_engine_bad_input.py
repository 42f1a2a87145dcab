"""What can go wrong around an engine: each is an error that names the thing, and leaves no file."""

import os
import shutil
import signal
import subprocess
import sys
import textwrap

import pytest

torch = pytest.importorskip("torch")
zoffload = pytest.importorskip("zoffload")

from toys import VOCAB, make_toy  # noqa: E402


def config_for(path, **ours):
    return {
        "train_batch_size": 2,
        "zero_optimization": {"stage": 3},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01}},
        "zoffload": {"params": "nvme", "optimizer": "nvme", "nvme_path": str(path), **ours},
    }


def open_engine(path, **ours):
    return zoffload.initialize(model=make_toy(), config=config_for(path, **ours))[0]


def one_step(engine):
    torch.manual_seed(1)
    engine.backward(engine(torch.randint(VOCAB, (2, 8))))
    engine.step()


def swap_file(path):
    (file,) = path.glob("zoffload-*/zo-*.dat")
    return file


def test_nvme_path_that_is_not_there(tmp_path):
    """Goal: a missing folder is named, with what to do. Method: a path below nothing."""
    with pytest.raises(zoffload.Error, match="nowhere") as caught:
        open_engine(tmp_path / "nowhere")
    assert isinstance(caught.value, ValueError)


def test_nvme_path_that_is_a_file(tmp_path):
    """Goal: a file in the folder's place is named and left alone. Method: a file with a text."""
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(zoffload.Error, match=str(file)):
        open_engine(file)
    assert file.read_text() == "mine"


def test_nvme_path_that_cannot_be_written():
    """Goal: a read-only file system is named. Method: /proc, where nothing can be made."""
    with pytest.raises(zoffload.Error, match="/proc"):
        open_engine("/proc")


def test_host_budget_too_small_says_how_many_bytes_are_missing(tmp_path):
    """Goal: the error has the missing bytes and the setting. Method: give what it asks for, then
    one byte less."""
    with pytest.raises(MemoryError, match="bytes are missing: raise host_bytes") as caught:
        open_engine(tmp_path, host_bytes=4096)
    missing = int(str(caught.value).split(" bytes are missing")[0].split()[-1])
    engine = open_engine(tmp_path, host_bytes=4096 + missing)
    assert engine.plan()["host_bytes"] <= 4096 + missing
    engine.destroy()
    with pytest.raises(MemoryError):
        open_engine(tmp_path, host_bytes=4096 + missing - 1)
    assert not list(tmp_path.iterdir())


def test_disk_too_small_for_the_plan(tmp_path):
    """Goal: bytes needed and present are in the error before the first step. Method: a file size
    limit is no disk, so a small tmpfs is mounted where that is permitted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", disk])
    if mounted.returncode != 0:
        pytest.skip("mounting is not permitted here")
    try:
        with pytest.raises(zoffload.errors.OutOfSpace, match="needs .* free"):
            open_engine(disk, allow_memory_paths=True)
        assert not list(disk.iterdir())
    finally:
        subprocess.run(["umount", disk], check=True)


def test_memory_is_not_taken_for_a_disk():
    """Goal: tmpfs is refused unless the config allows it. Method: /dev/shm, where it is one."""
    if shutil.disk_usage("/dev/shm").free < (64 << 20):
        pytest.skip("/dev/shm has no room")
    with pytest.raises(zoffload.errors.InvalidArgument, match="memory and not a disk"):
        open_engine("/dev/shm")
    open_engine("/dev/shm", allow_memory_paths=True).destroy()


def test_two_engines_on_one_path(tmp_path):
    """Goal: two jobs share a path, each in its own folder, and both train. Method: step in turns;
    compare with a run alone."""
    first, second = open_engine(tmp_path), open_engine(tmp_path)
    assert len(list(tmp_path.glob("zoffload-*"))) == 2
    for _ in range(2):
        one_step(first)
        one_step(second)
    norms = first.get_global_grad_norm(), second.get_global_grad_norm()
    assert norms[0] == norms[1]
    first.destroy()
    one_step(second)
    second.destroy()
    assert not list(tmp_path.iterdir())


def test_a_flipped_bit_is_an_error_and_sticks(tmp_path):
    """Goal: corrupted state is an error, never a wrong number; then the same error again; destroy
    still works. Method: change every page of the swap file under the engine."""
    engine = open_engine(tmp_path)
    one_step(engine)
    engine.settle()
    with open(swap_file(tmp_path), "r+b") as file:
        for offset in range(0, os.path.getsize(file.name), 4096):
            file.seek(offset)
            byte = file.read(1)[0]
            file.seek(offset)
            file.write(bytes([byte ^ 1]))
    with pytest.raises(zoffload.errors.Corruption, match=str(tmp_path)) as first:
        for _ in range(2):
            one_step(engine)
    with pytest.raises(zoffload.errors.Corruption) as again:
        one_step(engine)
    assert str(again.value) == str(first.value)
    engine.destroy()
    assert not list(tmp_path.iterdir())


def test_a_swap_file_cut_short_is_an_error(tmp_path):
    """Goal: a store that lost its bytes is an error that names the path. Method: truncate it."""
    engine = open_engine(tmp_path)
    one_step(engine)
    engine.settle()
    os.truncate(swap_file(tmp_path), 4096)
    with pytest.raises(OSError, match=str(tmp_path)):
        for _ in range(2):
            one_step(engine)
    engine.destroy()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("where", ["host", "nvme"])
def test_a_nan_gradient_skips_the_step_whole(tmp_path, where):
    """Goal: the step is skipped on every tier, reported, and state is bit-equal to before.
    Method: one bad loss between good steps equals the run without it."""

    def run(bad_step):
        engine = open_engine(tmp_path, params=where, optimizer=where)
        for step in range(4):
            torch.manual_seed(step)
            loss = engine(torch.randint(VOCAB, (2, 8)))
            if step == bad_step:
                engine.backward(loss * float("nan"))
                engine.step()
                assert engine.skipped_steps == 1
            elif step != 2:
                engine.backward(loss)
                engine.step()
        weights = []
        for parameter in engine.module.parameters():
            with zoffload.zero.GatheredParameters(parameter):
                weights.append(parameter.detach().clone())
        engine.destroy()
        return weights

    with_bad, without = run(bad_step=2), run(bad_step=None)
    assert all(torch.equal(a, b) for a, b in zip(with_bad, without, strict=True))


SCRIPT = """
    import signal, sys, torch, zoffload
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job's is ignored
    sys.path.insert(0, {tests!r})
    from test_engine_bad_input import open_engine, one_step
    engine = open_engine({path!r})
    print(*[p.name for p in __import__("pathlib").Path({path!r}).iterdir()], flush=True)
    {body}
"""


def run_script(tmp_path, body, **kwargs):
    tests = os.path.dirname(__file__)
    code = textwrap.dedent(SCRIPT).format(tests=tests, path=str(tmp_path), body=body)
    return subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **kwargs,
    )


def test_ctrl_c_in_the_middle_leaves_no_file(tmp_path):
    """Goal: SIGINT while training ends the process soon, with KeyboardInterrupt, and no file stays.
    Method: a process that steps for ever is interrupted once it has begun."""
    process = run_script(tmp_path, "while True: one_step(engine); print('step', flush=True)")
    while process.stdout.readline().strip() != "step":
        assert process.poll() is None, process.stderr.read()
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=120)
    assert "KeyboardInterrupt" in error
    assert process.returncode != 0
    assert not list(tmp_path.iterdir())


def test_what_a_killed_job_left_is_removed_by_the_next(tmp_path):
    """Goal: kill -9 leaves a folder, and the next engine on the path removes it; other files stay.
    Method: kill a training process; open an engine beside a file of the user's."""
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    process = run_script(tmp_path, "while True: one_step(engine)")
    folders = process.stdout.readline().split()
    process.kill()
    process.communicate(timeout=60)
    (left,) = [name for name in folders if name.startswith("zoffload-")]
    assert (tmp_path / left).exists()
    engine = open_engine(tmp_path)
    assert not (tmp_path / left).exists()
    engine.destroy()
    assert [p.name for p in tmp_path.iterdir()] == ["mine.txt"]
