"""What training costs: bytes on the drive, as the kernel counts them, and bytes of memory."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from toys import make_config  # noqa: E402
from zoffload import _core  # noqa: E402

WIDTH = 1024
STEPS = 3


def kernel_bytes():
    """(read, written) by this process, on a drive."""
    lines = Path("/proc/self/io").read_text().splitlines()
    counts = {key: int(value) for key, value in (line.split(": ") for line in lines)}
    return counts["read_bytes"], counts["write_bytes"]


@pytest.mark.parametrize(
    "dtype, read_at_most, written_at_most",
    [
        # Read: master, two moments; the weights for forward and for backward. Written: all of it.
        pytest.param("bf16", 12 + 2 * 2, 12 + 2, id="bf16"),
        pytest.param("fp32", 12 + 2 * 4, 12, id="fp32"),
    ],
)
def test_bytes_per_parameter_and_step(open_engine, tmp_path, dtype, read_at_most, written_at_most):
    """Goal: a step with everything on NVMe moves no byte twice. Method: the kernel's counters over
    three steps of two blocks of a million parameters, in bytes per parameter; 2 % more are for the
    ends of extents. No less than the optimizer's state proves that the counters see it."""
    probe = _core.probe_path(str(tmp_path))
    if probe["is_memory"] or not probe["direct"]:
        pytest.skip(f"{tmp_path} is on {probe['file_system']} without direct I/O: nothing to count")
    engine = open_engine(
        nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)), tier="nvme", dtype=dtype
    )
    numel = sum(param.numel() for param in engine.module.parameters())
    x = torch.ones(4, WIDTH, dtype=torch.bfloat16 if dtype == "bf16" else torch.float32)

    def train(steps):
        for _ in range(steps):
            engine.backward(engine(x).float().pow(2).mean())
            engine.step()
        engine.settle()

    train(2)  # the first pages of torch, and the schedule
    before = kernel_bytes()
    train(STEPS)
    read, written = (
        (now - then) / (numel * STEPS) for now, then in zip(kernel_bytes(), before, strict=True)
    )
    assert 12 <= read <= 1.02 * read_at_most
    assert 12 <= written <= 1.02 * written_at_most


MEMORY_SCRIPT = """
    import gc, json, sys, warnings
    from pathlib import Path
    import torch, zoffload
    from torch import nn

    def resident_bytes():
        status = Path("/proc/self/status").read_text()
        return 1024 * int(status.split("VmRSS:")[1].split()[0])

    def train(model, backward, x):
        backward(model(x).pow(2).mean())

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    x = torch.ones(4, 1024)
    small = nn.Linear(1024, 1024)  # brings in what torch itself needs
    train(small, torch.Tensor.backward, x)
    torch.optim.AdamW(small.parameters()).step()
    del small
    gc.collect()
    before = resident_bytes()
    model = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(24)))
    numel = sum(param.numel() for param in model.parameters())
    engine, *_ = zoffload.initialize(model=model, config=json.loads(sys.argv[1]))
    growth = []
    for _ in range(3):
        train(engine, engine.backward, x)
        growth.append(resident_bytes() - before)
        engine.step()
        growth.append(resident_bytes() - before)
    plan = engine.plan()
    print(json.dumps({
        "numel": numel,
        "growth": max(growth),
        "host_bytes": plan["host_bytes"],
        "gathered_bytes_max": engine.stats()["gathered_bytes_max"],
        "gradient_bytes": plan["gradient_slots"][0] * plan["gradient_slots"][1],
    }))
    engine.destroy()
"""


def test_memory_stays_within_the_budget(tmp_path):
    """Goal: host_bytes is all that the engine takes, beside the buckets that are gathered and the
    gradients that leave. Method: the resident memory of a process that trains a model of 96 MiB
    whose moments are 192 MiB and gradients 96 MiB; 24 MiB are for activations, threads and unused
    pages of the allocator."""
    budget, slack = 112 << 20, 24 << 20
    config = make_config("nvme", tmp_path, host_bytes=budget, subgroup_bytes="1MiB", prefetch=1)
    process = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(MEMORY_SCRIPT), json.dumps(config)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        check=True,
    )
    seen = json.loads(process.stdout.splitlines()[-1])
    assert seen["host_bytes"] <= budget
    allowed = budget + seen["gathered_bytes_max"] + seen["gradient_bytes"] + slack
    assert allowed < 8 * seen["numel"]  # without offload it would be 16 bytes per parameter
    assert seen["growth"] <= allowed
