"""The config reader as Python sees it. The rules themselves are tested in C++."""

import subprocess
import sys

import pytest

zoffload = pytest.importorskip("zoffload")
from zoffload import _core, errors  # noqa: E402

GOOD = '{"train_batch_size": 4, "zero_optimization": {"stage": 3}, "bf16": {"enabled": true}}'


def test_values_cross_the_boundary():
    """Goal: the parsed values are what Python sees. Method: one file, a few fields."""
    config = _core.parse_config(GOOD, 1)
    assert config.dtype == "bf16"
    assert config.train_micro_batch_size_per_gpu == 4
    assert sum(config.params) == pytest.approx(1)


def test_a_misspelt_key_is_a_value_error_that_names_the_right_one():
    """Goal: errors are both ours and Python's own. Method: drop a letter."""
    with pytest.raises(ValueError, match="zero_optimization.stage") as caught:
        _core.parse_config(GOOD.replace("stage", "stge"), 1)
    assert isinstance(caught.value, errors.InvalidArgument)


def test_explain_from_the_command_line(tmp_path, repository):
    """Goal: the command prints the table, or the mistakes and exit code 2. Method: run it."""
    command = [sys.executable, "-m", "zoffload.config", "explain"]
    shipped = sorted((repository / "configs").glob("*.json"))
    assert shipped
    for file in shipped:
        done = subprocess.run([*command, file], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert "zero_optimization.stage" in done.stdout
    bad = tmp_path / "bad.json"
    bad.write_text(GOOD.replace("bf16", "bf61"))
    done = subprocess.run([*command, bad], capture_output=True, text=True)
    assert done.returncode == 2
    assert "bf61" in done.stderr and str(bad) in done.stderr
