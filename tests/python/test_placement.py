"""Goal: `offload=` takes the forms that are documented, and a bad value is an error that names it.

Method: tables of values, in and out; no engine is opened.
"""

import math
import subprocess
import sys
from pathlib import Path

import pytest
from zoffload.errors import InvalidArgument, Unsupported
from zoffload.placement import (
    NvmeConfig,
    OffloadConfig,
    Plan,
    core_options,
    parse_placement,
    parse_rules,
)


@pytest.mark.parametrize(
    "placement, shares",
    [
        ("cpu", (0, 1, 0)),
        ("nvme", (0, 0, 1)),
        ({"cpu": 0.6, "nvme": 0.4}, (0, 0.6, 0.4)),
        ({"nvme": 1}, (0, 0, 1)),
        ({"cpu": 0.9, "nvme": 0.1 + 1e-9}, (0, 0.9, 0.1 + 1e-9)),
    ],
)
def test_placement(placement, shares):
    assert parse_placement("offload", placement) == shares


@pytest.mark.parametrize(
    "placement, says",
    [
        ("disk", "no tier 'disk'"),
        ("NVME", "did you mean 'nvme'"),
        ("gpu", "no tier 'gpu'"),
        ("", "no tier ''"),
        ({}, "add up to 0"),
        ({"cpu": 0.5}, "add up to 0.5"),
        ({"cpu": 0.7, "nvme": 0.7}, "add up to 1.4"),
        ({"cpu": -0.5, "nvme": 1.5}, "offload['cpu'] is -0.5"),
        ({"cpu": math.nan}, "is nan"),
        ({"cpu": True}, "is True"),
        ({"cpu": "1"}, "is '1'"),
        ({1: 1.0}, "no tier 1"),
        (None, "offload is None"),
        (0.5, "offload is 0.5"),
        (["cpu"], "offload is ['cpu']"),
    ],
)
def test_bad_placement(placement, says):
    with pytest.raises(InvalidArgument) as error:
        parse_placement("offload", placement)
    assert says in str(error.value)
    assert "offload" in str(error.value)


@pytest.mark.parametrize(
    "paths, listed",
    [
        ("/mnt/a", ["/mnt/a"]),
        (Path("/mnt/a"), ["/mnt/a"]),
        (["/mnt/a", Path("/mnt/b")], ["/mnt/a", "/mnt/b"]),
    ],
)
def test_paths_are_one_or_several(paths, listed):
    assert core_options("nvme", paths, None)["nvme_paths"] == listed
    config = OffloadConfig("nvme", nvme=NvmeConfig(paths))
    assert core_options(config, None, None)["nvme_paths"] == listed


@pytest.mark.parametrize("paths", [5, b"/mnt", [""], [None], ""])
def test_bad_paths(paths):
    with pytest.raises(InvalidArgument, match="nvme_path"):
        core_options("nvme", paths, None)


@pytest.mark.parametrize("path", [None, []])
def test_nvme_without_a_path(path):
    with pytest.raises(InvalidArgument, match="nvme_path is missing"):
        core_options({"cpu": 0.9, "nvme": 0.1}, path, None)
    assert core_options("cpu", path, None)["optimizer"] == (0, 1, 0)


def test_config_reaches_the_core():
    """Every setting arrives under the core's name."""
    nvme = NvmeConfig("/mnt/a", "threads", "64KiB", 7, False)
    config = OffloadConfig("nvme", nvme, "3MiB", 5, "2MiB", 9)
    assert core_options(config, None, None) == {
        "optimizer": (0, 0, 1),
        "host_bytes": 3 << 20,
        "subgroup_bytes": 2 << 20,
        "threads": 5,
        "nvme_paths": ["/mnt/a"],
        "io_engine": "threads",
        "block_bytes": 64 << 10,
        "queue_depth": 7,
        "profile": "",
        "verify_reads": False,
        "allow_memory_paths": False,
        "stall_timeout": 9.0,
    }


@pytest.mark.parametrize(
    "settings, says",
    [
        ({"optimizer": "disk"}, "optimizer: there is no tier 'disk'"),
        ({"nvme": "/mnt/a"}, "nvme is '/mnt/a', not an NvmeConfig"),
        ({"host_bytes": 0}, "host_bytes is 0"),
        ({"host_bytes": -1}, "host_bytes is -1"),
        ({"host_bytes": "much"}, "host_bytes: "),
        ({"host_bytes": 1.5}, "host_bytes is 1.5"),
        ({"threads": -1}, "threads is -1"),
        ({"threads": True}, "threads is True"),
        ({"subgroup_bytes": 0}, "subgroup_bytes is 0"),
        ({"stall_timeout": 0}, "stall_timeout is 0"),
        ({"stall_timeout": math.nan}, "stall_timeout is nan"),
        ({"stall_timeout": math.inf}, "stall_timeout is inf"),
    ],
)
def test_bad_config(settings, says):
    with pytest.raises(InvalidArgument) as error:
        OffloadConfig(**settings)
    assert says in str(error.value)


@pytest.mark.parametrize(
    "settings, says",
    [
        ({"io_engine": "posix"}, "io_engine is 'posix'"),
        ({"block_bytes": 1000}, "block_bytes is 1000"),
        ({"block_bytes": 0}, "block_bytes is 0"),
        ({"queue_depth": 0}, "queue_depth is 0"),
        ({"verify_reads": "yes"}, "verify_reads is 'yes'"),
        ({"paths": 3}, "nvme.paths is 3"),
    ],
)
def test_bad_nvme_config(settings, says):
    with pytest.raises(InvalidArgument) as error:
        NvmeConfig(**settings)
    assert says in str(error.value)


@pytest.mark.parametrize(
    "name",
    [
        "params",
        "grads",
        "device_bytes",
        "prefetch",
        "numa",
    ],
)
def test_unavailable_settings_are_refused_by_name(name):
    with pytest.raises(Unsupported, match=f"OffloadConfig.{name}: not available"):
        OffloadConfig(**{name: 1})
    with pytest.raises(Unsupported, match="NvmeConfig.max_bytes"):
        NvmeConfig(max_bytes=1)


def test_rules():
    rules = [("norm$", {"state_dtype": "fp32"}), ("^h[.]", {"state_dtype": "int8"})]
    parsed = parse_rules("rules", OffloadConfig(rules=rules).rules)
    assert [(rule.pattern.pattern, rule.format) for rule in parsed] == [
        ("norm$", "fp32"),
        ("^h[.]", "int8"),
    ]


@pytest.mark.parametrize(
    "rules, error, says",
    [
        ("bias", InvalidArgument, "rules is 'bias'"),
        ([3], InvalidArgument, "rules[0] is 3"),
        (["ab"], InvalidArgument, "rules[0] is 'ab'"),
        (
            [("w", {"state_dtype": "bf16"}), ("[", {"state_dtype": "bf16"})],
            InvalidArgument,
            "rules[1]: '[' is no regular expression",
        ),
        (
            [(3, {"state_dtype": "bf16"})],
            InvalidArgument,
            "rules[0]: 3 is not a regular expression",
        ),
        ([("w", {"state_dtype": "bf17"})], InvalidArgument, "rules[0]['state_dtype']: there is no"),
        ([("w", {})], InvalidArgument, "rules[0] has no 'state_dtype'"),
        ([("w", "nvme")], Unsupported, "rules[0]: a placement"),
        ([("w", "tape")], InvalidArgument, "no tier 'tape'"),
        ([("w", {"cpu": 0.5, "nvme": 0.5})], Unsupported, "rules[0]['cpu']"),
        ([("w", 5)], InvalidArgument, "rules[0] is 5"),
    ],
)
def test_bad_rules(rules, error, says):
    with pytest.raises(error) as raised:
        OffloadConfig(rules=rules)
    assert says in str(raised.value)


def test_nothing_may_be_given_twice():
    config = OffloadConfig("nvme", nvme=NvmeConfig("/mnt/a"), host_bytes=1)
    with pytest.raises(InvalidArgument, match="nvme_path"):
        core_options(config, "/mnt/b", None)
    with pytest.raises(InvalidArgument, match="host_bytes"):
        core_options(config, None, 1)


def test_plan_is_text_for_people():
    text = str(Plan({"cpu": 1 << 20, "nvme": 3 << 20}, 5 << 20, 3 << 20, 2 << 20, 1 << 20))
    assert "state on nvme: 3.00 MiB" in text
    assert "written to nvme per step: 2.00 MiB" in text
    assert "host memory in all: 5.00 MiB, of that for staging: 1.00 MiB" in text


def test_needs_no_torch():
    """Method: an interpreter of its own imports the module; torch must not come with it."""
    code = "import sys, zoffload.placement; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
