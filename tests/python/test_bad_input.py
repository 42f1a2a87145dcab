"""Goal: what cannot work is an error at construction that names the culprit and what to do, and
leaves nothing behind.

Method: the optimizer is given one bad thing at a time.
"""

import os
import re
import subprocess
import sys

import pytest
import torch
import zoffload
from torch import nn
from zoffload.errors import Error, InvalidArgument, OutOfMemory, Unsupported
from zoffload.placement import NvmeConfig, OffloadConfig

KIB48 = 48 << 10  # the state of the smallest subgroup


def parameter(*shape, dtype=torch.float32, **kwargs):
    values = torch.ones(*shape, dtype=dtype, **kwargs)
    return nn.Parameter(values, requires_grad=dtype.is_floating_point)


# ---- nvme_path


def test_nvme_path_missing(tmp_path):
    with pytest.raises(ValueError, match="nvme_path is missing"):
        zoffload.AdamW([parameter(3)], offload="nvme")
    with pytest.raises(InvalidArgument, match="nvme_path.*absent"):
        zoffload.AdamW([parameter(3)], offload="nvme", nvme_path=tmp_path / "absent")
    assert list(tmp_path.iterdir()) == []


def test_nvme_path_is_a_file(tmp_path):
    file = tmp_path / "file"
    file.write_text("mine")
    with pytest.raises(InvalidArgument, match=re.escape(str(file))):
        zoffload.AdamW([parameter(3)], offload="nvme", nvme_path=file)
    assert file.read_text() == "mine"


def test_one_bad_path_of_two(tmp_path):
    """Method: the good path comes first; nothing may stay in it."""
    good = tmp_path / "good"
    good.mkdir()
    with pytest.raises(InvalidArgument, match="absent"):
        zoffload.AdamW([parameter(3)], offload="nvme", nvme_path=[good, tmp_path / "absent"])
    assert list(good.iterdir()) == []


@pytest.fixture
def readonly_folder(tmp_path):
    """A folder that nobody may write to: by its mode, or for root, by a mount."""
    folder = tmp_path / "readonly"
    folder.mkdir()
    if os.geteuid() != 0:
        folder.chmod(0o555)
        yield folder
        folder.chmod(0o755)
        return
    mount = ["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", str(folder)]
    try:
        done = subprocess.run(mount, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("root may write anywhere, and there is no mount program")
    if done.returncode != 0:
        pytest.skip(f"root may write anywhere, and cannot mount here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_nvme_path_is_read_only(readonly_folder):
    with pytest.raises((InvalidArgument, OSError), match=re.escape(str(readonly_folder))):
        zoffload.AdamW([parameter(3)], offload="nvme", nvme_path=readonly_folder)


def test_memory_is_no_drive_unless_it_is_allowed():
    """Goal: tmpfs takes the memory that offload should save. Method: /dev/shm, then with leave."""
    if not os.path.isdir("/dev/shm"):
        pytest.skip("no /dev/shm here")
    with pytest.raises(InvalidArgument, match="/dev/shm is on tmpfs.*allow_memory_paths"):
        zoffload.AdamW([parameter(3)], offload="nvme", nvme_path="/dev/shm")
    offload = OffloadConfig("nvme", nvme=NvmeConfig("/dev/shm", allow_memory_paths=True))
    with zoffload.AdamW([parameter(3)], offload=offload):
        pass


JOB = """
import sys, torch, zoffload
p = torch.nn.Parameter(torch.full((20000,), float(sys.argv[2])))
opt = zoffload.AdamW([p], lr=0.1, offload="nvme", nvme_path=sys.argv[1])
print("open", flush=True)
for _ in sys.stdin:
    p.grad = p.detach().clone()
    opt.step()
    print("stepped", flush=True)
print(p.double().sum().item())
"""


def test_two_jobs_on_one_path(tmp_path):
    """Neither sees the other's state, and the first to end leaves the other's files alone.
    Method: two processes in lockstep with a third that runs alone."""

    def start(value):
        command = [sys.executable, "-c", JOB, str(tmp_path), str(value)]
        job = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert job.stdout.readline() == "open\n"
        return job

    def step(job):
        job.stdin.write("step\n")
        job.stdin.flush()
        assert job.stdout.readline() == "stepped\n"

    def finish(job):
        out, _ = job.communicate()
        assert job.returncode == 0
        return float(out)

    first, second = start(2), start(3)
    for _ in range(3):
        step(first)
        step(second)
    assert len(list(tmp_path.iterdir())) == 2
    first_sum = finish(first)
    step(second)
    finish(second)
    assert list(tmp_path.iterdir()) == []
    alone = start(2)
    for _ in range(3):
        step(alone)
    assert finish(alone) == first_sum


# ---- Budgets


def test_budget_too_small():
    """The error gives the missing bytes. Method: with so many it opens, with one less not."""
    params = [parameter(100_000)]
    with pytest.raises(MemoryError, match="host_bytes") as error:
        zoffload.AdamW(params, host_bytes=100_000)
    missing = int(re.search(r"(\d+) bytes are missing", str(error.value))[1])
    with zoffload.AdamW(params, host_bytes=100_000 + missing) as opt:
        assert opt.plan().host_bytes <= 100_000 + missing
    with pytest.raises(OutOfMemory):
        zoffload.AdamW(params, host_bytes=100_000 + missing - 1)


def test_budget_for_a_later_group():
    """Later parameters get what the first ones left, and a refused group is not kept."""
    with zoffload.AdamW([parameter(4096)], host_bytes=64 << 10) as opt:
        with pytest.raises(OutOfMemory, match="host_bytes"):
            opt.add_param_group({"params": [parameter(8192)]})
        assert len(opt.param_groups) == 1
        opt.add_param_group({"params": [parameter(10)]})
        assert opt.plan().host_bytes <= 64 << 10
        with pytest.raises(OutOfMemory, match="host_bytes"):
            opt.add_param_group({"params": [parameter(10)]})


# ---- Parameters


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_dtypes_are_refused_by_name(dtype):
    names = [("good", parameter(3)), ("bad.weight", parameter(3, dtype=dtype))]
    with pytest.raises(Unsupported, match=f"bad.weight.*{dtype}"):
        zoffload.AdamW(names)


def test_complex_and_integers():
    complex_parameter = nn.Parameter(torch.ones(3, dtype=torch.complex64))
    with pytest.raises(Unsupported, match="parameter 0 of group 0.*complex64"):
        zoffload.AdamW([complex_parameter])
    whole = parameter(3, dtype=torch.int64)
    with zoffload.AdamW([parameter(2), whole]) as opt:  # it is frozen: torch takes it too
        opt.step()


def test_other_devices():
    with pytest.raises(Unsupported, match="parameter 0 of group 0.*meta"):
        zoffload.AdamW([parameter(3, device="meta")])


def test_views_with_holes():
    base = torch.ones(4, 4)
    with pytest.raises(Unsupported, match="strided view"):
        zoffload.AdamW([nn.Parameter(base[:, :2])])
    with pytest.raises(Unsupported, match="strided view"):
        zoffload.AdamW([nn.Parameter(torch.ones(1).expand(4))])


def test_parameters_of_one_memory():
    base = torch.ones(10)
    named = [("a", nn.Parameter(base[:6])), ("b", nn.Parameter(base[5:]))]
    with pytest.raises(InvalidArgument, match="a .* and b .* share memory"):
        zoffload.AdamW(named)
    with zoffload.AdamW([nn.Parameter(base[:5]), nn.Parameter(base[5:])]) as opt:
        with pytest.raises(InvalidArgument, match="share memory"):
            opt.add_param_group({"params": [nn.Parameter(base)]})


def test_sparse_gradients():
    """Refused before anything is updated."""
    table = nn.Embedding(5, 2, sparse=True)
    weight = parameter(3)
    with zoffload.AdamW([("weight", weight), ("table", table.weight)]) as opt:
        table(torch.tensor([1])).sum().backward()
        weight.grad = torch.ones(3)
        with pytest.raises(Unsupported, match="gradient of parameter table .* sparse"):
            opt.step()
        assert torch.equal(weight, torch.ones(3))
        table.weight.grad = None
        opt.step()
        assert not torch.equal(weight, torch.ones(3))


# ---- Settings


@pytest.mark.parametrize(
    "name",
    [
        "amsgrad",
        "maximize",
        "foreach",
        "capturable",
        "differentiable",
        "fused",
    ],
)
def test_torch_settings_are_refused_by_name(name):
    with pytest.raises(NotImplementedError, match=name):
        zoffload.AdamW([parameter(3)], **{name: True})
    with pytest.raises(Unsupported, match=name):
        zoffload.Adam([{"params": [parameter(3)], name: True}])
    with zoffload.AdamW([parameter(3)], amsgrad=False, fused=None) as opt:
        opt.param_groups[0][name] = True
        with pytest.raises(Unsupported, match=f"{name}=True in parameter group 0"):
            opt.step()


def test_unknown_argument():
    with pytest.raises(TypeError, match="momentum"):
        zoffload.AdamW([parameter(3)], momentum=0.9)


@pytest.mark.parametrize(
    "settings, says",
    [
        ({"lr": -1.0}, "lr=-1.0"),
        ({"lr": float("nan")}, "lr=nan"),
        ({"eps": -1e-8}, "eps"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"betas": (0.9, 1.0)}, "betas"),
        ({"betas": (-0.1, 0.9)}, "betas"),
        ({"betas": (0.9,)}, "betas"),
        ({"max_grad_norm": -1.0}, "max_grad_norm"),
        ({"max_grad_norm": "1"}, "max_grad_norm"),
        ({"offload": "tape"}, "tape"),
    ],
)
def test_bad_settings(settings, says):
    with pytest.raises(ValueError, match=says) as error:
        zoffload.AdamW([parameter(3)], **settings)
    assert isinstance(error.value, Error)


def test_torch_own_complaints():
    with pytest.raises(ValueError, match="empty parameter list"):
        zoffload.AdamW([])
    p = parameter(3)
    with pytest.raises(ValueError, match="more than one parameter group"):
        zoffload.AdamW([{"params": [p]}, {"params": [p]}])


# ---- state_dict


@pytest.mark.parametrize(
    "spoil, says",
    [
        (lambda s: s["state"][0].pop("exp_avg"), "has no 'exp_avg'"),
        (lambda s: s["state"][0].pop("step"), "has no 'step'"),
        (lambda s: s["state"][0].update(exp_avg_sq=torch.zeros(4)), "exp_avg_sq of parameter"),
        (lambda s: s["state"][0].update(step=torch.tensor(-1.0)), "step -1"),
        (lambda s: s["state"][0].update(step=torch.tensor(1.5)), "step 1.5"),
        (lambda s: s["param_groups"][0].update(amsgrad=True), "amsgrad"),
        (lambda s: s["param_groups"][0]["params"].append(7), "size"),
        (lambda s: s["param_groups"].append(s["param_groups"][0]), "number"),
    ],
)
def test_bad_state_changes_nothing(spoil, says):
    """Method: the state after the refused load is the state before."""
    p = parameter(3)
    with zoffload.AdamW([p], lr=0.1) as opt:
        p.grad = torch.ones(3)
        opt.step()
        before, given = opt.state_dict(), opt.state_dict()
        given["state"][0]["exp_avg"] += 1
        given["param_groups"][0]["lr"] = 0.5
        spoil(given)
        with pytest.raises((ValueError, Unsupported), match=says):
            opt.load_state_dict(given)
        after = opt.state_dict()
        assert torch.equal(after["state"][0]["exp_avg"], before["state"][0]["exp_avg"])
        assert after["param_groups"] == before["param_groups"]


def test_state_dict_does_not_fit(tmp_path):
    """Method: moments that need more than the budget, on NVMe."""
    p = parameter(200_000)
    config = OffloadConfig("nvme", subgroup_bytes=KIB48, host_bytes="512KiB", threads=1)
    with zoffload.AdamW([p], offload=config, nvme_path=tmp_path) as opt:
        p.grad = torch.ones(200_000)
        opt.step()
        with pytest.raises(OutOfMemory, match="1600000 bytes.*zoffload.checkpoint.*not available"):
            opt.state_dict()


def test_closed():
    p = parameter(3)
    opt = zoffload.AdamW([p])
    opt.close()
    opt.close()
    p.grad = torch.ones(3)
    for call in (
        opt.step,
        opt.state_dict,
        lambda: opt.load_state_dict({"state": {}, "param_groups": []}),
        lambda: opt.add_param_group({"params": [parameter(2)]}),
    ):
        with pytest.raises(InvalidArgument, match="closed"):
            call()
    assert torch.equal(p, torch.ones(3))
