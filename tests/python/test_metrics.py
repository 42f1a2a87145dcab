"""Where time and bytes went: the figures of a step, their sinks, and the report for people."""

import csv
import subprocess
import sys
import warnings

import pytest

torch = pytest.importorskip("torch")

import zoffload  # noqa: E402
from optim_toys import Net, gradients, place, train  # noqa: E402
from toys import make_toy, train_engine  # noqa: E402
from zoffload import errors, metrics  # noqa: E402

NUMEL = sum(p.numel() for p in Net().parameters())


@pytest.fixture
def opt(tmp_path):
    """Level 1 with all state on NVMe, after two steps of the toy."""
    net = Net()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opt = zoffload.AdamW(net.parameters(), offload=place("nvme", tmp_path))
    train(net, opt, 2)
    yield opt
    opt.close()


def numbers(step, prefix):
    return {key: value for key, value in step.items() if key.startswith(prefix + "/")}


def test_a_settled_step_has_its_own_traffic(opt):
    """Level 1 returns when its updates are home, so a step's report has all of them. Method: the
    state is read and written once, whole subgroups of it."""
    step = metrics.last_step(opt)
    assert step["step"] == 2
    for role in ("exp_avg", "exp_avg_sq"):
        assert step[f"bytes/nvme_to_host/{role}"] >= NUMEL * 4
        assert step[f"bytes/nvme_to_host/{role}"] == step[f"bytes/host_to_nvme/{role}"]
    total = step["bytes/nvme_to_host"]
    assert total == sum(numbers(step, "bytes/nvme_to_host").values())
    assert opt._cores[0].stats()["loaded_bytes"]["nvme"] == 2 * total


def test_parts_make_the_whole(opt):
    """Times add up and stay within the step; one resource bounds it. Method: the last step's dict,
    whose values must be what a logger takes."""
    step = metrics.last_step()
    assert step == metrics.last_step(opt)
    assert sum(numbers(step, "stall_seconds").values()) == pytest.approx(step["stall_seconds"])
    assert sum(numbers(step, "seconds").values()) == pytest.approx(step["seconds"])
    assert 0 < step["stall_seconds"] <= step["seconds"]
    for resource, seconds in numbers(step, "busy_seconds").items():
        assert 0 <= seconds <= step["seconds"], resource
    assert step["bound_seconds"] == max(numbers(step, "bound_seconds").values())
    assert step["bound_seconds"] == step["bound_seconds/" + step["bound_by"]]
    assert 0 < step["share_of_bound"] <= 1
    assert step["memory_bytes_per_second"] > 0
    assert all(isinstance(value, (int, float, str)) for value in step.values())


def test_the_engine_counts_too(open_engine):
    """Level 2: parameters go up, gradients down, state both ways. Method: three steps from
    NVMe; settle() takes the last one's updates into it."""
    engine = open_engine(tier="nvme", dtype="bf16")
    assert metrics.last_step(engine) == {}
    train_engine(engine, 3)
    engine.settle()
    step = metrics.last_step(engine)
    assert step["step"] == 3
    assert step["bytes/host_to_device/param"] > 0
    assert step["bytes/device_to_host/grad"] > 0
    assert step["bytes/nvme_to_host/master"] > 0
    assert step == metrics.last_step(engine.optimizer)


def test_reports_leave_nothing_out(open_engine):
    """The sum over all steps is what was counted since the start. Method: bytes of every step, and
    the last one again after settle(), which takes its updates into it."""
    engine = open_engine(tier="nvme")
    loaded = []
    for step in range(3):
        train_engine(engine, 1, first=step)
        loaded.append(metrics.last_step(engine).get("bytes/nvme_to_host", 0))
    engine.settle()
    loaded[-1] = metrics.last_step(engine)["bytes/nvme_to_host"]
    assert sum(loaded) == engine.stats()["loaded_bytes"]["nvme"]


def test_several_engines_of_one_optimizer_are_added_up(tmp_path):
    """Parameters that were given later have an engine of their own. Method: two equal groups move
    twice the bytes of one."""
    first, second = torch.zeros(5000), torch.zeros(5000)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        opt = zoffload.AdamW([first.requires_grad_()], offload=place("nvme", tmp_path))
        first.grad = gradients(1, (5000,))[0][0]
        opt.step()
        one = metrics.last_step(opt)["bytes/nvme_to_host"]
        opt.add_param_group({"params": [second.requires_grad_()]})
    second.grad = first.grad.clone()
    opt.step()
    assert metrics.last_step(opt)["bytes/nvme_to_host"] == 2 * one
    opt.close()


def test_prometheus_names_and_values(opt, tmp_path):
    """Base units, documented names, and a file that is replaced whole. Method: parse the text."""
    metrics.write_prometheus(tmp_path / "zoffload.prom")
    text = (tmp_path / "zoffload.prom").read_text()
    values = {}
    for line in text.splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            values[name] = float(value)
    for name in {name.split("{")[0] for name in values}:
        assert f"# TYPE {name} " in text
        assert f"# HELP {name} " in text
    step = metrics.last_step(opt)
    moved = 'zoffload_bytes_total{from="nvme",to="host",role="exp_avg"}'
    assert values[moved] >= 2 * step["bytes/nvme_to_host/exp_avg"]
    assert values['zoffload_resident_bytes{tier="nvme",role="exp_avg"}'] >= NUMEL * 4
    assert values['zoffload_step_seconds{phase="step"}'] > 0
    assert values['zoffload_stall_seconds_total{why="disk"}'] >= 0
    assert any(name.startswith("zoffload_ssd_written_bytes_total{path=") for name in values)
    assert [p.name for p in tmp_path.iterdir() if p.name.endswith(".tmp")] == []


def test_csv_has_a_row_per_step(opt, tmp_path):
    """Method: two rows, the second with a column more and one less."""
    with metrics.CsvWriter(tmp_path / "steps.csv") as writer:
        writer.write()
        writer.write({"step": 3, "new": 1})
    with open(tmp_path / "steps.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["step"] for row in rows] == ["2", "3"]
    assert float(rows[0]["seconds"]) == metrics.last_step(opt)["seconds"]
    assert rows[1]["seconds"] == ""


def test_tensorboard_gets_scalars(opt):
    """Method: a writer that notes what it is given."""
    given = {}

    class Writer:
        def add_scalar(self, tag, value, step):
            given[tag] = value
            assert step == 2

    metrics.add_scalars(Writer())
    assert given["zoffload/seconds"] == metrics.last_step(opt)["seconds"]
    assert "zoffload/bound_by" not in given


def test_the_report_is_there_after_the_end(opt):
    """Method: the text before the first step, after two, and after close()."""
    text = opt.report()
    assert "2 steps" in text
    assert "bound by" in text
    assert "nvme to host" in text
    opt.close()
    assert "2 steps" in opt.report()
    assert metrics.last_step(opt)["step"] == 2


def test_an_engine_reports(open_engine):
    engine = open_engine()
    assert engine.report() == "zoffload: no step yet"
    train_engine(engine, 1)
    assert "1 steps" in engine.report()


def test_skipped_steps_are_counted(tmp_path):
    """Method: one step with an infinite gradient."""
    net = Net()
    opt = zoffload.AdamW(net.parameters(), offload="cpu", skip_nonfinite=True)
    for p in net.parameters():
        p.grad = torch.full_like(p, float("inf"))
    opt.step()
    assert opt._metrics.books()[0]["skipped_step_count"] == 1
    opt.close()


def test_bad_input():
    with pytest.raises(errors.InvalidArgument, match="neither an optimizer"):
        metrics.last_step(make_toy())


def test_import_needs_no_torch():
    """Method: a fresh interpreter."""
    code = (
        "import sys, zoffload.metrics, zoffload.tracing, zoffload; zoffload.trace;"
        "assert 'torch' not in sys.modules; assert zoffload.metrics.last_step() == {};"
        "assert zoffload.metrics.prometheus_text() == ''"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
