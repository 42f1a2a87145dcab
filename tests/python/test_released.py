"""Parameters between gathers: reads give NaN, writes are errors, and autograd finds its bytes."""

import pytest

torch = pytest.importorskip("torch")

from toys import (  # noqa: E402
    LR,
    VOCAB,
    Toy,
    assert_close,
    assert_nothing_is_leased,
    assert_released,
    assert_same_bits,
    batch,
    make_toy,
    train_engine,
    weights,
)
from zoffload import errors  # noqa: E402
from zoffload.zero import GatheredParameters  # noqa: E402

READS = {
    "norm": lambda model: model.head.weight.norm(),
    "product": lambda model: (model.head.weight * 0).sum(),
    "penalty": lambda model: sum(p.pow(2).sum() for p in model.parameters()),
    "vector": lambda model: torch.nn.utils.parameters_to_vector(model.parameters()).mean(),
    "numpy": lambda model: torch.tensor(model.head.weight.detach().numpy().sum()),
    "keep_vars": lambda model: model.state_dict(keep_vars=True)["head.weight"].sum(),
    "clone": lambda model: model.blocks[1].scale.detach().clone(),
}


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("read", [pytest.param(read, id=name) for name, read in READS.items()])
def test_reads_give_nan(open_engine, dtype, read):
    """Goal: never garbage, never a crash. Method: read in each way before training and after it;
    shape, dtype and names stay."""
    if dtype == "bf16" and read is READS["numpy"]:
        pytest.skip("numpy has no bfloat16")
    engine = open_engine(dtype=dtype)
    for step in range(2):
        assert read(engine.module).isnan()
        assert_released(engine)
        train_engine(engine, 1, first=step)
    for theirs, ours in zip(make_toy().parameters(), engine.module.parameters(), strict=True):
        assert ours.shape == theirs.shape
        assert ours.dtype == (torch.bfloat16 if dtype == "bf16" else torch.float32)
    assert_nothing_is_leased(engine)


WRITES = {
    "mul": lambda model: model.head.weight.mul_(2),
    "copy": lambda model: model.head.weight.copy_(torch.ones(VOCAB, 24)),
    "data": lambda model: model.head.weight.data.normal_(),
    "foreach": lambda model: torch._foreach_mul_(list(model.parameters()), 2.0),
    "init": lambda model: torch.nn.init.xavier_normal_(model.head.weight),
}


@pytest.mark.parametrize("write", [pytest.param(write, id=name) for name, write in WRITES.items()])
def test_most_writes_raise_at_once(open_engine, write):
    """Goal: no edit is lost silently. Method: write in place outside; training goes on unharmed."""
    plain, engine = open_engine(), open_engine()
    with torch.no_grad(), pytest.raises(RuntimeError, match="single memory location"):
        write(engine.module)
    train_engine(plain, 1)
    train_engine(engine, 1)
    assert_same_bits(weights(engine), weights(plain))


FILLS = {
    "fill": lambda model: model.head.weight.fill_(1),
    "nan_to_nan": lambda model: model.blocks[1].scale.mul_(2),
    "scalar": lambda model: model.blocks[1].scale.data.fill_(1),
    "zeros": lambda model: torch.nn.init.zeros_(model.blocks[1].up.bias),
    "apply": lambda model: model.apply(
        lambda m: torch.nn.init.zeros_(m.weight) if hasattr(m, "weight") else None
    ),
    "element": lambda model: model.head.weight[0, 0].fill_(1),
    "numpy": lambda model: model.head.weight.detach().numpy().fill(1),
}


@pytest.mark.parametrize("fill", [pytest.param(fill, id=name) for name, fill in FILLS.items()])
def test_other_writes_are_told_by_the_next_gather(open_engine, fill):
    """Goal: fills of one value, which torch allows, are errors too. Method: fill outside; the next
    forwards raise, once for each parameter that was written to; then training goes on unharmed."""
    plain, engine = open_engine(), open_engine()
    with torch.no_grad():
        fill(engine.module)
    for _ in range(14 if fill is FILLS["apply"] else 1):
        with pytest.raises(errors.InvalidArgument, match="written to while it was released: do it"):
            engine(batch(0))
    assert_released(engine)
    train_engine(plain, 1)
    train_engine(engine, 1)
    assert_same_bits(weights(engine), weights(plain))


def test_other_memory_is_told_by_the_next_gather(open_engine):
    """Goal: an assigned .data, or another dtype, is an error, once. Method: both, between steps."""
    plain, engine = open_engine(), open_engine()
    engine.module.head.weight.data = torch.ones(VOCAB, 24)
    with pytest.raises(errors.InvalidArgument, match="head.weight was given other memory"):
        engine(batch(0))
    engine.module.blocks[1].scale.data = torch.ones((), dtype=torch.float64)
    with pytest.raises(errors.InvalidArgument, match="blocks.1.scale was given other memory"):
        engine(batch(0))
    engine.module.float()  # changes nothing
    train_engine(plain, 1)
    train_engine(engine, 1)
    assert_same_bits(weights(engine), weights(plain))


def penalty(model):
    return 0.1 * sum(p.pow(2).sum() for p in model.parameters())


def test_a_penalty_inside_gathered_parameters(open_engine):
    """Goal: a graph over the parameters themselves is right if its backward runs inside. Method:
    three steps with an L2 term, against torch."""
    reference, engine = make_toy(), open_engine()
    optimizer = torch.optim.AdamW(reference.parameters(), lr=LR, weight_decay=0.1)
    for step in range(3):
        (reference(batch(step)) + penalty(reference)).backward()
        optimizer.step()
        optimizer.zero_grad()
        loss = engine(batch(step))
        with GatheredParameters(list(engine.module.parameters())):
            engine.backward(loss + penalty(engine.module))
        engine.step()
    assert_close(weights(engine), reference.state_dict())


def test_a_penalty_whose_backward_runs_outside(open_engine):
    """Goal: what backward reads of released parameters is NaN, which skips the step. Method: an L2
    term, built inside; then a step as if it had not been."""
    plain, engine = open_engine(), open_engine()
    loss = engine(batch(0))
    with GatheredParameters(list(engine.module.parameters())):
        loss = loss + penalty(engine.module)
    engine.backward(loss)
    engine.step()
    assert engine.skipped_steps == 1
    train_engine(plain, 1)
    train_engine(engine, 1)
    assert_same_bits(weights(engine), weights(plain))


def test_a_gradient_that_needs_no_value_may_come_outside(open_engine):
    """Goal: no error where NaN was not read. Method: a sum of parameters, backward outside."""
    engine = open_engine()
    with GatheredParameters(list(engine.module.parameters())):
        loss = engine.module.head.weight.sum()
    engine.backward(loss)
    engine.step()
    assert engine.get_global_grad_norm() == pytest.approx((VOCAB * 24) ** 0.5)


def test_the_root_that_uses_a_blocks_weight_itself(open_engine):
    """Goal: what no call of a unit gathers is told by name. Method: F.linear on a block's weight;
    the error is backward's; gathered around both, it is right."""

    class Functional(Toy):
        def forward(self, tokens):
            x = self.embed(tokens)
            for block in self.blocks:
                x = torch.nn.functional.linear(x, block.up.weight[:24])
            return self.head(x).pow(2).mean()

    def build():
        torch.manual_seed(7)
        return Functional(blocks=2)

    reference, engine = build(), open_engine(build())
    loss = engine(batch(0))
    assert loss.isnan()
    with pytest.raises(errors.InvalidArgument, match=r"gradient of blocks\.\d\.up\.weight.*relea"):
        engine.backward(loss)
    engine.zero_grad()
    with GatheredParameters(list(engine.module.parameters())):
        engine.backward(engine(batch(0)))
    engine.step()
    reference(batch(0)).backward()
    torch.optim.AdamW(reference.parameters(), lr=LR, weight_decay=0.1).step()
    assert_close(weights(engine), reference.state_dict())
