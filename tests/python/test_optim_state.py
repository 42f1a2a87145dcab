"""Level 1: state_dict() and load_state_dict(), to torch and back."""

import copy

import pytest
import torch
import zoffload
from optim_toys import (
    MIXED,
    Net,
    assert_close,
    feed,
    gradients,
    place,
    same_bits,
    train,
    values,
)
from torch import nn


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("weights_first", [True, False])
def test_state_moves_between_placements(tmp_path, dtype, weights_first):
    """Method: a run of 6 steps that moves after 3, against one that does not; a clip and a group's
    setting come along. The weights are loaded before or after the state."""
    net = Net(dtype)
    with zoffload.AdamW(net.parameters(), lr=0.01) as opt:
        train(net, opt, 3)
        saved = copy.deepcopy((net.state_dict(), opt.state_dict()))
        opt.param_groups[0]["lr"] = 0.02
        train(net, opt, 3, first=3)
        expected = values(net)
    saved[1]["param_groups"][0]["lr"] = 0.02
    for placement in ("cpu", "nvme", MIXED):
        again = Net(dtype)
        with zoffload.AdamW(again.parameters(), offload=place(placement, tmp_path)) as opt:
            train(again, opt, 2)  # whatever was there is replaced
            if weights_first:
                again.load_state_dict(saved[0])
            opt.load_state_dict(saved[1])
            if not weights_first:
                again.load_state_dict(saved[0])
            train(again, opt, 3, first=3)
            same_bits(values(again), expected)
            assert opt.state_dict()["state"][0]["step"] == 6


def test_state_of_torch_and_back(tmp_path):
    """Method: torch, ours, torch, three steps each; against torch alone."""
    alone, net = Net(), Net()
    train(alone, torch.optim.AdamW(alone.parameters(), lr=0.01, fused=True), 9)
    first = torch.optim.AdamW(net.parameters(), lr=0.01, fused=True)
    train(net, first, 3)
    with zoffload.AdamW(net.parameters(), offload=place(MIXED, tmp_path)) as ours:
        ours.load_state_dict(first.state_dict())
        train(net, ours, 3, first=3)
        state = ours.state_dict()
    last = torch.optim.AdamW(net.parameters())
    last.load_state_dict(state)
    train(net, last, 3, first=6)
    assert_close(values(net), values(alone))
    assert last.state_dict()["state"][0]["step"] == 9
    assert state["param_groups"][0].keys() == last.state_dict()["param_groups"][0].keys()
    assert state["state"][0].keys() == last.state_dict()["state"][0].keys()


def test_bf16_state_of_torch():
    """It has no master: the weight is it. Method: what was left in ours must not show; two
    optimizers of different pasts go on alike."""
    source = Net(torch.bfloat16)
    torch_opt = torch.optim.AdamW(source.parameters(), lr=0.01)
    train(source, torch_opt, 2)
    runs = []
    for past in (0, 3):
        net = Net(torch.bfloat16)
        with zoffload.AdamW(net.parameters(), lr=0.01) as opt:
            train(net, opt, past)
            opt.load_state_dict(torch_opt.state_dict())
            assert "master" not in opt.state_dict()["state"][0]
            net.load_state_dict(source.state_dict())
            train(net, opt, 2, first=2)
        runs.append(values(net))
    same_bits(*runs)


def test_weights_count_more_than_their_master():
    """Method: a bf16 state is loaded, but not the weights it belongs to."""
    p, q = (nn.Parameter(torch.full((5,), x, dtype=torch.bfloat16)) for x in (1.0, 7.0))
    with zoffload.AdamW([p], lr=0.01) as first, zoffload.AdamW([q], lr=0.01) as second:
        feed(first, [p], gradients(1, 5))
        second.load_state_dict(first.state_dict())
        feed(second, [q], gradients(1, 5))
    assert (q > 6.8).all()


def test_state_of_frozen_parameters():
    """A parameter that is frozen here, but was not there. Method: unfrozen, it goes on alike."""
    by_step = gradients(4, 5)
    runs = []
    for frozen in (True, False):
        p, q = nn.Parameter(torch.ones(5)), nn.Parameter(torch.ones(5))
        with zoffload.AdamW([p], lr=0.1) as first:
            feed(first, [p], by_step[:2])
            with torch.no_grad():
                q.copy_(p)
            q.requires_grad_(not frozen)
            with zoffload.AdamW([q], lr=0.1) as second:
                second.load_state_dict(first.state_dict())
                q.requires_grad_()
                feed(second, [q], by_step[2:])
        runs.append([q])
    same_bits(*runs)


def test_state_of_a_new_optimizer_resets():
    """What a state_dict does not list starts anew."""
    runs = []
    for past in (0, 3):
        p = nn.Parameter(torch.ones(5))
        with zoffload.AdamW([p], lr=0.1) as opt:
            new = opt.state_dict()
            feed(opt, [p], gradients(past, 5))
            opt.load_state_dict(new)
            assert opt.state_dict()["state"] == {}
            with torch.no_grad():
                p.fill_(1)
            feed(opt, [p], gradients(2, 5))
        runs.append([p])
    same_bits(*runs)


def test_state_dict_hooks():
    """The user's hooks run, and those after a load find the state loaded."""
    p = nn.Parameter(torch.ones(3))
    with zoffload.AdamW([p]) as opt:
        feed(opt, [p], gradients(1, 3))
        seen = []
        opt.register_state_dict_post_hook(lambda _, state: seen.append(list(state["state"])))
        opt.register_load_state_dict_pre_hook(lambda _, s: {**s, "state": {}})
        opt.register_load_state_dict_post_hook(lambda o: seen.append(o.state_dict()["state"]))
        opt.load_state_dict(opt.state_dict())
    assert seen == [[0], [], {}]


def test_names_in_param_groups():
    """torch's named parameters survive the round trip."""
    net = Net()
    with zoffload.AdamW(net.named_parameters(), lr=0.01) as opt:
        train(net, opt, 1)
        state = opt.state_dict()
        assert state["param_groups"][0]["param_names"][0] == "scale"
        opt.load_state_dict(state)
        train(net, opt, 1, first=1)
        assert opt.state_dict()["state"][0]["step"] == 2
