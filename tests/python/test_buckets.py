"""How a module is cut into buckets. Needs torch, but no engine."""

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from toys import WIDTH, Toy, make_toy  # noqa: E402
from zoffload.buckets import ROOT, cut_module, find_blocks  # noqa: E402
from zoffload.errors import InvalidArgument, Unsupported  # noqa: E402


def cut(model, trained=None):
    params = list(model.parameters()) if trained is None else trained
    return cut_module(model, {param: 0 for param in params}, torch.float32)


def names(bucket):
    return [record.name for record in bucket.records]


def test_one_bucket_per_block_and_one_for_the_rest():
    """Goal: a bucket is a block. Method: cut the toy, compare names and numbering."""
    result = cut(make_toy(blocks=2))
    assert [bucket.name for bucket in result.buckets] == [ROOT, "blocks.0", "blocks.1"]
    assert names(result.buckets[0]) == ["embed.weight", "head.weight"]
    assert [record.id for _, record in result.records] == list(range(len(list(result.records))))


def test_containers():
    """Goal: outermost containers with two parameterised children count; bare lists are never
    units, since nobody calls them. Method: odd nestings."""
    lin = lambda: nn.Linear(2, 2)  # noqa: E731
    nested = nn.ModuleList(nn.ModuleList([lin(), lin()]) for _ in range(2))
    inner = nn.Sequential(nn.Sequential(lin(), lin()), nn.ReLU(), lin())
    single = nn.Sequential(lin(), nn.ReLU())
    assert [name for name, _ in find_blocks(nested)] == ["0.0", "0.1", "1.0", "1.1"]
    assert [name for name, _ in find_blocks(inner)] == ["0", "2"]
    assert list(find_blocks(single)) == []


def test_tied_parameter_is_stored_once_and_gathered_by_all_who_use_it():
    """Goal: ties. Method: two blocks share a weight, and one shares with the root."""
    model = make_toy(blocks=3)
    model.blocks[2].up = model.blocks[0].up
    model.extra = model.blocks[1].norm
    result = cut(model)
    stored = [name for bucket in result.buckets for name in names(bucket)]
    assert len(stored) == len(set(stored)) == len(list(model.parameters()))
    needs = {unit.name: [bucket.name for bucket in unit.buckets] for unit in result.units}
    assert needs["blocks.2"] == ["blocks.0", "blocks.2"]
    assert needs["blocks.1"] == [ROOT, "blocks.1"]


def test_parameters_that_are_not_trained_get_a_bucket_of_their_own():
    """Goal: model_parameters decides, requires_grad does not. Method: train some of a block."""
    model = make_toy(blocks=2)
    model.blocks[0].up.weight.requires_grad_(False)
    trained = [p for n, p in model.named_parameters() if "norm" not in n]
    result = cut(model, trained)
    kinds = {bucket.name: bucket.trainable for bucket in result.buckets}
    assert kinds["blocks.0"] is True
    assert kinds["blocks.0 (not trained)"] is False
    frozen = next(b for b in result.buckets if b.name == "blocks.0 (not trained)")
    assert names(frozen) == ["blocks.0.norm.weight", "blocks.0.norm.bias"]


def test_bad_parameters_are_named():
    """Goal: refuse what cannot work. Method: a meta, an integer, no parameter."""
    with torch.device("meta"):
        elsewhere = Toy(blocks=1)
    with pytest.raises(Unsupported, match="embed.weight is on meta"):
        cut(elsewhere)
    model = make_toy(blocks=1)
    model.count = nn.Parameter(torch.zeros(WIDTH, dtype=torch.int32), requires_grad=False)
    with pytest.raises(Unsupported, match="count is torch.int32"):
        cut(model)
    with pytest.raises(InvalidArgument, match="no parameters"):
        cut(nn.ReLU())
