"""Ctrl-C and other exceptions that come between any two lines."""

import itertools
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import zoffload  # noqa: E402
from torch import nn  # noqa: E402
from toys import (  # noqa: E402
    assert_nothing_is_leased,
    assert_released,
    assert_same_bits,
    batch,
    make_toy,
    train_engine,
    weights,
)
from zoffload.zero import GatheredParameters  # noqa: E402

PACKAGE = str(Path(zoffload.__file__).parent)


def interrupted(work, at):
    """Runs work(), with a KeyboardInterrupt before the line of the package that comes after `at`
    others. Returns the number of lines that were run."""
    count = 0

    def trace(frame, event, _):
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            count += 1
            if count - 1 == at:
                raise KeyboardInterrupt
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        pass
    finally:
        sys.settrace(before)
        torch.set_grad_enabled(True)  # torch's own contexts can be cut short too
    return count


@pytest.mark.parametrize("forget", [True, False])
def test_training_goes_on_after_an_interrupt_at_any_line(open_engine, forget):
    """Goal: an interrupt loses no slot, no lease and no weight. Method: interrupt a forward and its
    backward before the 1st, 12th, 23rd... line of ours. Every few times: zero_grad(), and a step
    with the same bits as undisturbed training; or a step with what had arrived."""
    plain, engine = open_engine(make_toy(blocks=2)), open_engine(make_toy(blocks=2))
    train_engine(plain, 1)
    train_engine(engine, 1)

    def work():
        with GatheredParameters(engine.module.head.weight):
            engine.backward(engine(batch(9)))

    for number in itertools.count():
        at = 11 * number
        if interrupted(work, at) <= at:
            break  # it was done before
        if number % 5 != 0:
            continue
        if forget:
            engine.zero_grad()
            train_engine(plain, 1, first=number)
            train_engine(engine, 1, first=number)
        else:
            engine.step()
        assert_nothing_is_leased(engine)
        assert_released(engine)
    assert at > 500
    engine.zero_grad()
    train_engine(plain, 1)
    train_engine(engine, 1)
    if forget:
        assert_same_bits(weights(engine), weights(plain))
    assert all(value.isfinite().all() for value in weights(engine).values())


class Deep(nn.Module):
    """Blocks of three layers, on a constant: that all gradients arrived ends their backward."""

    def __init__(self):
        super().__init__()
        layers = (nn.Sequential(*(nn.Linear(8, 8) for _ in range(3))) for _ in range(2))
        self.blocks = nn.ModuleList(nn.ModuleDict({"inner": layer}) for layer in layers)
        for block in self.blocks:
            block.forward = block["inner"].forward

    def forward(self, x):
        return sum(block(x).pow(2).mean() for block in self.blocks)


def test_a_backward_after_one_that_was_interrupted_at_its_end(open_engine):
    """Goal: what arrived in one backward does not count in the next. Method: interrupt at each of
    the last lines; the next backward, and its step, are sound."""
    engine = open_engine(Deep())
    x = torch.ones(2, 8)

    def work():
        engine.backward(engine(x))

    line_count = interrupted(work, at=-1)
    assert line_count > 100
    for at in range(line_count - 60, line_count):
        engine.zero_grad()
        interrupted(work, at)
        work()
        engine.step()
        assert engine.skipped_steps == 0, at
