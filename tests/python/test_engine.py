"""The engine against a plain torch loop, and against itself with other placements."""

import gc
import os
import weakref

import pytest

torch = pytest.importorskip("torch")

import zoffload  # noqa: E402
from torch import nn  # noqa: E402
from toys import (  # noqa: E402
    LR,
    VOCAB,
    WIDTH,
    assert_close,
    assert_released,
    assert_same_bits,
    batch,
    make_config,
    make_toy,
    train_engine,
    train_torch,
    weights,
)
from zoffload import errors  # noqa: E402

# ---- Results -------------------------------------------------------------------------------------


@pytest.mark.parametrize("clip", [0.0, 0.5])
@pytest.mark.parametrize("accumulate", [1, 3])
def test_agrees_with_torch(open_engine, clip, accumulate):
    """Goal: the engine trains as torch does. Method: losses and weights after 5 steps in fp32."""
    model = make_toy()
    losses = train_torch(model, 5, clip, accumulate)
    engine = open_engine(clip=clip, accumulate=accumulate)
    ours = train_engine(engine, 5, accumulate=accumulate)
    assert ours == pytest.approx(losses, rel=1e-5)
    assert_close(weights(engine), model.state_dict())
    assert engine.global_steps == 5


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
@pytest.mark.parametrize("accumulate", [1, 2])
def test_placement_never_changes_a_bit(open_engine, dtype, accumulate):
    """Goal: the same bits on every tier. Method: train on host and on NVMe, with and without
    prefetch, and compare all weights and losses bit by bit."""
    results = []
    for tier, prefetch in (("cpu", 2), ("nvme", 2), ("nvme", 0)):
        engine = open_engine(
            tier=tier, dtype=dtype, clip=0.7, accumulate=accumulate, prefetch=prefetch
        )
        losses = train_engine(engine, 4, accumulate=accumulate)
        results.append((losses, weights(engine)))
    for losses, values in results[1:]:
        assert losses == results[0][0]
        assert_same_bits(values, results[0][1])
    assert results[0][0][-1] < results[0][0][0]


def test_traffic_and_plan_are_told(open_engine):
    """Goal: stats() and plan() have what users read. Method: train on NVMe, look."""
    engine = open_engine(tier="nvme")
    before = engine.stats()
    train_engine(engine, 2)
    weights(engine)
    stats = engine.stats()
    assert set(stats["bytes_by_tier"]) == {"hbm", "host", "nvme"}
    assert stats["bytes_by_tier"]["nvme"] > 0
    assert stats["nvme_read_bytes"] > before["nvme_read_bytes"]
    assert stats["nvme_written_bytes"] > before["nvme_written_bytes"]
    assert stats["host_bytes_budget"] is None
    assert stats["host_bytes_high_water"] == engine.plan()["host_bytes"]
    assert "buckets" in str(engine)


def test_between_steps_nothing_is_gathered(open_engine):
    """Goal: parameters leave memory. Method: storage sizes after a step, and the high-water mark
    while six blocks were trained."""
    engine = open_engine(make_toy(blocks=6), prefetch=1)
    train_engine(engine, 3)
    assert_released(engine)
    assert not any(bucket.allocated for bucket in engine._cut.buckets)
    whole = sum(bucket.flat.numel() * 4 for bucket in engine._cut.buckets)
    assert engine.stats()["gathered_bytes_max"] < whole


def test_second_and_later_passes_are_prefetched(open_engine):
    """Goal: schedules are learned. Method: count gathers that the user had to wait for."""
    engine = open_engine(make_toy(blocks=6))
    train_engine(engine, 2)
    before = engine.stats()
    train_engine(engine, 2, first=2)
    after = engine.stats()
    assert after["deviation_count"] == before["deviation_count"]
    assert after["prefetched_count"] - before["prefetched_count"] > 2 * (
        after["on_demand_count"] - before["on_demand_count"]
    )


# ---- Parameters of every kind --------------------------------------------------------------------


def test_odd_parameters(open_engine):
    """Goal: sizes 0, 1, no dimension, one much larger than a subgroup. Method: against torch."""

    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.none = nn.Parameter(torch.empty(0, 3))
            self.one = nn.Parameter(torch.ones(1))
            self.scalar = nn.Parameter(torch.tensor(2.0))
            self.large = nn.Embedding(VOCAB, 4000)

        def forward(self, tokens):
            return (self.large(tokens) * self.one).pow(2).mean() * self.scalar + self.none.sum()

    model = Odd()
    train_torch(model, 3)
    engine = open_engine(Odd(), tier="nvme", subgroup_bytes="256KiB")
    assert engine.plan()["subgroup_count"] > 1
    train_engine(engine, 3)
    assert_close(weights(engine), model.state_dict())


def test_tied_parameters(open_engine):
    """Goal: a tied weight is one weight. Method: against torch; still tied; also between blocks."""

    def tied():
        model = make_toy(tied=True)
        model.blocks[3].up = model.blocks[0].up
        return model

    model = tied()
    train_torch(model, 4)
    engine = open_engine(tied())
    assert engine.module.head.weight is engine.module.embed.weight
    train_engine(engine, 4)
    assert_close(weights(engine), model.state_dict())


def test_a_block_called_twice(open_engine):
    """Goal: one unit, several calls in a forward. Method: against torch."""

    def shared():
        model = make_toy(blocks=3)
        model.blocks[2] = model.blocks[1] = model.blocks[0]
        return model

    model = shared()
    train_torch(model, 3)
    engine = open_engine(shared())
    train_engine(engine, 3)
    assert_close(weights(engine), model.state_dict())


def test_frozen_then_unfrozen(open_engine):
    """Goal: frozen parameters stay, and train once unfrozen. Method: against torch's rule that a
    parameter without a gradient is not updated."""

    def freeze(model, frozen):
        for block in list(model.blocks)[1:3]:
            block.requires_grad_(not frozen)
        model.blocks[0].up.weight.requires_grad_(not frozen)

    reference, model = make_toy(), make_toy()
    optimizer = torch.optim.AdamW(reference.parameters(), lr=LR, weight_decay=0.1)
    freeze(reference, True)
    freeze(model, True)
    engine = open_engine(model)
    for step in range(5):
        if step == 2:
            freeze(reference, False)
            freeze(model, False)
        reference(batch(step)).backward()
        optimizer.step()
        optimizer.zero_grad()
        train_engine(engine, 1, first=step)
        if step == 1:
            assert torch.equal(weights(engine)["blocks.2.up.weight"], reference.blocks[2].up.weight)
    assert_close(weights(engine), reference.state_dict())


def test_parameters_that_are_not_given_are_not_trained(open_engine):
    """Goal: model_parameters is the list, with groups. Method: against torch with two groups."""

    def groups(model):
        return [
            {"params": list(model.blocks[0].parameters()), "lr": 0.03, "weight_decay": 0.0},
            {"params": list(model.head.parameters())},
        ]

    reference = make_toy()
    optimizer = torch.optim.AdamW(groups(reference), lr=LR, weight_decay=0.1)
    model = make_toy()
    engine = open_engine(model, model_parameters=groups(model))
    assert [group["lr"] for group in engine.optimizer.param_groups] == [0.03, LR]
    for step in range(3):
        reference(batch(step)).backward()
        optimizer.step()
        optimizer.zero_grad()
        train_engine(engine, 1, first=step)
    assert_close(weights(engine), reference.state_dict())


# ---- Loops of every kind -------------------------------------------------------------------------


def test_several_backwards_before_a_step(open_engine):
    """Goal: gradients add up without gradient_accumulation_steps. Method: plain loss.backward()
    three times, against torch."""
    reference = make_toy()
    optimizer = torch.optim.AdamW(reference.parameters(), lr=LR, weight_decay=0.1)
    engine = open_engine()
    for step in range(3):
        for micro in range(3):
            reference(batch(step, micro)).backward()
            engine(batch(step, micro)).backward()
        optimizer.step()
        optimizer.zero_grad()
        engine.step()
    assert_close(weights(engine), reference.state_dict())


def test_two_forwards_then_one_backward(open_engine):
    """Goal: passes may overlap. Method: the sum of two losses, against torch."""
    reference = make_toy()
    (reference(batch(0)) + reference(batch(1))).backward()
    engine = open_engine()
    (engine(batch(0)) + engine(batch(1))).backward()
    torch.optim.AdamW(reference.parameters(), lr=LR, weight_decay=0.1).step()
    engine.step()
    assert_close(weights(engine), reference.state_dict())


def test_a_step_without_gradients_changes_nothing(open_engine):
    """Goal: torch's rule, to the end. Method: step() alone, then weights and norm."""
    engine = open_engine()
    before = weights(engine)
    engine.step()
    assert engine.get_global_grad_norm() == 0
    assert_same_bits(weights(engine), before)


def test_zero_grad_forgets(open_engine):
    """Goal: gradients can be thrown away. Method: a backward that is forgotten changes nothing."""
    engine, other = open_engine(), open_engine()
    engine.backward(engine(batch(9)))
    engine.zero_grad()
    train_engine(engine, 2)
    train_engine(other, 2)
    assert_same_bits(weights(engine), weights(other))


def test_gradient_norm_and_boundaries(open_engine):
    """Goal: DeepSpeed's questions. Method: norm against torch; the accumulation boundary."""
    reference = make_toy()
    for micro in range(2):
        (reference(batch(0, micro)) / 2).backward()
    norm = torch.nn.utils.get_total_norm([p.grad for p in reference.parameters()]).item()
    engine = open_engine(accumulate=2)
    assert engine.get_global_grad_norm() is None
    boundaries = []
    for micro in range(2):
        boundaries.append(engine.is_gradient_accumulation_boundary())
        engine.backward(engine(batch(0, micro)))
        engine.step()
    assert boundaries == [False, True]
    assert engine.get_global_grad_norm() == pytest.approx(norm, rel=1e-5)
    assert engine.train_batch_size() == 6
    assert engine.train_micro_batch_size_per_gpu() == 3
    assert engine.gradient_accumulation_steps() == 2
    assert engine.get_lr() == [LR]


def test_schedulers_and_a_torch_optimizer(tmp_path):
    """Goal: param_groups are read at each step. Method: a scheduler of the caller's optimizer,
    against the same in torch."""
    reference = make_toy()
    optimizer = torch.optim.AdamW(reference.parameters(), lr=0.02, weight_decay=0.1)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    model = make_toy()
    theirs = torch.optim.AdamW(model.parameters(), lr=0.02, weight_decay=0.1)
    engine, ours, _, schedule = zoffload.initialize(
        model=model,
        optimizer=theirs,
        lr_scheduler=torch.optim.lr_scheduler.StepLR(theirs, 1, gamma=0.5),
        config={k: v for k, v in make_config().items() if k != "optimizer"},
    )
    for step in range(3):
        reference(batch(step)).backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        engine.backward(engine(batch(step)))
        engine.step()
    assert schedule.get_last_lr() == scheduler.get_last_lr() == engine.get_lr()
    assert isinstance(ours, torch.optim.Optimizer)
    assert_close(weights(engine), reference.state_dict())
    engine.destroy()


def test_dataloader_with_forked_workers(open_engine, tmp_path):
    """Goal: a forked worker leaves the engine alone. Method: train from a loader with two workers,
    and let a forked child end in the ordinary way."""
    loader = torch.utils.data.DataLoader(
        [batch(i)[0] for i in range(6)], batch_size=3, num_workers=2,
        multiprocessing_context="fork",
    )  # fmt: skip
    engine = open_engine(tier="nvme")
    for tokens in loader:
        engine.backward(engine(tokens))
        engine.step()
    child = os.fork()
    if child == 0:
        gc.collect()
        engine.destroy()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert len(train_engine(engine, 2)) == 2


def test_training_data_becomes_a_loader():
    """Goal: initialize(training_data=...). Method: batch shape of the loader returned."""
    data = [batch(i)[0] for i in range(7)]
    engine, _, loader, _ = zoffload.initialize(
        model=make_toy(), training_data=data, config=make_config()
    )
    assert next(iter(loader)).shape == (3, 5)
    engine.destroy()


def test_two_engines_at_once(open_engine):
    """Goal: engines share nothing. Method: train two in turns, and one alone."""
    first, second = open_engine(tier="nvme"), open_engine(dtype="bf16")
    for step in range(3):
        train_engine(first, 1, first=step)
        train_engine(second, 1, first=step)
    alone = open_engine(tier="nvme")
    train_engine(alone, 3)
    assert_same_bits(weights(first), weights(alone))


# ---- What goes wrong -----------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nonfinite_gradients_skip_the_step_whole(open_engine, bad):
    """Goal: NaN and Inf do no harm. Method: weights, moments and counts are those of before."""
    engine = open_engine()
    train_engine(engine, 2)
    before = weights(engine)
    engine.backward(engine(batch(2)) * bad)
    engine.step()
    assert engine.skipped_steps == 1
    assert not torch.isfinite(torch.tensor(engine.get_global_grad_norm()))
    assert_same_bits(weights(engine), before)
    other = open_engine()
    train_engine(other, 2)
    train_engine(engine, 2, first=2)
    train_engine(other, 2, first=2)
    assert_same_bits(weights(engine), weights(other))


def test_changed_shape_and_moved_memory_name_the_parameter(open_engine):
    """Goal: no silent divorce of module and engine. Method: assign .data between steps."""
    engine = open_engine()
    train_engine(engine, 1)
    engine.module.head.weight.data = torch.randn(VOCAB + 1, WIDTH)
    with pytest.raises(errors.InvalidArgument, match=r"head.weight changed from \(40, 24\)"):
        train_engine(engine, 1, first=1)
    other = open_engine()
    other.module.blocks[1].up.weight.data = torch.randn(2 * WIDTH, WIDTH)
    with pytest.raises(errors.InvalidArgument, match="blocks.1.up.weight was given other memory"):
        train_engine(other, 1)


def test_sparse_gradients_are_refused_by_name(open_engine):
    """Goal: say what is not supported. Method: nn.Embedding(sparse=True)."""
    model = make_toy()
    model.embed.sparse = True
    with pytest.raises(errors.Unsupported, match="embed.weight"):
        train_engine(open_engine(model), 1)


@pytest.mark.parametrize(
    "arguments, error, text",
    [
        ({"model": None}, errors.InvalidArgument, "torch.nn.Module"),
        ({"config": None}, errors.InvalidArgument, "config"),
        ({"config": {**make_config(), "optimzer": {}}}, errors.InvalidArgument, "optimizer"),
        ({"config": {k: v for k, v in make_config().items() if k != "optimizer"}},
         errors.InvalidArgument, "optimizer"),
        ({"optimizer": torch.optim.ASGD([nn.Parameter(torch.ones(1))])},
         errors.Unsupported, "ASGD"),
        ({"model_parameters": [nn.Parameter(torch.ones(5))]}, errors.InvalidArgument, r"\(5,\)"),
    ],
)  # fmt: skip
def test_bad_arguments_of_initialize(arguments, error, text):
    """Goal: fail at construction, by name. Method: one wrong argument at a time."""
    with pytest.raises(error, match=text):
        zoffload.initialize(**{"model": make_toy(), "config": make_config(), **arguments})


def test_a_model_belongs_to_one_engine(open_engine):
    """Goal: no second engine on the same parameters. Method: initialize() twice."""
    engine = open_engine()
    with pytest.raises(errors.InvalidArgument, match="already belongs to an engine"):
        open_engine(engine.module)


def test_missing_budget_is_told_at_construction(open_engine):
    """Goal: hard budgets. Method: host_bytes far too small; the message has the bytes missing."""
    with pytest.raises(errors.OutOfMemory, match="missing.*host_bytes"):
        open_engine(host_bytes="64KiB")


def test_errors_of_the_storage_stick(open_engine, tmp_path):
    """Goal: the first error is every later call's, and destroy() still works. Method: garbage in
    the swap files between two steps."""
    engine = open_engine(tier="nvme", prefetch=0)
    train_engine(engine, 1)
    engine.settle()
    for file in tmp_path.rglob("*"):
        if file.is_file() and file.stat().st_size > 4096:
            file.write_bytes(os.urandom(file.stat().st_size))
    with pytest.raises(errors.Corruption) as first:
        train_engine(engine, 1)
    for call in (lambda: train_engine(engine, 1), engine.step, lambda: weights(engine)):
        with pytest.raises(errors.Corruption) as later:
            call()
        assert str(later.value) == str(first.value)
    engine.destroy()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_destroy_leaves_no_file_and_may_be_repeated(open_engine, tmp_path):
    """Goal: nothing stays. Method: the folder is empty; the parameters are empty, not dangling."""
    engine = open_engine(tier="nvme")
    train_engine(engine, 1)
    assert any(tmp_path.rglob("*"))
    engine.destroy()
    engine.destroy()
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(param.numel() == 0 for param in engine.module.parameters())


def test_a_forgotten_engine_is_closed(open_engine, tmp_path):
    """Goal: weakref.finalize closes. Method: drop every reference, collect, look at the folder."""
    engine, *_ = zoffload.initialize(model=make_toy(), config=make_config("nvme", tmp_path))
    train_engine(engine, 1)
    gone = weakref.ref(engine._residency)
    del engine, _
    gc.collect()
    assert gone() is None
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
