"""Goal: level 2 stores state as the config and its rules say, with the same bits on every tier.

Method: short trainings of the toy model that differ in one thing; state written and read back.
"""

import warnings

import pytest

torch = pytest.importorskip("torch")
zoffload = pytest.importorskip("zoffload")

from toys import make_config, make_toy, train_engine, weights  # noqa: E402
from zoffload.errors import InvalidArgument  # noqa: E402
from zoffload.state_formats import FORMATS  # noqa: E402
from zoffload.utils import (  # noqa: E402
    safe_get_full_fp32_param,
    safe_get_full_optimizer_state,
    safe_set_full_fp32_param,
    safe_set_full_optimizer_state,
)

RULES = [
    {"params": "norm", "state_format": "fp32"},
    {"params": r"^blocks\.[01]\.", "state_format": "split+bf16"},
    {"params": "up.weight$", "state_format": "bf16"},
]


def formats(engine):
    return {r.name: bucket.format for bucket in engine._cut.buckets for r in bucket.records}


def state(engine):
    found = {}
    for name, param in engine.module.named_parameters():
        found[name] = [safe_get_full_fp32_param(param)]
        found[name] += [safe_get_full_optimizer_state(param, r) for r in ("exp_avg", "exp_avg_sq")]
    return found


def assert_same(a, b):
    assert a.keys() == b.keys()
    for name in a:
        for x, y in zip(a[name], b[name], strict=True):
            assert torch.equal(x, y), name


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("state_format", [*FORMATS, "rules"])
def test_same_bits_on_every_tier(open_engine, state_format, dtype):
    more = {"rules": RULES} if state_format == "rules" else {"state_format": state_format}
    expected = None
    mixed = {"hbm": 0.3, "cpu": 0.3, "nvme": 0.4}
    for where, threads in (("cpu", 1), ("nvme", 2), (mixed, 1)):
        settings = {**more, "threads": threads, "subgroup_bytes": 4096}
        settings |= {"params": where, "optimizer": where}
        engine = open_engine(tier="nvme", dtype=dtype, **settings)
        train_engine(engine, 3)
        found = {"weights": list(weights(engine).values()), **state(engine)}
        expected = expected or found
        assert_same(found, expected)


def test_rules_choose_the_format(open_engine):
    """The first that matches; else the config's. Method: names and formats of all parameters."""
    engine = open_engine(dtype="bf16", state_format="int8", rules=RULES)
    for name, format in formats(engine).items():
        if "norm" in name:
            assert format == "fp32", name
        elif name.startswith(("blocks.0.", "blocks.1.")):
            assert format == "split+bf16", name
        else:
            assert format == ("bf16" if name.endswith("up.weight") else "int8"), name
    assert {b.name for b in engine._cut.buckets} >= {"blocks.0", "blocks.0 (split+bf16)"}
    assert "state as split+bf16" in str(engine)
    losses = train_engine(engine, 3)
    plain = open_engine(dtype="bf16")
    assert losses == pytest.approx(train_engine(plain, 3), rel=1e-3)


@pytest.mark.parametrize("state_format", FORMATS)
def test_state_is_fp32_to_its_user(open_engine, state_format):
    """Method: masters come back as they were set, and moments as the format holds them; a weight
    set in a gathered bucket becomes its own master."""
    engine = open_engine(dtype="bf16", state_format=state_format)
    param = engine.module.head.weight
    value = torch.linspace(1, 3, param.numel()).view(param.shape)
    safe_set_full_fp32_param(param, value)
    assert torch.equal(safe_get_full_fp32_param(param), value)
    for role in ("exp_avg", "exp_avg_sq"):
        safe_set_full_optimizer_state(param, value, role)
        held = safe_get_full_optimizer_state(param, role)
        torch.testing.assert_close(held, value, rtol=0.02, atol=0)
        safe_set_full_optimizer_state(param, held, role)
        assert torch.equal(safe_get_full_optimizer_state(param, role), held)
    with torch.no_grad(), zoffload.zero.GatheredParameters(param, modifier_rank=0):
        param.fill_(1.5)
    assert (safe_get_full_fp32_param(param) == 1.5).all()


def test_deepspeeds_keys():
    """Method: DeepSpeed's way to ask for bf16 masters and moments."""
    config = make_config(dtype="bf16")
    config["bf16"] |= {"bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        engine, *_ = zoffload.initialize(model=make_toy(), config=config)
    assert set(formats(engine).values()) == {"split+bf16"}
    engine.destroy()


def test_bad_rules(open_engine):
    with pytest.raises(InvalidArgument, match=r"zoffload.rules\[1\].params: '\(' is no regular"):
        open_engine(rules=[RULES[0], {"params": "(", "state_format": "bf16"}])
    with pytest.warns(UserWarning, match="no parameter's name matches 'expert'"):
        config = make_config(rules=[{"params": "expert", "state_format": "bf16"}])
        engine, *_ = zoffload.initialize(model=make_toy(), config=config)
        engine.destroy()


def test_frozen_parameters_are_counted_in_their_format():
    """What is reserved for them. Method: freeze one weight of a bf16 model."""
    model = make_toy()
    model.head.weight.requires_grad_(False)
    config = make_config(dtype="bf16", state_format="split+bf16")
    with pytest.warns(UserWarning, match=f"^{model.head.weight.numel() * 6} bytes"):
        engine, *_ = zoffload.initialize(model=model, config=config)
        engine.destroy()
