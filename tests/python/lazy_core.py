"""Level 1 with an engine of the laziest kind: its updates reach a parameter only when somebody
waits for it, so that a wait that is missing shows in every run, whatever the machine does.
"""

import torch
import zoffload
from optim_toys import place, same_bits, values
from torch import nn


class Lazy:
    """A core whose updates show only when they are waited for, and whose gradients must be as they
    were until then."""

    def __init__(self, core, opt):
        self.core = core
        self.opt = opt
        self.hidden = {}  # id -> (param, its value to be, its gradient, that one's value)
        self.waits = []  # the ids, or "all"
        self.orders = []

    def __getattr__(self, name):
        return getattr(self.core, name)

    def step(self, *args):
        pending = [(p, u) for p, u in self.opt._overlap._pending.items() if u.core is self]
        before = [param.detach().clone() for param, _ in pending]
        report = self.core.step(*args)
        self.core.settle()
        for (param, update), old in zip(pending, before, strict=True):
            grad = update.memory[1]
            self.hidden[update.id] = param, param.detach().clone(), grad, grad.clone()
            param.data.copy_(old)
        return report

    def settle_params(self, ids):
        self.waits.append(ids)
        settled = {subgroup for id in ids for subgroup in self.core.subgroups_of(id)}
        for id in [i for i in self.hidden if settled.issuperset(self.core.subgroups_of(i))]:
            self.show(id)

    def settle(self):
        self.waits.append("all")
        for id in list(self.hidden):
            self.show(id)

    def set_update_order(self, ids):
        self.orders.append(ids)
        self.core.set_update_order(ids)

    def show(self, id):
        param, value, grad, grad_before = self.hidden.pop(id)
        bits = torch.int16 if grad.dtype == torch.bfloat16 else torch.int32
        assert torch.equal(grad.view(bits), grad_before.view(bits)), "a gradient was overwritten"
        param.data.copy_(value)


def make_lazy(opt):
    lazies = {core: Lazy(core, opt) for core in opt._cores}
    opt._cores[:] = lazies.values()
    for record in opt._records.values():
        record.core = lazies[record.core]
    return next(iter(lazies.values()))


def lazy_adamw(model, params=None, **options):
    """Each parameter of 4096 elements or more is a subgroup of its own, or more."""
    options = {"lr": 0.01, "overlap": model, "offload": place("cpu", ()), **options}
    opt = zoffload.AdamW(list(model.parameters()) if params is None else params, **options)
    return opt, make_lazy(opt)


def plain_adamw(model, params=None, **options):
    options = {"lr": 0.01, "offload": place("cpu", ()), **options}
    return zoffload.AdamW(list(model.parameters()) if params is None else params, **options)


class Chain(nn.Module):
    """Layers of one subgroup each or more, called in the reverse of the order of declaration."""

    def __init__(self, count=3, width=128):
        super().__init__()
        torch.manual_seed(5)
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=False) for _ in range(count))

    def forward(self, x):
        for layer in reversed(self.layers):
            x = torch.tanh(layer(x))
        return x


def backward(model, step, width=128):
    x = torch.randn(4, width, generator=torch.Generator().manual_seed(step))
    model(x).square().mean().backward()


def run_both(make_model, act, steps=3, **options):
    """Trains with and without overlap; act(model, opt, step) is a step. Returns the lazy core."""
    models = [make_model(), make_model()]
    with plain_adamw(models[0], **options) as opt:
        for step in range(steps):
            act(models[0], opt, step)
    opt, lazy = lazy_adamw(models[1], **options)
    with opt:
        for step in range(steps):
            act(models[1], opt, step)
        opt.settle()
        same_bits(values(models[1]), values(models[0]))
    return lazy
