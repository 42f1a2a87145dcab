"""What users of DeepSpeed and of torch call and expect, beside the plain training loop."""

import warnings

import pytest

torch = pytest.importorskip("torch")

import zoffload  # noqa: E402
from torch import nn  # noqa: E402
from toys import (  # noqa: E402
    assert_same_bits,
    batch,
    make_config,
    make_toy,
    train_engine,
    weights,
)
from zoffload import errors  # noqa: E402
from zoffload.zero import GatheredParameters  # noqa: E402

NO_OPTIMIZER = {key: value for key, value in make_config().items() if key != "optimizer"}

# ---- Optimizers ----------------------------------------------------------------------------------


def test_torchs_adam_with_decoupled_weight_decay():
    """Goal: torch's Adam may be AdamW by a setting. Method: three steps with a large decay, against
    torch; groups that differ are refused."""

    def adam(model, **settings):
        return torch.optim.Adam(model.parameters(), lr=0.1, weight_decay=0.5, **settings)

    for decoupled in (True, False):
        reference, model = make_toy(), make_toy()
        theirs = adam(reference, decoupled_weight_decay=decoupled)
        ours = adam(model, decoupled_weight_decay=decoupled)
        engine, *_ = zoffload.initialize(model=model, optimizer=ours, config=NO_OPTIMIZER)
        for step in range(3):
            reference(batch(step)).backward()
            theirs.step()
            theirs.zero_grad()
        train_engine(engine, 3)
        for name, value in weights(engine).items():
            expected = reference.state_dict()[name]
            torch.testing.assert_close(value, expected, rtol=2e-4, atol=2e-4, msg=name)
        engine.destroy()

    model = make_toy()
    groups = [
        {"params": model.blocks.parameters(), "decoupled_weight_decay": True},
        {"params": [model.embed.weight, model.head.weight]},
    ]
    with pytest.raises(errors.Unsupported, match="decoupled_weight_decay=False in .* group 1"):
        zoffload.initialize(model=model, optimizer=torch.optim.Adam(groups), config=NO_OPTIMIZER)


@pytest.mark.parametrize(
    "setting", ["amsgrad", "maximize", "differentiable", "capturable", "decoupled_weight_decay"]
)
def test_settings_that_are_changed_later_are_refused(open_engine, setting):
    """Goal: never other arithmetic than asked for. Method: change a group between two steps; the
    step can be repeated once it is changed back."""
    engine, plain = open_engine(), open_engine()
    group = engine.optimizer.param_groups[0]
    engine.backward(engine(batch(0)))
    group[setting] = setting != "decoupled_weight_decay"
    with pytest.raises(errors.Unsupported, match=f"{setting}=.* group 0"):
        engine.step()
    del group[setting]
    engine.step()
    train_engine(plain, 1)
    assert_same_bits(weights(engine), weights(plain))


def test_frozen_parameters_that_are_trained_by_default_are_told():
    """Goal: one warning, with the bytes that are reserved and the argument that saves them. Method:
    freeze one layer; plans with and without it differ by that number, and the other case is
    silent."""

    def home_bytes(only_trained):
        model = nn.Sequential(nn.Linear(256, 256), nn.Linear(256, 256))
        model[0].requires_grad_(False)
        trained = model[1].parameters() if only_trained else None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            engine, *_ = zoffload.initialize(
                model=model, model_parameters=trained, config=make_config()
            )
        bytes_by_tier = engine.plan()["home_bytes"]
        engine.destroy()
        return sum(bytes_by_tier.values()), [str(warning.message) for warning in caught]

    with_all, told = home_bytes(only_trained=False)
    with_some, silence = home_bytes(only_trained=True)
    assert silence == []
    (text,) = told
    assert "model_parameters=" in text
    told_bytes = int(text.split(" bytes")[0])
    assert told_bytes == 8 * (256 * 256 + 256)
    assert with_all - with_some == pytest.approx(told_bytes, rel=0.1)  # homes are padded


# ---- Loops ---------------------------------------------------------------------------------------


def test_a_step_that_failed_can_be_repeated(open_engine):
    """Goal: only steps that were made are counted. Method: accumulate over two micro-steps; the
    second step() fails inside GatheredParameters, and is repeated outside."""
    plain, engine = open_engine(accumulate=2), open_engine(accumulate=2)
    engine.backward(engine(batch(0, 0)))
    engine.step()
    engine.backward(engine(batch(0, 1)))
    with GatheredParameters(engine.module.head.weight):
        with pytest.raises(errors.InvalidArgument, match="still gathered"):
            engine.step()
    assert (engine.micro_steps, engine.global_steps) == (1, 0)
    engine.step()
    assert (engine.micro_steps, engine.global_steps) == (2, 1)
    train_engine(plain, 1, accumulate=2)
    assert_same_bits(weights(engine), weights(plain))


@pytest.mark.parametrize("forget", ["engine", "optimizer", "module"])
@pytest.mark.parametrize("set_to_none", [True, False])
def test_every_zero_grad_forgets(open_engine, forget, set_to_none):
    """Goal: gradients that have left can be thrown away too. Method: a backward that is forgotten
    changes nothing; after destroy() the module has torch's zero_grad again."""
    plain, engine = open_engine(), open_engine()
    engine.backward(engine(batch(9)))
    target = {"engine": engine, "optimizer": engine.optimizer, "module": engine.module}[forget]
    target.zero_grad(set_to_none=set_to_none)
    train_engine(plain, 1)
    train_engine(engine, 1)
    assert_same_bits(weights(engine), weights(plain))
    engine.destroy()
    engine.module.zero_grad()
    assert "zero_grad" not in vars(engine.module)


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True")
@pytest.mark.parametrize("create", ["backward", "grad"])
def test_second_derivatives_are_refused(open_engine, create):
    """Goal: create_graph=True says what is missing. Method: by backward(), and as in a gradient
    penalty; then training goes on unharmed."""
    plain, engine = open_engine(), open_engine()
    loss = engine(batch(0))
    with pytest.raises(errors.Unsupported, match="create_graph=True"):
        if create == "backward":
            loss.backward(create_graph=True)
        else:
            x = torch.ones(2, 24, requires_grad=True)
            torch.autograd.grad(engine.module.blocks[0](x).sum(), x, create_graph=True)
    engine.zero_grad()
    train_engine(plain, 2)
    train_engine(engine, 2)
    assert_same_bits(weights(engine), weights(plain))


def test_settle(open_engine):
    """Goal: what step() started is home after it. Method: the same bytes are written to NVMe by
    every step, up to its settle()."""
    engine = open_engine(tier="nvme")
    written = []
    for step in range(4):
        train_engine(engine, 1, first=step)
        engine.settle()
        written.append(engine.stats()["nvme_written_bytes"])
    differences = {after - before for before, after in zip(written, written[1:], strict=False)}
    assert len(differences) == 1
    assert differences.pop() > 0
    engine.destroy()
    with pytest.raises(errors.Error, match="closed"):
        engine.settle()


# ---- Names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["save_checkpoint", "load_checkpoint", "save_16bit_model", "offload_states", "reload_states"],
)
def test_what_an_engine_of_deepspeeds_has_besides(open_engine, name):
    """Goal: the error is not about an attribute of the user's model. Method: call it."""
    with pytest.raises(errors.Unsupported, match=f"{name}.*not available in this version"):
        getattr(open_engine(), name)("folder", tag="one")


@pytest.mark.parametrize(
    "call",
    [
        lambda: zoffload.init_distributed(dist_backend="gloo"),
        lambda: zoffload.add_config_arguments(None),
        lambda: zoffload.zero.Init(config_dict_or_path={}),
    ],
)
def test_what_the_module_of_deepspeeds_has_besides(call):
    """Goal: as above. Method: call it."""
    with pytest.raises(errors.Unsupported, match="not available in this version"):
        call()


def test_where_an_engine_is(open_engine):
    """Goal: loops that move their batches run. Method: device and ranks; the module's own are still
    found, and what nobody has is an AttributeError."""
    engine = open_engine()
    assert batch(0).to(engine.device).device == torch.device("cpu")
    assert (engine.local_rank, engine.world_size) == (0, 1)
    assert engine.blocks is engine.module.blocks
    with pytest.raises(AttributeError, match="'Toy' object has no attribute 'nothing'"):
        engine.nothing  # noqa: B018


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_buffers_keep_their_type_but_for_fp32(open_engine, dtype):
    """Goal: positions and tables stay exact. Method: buffers of four types; in bf16 only the fp32
    one changes."""
    model = make_toy()
    buffers = {
        "table": torch.linspace(0, 1, 5),
        "exact": torch.linspace(0, 1, 5, dtype=torch.float64),
        "positions": torch.arange(5),
        "coarse": torch.ones(3, dtype=torch.float16),
    }
    for name, value in buffers.items():
        model.register_buffer(name, value, persistent=name == "exact")
    open_engine(model, dtype=dtype)
    for name, value in buffers.items():
        cast = name == "table" and dtype == "bf16"
        assert torch.equal(getattr(model, name), value.bfloat16() if cast else value), name
        assert getattr(model, name).dtype == (torch.bfloat16 if cast else value.dtype), name
    assert {"exact"} == {name for name in model.state_dict() if name in buffers}
