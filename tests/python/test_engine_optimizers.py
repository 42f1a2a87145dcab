"""The engine with SGD, Lion and Adagrad, by a config's "optimizer" block or by the caller's own.

Method: against level 1's optimizer of the same name on the same toy, whose numbers are tested
against torch's.
"""

import pytest

torch = pytest.importorskip("torch")

import zoffload  # noqa: E402
from torch import nn  # noqa: E402
from toys import (  # noqa: E402
    assert_close,
    assert_same_bits,
    batch,
    make_config,
    make_toy,
    train_engine,
    weights,
)
from zoffload import errors, utils  # noqa: E402

CASES = {
    "sgd": ("SGD", {"lr": 0.1, "weight_decay": 0.1}),
    "momentum": ("SGD", {"lr": 0.1, "momentum": 0.9, "dampening": 0.2}),
    "nesterov": ("SGD", {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "lion": ("Lion", {"lr": 0.01, "betas": [0.8, 0.95], "weight_decay": 0.1}),
    "adagrad": (
        "Adagrad",
        {"lr": 0.1, "lr_decay": 0.1, "eps": 1e-6, "initial_accumulator_value": 0.2},
    ),
}
NO_OPTIMIZER = {key: value for key, value in make_config().items() if key != "optimizer"}


def train_level1(optimizer, model, steps):
    for step in range(steps):
        model(batch(step)).backward()
        optimizer.step()
        optimizer.zero_grad()


def open_with(optimizer, **settings):
    config = {**make_config(**settings), "optimizer": optimizer}
    return zoffload.initialize(model=make_toy(), config=config)[0]


@pytest.mark.parametrize("case", CASES)
def test_every_optimizer_of_a_config(tmp_path, case):
    """Goal: the config's type and params reach the arithmetic, on every tier. Method: fp32 against
    level 1, closely; bf16 and NVMe against the host, bit by bit."""
    title, params = CASES[case]
    reference = make_toy()
    with getattr(zoffload, title)(reference.parameters(), **params) as optimizer:
        train_level1(optimizer, reference, 4)
    for dtype in ("fp32", "bf16"):
        results = []
        for tier in ("cpu", "nvme"):
            where = {"allow_memory_paths": True} if tier == "nvme" else {}
            engine = open_with(
                {"type": title.upper(), "params": params},
                tier=tier,
                folder=tmp_path,
                dtype=dtype,
                **where,
            )
            train_engine(engine, 4)
            results.append(weights(engine))
            engine.destroy()
        assert_same_bits(*results)
        if dtype == "fp32":
            assert_close(results[0], reference.state_dict())


def test_defaults_are_deepspeeds():
    """Goal: a config without params means what it means there. Method: the groups."""
    expected = {
        "SGD": {"lr": 1e-3, "momentum": 0, "dampening": 0, "weight_decay": 0, "nesterov": False},
        "Lion": {"lr": 1e-3, "betas": (0.9, 0.999), "weight_decay": 0},
        "Adagrad": {"lr": 1e-2, "eps": 1e-10, "weight_decay": 0, "lr_decay": 0},
    }
    for title, settings in expected.items():
        engine = open_with({"type": title})
        group = engine.optimizer.param_groups[0]
        assert {name: group[name] for name in settings} == settings
        engine.destroy()


@pytest.mark.parametrize("case", ["sgd", "nesterov", "adagrad"])
def test_optimizers_of_the_caller(case):
    """Goal: torch's SGD and Adagrad are taken as they are. Method: against torch itself."""
    title, params = CASES[case]
    reference, model = make_toy(), make_toy()
    cls = getattr(torch.optim, title)
    train_level1(cls(reference.parameters(), **params), reference, 4)
    client = cls(model.parameters(), **params)
    engine, *_ = zoffload.initialize(model=model, optimizer=client, config=NO_OPTIMIZER)
    train_engine(engine, 4)
    assert_close(weights(engine), reference.state_dict())
    engine.destroy()

    if case == "sgd":
        return  # it has no state that shows a step
    model = make_toy()
    used = cls(model.parameters(), **params)
    train_level1(used, model, 1)
    with pytest.raises(errors.Unsupported, match="stepped already"):
        zoffload.initialize(model=model, optimizer=used, config=NO_OPTIMIZER)


def test_state_by_the_names_of_torch():
    """Goal: utils finds what is kept, and nothing else. Method: one step; torch's key and
    DeepSpeed's."""
    for case, key, role in (("momentum", "momentum_buffer", "exp_avg"), ("adagrad", "sum", None)):
        title, params = CASES[case]
        engine = open_with({"type": title, "params": params})
        param = engine.module.head.weight
        before = utils.safe_get_full_optimizer_state(param, key)
        assert torch.equal(before, torch.full_like(before, 0.2 if case == "adagrad" else 0.0))
        train_engine(engine, 1)
        state = utils.safe_get_full_optimizer_state(param, key)
        assert not torch.equal(state, before)
        if role is not None:
            assert torch.equal(utils.safe_get_full_optimizer_state(param, role), state)
        with pytest.raises(errors.InvalidArgument, match=f"'exp_avg_cu' .*{key}"):
            utils.safe_get_full_optimizer_state(param, "exp_avg_cu")
        engine.destroy()


def test_momentum_needs_its_buffer():
    """Goal: no momentum without a buffer, and none that differs from torch's. Method: raised
    between steps; the step can be repeated."""
    engine = open_with({"type": "SGD"})
    train_engine(engine, 1)
    engine.optimizer.param_groups[0]["momentum"] = 0.9
    engine.backward(engine(batch(0)))
    with pytest.raises(errors.InvalidArgument, match="momentum=0.9 in parameter group 0"):
        engine.step()
    engine.optimizer.param_groups[0]["momentum"] = 0.0
    engine.step()
    engine.destroy()

    model = make_toy()
    groups = [
        {"params": model.blocks.parameters(), "momentum": 0.9},
        {"params": [model.embed.weight, model.head.weight]},
    ]
    client = torch.optim.SGD(groups, lr=0.1, dampening=0.1)
    engine, *_ = zoffload.initialize(model=model, optimizer=client, config=NO_OPTIMIZER)
    train_engine(engine, 1)
    client.param_groups[1]["momentum"] = 0.9
    engine.backward(engine(batch(1)))
    with pytest.raises(errors.Unsupported, match="group 1, with dampening, after steps without"):
        engine.step()
    client.param_groups[1]["dampening"] = 0.0
    engine.step()
    engine.destroy()


def test_what_there_is_not():
    """Goal: refused by name. Method: a config and a caller's optimizer."""
    with pytest.raises(errors.Unsupported, match="Muon.*allowed: Adam, AdamW, SGD, Lion, Adagrad"):
        open_with({"type": "Muon"})
    with pytest.raises(errors.InvalidArgument, match="momentum: found 0.9; Lion has no such"):
        open_with({"type": "Lion", "params": {"momentum": 0.9}})
    model = nn.Linear(3, 3)
    client = torch.optim.RMSprop(model.parameters())
    with pytest.raises(errors.Unsupported, match="RMSprop.*AdamW, Adam, SGD, Adagrad"):
        zoffload.initialize(model=model, optimizer=client, config=NO_OPTIMIZER)
