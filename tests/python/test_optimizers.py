"""Goal: zoffload.SGD and Adagrad are torch's, and Lion is its paper's; what all optimizers share is
tested in test_optim.py on AdamW.

Method: the same gradients to both, several steps with all settings, bit by bit where torch rounds
as we do.
"""

import copy
import itertools

import pytest
import torch
import zoffload
from optim_toys import MIXED, Net, assert_close, feed, gradients, place, same_bits, train, values
from torch import nn
from zoffload.errors import InvalidArgument, Unsupported

NUMEL = 20_003  # no multiple of any vector


class Lion(torch.optim.Optimizer):
    """Algorithm 2 of the paper, a line each."""

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            lr, (beta1, beta2), decay = group["lr"], group["betas"], group["weight_decay"]
            for p in (p for p in group["params"] if p.grad is not None):
                m = self.state[p].setdefault("exp_avg", torch.zeros_like(p))
                update = m.mul(beta1).add(p.grad, alpha=1 - beta1).sign()
                p.mul_(1 - lr * decay).add_(update, alpha=-lr)
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


CASES = {
    "sgd": (torch.optim.SGD, zoffload.SGD, {"lr": 0.1}),
    "sgd_decay": (torch.optim.SGD, zoffload.SGD, {"lr": 0.1, "weight_decay": 0.1}),
    "momentum": (torch.optim.SGD, zoffload.SGD, {"lr": 0.1, "momentum": 0.9}),
    "dampening": (
        torch.optim.SGD,
        zoffload.SGD,
        {"lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01},
    ),
    "nesterov": (
        torch.optim.SGD,
        zoffload.SGD,
        {"lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01},
    ),
    "lion": (Lion, zoffload.Lion, {}),
    "lion_decay": (Lion, zoffload.Lion, {"lr": 0.01, "betas": (0.8, 0.95), "weight_decay": 0.5}),
    "adagrad": (torch.optim.Adagrad, zoffload.Adagrad, {}),
    "adagrad_decay": (
        torch.optim.Adagrad,
        zoffload.Adagrad,
        {
            "lr": 0.1,
            "lr_decay": 0.1,
            "weight_decay": 0.1,
            "initial_accumulator_value": 0.3,
            "eps": 1e-6,
        },
    ),
}
FUSED = {torch.optim.Adagrad: {"fused": True}}  # whose order of rounding is ours


def make(cls, params, settings):
    return cls(params, **settings, **FUSED.get(cls, {}))


# ---- The numbers


@pytest.mark.parametrize("case", CASES)
def test_same_bits_as_torch(case):
    """Weights and state. Method: ten steps in fp32."""
    theirs, ours, settings = CASES[case]
    ((start,),) = gradients(1, NUMEL)
    p, q = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    torch_opt = make(theirs, [p], settings)
    with ours([q], **settings) as opt:
        by_step = gradients(10, NUMEL)
        feed(torch_opt, [p], by_step)
        feed(opt, [q], by_step)
        same_bits([q], [p])
        assert not torch.equal(p, start)
        state = opt.state_dict()["state"][0]
        assert state.pop("step") == 10
        expected = {k: v for k, v in torch_opt.state[p].items() if k != "step" and v is not None}
        assert state.keys() == expected.keys()
        same_bits([*state.values()], [*expected.values()])


def test_close_to_torchs_plain_adagrad():
    """torch's plain Adagrad takes a less exact square root than its fused one. Measured over 20
    steps: weights differ by 4 units in the last place of max(|w|, lr). The bound is three times
    that."""
    ((start,),) = gradients(1, NUMEL)
    p, q = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    by_step = gradients(20, NUMEL)
    feed(torch.optim.Adagrad([p]), [p], by_step)
    with zoffload.Adagrad([q]) as opt:
        feed(opt, [q], by_step)
    assert ((p - q).abs() / p.abs().clamp(min=0.01)).max() <= 12 * 2.0**-23


@pytest.mark.parametrize("case", CASES)
def test_bf16_has_a_master(case):
    """Method: torch in fp32, fed with the bf16 gradients; its weights, rounded, are ours."""
    theirs, ours, settings = CASES[case]
    ((start,),) = gradients(1, NUMEL)
    start = start.bfloat16()
    p, q = nn.Parameter(start.float()), nn.Parameter(start.clone())
    torch_opt = make(theirs, [p], settings)
    by_step = [[grad.bfloat16() for grad in grads] for grads in gradients(10, NUMEL)]
    with ours([q], **settings) as opt:
        feed(torch_opt, [p], by_step)
        feed(opt, [q], by_step)
        same_bits([q], [p.bfloat16()])
        same_bits([opt.state_dict()["state"][0]["master"]], [p])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", ["sgd_decay", "nesterov", "lion_decay", "adagrad_decay"])
def test_same_bits_on_every_tier(tmp_path, case, dtype):
    """Method: placements and numbers of threads, with clipping."""
    _, cls, settings = CASES[case]
    expected = None
    for placement, threads in itertools.product(("cpu", "nvme", MIXED), (1, 3)):
        net = Net(dtype)
        where = place(placement, tmp_path, threads)
        with cls(net.parameters(), **settings, offload=where, max_grad_norm=0.05) as opt:
            train(net, opt, 4)
            state = opt.state_dict()["state"]
            found = (*values(net), *(value for s in state.values() for value in s.values()))
            moments = {"sgd_decay": 0}.get(case, 1)
            on_tiers = sum(opt.plan().state_bytes.values())
            assert (on_tiers > 0) == (moments + (dtype == torch.bfloat16) > 0)
            assert len(state[0]) == 1 + moments + (dtype == torch.bfloat16)
        expected = expected or found
        same_bits(found, expected)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("state_dtype", ["split", "bf16", "split+bf16", "int8", "split+int8"])
@pytest.mark.parametrize("case", ["sgd_decay", "nesterov", "lion_decay", "adagrad_decay"])
def test_compact_state(tmp_path, case, state_dtype):
    """Every state format, with the moments that there are. Method: the same bits on each placement,
    and split alone those of fp32 state; others within a tenth of the way that the weights went."""
    _, cls, settings = CASES[case]

    def run(**options):
        net = Net(torch.bfloat16)
        with cls(net.parameters(), **settings, **options) as opt:
            train(net, opt, 6)
            state = opt.state_dict()["state"]
            return [s["master"] for s in state.values()], values(net)

    start = Net(torch.bfloat16)
    masters, _ = run()
    runs = [
        run(offload=place(placement, tmp_path, threads), state_dtype=state_dtype)
        for placement, threads in (("cpu", 1), ("nvme", 2), (MIXED, 2))
    ]
    for found, weights in runs[1:]:
        same_bits(found, runs[0][0])
        same_bits(weights, runs[0][1])
    found = runs[0][0]
    way = torch.cat([(m - s).flatten() for m, s in zip(masters, values(start), strict=True)])
    off = torch.cat([(m - n).flatten() for m, n in zip(masters, found, strict=True)])
    assert off.norm() <= way.norm() / 10
    if case == "sgd_decay" and not state_dtype.startswith("split"):
        assert off.norm() == 0  # nothing is stored in fewer bits


def test_only_kept_moments_take_memory():
    """Method: the bytes of a parameter of whole pages."""
    for cls, settings, bytes_per_element in (
        (zoffload.SGD, {}, 0),
        (zoffload.SGD, {"momentum": 0.9}, 4),
        (zoffload.Lion, {}, 4),
        (zoffload.Adagrad, {}, 4),
        (zoffload.AdamW, {}, 8),
    ):
        with cls([nn.Parameter(torch.ones(8192))], **settings) as opt:
            assert opt.plan().state_bytes["cpu"] == 8192 * bytes_per_element


# ---- Settings


def test_settings_are_read_at_each_step():
    """Method: two groups whose settings change between steps, against torch."""
    changes = {
        "nesterov": [{"momentum": 0.5, "weight_decay": 0.2}, {"nesterov": False, "dampening": 0.5}],
        "lion_decay": [{"betas": (0.5, 0.6)}, {"lr": torch.tensor(0.05), "weight_decay": 0.0}],
        "adagrad_decay": [{"lr": 0.3, "eps": 0.5}, {"lr_decay": 1.0, "weight_decay": 0.0}],
    }
    for case, (first, second) in changes.items():
        *classes, settings = CASES[case]
        runs = []
        for cls in classes:
            params = [nn.Parameter(torch.ones(50)), nn.Parameter(torch.ones(60))]
            opt = make(cls, [{"params": [p]} for p in params], settings)
            by_step = gradients(3, 50, 60)
            feed(opt, params, by_step[:1])
            opt.param_groups[0].update(first)
            opt.param_groups[1].update(second)
            feed(opt, params, by_step[1:])
            runs.append(params)
        same_bits(*runs)


def test_momentum_that_begins_later():
    """As in torch, a buffer starts as the first gradient that comes with momentum, without
    dampening; it waits while the momentum is 0. Method: a group without momentum beside one with,
    both changed and changed back, a parameter without some gradients, against torch."""
    runs, buffers = [], []
    for cls in (torch.optim.SGD, zoffload.SGD):
        params = [nn.Parameter(torch.ones(n)) for n in (5, 6, 7)]
        groups = [{"params": params[:2], "momentum": 0.0}, {"params": params[2:]}]
        opt = cls(groups, lr=0.1, momentum=0.9, dampening=0.5)
        by_step = gradients(9, 5, 6, 7)
        for step, momentum in enumerate((0.0, 0.0, 0.9, 0.9, 0.0, 0.0, 0.9, 0.9, 0.9)):
            opt.param_groups[0]["momentum"] = momentum
            if step in (2, 3):
                by_step[step][1] = None  # so this one's begins after the second pause
            feed(opt, params, by_step[step : step + 1])
            state = opt.state_dict()["state"]
            buffers.append({i for i, s in state.items() if "momentum_buffer" in s})
        runs.append(params)
    same_bits(*runs)
    assert buffers[9:] == buffers[:9] == [{2}] * 2 + [{0, 2}] * 4 + [{0, 1, 2}] * 3


def test_momentum_needs_its_buffer():
    """Method: SGD made without; a later group with momentum has its own."""
    p, q = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(6))
    with zoffload.SGD([p], lr=0.1) as opt:
        feed(opt, [p], gradients(1, 5))
        opt.param_groups[0]["momentum"] = 0.9
        with pytest.raises(InvalidArgument, match="parameter 0 of group 0.* no momentum buffer"):
            feed(opt, [p], gradients(1, 5))
        opt.param_groups[0]["momentum"] = 0.0
        opt.add_param_group({"params": [q], "momentum": 0.9})
        feed(opt, [p, q], gradients(1, 5, 6))
        assert "momentum_buffer" in opt.state_dict()["state"][1]
        given = torch.optim.SGD([{"params": [p]}, {"params": [q]}], lr=0.1, momentum=0.9)
        before = opt.state_dict()
        with pytest.raises(InvalidArgument, match="load_state_dict.*no momentum buffer"):
            opt.load_state_dict(given.state_dict())
        assert opt.state_dict()["param_groups"] == before["param_groups"]


def test_scheduler_cycles_momentum():
    runs = []
    for cls in (torch.optim.SGD, zoffload.SGD):
        net = Net()
        opt = cls(net.parameters(), lr=0.01, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.OneCycleLR(opt, 0.1, total_steps=8)
        for step in range(6):
            train(net, opt, 1, first=step)
            scheduler.step()
        runs.append(values(net))
    assert opt.param_groups[0]["momentum"] != 0.9
    same_bits(*runs)


@pytest.mark.parametrize(
    "cls, settings, says",
    [
        ("SGD", {"lr": -0.1}, "lr=-0.1"),
        ("SGD", {"lr": torch.ones(2)}, "lr has 2 elements"),
        ("SGD", {"momentum": -0.9}, "momentum=-0.9"),
        ("SGD", {"weight_decay": -1.0}, "weight_decay"),
        ("SGD", {"nesterov": True}, "nesterov"),
        ("SGD", {"nesterov": True, "momentum": 0.9, "dampening": 0.1}, "nesterov"),
        ("Adagrad", {"lr": -0.1}, "lr=-0.1"),
        ("Adagrad", {"lr_decay": -0.1}, "lr_decay"),
        ("Adagrad", {"weight_decay": -1.0}, "weight_decay"),
        ("Adagrad", {"initial_accumulator_value": -1.0}, "initial_accumulator_value"),
        ("Adagrad", {"eps": -1e-8}, "eps"),
        ("Lion", {"betas": (0.9, 1.0)}, "betas"),
        ("Lion", {"lr": float("nan")}, "lr=nan"),
    ],
)
def test_bad_settings(cls, settings, says):
    """As torch refuses them."""
    with pytest.raises(ValueError, match=says):
        getattr(zoffload, cls)([nn.Parameter(torch.ones(3))], **settings)
    if cls != "Lion":
        with pytest.raises(ValueError):  # noqa: PT011 (torch's words are torch's)
            getattr(torch.optim, cls)([nn.Parameter(torch.ones(3))], **settings)


def test_what_we_lack_is_refused():
    p = nn.Parameter(torch.ones(3))
    for cls in (zoffload.SGD, zoffload.Adagrad):
        with pytest.raises(Unsupported, match="maximize=True in parameter group 0"):
            cls([p], maximize=True)
    for cls, foreign in ((zoffload.SGD, "betas"), (zoffload.Lion, "eps"), (zoffload.AdamW, "sum")):
        with pytest.raises(TypeError, match=foreign):
            cls([p], **{foreign: 0.5})


def test_muon_is_refused_by_name():
    assert not hasattr(zoffload, "Muon")
    with pytest.raises(
        AttributeError, match="Muon is not available.*Adagrad, Adam, AdamW, Lion, SGD"
    ):
        zoffload.Muon  # noqa: B018


# ---- State


@pytest.mark.parametrize("case", ["sgd", "dampening", "nesterov", "lion_decay", "adagrad_decay"])
def test_state_of_torch_and_back(tmp_path, case):
    """Method: torch, ours, torch, three steps each; against torch alone. Ours may begin, too."""
    theirs, ours, settings = CASES[case]
    alone, net = Net(), Net()
    train(alone, make(theirs, alone.parameters(), settings), 9)
    first = make(theirs, net.parameters(), settings)
    train(net, first, 3)
    kept = {"momentum": 0.5} if case in ("dampening", "nesterov") else {}  # replaced by the loaded
    with ours(net.parameters(), **kept, offload=place(MIXED, tmp_path)) as opt:
        opt.load_state_dict(first.state_dict())
        train(net, opt, 3, first=3)
        state = opt.state_dict()
    last = theirs(net.parameters())
    last.load_state_dict(state)
    if FUSED.get(theirs):
        last.param_groups[0]["fused"] = True
    train(net, last, 3, first=6)
    same_bits(values(net), values(alone))


def test_state_of_a_new_adagrad():
    """torch's has its initial sums and step 0. Method: both ways, and what is not listed is reset
    to the initial value of the optimizer that loads it."""
    p, q = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))
    settings = {"lr": 0.1, "initial_accumulator_value": 0.5, "lr_decay": 0.5}
    theirs = torch.optim.Adagrad([p], **settings, fused=True)
    with zoffload.Adagrad([q], lr=0.1) as opt, zoffload.Adagrad([q], **settings) as reset:
        opt.load_state_dict(theirs.state_dict())
        feed(theirs, [p], gradients(2, 5))
        feed(opt, [q], gradients(2, 5))
        same_bits([q], [p])
        new = reset.state_dict()
        feed(reset, [q], gradients(3, 5))
        with torch.no_grad():
            q.fill_(1)
        reset.load_state_dict(new)
        feed(reset, [q], gradients(2, 5))
        same_bits([q], [p])


@pytest.mark.parametrize("case", ["sgd_decay", "nesterov", "lion_decay", "adagrad_decay"])
def test_state_moves_between_placements(tmp_path, case):
    """Method: a bf16 run of 6 steps that moves after 3, against one that does not."""
    _, cls, settings = CASES[case]
    net = Net(torch.bfloat16)
    with cls(net.parameters(), **settings) as opt:
        train(net, opt, 3)
        saved = copy.deepcopy((net.state_dict(), opt.state_dict()))
        train(net, opt, 3, first=3)
        expected = values(net)
    for placement in ("cpu", "nvme", MIXED):
        again = Net(torch.bfloat16)
        with cls(again.parameters(), **settings, offload=place(placement, tmp_path)) as opt:
            train(again, opt, 2)  # whatever was there is replaced
            again.load_state_dict(saved[0])
            opt.load_state_dict(saved[1])
            train(again, opt, 3, first=3)
            same_bits(values(again), expected)
            assert opt.state_dict()["state"][0]["step"] == 6


def test_bad_state():
    """Method: states that lack what this optimizer needs, or have another shape."""
    p = nn.Parameter(torch.ones(3))
    spoilt = [
        (zoffload.Adagrad, {}, lambda s: s.pop("sum"), "has no 'sum'"),
        (zoffload.Adagrad, {}, lambda s: s.pop("step"), "has no 'step'"),
        (zoffload.Lion, {}, lambda s: s.pop("exp_avg"), "has no 'exp_avg'"),
        (
            zoffload.SGD,
            {"momentum": 0.9},
            lambda s: s.update(momentum_buffer=torch.ones(4)),
            "momentum_buffer of parameter",
        ),
    ]
    for cls, settings, spoil, says in spoilt:
        with cls([p], **settings) as opt:
            feed(opt, [p], gradients(1, 3))
            given = opt.state_dict()
            spoil(given["state"][0])
            with pytest.raises(InvalidArgument, match=says):
                opt.load_state_dict(given)


def test_frozen_parameters_get_state_later():
    """Method: unfrozen after two steps, they train as in torch."""
    for case in ("nesterov", "lion_decay", "adagrad_decay"):
        *classes, settings = CASES[case]
        runs = []
        for cls in classes:
            a, b = nn.Parameter(torch.ones(50)), nn.Parameter(torch.ones(60))
            b.requires_grad_(False)
            opt = make(cls, [a, b], settings)
            by_step = gradients(4, 50, 60)
            by_step[0][1] = by_step[1][1] = None
            feed(opt, [a, b], by_step[:2])
            b.requires_grad_()
            feed(opt, [a, b], by_step[2:])
            runs.append([a, b])
        same_bits(*runs)


def test_clipping_is_torchs():
    theirs, ours = Net(), Net()
    torch_opt = torch.optim.SGD(theirs.parameters(), lr=0.1, momentum=0.9)
    with zoffload.SGD(ours.parameters(), lr=0.1, momentum=0.9, max_grad_norm=0.05) as opt:
        for step in range(4):
            train(ours, opt, 1, first=step)
            x = torch.randn(8, 60, generator=torch.Generator().manual_seed(step))
            (theirs(x) - x).float().square().mean().backward()
            norm = nn.utils.clip_grad_norm_(theirs.parameters(), 0.05)
            torch_opt.step()
            torch_opt.zero_grad()
            assert opt.grad_norm == pytest.approx(norm.item(), rel=1e-5)
    assert_close(values(ours), values(theirs))
