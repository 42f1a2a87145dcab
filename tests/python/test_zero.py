"""Reading and editing what the engine holds: GatheredParameters, state_dict, zoffload.utils."""

import pytest

torch = pytest.importorskip("torch")

import zoffload  # noqa: E402
from toys import (  # noqa: E402
    LR,
    assert_close,
    assert_nothing_is_leased,
    assert_released,
    assert_same_bits,
    batch,
    make_config,
    make_toy,
    train_engine,
    weights,
)
from zoffload import errors, utils  # noqa: E402
from zoffload.buckets import Bucket  # noqa: E402
from zoffload.residency import Memory  # noqa: E402
from zoffload.zero import GatheredParameters, gathered  # noqa: E402


def masters(engine):
    return {n: utils.safe_get_full_fp32_param(p) for n, p in engine.module.named_parameters()}


# ---- GatheredParameters --------------------------------------------------------------------------


def test_gathered_values(open_engine):
    """Goal: values inside, nothing outside; nested, repeated, bare, disabled. Method: compare with
    the initial values; NaN outside."""
    values, engine = make_toy().state_dict(), open_engine()
    weight = engine.module.blocks[1].up.weight
    context = gathered(list(engine.module.parameters()))
    for _ in range(2):
        with context, GatheredParameters(weight), context:
            for name, param in engine.module.named_parameters():
                assert torch.equal(param, values[name])
        assert_released(engine)
    with GatheredParameters(weight, enabled=False):
        assert_released(engine)
    with GatheredParameters([torch.nn.Parameter(torch.ones(1))]):
        pass


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_edits_in_place_take_effect(open_engine, dtype):
    """Goal: edits are not reverted by the next step, and masters of others keep their residue.
    Method: edit one weight; look at it, at its master and at all the other masters; train."""
    engine = open_engine(dtype=dtype)
    train_engine(engine, 2)
    before = masters(engine)
    weight = engine.module.blocks[1].up.weight
    with GatheredParameters(weight), torch.no_grad():
        weight.fill_(0.25)
    after = masters(engine)
    assert torch.equal(after.pop("blocks.1.up.weight"), torch.full(weight.shape, 0.25))
    before.pop("blocks.1.up.weight")
    assert_same_bits(after, before)
    train_engine(engine, 1, first=2)
    with GatheredParameters(weight):
        assert (weight.float() - 0.25).abs().max() < 4 * LR
        assert (weight.float() != 0.25).any()


def test_edits_of_data_need_a_modifier_rank(open_engine):
    """Goal: DeepSpeed's modifier_rank. Method: edit param.data with and without; and a context that
    changes nothing leaves bf16 masters alone."""
    engine = open_engine(dtype="bf16")
    train_engine(engine, 2)
    before = masters(engine)
    with GatheredParameters(list(engine.module.parameters()), modifier_rank=0):
        pass
    assert_same_bits(masters(engine), before)
    weight = engine.module.head.weight
    with GatheredParameters(weight, modifier_rank=0):
        weight.data.zero_()
    assert not utils.safe_get_full_fp32_param(weight).any()


def test_a_step_inside_is_refused(open_engine):
    """Goal: step() would change what the user holds. Method: step inside; then outside."""
    engine = open_engine()
    engine.backward(engine(batch(0)))
    with GatheredParameters(engine.module.head.weight):
        with pytest.raises(errors.InvalidArgument, match="root.*still gathered"):
            engine.step()
    engine.step()
    assert engine.global_steps == 1


def test_forward_and_backward_inside_and_between(open_engine):
    """Goal: a context around a forward does not hide it from the hooks. Method: the same bits as
    without."""
    plain, engine = open_engine(), open_engine()
    train_engine(plain, 2)
    train_engine(engine, 1)
    everything = list(engine.module.parameters())
    with GatheredParameters(everything):
        loss = engine(batch(1))
    with GatheredParameters(everything[:3]):
        pass
    engine.backward(loss)
    engine.step()
    assert_same_bits(weights(engine), weights(plain))


# ---- state_dict ----------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
def test_state_dict_round_trip(open_engine, tied):
    """Goal: state_dict and load_state_dict of the module, though it is released. Method: load the
    weights of one engine into another; both go on alike (fp32, fresh moments)."""
    first = open_engine(make_toy(tied=tied))
    train_engine(first, 2)
    saved = weights(first)
    assert list(saved) == list(make_toy(tied=tied).state_dict())
    second, third = open_engine(make_toy(tied=tied)), open_engine(make_toy(tied=tied))
    train_engine(second, 1, first=5)
    with GatheredParameters(list(third.module.parameters()), modifier_rank=0):
        for name, param in third.module.named_parameters():
            param.data.copy_(saved[name])
    assert str(second.module.load_state_dict(saved)) == "<All keys matched successfully>"
    assert_same_bits(weights(second), saved)
    assert_same_bits(weights(third), saved)
    train_engine(second, 1)
    assert not torch.equal(weights(second)["embed.weight"], saved["embed.weight"])


def test_spare_memory_is_bounded():
    """Goal: freed storage is used again by buckets of its size, and never adds to the most that
    was gathered at once. Method: buckets of two sizes in turns, bytes added up."""
    small, large = (Bucket("", torch.float32, True) for _ in range(2))
    small.lay_out({"numel": 1000, "params": []})
    large.lay_out({"numel": 3000, "params": []})
    memory = Memory(spare_count_max=2)
    address = memory.allocate(small)
    memory.free(small)
    assert not small.allocated
    assert memory.allocate(small) == address or not Memory.CAN_SWAP
    small.flat.fill_(1)
    memory.free(small)
    memory.allocate(large)
    large.flat.fill_(1)
    assert memory.spare_bytes == 0
    memory.free(large)
    memory.allocate(small)
    assert memory.spare_bytes == 0


def test_state_dict_never_gathers_the_whole_model(open_engine):
    """Goal: unit by unit. Method: high-water mark of gathered bytes over saving and loading."""
    engine = open_engine(make_toy(blocks=8), prefetch=0)
    engine.module.load_state_dict(weights(engine))
    sizes = sorted(bucket.flat.numel() * 4 for bucket in engine._cut.buckets)
    assert engine.stats()["gathered_bytes_max"] <= sizes[-1] + sizes[-2]


def test_partial_and_failing_loads(open_engine):
    """Goal: strict=False changes what is there and no more; a failed load leaves nothing held;
    assign=True is refused. Method: one key; a wrong shape; then train."""
    engine = open_engine(dtype="bf16")
    train_engine(engine, 1)
    before = masters(engine)
    engine.module.load_state_dict({"head.weight": torch.zeros(40, 24)}, strict=False)
    after = masters(engine)
    assert not after.pop("head.weight").any()
    before.pop("head.weight")
    assert_same_bits(after, before)
    with pytest.raises(RuntimeError, match="size mismatch for head.weight"):
        engine.module.load_state_dict({"head.weight": torch.zeros(2, 2)}, strict=False)
    with pytest.raises(errors.Unsupported, match="assign=True"):
        engine.module.load_state_dict(weights(engine), assign=True)
    train_engine(engine, 1, first=1)
    assert_nothing_is_leased(engine)


# ---- utils ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_optimizer_state_is_torchs(open_engine, dtype):
    """Goal: masters and moments can be read. Method: fp32 against torch.optim.AdamW; bf16 weights
    are their masters, rounded."""
    engine = open_engine(dtype=dtype)
    train_engine(engine, 3)
    if dtype == "bf16":
        with GatheredParameters(list(engine.module.parameters())):
            for name, master in masters(engine).items():
                assert torch.equal(engine.module.get_parameter(name), master.bfloat16()), name
        return
    reference = make_toy()
    optimizer = torch.optim.AdamW(reference.parameters(), lr=LR, weight_decay=0.1)
    for step in range(3):
        reference(batch(step)).backward()
        optimizer.step()
        optimizer.zero_grad()
    assert_close(masters(engine), reference.state_dict())
    for theirs, ours in zip(reference.parameters(), engine.module.parameters(), strict=True):
        for key in ("exp_avg", "exp_avg_sq"):
            state = utils.safe_get_full_optimizer_state(ours, key)
            torch.testing.assert_close(state, optimizer.state[theirs][key], rtol=1e-3, atol=1e-7)


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_setters(open_engine, dtype):
    """Goal: masters can be set, also while gathered. Method: set, read back, look at the weight."""
    engine = open_engine(dtype=dtype)
    weight = engine.module.blocks[0].up.weight
    value = torch.linspace(-1, 1, weight.numel()).view(weight.shape)
    utils.safe_set_full_fp32_param(weight, value)
    assert torch.equal(utils.safe_get_full_fp32_param(weight), value)
    with GatheredParameters(weight):
        assert torch.equal(weight, value.to(weight.dtype))
        utils.safe_set_full_fp32_param(weight, -value)
        assert torch.equal(weight, -value.to(weight.dtype))
    assert torch.equal(utils.safe_get_full_fp32_param(weight), -value)
    utils.safe_set_full_optimizer_state(weight, value.square(), "exp_avg_sq")
    assert torch.equal(utils.safe_get_full_optimizer_state(weight, "exp_avg_sq"), value.square())


def test_wrong_questions(open_engine):
    """Goal: clear errors. Method: a parameter of no engine, an unknown state, an untrained one."""
    with pytest.raises(errors.InvalidArgument, match="belongs to no engine"):
        utils.safe_get_full_fp32_param(torch.nn.Parameter(torch.ones(2)))
    model = make_toy()
    engine, *_ = zoffload.initialize(
        model=model, model_parameters=model.blocks.parameters(), config=make_config()
    )
    with pytest.raises(errors.InvalidArgument, match="momentum"):
        utils.safe_get_full_optimizer_state(model.blocks[0].up.weight, "momentum")
    assert utils.safe_get_full_fp32_param(model.head.weight) is None
    with pytest.raises(errors.Unsupported, match="safe_get_full_grad.*not available"):
        utils.safe_get_full_grad(model.head.weight)
    with pytest.raises(errors.InvalidArgument, match="head.weight is not trained"):
        utils.safe_set_full_fp32_param(model.head.weight, torch.zeros(40, 24))
    engine.destroy()
