"""Gathering around forward and backward: checkpointing, skipped blocks, exceptions, odd modules."""

import dataclasses

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402
from toys import (  # noqa: E402
    LR,
    WIDTH,
    Toy,
    assert_close,
    assert_nothing_is_leased,
    assert_same_bits,
    batch,
    make_toy,
    train_engine,
    train_torch,
    weights,
)

# ---- Checkpointing -------------------------------------------------------------------------------


@pytest.mark.parametrize("early_stop", [True, False])
def test_checkpointed_blocks(open_engine, early_stop):
    """Goal: a forward run again inside backward keeps its bucket. Method: the same bits as without
    checkpointing, with early stop on and off."""
    plain = open_engine()
    losses = train_engine(plain, 4)
    engine = open_engine(make_toy(checkpointed=early_stop))
    assert train_engine(engine, 4) == losses
    assert_same_bits(weights(engine), weights(plain))
    assert_nothing_is_leased(engine)


@pytest.mark.parametrize("reentrant", [True, False])
def test_several_blocks_in_one_checkpoint(open_engine, reentrant):
    """Goal: units inside a checkpoint that is not a unit. Method: against the plain model."""

    class Pairs(Toy):
        def forward(self, tokens):
            x = self.embed(tokens)
            for i in range(0, 4, 2):
                x = checkpoint(self.pair, i, x, use_reentrant=reentrant)
            return nn.functional.cross_entropy(self.head(x).flatten(0, 1), tokens.flatten())

        def pair(self, i, x):
            return self.blocks[i + 1](self.blocks[i](x))

    plain = open_engine()
    losses = train_engine(plain, 4)
    torch.manual_seed(7)
    engine = open_engine(Pairs())
    assert train_engine(engine, 4) == losses
    assert_same_bits(weights(engine), weights(plain))
    assert_nothing_is_leased(engine)


# ---- Passes that differ --------------------------------------------------------------------------


def test_eval_generate_and_skipped_blocks_between_steps(open_engine):
    """Goal: other passes do no harm, and training is prefetched as before after them. Method: bits
    against undisturbed training; no deviation in the steps after."""
    plain, engine = open_engine(), open_engine()
    train_engine(plain, 6)
    train_engine(engine, 2)
    engine.eval()
    with torch.no_grad():
        for i in range(3):
            engine(batch(100 + i))
        engine.module.skipped = {1, 2}
        engine(batch(103))
        engine.module.skipped = set()
        engine.module.blocks[3](torch.ones(2, WIDTH))
        engine.module.head(torch.ones(2, WIDTH))
    engine.train()
    train_engine(engine, 2, first=2)
    before = engine.stats()
    train_engine(engine, 2, first=4)
    assert engine.stats()["deviation_count"] == before["deviation_count"]
    assert engine.stats()["prefetched_count"] > before["prefetched_count"]
    assert_same_bits(weights(engine), weights(plain))


def test_skipped_block_in_a_training_step(open_engine):
    """Goal: a block without gradients in one step is not updated in it. Method: against torch."""
    reference = make_toy()
    optimizer = torch.optim.AdamW(reference.parameters(), lr=LR, weight_decay=0.1)
    engine = open_engine()
    for step in range(5):
        skipped = {1, 3} if step == 2 else set()
        reference.skipped = engine.module.skipped = skipped
        reference(batch(step)).backward()
        optimizer.step()
        optimizer.zero_grad()
        train_engine(engine, 1, first=step)
    assert_close(weights(engine), reference.state_dict())


@pytest.mark.parametrize("where", ["forward", "backward"])
def test_an_exception_of_the_user(open_engine, where):
    """Goal: an exception does not break the steps after it. Method: raise in the third block's
    forward, and in its backward; forget the gradients; compare with undisturbed training."""
    plain, engine = open_engine(), open_engine()
    train_engine(plain, 4)
    train_engine(engine, 2)

    def fail(*_):
        raise RuntimeError("the user's own")

    inner = engine.module.blocks[2].up
    if where == "forward":
        handle = inner.register_forward_hook(fail)
    else:
        handle = inner.register_full_backward_hook(fail)
    with pytest.raises(RuntimeError, match="the user's own"):
        train_engine(engine, 1, first=2)
    handle.remove()
    engine.zero_grad()
    assert_nothing_is_leased(engine)
    train_engine(engine, 2, first=2)
    assert_same_bits(weights(engine), weights(plain))


def test_a_step_after_a_failed_backward(open_engine):
    """Goal: what was gathered ahead is not used after a step changed it. Method: a backward, one
    that fails while earlier blocks are being gathered, and the step: the same bits as without
    prefetch."""

    def fail(*_):
        raise RuntimeError("the user's own")

    results = []
    for prefetch in (0, 2):
        engine = open_engine(prefetch=prefetch)
        train_engine(engine, 2)
        engine.backward(engine(batch(2)))
        handle = engine.module.blocks[2].up.register_full_backward_hook(fail)
        with pytest.raises(RuntimeError, match="the user's own"):
            engine.backward(engine(batch(3)))
        handle.remove()
        engine.step()
        train_engine(engine, 1, first=4)
        results.append(weights(engine))
    assert_same_bits(*results)


def test_forward_without_backward(open_engine):
    """Goal: a graph that is dropped holds nothing. Method: forwards with gradients on, unused."""
    plain, engine = open_engine(), open_engine()
    train_engine(plain, 3)
    for i in range(3):
        engine(batch(50 + i))
        train_engine(engine, 1, first=i)
    assert_nothing_is_leased(engine)
    assert_same_bits(weights(engine), weights(plain))


def test_retained_graph(open_engine):
    """Goal: backward twice over one graph. Method: gradients twice as large, against torch."""
    reference = make_toy()
    loss = reference(batch(0))
    loss.backward(retain_graph=True)
    loss.backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in reference.parameters()]).item()
    engine = open_engine()
    loss = engine(batch(0))
    engine.backward(loss, retain_graph=True)
    engine.backward(loss)
    engine.step()
    assert engine.get_global_grad_norm() == pytest.approx(norm, rel=1e-5)


# ---- Modules of every kind -----------------------------------------------------------------------


@dataclasses.dataclass
class Result:
    hidden: torch.Tensor
    extra: dict


class Structured(nn.Module):
    """Returns tensors in a dataclass with a dict and a tuple in it."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(WIDTH, WIDTH)
        self.b = nn.Linear(WIDTH, WIDTH)

    def forward(self, result):
        x = self.a(result.hidden)
        return Result(x, {"pair": (self.b(x * 2), 3)})  # x itself is changed later


class Parallel(nn.Module):
    """Structured blocks, read through their extras; one output in place; frozen ones between."""

    def __init__(self, frozen=()):
        super().__init__()
        torch.manual_seed(5)
        self.embed = nn.Embedding(40, WIDTH)
        self.blocks = nn.ModuleList(Structured() for _ in range(4))
        for i in frozen:
            self.blocks[i].requires_grad_(False)

    def forward(self, tokens):
        result = Result(self.embed(tokens), {})
        total = 0
        for block in self.blocks:
            result = block(result)
            result.hidden.mul_(0.5)
            total = total + result.extra["pair"][0].pow(2).mean()
        return total + result.hidden.pow(2).mean()


@pytest.mark.parametrize("frozen", [(), (1, 2), (0, 1, 2, 3)])
def test_structured_outputs_changed_in_place(open_engine, frozen):
    """Goal: outputs in containers, in-place changes of them, frozen blocks in the middle (which
    are gathered in backward too). Method: against torch."""
    model = Parallel(frozen)
    train_torch(model, 4)
    engine = open_engine(Parallel(frozen))
    train_engine(engine, 4)
    assert_close(weights(engine), model.state_dict())
    assert_nothing_is_leased(engine)


class InPlace(nn.Module):
    """Changes its input in place and returns it: one tensor, two nodes of the graph."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        return x.add_(torch.tanh(self.inner(x.clone())))


def test_input_changed_in_place_and_returned(open_engine):
    """Goal: a tensor is told from itself after a change. Method: against torch."""

    def build():
        model = make_toy()
        model.blocks = nn.ModuleList(InPlace() for _ in range(3))
        return model

    model = build()
    train_torch(model, 3)
    engine = open_engine(build())
    train_engine(engine, 3)
    assert_close(weights(engine), model.state_dict())


def watch_leases(engine):
    """How many buckets are leased, appended at every gradient."""
    leased = []
    for param in engine.module.parameters():
        if param.requires_grad:
            param.register_hook(
                lambda grad: leased.append(sum(b.lease_count > 0 for b in engine._cut.buckets))
            )
    return leased


def test_backward_holds_the_root_and_two_blocks_at_most(open_engine):
    """Goal: backward releases block by block, frozen and unused parameters or not. Method: count
    the buckets leased at every gradient, and after backward."""
    model = make_toy(blocks=6)
    for module in (model, *model.blocks):
        module.unused = nn.Parameter(torch.ones(3))
    model.blocks[2].requires_grad_(False)
    engine = open_engine(model)
    leased = watch_leases(engine)
    for step in range(2):
        engine.backward(engine(batch(step)))
        assert_nothing_is_leased(engine)
        engine.step()
    assert leased
    assert max(leased) <= 3


def test_backward_releases_blocks_whose_inputs_need_no_gradient(open_engine):
    """Goal: such a block goes when its gradients have arrived. Method: six blocks side by side on
    a constant; count the buckets leased at every gradient."""

    class Branches(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList(nn.Linear(WIDTH, 1) for _ in range(6))

        def forward(self, x):
            return sum(block(x).pow(2).mean() for block in self.blocks)

    engine = open_engine(Branches())
    leased = watch_leases(engine)
    engine.backward(engine(torch.ones(2, WIDTH)))
    assert leased
    assert max(leased) <= 2


def test_gradients_that_arrive_twice_in_one_backward(open_engine):
    """Goal: a slot is not overwritten. Method: one block, called twice under reentrant
    checkpointing, with a parameter that gets no gradient, so that its slot stays open; against
    torch."""

    class Twice(Toy):
        def forward(self, tokens):
            x = self.embed(tokens)
            for _ in range(2):
                x = checkpoint(self.blocks[0], x, use_reentrant=True)
            return self.head(x).pow(2).mean()

    def build():
        torch.manual_seed(7)
        model = Twice(blocks=2)
        model.blocks[0].unused = nn.Parameter(torch.ones(3))
        return model

    model = build()
    train_torch(model, 3)
    engine = open_engine(build())
    train_engine(engine, 3)
    assert_close(weights(engine), model.state_dict())


def test_plain_sequential(open_engine):
    """Goal: a model that is a Sequential itself, with a parametrised (weight norm) layer. Method:
    against torch."""

    def build():
        torch.manual_seed(3)
        layers = [nn.Embedding(40, WIDTH)]
        layers += [
            nn.Linear(WIDTH, WIDTH),
            nn.utils.parametrizations.weight_norm(nn.Linear(24, 24)),
        ]
        return nn.Sequential(*layers, nn.Tanh(), nn.Linear(WIDTH, 40))

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = build()

        def forward(self, tokens):
            return nn.functional.cross_entropy(self.model(tokens).flatten(0, 1), tokens.flatten())

    model = Loss()
    train_torch(model, 3)
    engine = open_engine(Loss())
    train_engine(engine, 3)
    assert_close(weights(engine), model.state_dict())


def test_submodules_called_alone(open_engine):
    """Goal: an inner module may be called outside its unit. Method: in eval and in training,
    against torch."""
    reference, engine = make_toy(), open_engine()
    x = torch.linspace(-1, 1, 2 * WIDTH).view(2, WIDTH)
    with torch.no_grad():
        assert torch.equal(engine.module.blocks[1].up(x), reference.blocks[1].up(x))
    reference.blocks[1].up(x).pow(2).sum().backward()
    engine.module.blocks[1].up(x).pow(2).sum().backward()
    torch.optim.AdamW(reference.parameters(), lr=LR, weight_decay=0.1).step()
    engine.step()
    assert_close(weights(engine), reference.state_dict())
