"""Level 1 with updates that run on under the next forward.

Most tests train with an engine of the laziest kind, whose updates reach a parameter only when
somebody waits for it, and ask for the bits of a run without overlap: a wait that is missing shows
in every run, whatever the machine does.
"""

import copy
import gc
import io
import os

import pytest
import torch
import zoffload
from lazy_core import Chain, Lazy, backward, lazy_adamw, make_lazy, plain_adamw, run_both
from optim_toys import MIXED, Net, feed, gradients, loss_of, place, same_bits, train, values
from torch import nn
from zoffload.errors import Corruption, InvalidArgument

# ---- Bits


@pytest.mark.parametrize("placement", ["cpu", "nvme", MIXED])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("settings", [{}, {"max_grad_norm": 0.05}])
def test_same_bits(tmp_path, placement, dtype, settings):
    """Weights, state, norms. Method: the real engine, with an evaluation after each step."""
    runs = []
    for overlapped in (False, True):
        net, norms = Net(dtype), []
        options = {"overlap": net} if overlapped else {}
        offload = place(placement, tmp_path)
        with zoffload.AdamW(
            net.parameters(), lr=0.01, offload=offload, **settings, **options
        ) as opt:
            for step in range(4):
                train(net, opt, 1, first=step)
                norms.append(torch.tensor(opt.grad_norm or 0.0))
                with torch.no_grad():
                    norms.append(loss_of(net, 100 + step))
            state = opt.state_dict()["state"]
        runs.append([*values(net), *norms, *(v for s in state.values() for v in s.values())])
    same_bits(*runs)


def test_every_wait_is_there():
    def act(model, opt, step):
        backward(model, step)
        opt.step()
        opt.zero_grad()

    lazy = run_both(Chain, act)
    assert lazy.waits != []
    assert "all" not in lazy.waits[:-1]


def test_skipped_steps():
    """A NaN, of which the updates learn in step()."""

    def act(model, opt, step):
        backward(model, step)
        if step == 1:
            model.layers[0].weight.grad[0, 0] = torch.nan
        opt.step()
        opt.zero_grad()

    run_both(Chain, act, skip_nonfinite=True, max_grad_norm=1.0)


@pytest.mark.parametrize(
    "make, dtype",
    [
        (lambda p, **o: zoffload.SGD(p, lr=0.1, momentum=0.9, **o), torch.float32),
        (lambda p, **o: zoffload.Lion(p, lr=0.01, **o), torch.float32),
        (lambda p, **o: zoffload.Adagrad(p, lr=0.1, **o), torch.float32),
        (lambda p, **o: zoffload.AdamW(p, lr=0.1, state_dtype="split+bf16", **o), torch.bfloat16),
    ],
    ids=["sgd", "lion", "adagrad", "split"],
)
def test_other_optimizers_and_formats(make, dtype):
    runs = []
    for overlapped in (False, True):
        net = Net(dtype)
        with make(net.parameters(), **({"overlap": net} if overlapped else {})) as opt:
            if overlapped:
                make_lazy(opt)
            train(net, opt, 4)
            opt.settle()
            runs.append(values(net))
    same_bits(*runs)


# ---- Who waits for what


def test_modules_wait_for_their_own_parameters():
    """One after the other, in the order of the forward, which is also that of the updates."""
    model = Chain()
    opt, lazy = lazy_adamw(model)
    with opt:
        for step in range(3):
            lazy.waits.clear()
            backward(model, step)
            assert lazy.waits == ([[2], [1], [0]] if step > 0 else [])
            opt.step()
            assert lazy.waits == ([[2], [1], [0]] if step > 0 else [])
            assert len(lazy.hidden) == 3
        assert lazy.orders == [[2, 1, 0]]


def test_module_order_before_the_first_forward():
    """And a forward of which nothing is known waits for all before it begins."""
    model = Chain()
    params = list(model.parameters())
    opt, lazy = lazy_adamw(model, params=[params[1], params[2], params[0]])
    with opt:
        feed(opt, params, gradients(1, *(p.shape for p in params)))
        assert lazy.orders == [[2, 0, 1]]
        with torch.no_grad():
            model(torch.ones(1, 128))
        assert lazy.waits == [[0, 1, 2]]


def test_a_subgroup_is_waited_for_once():
    """Small parameters share one: the first of their owners waits for all."""
    model = Chain(width=16)
    opt, lazy = lazy_adamw(model)
    with opt:
        for step in range(3):
            backward(model, step, width=16)
            opt.step()
            opt.zero_grad()
        assert lazy.waits == [[2], [2]]


def test_parameters_whose_owner_is_not_called():
    """nn.MultiheadAttention uses the weight of its out_proj without calling that."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.attention = nn.MultiheadAttention(64, 2, batch_first=True)

        def forward(self, x):
            return self.attention(x, x, x)[0]

    def act(model, opt, step):
        backward(model, step, width=64)
        opt.step()
        opt.zero_grad()

    run_both(Model, act)


@pytest.mark.parametrize("differs_by", ["mode", "grad"])
def test_forwards_of_another_kind(differs_by):
    """In evaluation a model may use by itself what an owner is called for in training. Method: both
    in turn; what the evaluations return counts too."""

    class Model(Chain):
        def forward(self, x):
            if self.training if differs_by == "mode" else torch.is_grad_enabled():
                return super().forward(x)
            return nn.functional.linear(x, self.layers[0].weight)

    seen = []

    def act(model, opt, step):
        model.train()
        backward(model, step)
        opt.step()
        opt.zero_grad()
        if step % 2 == 0:
            model.train(differs_by == "grad")
            with torch.set_grad_enabled(differs_by == "mode"):
                seen.append(model(torch.ones(1, 128)).detach().clone())

    run_both(Model, act, steps=5)
    same_bits(seen[: len(seen) // 2], seen[len(seen) // 2 :])


def test_tied_weights():
    """Whichever owner is called first waits."""

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(3)
            self.head = nn.Linear(64, 100, bias=False)
            self.embed = nn.Embedding(100, 64)
            self.embed.weight = self.head.weight
            self.layer = nn.Linear(64, 64)

        def forward(self, x):
            return self.head(torch.tanh(self.layer(self.embed(x))))

    def act(model, opt, step):
        model(torch.arange(10) + step).square().mean().backward()
        opt.step()
        opt.zero_grad()

    run_both(Model, act)


def test_parts_of_a_model():
    """Several modules may be given, called one after the other: each waits for its own."""
    parts = nn.ModuleList([Chain(1), Chain(1)])
    opt, lazy = lazy_adamw(parts, overlap=list(parts))
    with opt:
        for step in range(3):
            lazy.waits.clear()
            x = torch.randn(4, 128, generator=torch.Generator().manual_seed(step))
            parts[1](parts[0](x)).square().mean().backward()
            assert lazy.waits == ([[0], [1]] if step > 0 else [])
            opt.step()
            opt.zero_grad()


def test_a_module_called_alone():
    """Outside a call of what was given, everything is waited for."""
    model = Chain()
    opt, lazy = lazy_adamw(model)
    with opt:
        backward(model, 0)
        opt.step()
        model.layers[1](torch.ones(1, 128))
        assert lazy.waits == ["all"]
        opt.step()
        handle = model.layers[2].register_forward_pre_hook(lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model(torch.ones(1, 128))
        handle.remove()
        assert lazy.waits[1:] == [[2]]
        model.layers[1](torch.ones(1, 128))  # that call of the model is over
        assert lazy.waits[1:] == [[2], "all"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_forward_that_is_cut_short(error):
    """The next one waits as ever. Method: an exception in the middle layer."""
    raising = []

    def act(model, opt, step):
        if step in (1, 3):
            handle = model.layers[1].register_forward_pre_hook(lambda *_: raising[0]())
            raising[:] = [lambda: (_ for _ in ()).throw(error)]
            with pytest.raises(error):
                backward(model, step)
            handle.remove()
        backward(model, step)
        opt.step()
        opt.zero_grad()

    run_both(Chain, act, steps=5)


def test_parameters_of_other_modules():
    """Nobody would wait for them, so step() does."""
    model, other = Chain(1), Chain(2)
    opt, lazy = lazy_adamw(model, params=[*model.parameters(), *other.parameters()])
    with opt:
        backward(model, 0)
        backward(other, 0)
        opt.step()
        assert lazy.waits == [[1, 2]]
        assert list(lazy.hidden) == [0]


def test_compiled_models():
    """Wait as others do. Method: the tracer alone, without a compiler."""

    def act(model, opt, step):
        if step == 0:
            act.compiled = torch.compile(model, backend="eager")
        backward(act.compiled, step)
        opt.step()
        opt.zero_grad()

    run_both(Chain, act, steps=4)


# ---- Everything else that reads or writes what is being updated


@pytest.mark.parametrize("set_to_none", [True, False, None])
def test_gradients(set_to_none):
    """They stay as they are, and in memory, while they are read: with each kind of zero_grad(), of
    the optimizer and of the model, and with none, where backward adds to those of the last step."""

    def act(model, opt, step):
        backward(model, step)
        opt.step()
        if set_to_none is not None:
            (opt if step % 2 == 0 else model).zero_grad(set_to_none)

    run_both(Chain, act, steps=4)


def test_backward_of_an_older_graph():
    """Adds to gradients that an update may read: waits first. Method: a bias, whose gradient
    needs no weight, in two losses of one forward."""

    def act(model, opt, step):
        out = model.weight + 1
        first, second = (out * 2).sum(), (out * 3).square().sum()
        first.backward(retain_graph=True)
        opt.step()
        second.backward()
        opt.step()

    class Bias(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(5000))

    def functional(model, opt, step):
        opt.settle()  # as its parameter is used without a call of the module
        act(model, opt, step)

    run_both(Bias, functional)


def test_steps_without_a_forward():
    """A step waits for the one before, whose gradients and parameters it needs."""

    def act(model, opt, step):
        if step == 0:
            backward(model, step)
        opt.step()

    run_both(Chain, act)


def test_states():
    """Of optimizer and model, read and written: all is settled then."""

    def act(model, opt, step):
        backward(model, step)
        opt.step()
        if step == 0:
            act.saved = copy.deepcopy(opt.state_dict())
        elif step == 1:
            act.weights = {k: v.clone() for k, v in model.state_dict().items()}
        elif step == 2:
            opt.load_state_dict(act.saved)
        elif step == 3:
            model.load_state_dict(act.weights)
        assert not getattr(opt._cores[0], "hidden", None) or step > 3
        opt.zero_grad()

    run_both(Chain, act, steps=6)


def test_edits_in_place():
    """Take effect on masters as without overlap, after settle()."""

    def act(model, opt, step):
        x = torch.ones(2, 128, dtype=torch.bfloat16) * step
        model(x).float().square().mean().backward()
        opt.step()
        opt.settle()
        with torch.no_grad():
            model.layers[1].weight[3].fill_(0.5)
        opt.zero_grad()

    run_both(lambda: Chain().bfloat16(), act)


def test_closures_and_new_groups():
    """Method: a group added after an overlapped step, with layers added to the model."""

    def act(model, opt, step):
        if step == 1:
            model.layers.append(copy.deepcopy(model.layers[0]))
            opt.add_param_group({"params": model.layers[-1].parameters(), "lr": 0.02})
            if isinstance(opt._cores[0], Lazy):
                opt._cores[-1] = lazy = Lazy(opt._cores[-1], opt)
                for param in model.layers[-1].parameters():
                    opt._records[param].core = lazy

        def closure():
            opt.zero_grad()
            backward(model, step)

        opt.step(closure)

    run_both(Chain, act, steps=4)


def test_copies_of_the_model():
    """Hold what the step made of it, and know nothing of the optimizer. Also of a part of it."""
    model = Chain()
    opt, lazy = lazy_adamw(model)
    with opt:
        for step in range(2):
            backward(model, step)
            opt.step()
            assert len(lazy.hidden) == 3
            if step == 0:
                twin = copy.deepcopy(model)
            else:
                file = io.BytesIO()
                torch.save(model, file)
                file.seek(0)
                twin = torch.load(file, weights_only=False)
            assert lazy.hidden == {}
            same_bits(values(twin), values(model))
            backward(twin, 1)
            twin.zero_grad(set_to_none=False)
            assert all(torch.equal(p.grad, torch.zeros_like(p)) for p in twin.parameters())
            assert any(p.grad.any() for p in model.parameters())
            opt.zero_grad()
        backward(model, 2)
        opt.step()
        twin = copy.deepcopy(model.layers[1])
        same_bits(values(twin), values(model.layers[1]))
        assert lazy.hidden == {}


# ---- The end


def test_nothing_is_left_on_the_model():
    model = Chain()
    opt = plain_adamw(model, overlap=model)
    backward(model, 0)
    before = values(model)
    opt.step()
    opt.close()
    assert all(not torch.equal(p, q) for p, q in zip(values(model), before, strict=True))
    for module in model.modules():
        assert "zero_grad" not in module.__dict__
        assert not any("zoffload" in name for name in module.__dict__)
        for name, hooks in module.__dict__.items():
            assert not name.endswith("hooks") or len(hooks) == 0, name
    assert all(not p._backward_hooks for p in model.parameters())
    model.zero_grad()
    backward(model, 1)
    with pytest.raises(InvalidArgument, match="closed"):
        opt.step()


def test_a_lost_optimizer_ends_its_updates(tmp_path):
    expected, model = Chain(), Chain()
    with plain_adamw(expected) as opt:
        backward(expected, 0)
        opt.step()
    opt = zoffload.AdamW(
        model.parameters(), lr=0.01, offload=place("nvme", tmp_path), overlap=model
    )
    backward(model, 0)
    opt.step()
    del opt
    gc.collect()
    same_bits(values(model), values(expected))
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_the_background(tmp_path):
    """Is raised where it is noticed, with the step, and again by all that follows; close() ends it.
    Method: other bytes in the swap file."""
    model = Chain()
    opt = zoffload.AdamW(model.parameters(), offload=place("nvme", tmp_path), overlap=model)
    backward(model, 0)
    opt.step()
    opt.settle()
    (file,) = tmp_path.glob("*/zo-*.dat")
    with file.open("r+b") as swapped:
        swapped.write(b"\x11" * file.stat().st_size)
        swapped.flush()
        os.fsync(swapped.fileno())
    opt.step()  # nothing depends on a norm: it returns at once
    for what in (
        lambda: backward(model, 1),
        opt.settle,
        opt.step,
        model.state_dict,
        lambda: opt.zero_grad(set_to_none=False),
        opt.state_dict,
    ):
        with pytest.raises(Corruption, match="step 2: update subgroup"):
            what()
    opt.close()
    backward(model, 1)


def test_updates_end_under_the_forward():
    """With the engine as it is: a forward of everything leaves nothing that is not settled. Method:
    many elements and one thread, the engine's counter."""
    torch.manual_seed(1)
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(4)))
    with zoffload.AdamW(model.parameters(), offload=place("cpu", (), 1), overlap=model) as opt:
        for step in range(3):
            backward(model, step, width=1024)
            opt.step()
            assert len(opt._overlap._pending) == 8
            opt.zero_grad()
            model(torch.ones(1, 1024))
            assert [core.stats()["unsettled_count"] for core in opt._cores] == [0]
            assert opt._overlap._pending == {}


@pytest.mark.parametrize(
    "overlap, message",
    [([], "overlap is empty"), (["model"], "'model' is not a torch.nn.Module"), ([None], "None")],
)
def test_bad_arguments(overlap, message):
    with pytest.raises(InvalidArgument, match=message):
        zoffload.AdamW(Chain().parameters(), overlap=overlap)
