"""Goal: zoffload.AdamW and Adam are torch's, with the same bits wherever their state lies.

Method: runs of a toy model that differ in one thing, compared bit for bit with each other and
closely with torch.optim.
"""

import copy
import gc
import os
import pickle
import signal

import pytest
import torch
import zoffload
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import DataLoader
from zoffload.errors import Corruption, InvalidArgument, Unsupported
from zoffload.placement import NvmeConfig, OffloadConfig

SUBGROUP_BYTES = 48 << 10  # the smallest: even a toy has several subgroups to deal out
MIXED = {"cpu": 0.6, "nvme": 0.4}


class Net(nn.Module):
    """Several subgroups, a large and small parameters, one of no dimension."""

    def __init__(self, dtype=torch.float32):
        super().__init__()
        torch.manual_seed(7)
        self.up = nn.Linear(60, 150)
        self.down = nn.Linear(150, 60, bias=False)
        self.scale = nn.Parameter(torch.tensor(0.7))
        self.to(dtype)

    def forward(self, x):
        return self.scale * self.down(torch.tanh(self.up(x)))


def place(placement, folder, threads=0):
    return OffloadConfig(placement, NvmeConfig(folder), None, threads, SUBGROUP_BYTES)


def loss_of(net, step):
    """Of a batch that depends on the step only."""
    x = torch.randn(8, 60, generator=torch.Generator().manual_seed(step)).to(net.scale.dtype)
    return (net(x) - x).float().square().mean()


def train(net, opt, steps, first=0):
    for step in range(first, first + steps):
        loss_of(net, step).backward()
        opt.step()
        opt.zero_grad()


def same_bits(a, b):
    assert len(a) == len(b)
    for p, q in zip(a, b, strict=True):
        assert torch.equal(p, q)


def values(net):
    return [p.detach().clone() for p in net.parameters()]


def assert_close(a, b):
    """As equal as different orders of rounding leave it after some steps of a toy model. The bound
    is ten times what was measured."""
    for p, q in zip(a, b, strict=True):
        torch.testing.assert_close(p, q, rtol=2e-5, atol=2e-6)


def gradients(steps, *shapes):
    """A list, by step, of lists of gradients."""
    generator = torch.Generator().manual_seed(3)
    return [[torch.randn(shape, generator=generator) for shape in shapes] for _ in range(steps)]


def feed(opt, params, by_step):
    for grads in by_step:
        for p, grad in zip(params, grads, strict=True):
            p.grad = None if grad is None else grad.to(p.dtype)
        opt.step()


# ---- The numbers


@pytest.mark.parametrize("clip", [None, 0.01])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_same_bits_on_every_tier(tmp_path, dtype, clip):
    """Method: placements and numbers of threads against one thread in host memory."""
    expected = None
    for threads in (1, 2, 4):
        for placement in ("cpu", "nvme", MIXED):
            net = Net(dtype)
            before = values(net)
            where = place(placement, tmp_path, threads)
            with zoffload.AdamW(net.parameters(), 0.01, offload=where, max_grad_norm=clip) as opt:
                train(net, opt, 4)
                state = opt.state_dict()["state"]
                found = (*values(net), torch.tensor(opt.grad_norm or 0.0, dtype=torch.float64))
                found += tuple(value for s in state.values() for value in s.values())
                if placement != "cpu":
                    assert opt.plan().state_bytes["nvme"] > 0
            expected = expected or found
            same_bits(found, expected)
            assert not any(torch.equal(p, q) for p, q in zip(found, before, strict=False))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["AdamW", "Adam"])
@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
def test_close_to_torch(name, weight_decay):
    """Measured over 50 steps: weights differ by 20 units in the last place of max(|w|, lr); moments
    by none, or with decay added to the gradient, by few. The bounds are three times that."""
    lr, ulp = 0.01, 2.0**-23
    ((start,),) = gradients(1, 20_000)
    p, q = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    theirs = getattr(torch.optim, name)([p], lr=lr, weight_decay=weight_decay)
    with getattr(zoffload, name)([q], lr=lr, weight_decay=weight_decay) as ours:
        by_step = gradients(50, 20_000)
        feed(theirs, [p], by_step)
        feed(ours, [q], by_step)
        state = ours.state_dict()["state"][0]
        assert ((p - q).abs() / p.abs().clamp(min=lr)).max() <= 60 * ulp
        for role in ("exp_avg", "exp_avg_sq"):
            expected = theirs.state[p][role]
            atol = 3e-7 if role == "exp_avg" else 0
            torch.testing.assert_close(state[role], expected, rtol=6 * ulp, atol=atol)
        assert state["step"] == theirs.state[p]["step"] == 50


@given(
    st.lists(st.lists(st.integers(0, 7), max_size=3).map(tuple), min_size=1, max_size=5),
    st.sampled_from(["AdamW", "Adam"]),
)
def test_any_shapes(shapes, name):
    """Zero-element and zero-dimensional parameters included."""
    theirs = [nn.Parameter(torch.ones(shape)) for shape in shapes]
    ours = [nn.Parameter(torch.ones(shape)) for shape in shapes]
    by_step = gradients(3, *shapes)
    torch_opt = getattr(torch.optim, name)(theirs, lr=0.1)
    feed(torch_opt, theirs, by_step)
    with getattr(zoffload, name)(ours, lr=0.1) as opt:
        feed(opt, ours, by_step)
        assert_close(ours, theirs)
        state = opt.state_dict()
    assert state["state"].keys() == torch_opt.state_dict()["state"].keys()


def test_clipping_is_torchs(tmp_path):
    """Method: torch's clip_grad_norm_ before torch's step; the norm is the same."""
    theirs, ours = Net(), Net()
    torch_opt = torch.optim.AdamW(theirs.parameters(), lr=0.01)
    config = place(MIXED, tmp_path)
    with zoffload.AdamW(ours.parameters(), lr=0.01, offload=config, max_grad_norm=0.05) as opt:
        for step in range(4):
            loss_of(theirs, step).backward()
            norm = nn.utils.clip_grad_norm_(theirs.parameters(), 0.05)
            torch_opt.step()
            torch_opt.zero_grad()
            train(ours, opt, 1, first=step)
            assert norm > 0.05
            assert opt.grad_norm == pytest.approx(norm.item(), rel=1e-5)
    assert_close(values(ours), values(theirs))


def test_torch_may_clip_too():
    """p.grad stays in its place until step()."""
    theirs, ours = Net(), Net()
    torch_opt = torch.optim.AdamW(theirs.parameters(), lr=0.01)
    with zoffload.AdamW(ours.parameters(), lr=0.01) as opt:
        for net, optimizer in ((theirs, torch_opt), (ours, opt)):
            loss_of(net, 0).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 0.05)
            optimizer.step()
        assert opt.grad_norm is None
    assert_close(values(ours), values(theirs))


@pytest.mark.parametrize("groups", [1, 2])
def test_skip_nonfinite(groups):
    """Either the whole step is left out or, as in torch, the numbers spoil. Method: an infinity in
    one gradient, with all parameters in one engine or in two."""
    for skip in (True, False):
        a, b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(4))
        with zoffload.AdamW([a] if groups == 2 else [a, b], skip_nonfinite=skip) as opt:
            if groups == 2:
                opt.add_param_group({"params": [b]})
            a.grad, b.grad = torch.ones(3), torch.tensor([1, torch.inf, 1, 1])
            version = a._version
            opt.step()
            assert (a._version == version) == skip
            assert opt.grad_norm == (torch.inf if skip else None)
            assert torch.equal(a, torch.ones(3)) == skip
            assert torch.equal(b, torch.ones(4)) == skip
            assert bool(opt.state_dict()["state"]) != skip


# ---- A torch.optim.Optimizer


SCHEDULERS = {
    "step": lambda opt: torch.optim.lr_scheduler.StepLR(opt, 2),
    "cosine": lambda opt: torch.optim.lr_scheduler.CosineAnnealingLR(opt, 4),
    "one_cycle": lambda opt: torch.optim.lr_scheduler.OneCycleLR(opt, 0.02, total_steps=8),
    "lambda": lambda opt: torch.optim.lr_scheduler.LambdaLR(opt, lambda step: 1 / (1 + step)),
    "warm_up": lambda opt: torch.optim.lr_scheduler.SequentialLR(
        opt,
        [
            torch.optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=2),
            torch.optim.lr_scheduler.ExponentialLR(opt, 0.9),
        ],
        [2],
    ),
    "cyclic": lambda opt: torch.optim.lr_scheduler.CyclicLR(opt, 0.001, 0.02, 2),
}


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("name", SCHEDULERS)
def test_schedulers(name):
    """Also those that set betas. Method: a warning of torch's, as that step() was not called, is
    an error."""
    theirs, ours = Net(), Net()
    torch_opt = torch.optim.AdamW(theirs.parameters(), lr=0.01)
    with zoffload.AdamW(ours.parameters(), lr=0.01) as opt:
        torch_scheduler, scheduler = SCHEDULERS[name](torch_opt), SCHEDULERS[name](opt)
        for step in range(6):
            train(theirs, torch_opt, 1, first=step)
            train(ours, opt, 1, first=step)
            torch_scheduler.step()
            scheduler.step()
            assert scheduler.get_last_lr() == torch_scheduler.get_last_lr()
    assert_close(values(ours), values(theirs))


def test_grad_scaler():
    """A step with an infinity is left out, the next ones are unscaled."""
    theirs, ours = Net(), Net()
    with zoffload.AdamW(ours.parameters(), lr=0.01) as opt:
        torch_opt = torch.optim.AdamW(theirs.parameters(), lr=0.01)
        for net, optimizer in ((theirs, torch_opt), (ours, opt)):
            scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
            for step in range(4):
                before = values(net)
                scaler.scale(loss_of(net, step) * (torch.inf if step == 1 else 1)).backward()
                scaler.unscale_(optimizer)
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                scaler.step(optimizer)
                scaler.update()
                optimizer.zero_grad()
                assert torch.equal(before[0], values(net)[0]) == (step == 1)
            assert scaler.get_scale() == 512.0
    assert_close(values(ours), values(theirs))


def test_group_settings_are_read_at_each_step():
    """Method: two groups whose every setting changes between steps, against torch."""
    by_step = gradients(2, 5, 6)
    runs = []
    for cls in (torch.optim.AdamW, zoffload.AdamW):
        params = [nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(6))]
        groups = [{"params": params[:1], "lr": 0.1}, {"params": params[1:], "weight_decay": 0.5}]
        opt = cls(groups, lr=0.01)
        feed(opt, params, by_step[:1])
        opt.param_groups[0].update(lr=torch.tensor(0.03), betas=(0.5, 0.6), eps=1e-3)
        opt.param_groups[1].update(lr=0.2, weight_decay=0.0)
        feed(opt, params, by_step[1:])
        runs.append(params)
    assert_close(runs[1], runs[0])
    assert (runs[1][0][0] - runs[1][1][0]).abs() > 0.01


def test_none_gradients_are_skipped():
    """Neither the parameter nor its count of steps moves. Method: against torch."""
    by_step = gradients(3, 5, 6)
    by_step[0][1] = by_step[1][1] = None
    runs = []
    for cls in (torch.optim.AdamW, zoffload.AdamW):
        params = [nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(6))]
        opt = cls(params, lr=0.1)
        feed(opt, params, by_step[:2])
        assert list(opt.state_dict()["state"]) == [0]
        assert torch.equal(params[1], torch.ones(6))
        feed(opt, params, by_step[2:])
        assert [s["step"] for s in opt.state_dict()["state"].values()] == [3, 1]
        runs.append(params)
    assert_close(runs[1], runs[0])


def test_step_without_gradients():
    with zoffload.AdamW([nn.Parameter(torch.ones(3))], max_grad_norm=1.0) as opt:
        opt.step()
        assert opt.grad_norm == 0.0
        assert opt.state_dict()["state"] == {}


def test_frozen_parameters():
    """They take no memory; unfrozen, they train like ones that never were frozen."""
    runs = []
    for frozen in (True, False):
        a, b = nn.Parameter(torch.ones(5000)), nn.Parameter(torch.ones(6000))
        b.requires_grad_(not frozen)
        with zoffload.AdamW([a, b], lr=0.1) as opt:
            runs.append((a, b))
            by_step = gradients(4, 5000, 6000)
            by_step[0][1] = by_step[1][1] = None
            feed(opt, [a, b], by_step[:2])
            assert opt.plan().state_bytes["cpu"] == (8192 if frozen else 12288) * 8
            b.requires_grad_()
            feed(opt, [a, b], by_step[2:])
            assert opt.state_dict()["state"][1]["step"] == 2
    same_bits(*runs)


@pytest.mark.filterwarnings("ignore:optimizer contains a parameter group with duplicate")
def test_tied_weights_are_updated_once():
    runs = []
    for repeat in (1, 2):
        p = nn.Parameter(torch.ones(5))
        with zoffload.AdamW([p] * repeat, lr=0.1) as opt:
            feed(opt, [p], gradients(2, 5))
            (state,) = opt.state_dict()["state"].values()
            assert state["step"] == 2
        runs.append([p])
    same_bits(*runs)


@pytest.mark.parametrize("clip", [None, 0.5])
def test_add_param_group(tmp_path, clip):
    """Method: a group added after a step, on each placement; against torch, which clips by hand."""
    by_step = gradients(3, 9000, 7)

    def run(make):
        params = [nn.Parameter(torch.ones(9000)), nn.Parameter(torch.ones(7))]
        opt = make(params[:1])
        for step, grads in enumerate(by_step):
            if step == 1:
                opt.add_param_group({"params": params[1:], "lr": 0.05})
            for p, grad in list(zip(params, grads, strict=True))[: 1 + step]:
                p.grad = grad.clone()
            if clip and isinstance(opt, torch.optim.AdamW):
                nn.utils.clip_grad_norm_(params, clip)
            opt.step()
        assert opt.state_dict()["state"][1]["step"] == 2
        return params, opt

    expected, _ = run(lambda params: torch.optim.AdamW(params, lr=0.01))
    runs = []
    for placement in ("cpu", "nvme", MIXED):
        options = {"offload": place(placement, tmp_path), "max_grad_norm": clip}
        params, opt = run(lambda p, o=options: zoffload.AdamW(p, lr=0.01, **o))
        assert_close(params, expected)
        runs.append((*params, torch.tensor(opt.grad_norm or 0.0, dtype=torch.float64)))
        opt.close()
    same_bits(runs[1], runs[0])
    same_bits(runs[2], runs[0])
    if clip:
        norm = torch.cat(by_step[-1]).double().norm().item()
        assert runs[0][-1].item() == pytest.approx(norm, rel=1e-12)


def test_closure_and_hooks():
    p = nn.Parameter(torch.ones(3))
    calls = []
    with zoffload.AdamW([p], lr=0.1) as opt:
        opt.register_step_pre_hook(lambda *_: calls.append("before"))
        opt.register_step_post_hook(lambda *_: calls.append("after"))

        def closure():
            calls.append("closure")
            opt.zero_grad()
            loss = p.square().sum()
            loss.backward()
            return loss

        assert opt.step(closure) == 3.0
        assert calls == ["before", "closure", "after"]
        assert (p < 1).all()
        opt.zero_grad(set_to_none=False)
        assert torch.equal(p.grad, torch.zeros(3))


def test_autograd_sees_the_update():
    """Backward through a graph from before the step is an error, as with torch's optimizers."""
    p = nn.Parameter(torch.ones(3))
    with zoffload.AdamW([p]) as opt:
        loss = (p * p).sum()
        loss.backward(retain_graph=True)
        opt.step()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_no_copies():
    """A copy would share the engine, or have none."""
    with zoffload.AdamW([nn.Parameter(torch.ones(3))]) as opt:
        with pytest.raises(Unsupported, match="state_dict"):
            copy.deepcopy(opt)
        with pytest.raises(Unsupported, match="state_dict"):
            pickle.dumps(opt)


# ---- The user's memory


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


# ---- state_dict


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weights_first", [True, False])
def test_state_moves_between_placements(tmp_path, dtype, weights_first):
    """Method: a run of 6 steps that moves after 3, against one that does not; a clip and a group's
    setting come along. The weights are loaded before or after the state."""
    net = Net(dtype)
    with zoffload.AdamW(net.parameters(), lr=0.01) as opt:
        train(net, opt, 3)
        saved = copy.deepcopy((net.state_dict(), opt.state_dict()))
        opt.param_groups[0]["lr"] = 0.02
        train(net, opt, 3, first=3)
        expected = values(net)
    saved[1]["param_groups"][0]["lr"] = 0.02
    for placement in ("cpu", "nvme", MIXED):
        again = Net(dtype)
        with zoffload.AdamW(again.parameters(), offload=place(placement, tmp_path)) as opt:
            train(again, opt, 2)  # whatever was there is replaced
            if weights_first:
                again.load_state_dict(saved[0])
            opt.load_state_dict(saved[1])
            if not weights_first:
                again.load_state_dict(saved[0])
            train(again, opt, 3, first=3)
            same_bits(values(again), expected)
            assert opt.state_dict()["state"][0]["step"] == 6


def test_state_of_torch_and_back(tmp_path):
    """Method: torch, ours, torch, three steps each; against torch alone."""
    alone, net = Net(), Net()
    train(alone, torch.optim.AdamW(alone.parameters(), lr=0.01, fused=True), 9)
    first = torch.optim.AdamW(net.parameters(), lr=0.01, fused=True)
    train(net, first, 3)
    with zoffload.AdamW(net.parameters(), offload=place(MIXED, tmp_path)) as ours:
        ours.load_state_dict(first.state_dict())
        train(net, ours, 3, first=3)
        state = ours.state_dict()
    last = torch.optim.AdamW(net.parameters())
    last.load_state_dict(state)
    train(net, last, 3, first=6)
    assert_close(values(net), values(alone))
    assert last.state_dict()["state"][0]["step"] == 9
    assert state["param_groups"][0].keys() == last.state_dict()["param_groups"][0].keys()
    assert state["state"][0].keys() == last.state_dict()["state"][0].keys()


def test_bf16_state_of_torch():
    """It has no master: the weight is it. Method: what was left in ours must not show; two
    optimizers of different pasts go on alike."""
    source = Net(torch.bfloat16)
    torch_opt = torch.optim.AdamW(source.parameters(), lr=0.01)
    train(source, torch_opt, 2)
    runs = []
    for past in (0, 3):
        net = Net(torch.bfloat16)
        with zoffload.AdamW(net.parameters(), lr=0.01) as opt:
            train(net, opt, past)
            opt.load_state_dict(torch_opt.state_dict())
            assert "master" not in opt.state_dict()["state"][0]
            net.load_state_dict(source.state_dict())
            train(net, opt, 2, first=2)
        runs.append(values(net))
    same_bits(*runs)


def test_weights_count_more_than_their_master():
    """Method: a bf16 state is loaded, but not the weights it belongs to."""
    p, q = (nn.Parameter(torch.full((5,), x, dtype=torch.bfloat16)) for x in (1.0, 7.0))
    with zoffload.AdamW([p], lr=0.01) as first, zoffload.AdamW([q], lr=0.01) as second:
        feed(first, [p], gradients(1, 5))
        second.load_state_dict(first.state_dict())
        feed(second, [q], gradients(1, 5))
    assert (q > 6.8).all()


def test_state_of_frozen_parameters():
    """A parameter that is frozen here, but was not there. Method: unfrozen, it goes on alike."""
    by_step = gradients(4, 5)
    runs = []
    for frozen in (True, False):
        p, q = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))
        with zoffload.AdamW([p], lr=0.1) as first:
            feed(first, [p], by_step[:2])
            with torch.no_grad():
                q.copy_(p)
            q.requires_grad_(not frozen)
            with zoffload.AdamW([q], lr=0.1) as second:
                second.load_state_dict(first.state_dict())
                q.requires_grad_()
                feed(second, [q], by_step[2:])
        runs.append([q])
    same_bits(*runs)


def test_state_of_a_new_optimizer_resets():
    """What a state_dict does not list starts anew."""
    runs = []
    for past in (0, 3):
        p = nn.Parameter(torch.ones(5))
        with zoffload.AdamW([p], lr=0.1) as opt:
            new = opt.state_dict()
            feed(opt, [p], gradients(past, 5))
            opt.load_state_dict(new)
            assert opt.state_dict()["state"] == {}
            with torch.no_grad():
                p.fill_(1)
            feed(opt, [p], gradients(2, 5))
        runs.append([p])
    same_bits(*runs)


def test_state_dict_hooks():
    """The user's hooks run, and those after a load find the state loaded."""
    p = nn.Parameter(torch.ones(3))
    with zoffload.AdamW([p]) as opt:
        feed(opt, [p], gradients(1, 3))
        seen = []
        opt.register_state_dict_post_hook(lambda _, state: seen.append(list(state["state"])))
        opt.register_load_state_dict_pre_hook(lambda _, s: {**s, "state": {}})
        opt.register_load_state_dict_post_hook(lambda o: seen.append(o.state_dict()["state"]))
        opt.load_state_dict(opt.state_dict())
    assert seen == [[0], [], {}]


def test_names_in_param_groups():
    """torch's named parameters survive the round trip."""
    net = Net()
    with zoffload.AdamW(net.named_parameters(), lr=0.01) as opt:
        train(net, opt, 1)
        state = opt.state_dict()
        assert state["param_groups"][0]["param_names"][0] == "scale"
        opt.load_state_dict(state)
        train(net, opt, 1, first=1)
        assert opt.state_dict()["state"][0]["step"] == 2
