"""Toy models and loops that the tests of level 1 share."""

import torch
from torch import nn
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
