"""Goal: zoffload.AdamW and Adam are torch's, with the same bits wherever their state lies.

Method: runs of a toy model that differ in one thing, compared bit for bit with each other and
closely with torch.optim.
"""

import copy
import pickle

import pytest
import torch
import zoffload
from hypothesis import given
from hypothesis import strategies as st
from optim_toys import (
    MIXED,
    Net,
    assert_close,
    feed,
    gradients,
    loss_of,
    place,
    same_bits,
    train,
    values,
)
from torch import nn
from zoffload.errors import Unsupported

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
