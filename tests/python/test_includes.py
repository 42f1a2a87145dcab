"""Goal: no arrow between folders that the design's picture does not have.

Method: run the checker on small trees, each with one planted fault, and then on the repository.
"""

import subprocess
import sys

import pytest

FILES = [
    "core/base/status.h",
    "core/ports/tier.h",
    "core/plan/config.h",
    "core/engine/flows.h",
    "core/sim/sim_clock.h",
    "core/open.h",
    "tiers/nvme_tier.h",
    "aio/probe.h",
    "cuda/device.h",
    "comm/local.h",
    "optim/adam.h",
    "bindings/module.h",
    "tests/unit/helper.h",
]


@pytest.fixture
def checker(load_script):
    return load_script("tools/check_includes.py")


@pytest.fixture
def tree(tmp_path):
    """A tree with one header in every folder, and a way to add a file to it."""

    def write(path, text):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        return tmp_path

    for path in FILES:
        write(path, "#pragma once\n")
    return write


@pytest.mark.parametrize(
    "path, target",
    [
        ("core/base/types.h", "core/base/status.h"),
        ("core/ports/device.h", "core/base/status.h"),
        ("core/plan/layout.cc", "core/base/status.h"),
        ("core/engine/flows.cc", "core/plan/config.h"),
        ("core/engine/flows.cc", "core/ports/tier.h"),
        ("core/sim/sim_disk.cc", "core/ports/tier.h"),
        ("core/open.cc", "core/engine/flows.h"),
        ("core/open.cc", "core/open.h"),
        ("core/open.cc", "aio/probe.h"),
        ("tiers/nvme_tier.cc", "tiers/nvme_tier.h"),
        ("aio/queue.cc", "core/ports/tier.h"),
        ("bindings/module.cc", "core/open.h"),
        ("tests/sim/engine_test.cc", "core/sim/sim_clock.h"),
        ("tests/sim/engine_test.cc", "tests/unit/helper.h"),
    ],
)
def test_allowed_arrow(checker, tree, path, target):
    root = tree(path, f'#pragma once\n#include <vector>\n#include "{target}"\n')
    assert checker.check(root) == ([], len(FILES) + (path not in FILES))


@pytest.mark.parametrize(
    "path, target",
    [
        ("core/base/types.h", "core/ports/tier.h"),
        ("core/ports/device.h", "core/engine/flows.h"),
        ("core/plan/layout.cc", "core/ports/tier.h"),
        ("core/plan/layout.cc", "core/engine/flows.h"),
        ("core/engine/flows.cc", "core/sim/sim_clock.h"),
        ("core/engine/flows.cc", "tiers/nvme_tier.h"),
        ("core/engine/flows.cc", "core/open.h"),
        ("core/sim/sim_disk.cc", "core/engine/flows.h"),
        ("core/open.cc", "bindings/module.h"),
        ("core/open.cc", "tests/unit/helper.h"),
        ("tiers/nvme_tier.cc", "aio/probe.h"),
        ("aio/queue.cc", "core/plan/config.h"),
        ("cuda/device.cc", "core/sim/sim_clock.h"),
        ("comm/local.cc", "cuda/device.h"),
        ("optim/adam.cc", "core/engine/flows.h"),
    ],
)
def test_forbidden_arrow(checker, tree, path, target):
    root = tree(path, f'#pragma once\n#  include "{target}"\n')
    faults, _ = checker.check(root)
    assert len(faults) == 1
    assert faults[0].startswith(f'{path}:2: "{target}"')
    assert "must not include" in faults[0]


@pytest.mark.parametrize(
    "text, what",
    [
        ('#include "../core/base/status.h"', "from the root"),
        ('#include "nvme_tier.h"', "from the root"),
        ("#include <core/base/status.h>", 'write "core/base/status.h"'),
        ('#include "core/base/missing.h"', "does not exist"),
        ("", "without #pragma once"),
    ],
)
def test_other_faults_of_a_header(checker, tree, text, what):
    pragma = "#pragma once\n" if text else "// no guard\n"
    faults, _ = checker.check(tree("tiers/host_tier.h", pragma + text + "\n"))
    assert len(faults) == 1
    assert what in faults[0]


def test_a_folder_outside_the_picture(checker, tree):
    faults, _ = checker.check(tree("core/misc/helper.h", "#pragma once\n"))
    assert faults == ["core/misc/helper.h:1: the picture has no such place"]


def test_libraries_and_builds_are_not_ours(checker, tree):
    tree("build/release/generated.h", '#include "nothing.h"\n')
    tree(".venv/include/other.h", '#include "nothing.h"\n')
    root = tree("optim/adam.cc", '#include "hwy/highway.h"\n#include <tbb/task_arena.h>\n')
    assert checker.check(root) == ([], len(FILES) + 1)


def test_a_header_that_does_not_compile_alone(checker, tree, cxx):
    root = tree("core/base/format.h", "#pragma once\nstd::string text();\n")
    faults, count = checker.compile_headers(root, cxx)
    assert count == len(FILES)  # all but the one in bindings
    assert len(faults) == 1
    assert faults[0].startswith("core/base/format.h:1: does not compile alone")


def test_the_program_says_and_returns_failure(repository, tree):
    root = tree("aio/queue.cc", '#include "tiers/nvme_tier.h"\n')
    run = subprocess.run(
        [sys.executable, repository / "tools/check_includes.py", "--root", root],
        capture_output=True,
        text=True,
    )
    assert run.returncode == 1
    assert run.stdout.splitlines() == [
        'aio/queue.cc:1: "tiers/nvme_tier.h": aio must not include tiers',
        "includes: 1 faults",
    ]


def test_the_repository(checker, repository):
    faults, count = checker.check(repository)
    assert faults == []
    assert count > 0
