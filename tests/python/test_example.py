"""The example of examples/: its model's fp32-compute Linear, and whole runs in a subprocess."""

import json
import math
import subprocess
import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TINY = (
    "--layers 2 --width 32 --heads 2 --context 32 --batch 4 --accumulate 2 --steps 8 --lr 1e-2 "
    "--threads 1 --sample 8"
).split()
REPORT_KEYS = {
    "losses",
    "parameters",
    "parameters_sha256",
    "step_seconds",
    "peak_resident_bytes",
    "resident_bytes_before_engine",
    "bytes_by_tier",
    "host_bytes",
    "host_bytes_high_water",
    "read_bytes_per_step",
    "written_bytes_per_step",
    "engine_read_bytes_per_step",
    "engine_written_bytes_per_step",
}


@pytest.fixture(scope="module")
def gpt():
    """The module examples/gpt.py, which is not part of any package."""
    sys.path.insert(0, str(EXAMPLES))
    try:
        import gpt
    finally:
        sys.path.remove(str(EXAMPLES))
    return gpt


@pytest.fixture
def linear_operands():
    """x [2, 5, 48], weight [24, 48] and the output's gradient [2, 5, 24], all bf16."""
    generator = torch.Generator().manual_seed(1)
    shapes = [(2, 5, 48), (24, 48), (2, 5, 24)]
    return [torch.randn(shape, generator=generator).bfloat16() for shape in shapes]


def run_example(*arguments):
    """Runs the program with fixed tiny sizes; later arguments win over earlier ones."""
    command = [sys.executable, str(EXAMPLES / "train_gpt.py"), *TINY, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def train(tmp_path, *arguments):
    """The report of a tiny run on plain torch."""
    report = tmp_path / "report.json"
    done = run_example("--engine", "torch", "--report", report, *arguments)
    assert done.returncode == 0, done.stderr
    return json.loads(report.read_text())


@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_report_is_complete_and_loss_falls(tmp_path, dtype):
    # Goal: a run trains, and its report says all that later comparisons need.
    # Method: a tiny run; check the keys, a list entry per step, and the first and last loss.
    report = train(tmp_path, "--dtype", dtype)
    assert report.keys() >= REPORT_KEYS
    for key in ("losses", "step_seconds", "read_bytes_per_step", "engine_read_bytes_per_step"):
        assert len(report[key]) == report["steps"] == 8
    assert report["losses"][0] == pytest.approx(math.log(256), abs=0.5)
    assert report["losses"][-1] < report["losses"][0] - 1.0
    assert report["peak_resident_bytes"] >= report["resident_bytes_before_engine"] > 0
    assert set(report["bytes_by_tier"]) == {"hbm", "host", "nvme"}
    # Parameter, gradient and two moments in fp32; for bf16, masters as well.
    state_bytes = {"fp32": 4 + 4 + 8, "bf16": 2 + 4 + 4 + 8}[dtype]
    assert report["bytes_by_tier"]["host"] == report["parameters"] * state_bytes


def test_same_seed_same_bits(tmp_path):
    # Goal: a run is a function of its seed, so that runs on different tiers compare by hash.
    # Method: two runs with one seed must agree in losses and hash, a third with another in neither.
    first, second = train(tmp_path, "--seed", 7), train(tmp_path, "--seed", 7)
    other = train(tmp_path, "--seed", 8)
    assert first["losses"] == second["losses"]
    assert first["parameters_sha256"] == second["parameters_sha256"]
    assert first["losses"] != other["losses"]
    assert first["parameters_sha256"] != other["parameters_sha256"]


def test_checkpointing_changes_no_bit(tmp_path):
    # Goal: --checkpoint trades time for memory and nothing else.
    # Method: the same run with and without it ends with the same hash.
    plain, checkpointed = train(tmp_path), train(tmp_path, "--checkpoint")
    assert plain["parameters_sha256"] == checkpointed["parameters_sha256"]


def test_clipping_is_on_only_when_asked_for(tmp_path):
    # Goal: --clip reaches the optimizer, and 0 turns it off.
    # Method: a bound that no gradient reaches equals no bound; one so small that Adam's eps
    # outweighs every gradient all but stops the training.
    off, loose = train(tmp_path, "--clip", 0), train(tmp_path, "--clip", 1e9)
    tight = train(tmp_path, "--clip", 1e-9)
    assert off["parameters_sha256"] == loose["parameters_sha256"]
    assert tight["losses"][-1] > tight["losses"][0] - 0.5


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--params", "nvme"], "--nvme-path"),
        (["--engine", "torch", "--host-bytes", "1GiB"], "--host-bytes"),
        (["--width", "33"], "--heads"),
        (["--host-bytes", "plenty"], "256MiB"),
        (["--steps", "0"], "at least 1"),
        (["--optimizer", "nvme", "--nvme-path", "/no/such/folder"], "/no/such/folder"),
    ],
)
def test_bad_arguments_are_refused_by_name(arguments, complaint):
    # Goal: nothing is accepted and then ignored.
    # Method: each contradiction ends the program with a usage error that names the setting.
    done = run_example(*arguments)
    assert done.returncode == 2
    assert complaint in done.stderr


def test_fp32_linear_is_linear(gpt, linear_operands):
    # Goal: the fp32-compute Linear returns F.linear's output and gradients, rounded to bf16.
    # Method: compare with autograd on fp32 copies; half a unit in bf16's last place is 2**-9.
    x, weight, grad = linear_operands
    ours = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
    exact = [x.float().requires_grad_(), weight.float().requires_grad_()]
    y = gpt.Fp32ComputeLinear.apply(*ours)
    expected = torch.nn.functional.linear(*exact)
    y.backward(grad)
    expected.backward(grad.float())
    pairs = [(y, expected), *((a.grad, b.grad) for a, b in zip(ours, exact, strict=True))]
    for actual, wanted in pairs:
        assert actual.dtype == torch.bfloat16
        torch.testing.assert_close(actual.float(), wanted, rtol=2**-8, atol=1e-5)


def test_fp32_linear_saves_no_fp32_copy(gpt, linear_operands):
    # Goal: what waits for backward is the bf16 weight itself; an fp32 copy would triple the model.
    # Method: watch what autograd saves; the plain expression, watched the same way, must be caught.
    x, weight, _ = linear_operands
    weight.requires_grad_()

    def saved_by(function):
        saved = []
        keep = torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t) or t, lambda t: t)
        with keep:
            function(x.clone().requires_grad_(), weight)
        return saved

    ours = saved_by(gpt.Fp32ComputeLinear.apply)
    assert [tensor.dtype for tensor in ours] == [torch.bfloat16, torch.bfloat16]
    assert weight.data_ptr() in {tensor.data_ptr() for tensor in ours}

    plain = saved_by(lambda x, w: torch.nn.functional.linear(x.float(), w.float()))
    assert torch.float32 in {tensor.dtype for tensor in plain}


def test_linear_setting_chooses_the_arithmetic(gpt):
    # Goal: `compute_fp32` decides, and only it, whether layers compute in fp32; both ways train.
    # Method: look for the autograd function in the graph of a whole model's loss; compare losses.
    def functions(node, seen):
        if node is not None and node not in seen:
            seen.add(node)
            for following, _ in node.next_functions:
                functions(following, seen)
        return {type(node).__name__ for node in seen}

    tokens = torch.zeros(1, 4, dtype=torch.long)
    losses = []
    for compute_fp32 in (False, True):
        shape = dict(context=8, layers=1, heads=2, width=16, compute_fp32=compute_fp32)
        loss = gpt.build_gpt(gpt.GPTConfig(**shape), seed=0)(tokens, tokens)
        assert ("Fp32ComputeLinearBackward" in functions(loss.grad_fn, set())) == compute_fp32
        loss.backward()
        losses.append(loss.item())
    assert losses[0] == pytest.approx(losses[1], rel=2**-8)


def test_native_bf16_is_read_from_the_flags(gpt, tmp_path):
    # Goal: slow bf16 products are avoided exactly where the CPU lacks the instructions.
    # Method: fake /proc/cpuinfo files, one of them with a flag that only begins alike.
    cpuinfo = tmp_path / "cpuinfo"
    for flags, native in [("avx2 avx512_bf16", True), ("amx_bf16", True), ("avx512_bf160", False)]:
        cpuinfo.write_text(f"processor : 0\nflags : fpu {flags}\n")
        assert gpt.cpu_has_native_bf16(str(cpuinfo)) == native
    assert not gpt.cpu_has_native_bf16(str(tmp_path / "absent"))
