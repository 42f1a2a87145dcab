"""Level 1 and the user's memory: edits, strides, forks, interrupts, files."""

import gc
import os
import signal

import pytest
import torch
import zoffload
from optim_toys import (
    MIXED,
    Net,
    feed,
    gradients,
    place,
    same_bits,
    train,
    values,
)
from torch import nn
from torch.utils.data import DataLoader
from zoffload.errors import Corruption, InvalidArgument, Unsupported


def test_bf16_edits_in_place():
    """An edit takes effect, and elements that were not changed keep their master's low bits.
    Method: an edit that writes the same values changes nothing; one element set to 5 goes on from
    5, and all others as if it had not been set."""

    def run(edit):
        p = nn.Parameter(torch.linspace(-1, 1, 5000, dtype=torch.bfloat16))
        with zoffload.AdamW([p], lr=1e-3) as opt:
            by_step = gradients(6, 5000)
            feed(opt, [p], by_step[:3])
            with torch.no_grad():
                edit(p)
            feed(opt, [p], by_step[3:])
        return p.detach()

    untouched = run(lambda p: None)
    assert torch.equal(run(lambda p: p.mul_(1)), untouched)
    edited = run(lambda p: p[17].fill_(5))
    assert 4.9 < edited[17] < 5.1
    untouched[17] = edited[17]
    assert torch.equal(edited, untouched)
    assert not torch.equal(run(lambda p: p.add_(1)), untouched)


def test_bf16_updates_smaller_than_a_bit_add_up():
    """Which is what the fp32 master is for."""
    p = nn.Parameter(torch.ones(10, dtype=torch.bfloat16))
    with zoffload.AdamW([p], lr=1e-4, weight_decay=0) as opt:
        feed(opt, [p], [[torch.ones(10)]] * 100)
    assert (p < 0.992).all()


@pytest.mark.parametrize(
    "move",
    [
        lambda p: torch.zeros(3),
        lambda p: p.data.double(),
        lambda p: p.data[:2],
        lambda p: torch.zeros(0),
    ],
)
def test_moved_parameters_are_refused(move):
    """Nothing is written to the memory that was left."""
    still, p = nn.Parameter(torch.ones(4)), nn.Parameter(torch.ones(3))
    with zoffload.AdamW([("still", still), ("moved", p)]) as opt:
        old = p.data
        p.data = move(p)
        still.grad, p.grad = torch.ones(4), torch.ones_like(p)
        with pytest.raises(InvalidArgument, match="parameter moved .*other memory"):
            opt.step()
        with pytest.raises(InvalidArgument, match="parameter moved .*other memory"):
            opt.load_state_dict(opt.state_dict())
        assert torch.equal(old, torch.ones(3))
        assert torch.equal(still, torch.ones(4))


def test_strides():
    """Transposed and channels_last parameters and gradients. Method: the contiguous run's bits,
    and its state."""

    def run(lay_out, lay_out_grad):
        p = nn.Parameter(lay_out(torch.arange(120.0).view(2, 3, 4, 5)))
        with zoffload.AdamW([p], lr=0.1) as opt:
            for (grad,) in gradients(3, (2, 3, 4, 5)):
                p.grad = lay_out_grad(grad)
                opt.step()
            return p, opt.state_dict()["state"][0]["exp_avg"]

    def channels_last(t):
        return t.contiguous(memory_format=torch.channels_last)

    def transposed(t):
        return t.transpose(1, 3).contiguous().transpose(1, 3)

    def same(t):
        return t

    expected = run(same, same)
    for lay_out in (same, channels_last, transposed):
        for lay_out_grad in (same, channels_last, transposed):
            same_bits(run(lay_out, lay_out_grad), expected)
    p = nn.Parameter(torch.ones(3))
    with zoffload.AdamW([p], lr=0.1) as opt:
        p.sum().backward()  # brings a gradient of stride 0
        opt.step()
        assert torch.equal(p, p[0].expand(3))
    p = nn.Parameter(torch.ones(()))
    with zoffload.AdamW([p], lr=0.1) as opt:
        p.grad = torch.tensor(1 - 2j).conj().imag  # 2, kept as -2 and a mark
        opt.step()
        assert p < 1


def test_forked_children_leave_it_alone(tmp_path):
    """Method: DataLoader workers, forked in mid-run, that hold the optimizer and lose it."""

    class Data(torch.utils.data.Dataset):
        def __init__(self, opt):
            self.opt = opt

        def __len__(self):
            return 4

        def __getitem__(self, i):
            if self.opt is not None:
                with pytest.raises(Unsupported, match="fork"):
                    self.opt.state_dict()
                self.opt.close()
                self.opt = None
                gc.collect()
            return i

    net, alone = Net(), Net()
    opt = zoffload.AdamW(net.parameters(), lr=0.01, offload=place(MIXED, tmp_path))
    train(net, opt, 1)
    loader = DataLoader(Data(opt), num_workers=2, multiprocessing_context="fork")
    for step, i in enumerate(loader):
        assert i.item() == step
        train(net, opt, 1, first=1 + step)
    opt.close()
    with zoffload.AdamW(alone.parameters(), lr=0.01) as other:
        train(alone, other, 5)
    same_bits(values(net), values(alone))


def test_forked_child_may_lose_it():
    """Method: a child drops the last reference; an alarm ends it if that hangs."""
    held = [zoffload.AdamW([nn.Parameter(torch.ones(3))])]
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        held.clear()
        gc.collect()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    held[0].step()
    held[0].close()


def test_interrupted_step():
    """Gradients handed over in a step that Ctrl-C cut short are forgotten. Method: an interrupt
    after the handing over; the next step has a gradient for the other parameter only."""
    a, b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(3))

    class Interrupting:
        def __init__(self, core):
            self.core, self.armed = core, True

        def __getattr__(self, name):
            return getattr(self.core, name)

        def step(self, *args):
            if self.armed:
                self.armed = False
                raise KeyboardInterrupt
            return self.core.step(*args)

    with zoffload.AdamW([a, b], lr=0.1) as opt:
        core = opt._cores[0] = Interrupting(opt._cores[0])
        for record in opt._records.values():
            record.core = core
        a.grad = torch.ones(3)
        with pytest.raises(KeyboardInterrupt):
            opt.step()
        a.grad, b.grad = None, torch.ones(3)
        opt.step()
        assert torch.equal(a, torch.ones(3))
        assert not torch.equal(b, torch.ones(3))
        assert list(opt.state_dict()["state"]) == [1]


def test_corruption_is_an_error_that_sticks(tmp_path):
    """Method: other bytes in the swap file, between two steps."""
    p = nn.Parameter(torch.ones(5000))
    opt = zoffload.AdamW([p], offload="nvme", nvme_path=tmp_path)
    feed(opt, [p], gradients(1, 5000))
    (file,) = tmp_path.glob("*/zo-*.dat")
    with file.open("r+b") as swapped:
        swapped.write(b"\x11" * file.stat().st_size)
        swapped.flush()
        os.fsync(swapped.fileno())
    with pytest.raises(Corruption) as error:
        opt.step()
    with pytest.raises(Corruption) as again:
        opt.step()
    assert str(again.value) == str(error.value)
    opt.close()
    assert list(tmp_path.iterdir()) == []


def test_two_optimizers_at_once(tmp_path):
    """Interleaved on one path, they do what each does alone."""
    expected = []
    for lr in (0.01, 0.02):
        net = Net()
        with zoffload.AdamW(net.parameters(), lr=lr) as opt:
            train(net, opt, 3)
        expected.append(values(net))
    nets = Net(), Net()
    config = place("nvme", tmp_path)
    with (
        zoffload.AdamW(nets[0].parameters(), lr=0.01, offload=config) as first,
        zoffload.AdamW(nets[1].parameters(), lr=0.02, offload=config) as second,
    ):
        for step in range(3):
            train(nets[0], first, 1, first=step)
            train(nets[1], second, 1, first=step)
    same_bits(values(nets[0]), expected[0])
    same_bits(values(nets[1]), expected[1])


def test_files_go_with_the_optimizer(tmp_path):
    opt = zoffload.AdamW([nn.Parameter(torch.ones(3))], offload="nvme", nvme_path=tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    del opt
    gc.collect()
    assert list(tmp_path.iterdir()) == []


def test_plan(tmp_path):
    """The bytes of two moments, dealt out to two tiers."""
    p = nn.Parameter(torch.ones(8 * 4096))
    half = {"cpu": 0.5, "nvme": 0.5}
    with zoffload.AdamW([p], offload=place(half, tmp_path)) as opt:
        plan = opt.plan()
    assert plan.state_bytes == {"cpu": 4 * 4096 * 8, "nvme": 4 * 4096 * 8}
    assert plan.written_bytes_per_step == plan.read_bytes_per_step == 4 * 4096 * 8
    assert "written to nvme per step: 0.12 MiB" in str(plan)
