"""Goal: link, adam, collective and pipeline say what was measured, in the form that was agreed, and
refuse what they cannot do with the right code.

Method: the real binary with tiny sizes; every document against the shipped schema.
"""

import signal
import sys
import time

import pytest
from bench_tool import finish, start

KIB = 1 << 10
SHORT = ("--repeats", "2", "--runtime", "10ms", "--output", "json")


@pytest.fixture
def measure(bench, check_document):
    """Runs a command that is to end with `code`; its document."""

    def run(*arguments, code=0):
        ended = bench(*arguments)
        assert ended.code == code, ended.stderr
        return check_document(ended.stdout)

    return run


def by_name(document):
    results = {}
    for result in document["results"]:
        results.setdefault(result["name"], []).append(result)
    return results


# ---- link


def test_link_measures_every_way_and_size(measure):
    document = measure("link", "--size", "4KiB,64KiB", "--pool", "1MiB", *SHORT)
    results = by_name(document)
    assert set(results) == {"link.to_device", "link.to_host", "link.both"}
    for name, found in results.items():
        assert [r["params"]["size_bytes"] for r in found] == [4 * KIB, 64 * KIB]
        for result in found:
            assert len(result["bandwidth_bytes_per_s"]["samples"]) == 2
            assert result["bytes"] % result["params"]["size_bytes"] == 0
            assert result["latency_ns"]["p50"] > 0
        way = name.split(".")[1]
        best = max(r["bandwidth_bytes_per_s"]["median"] for r in found)
        assert document["summary"][f"{way}_bytes_per_s"] == best


def test_link_says_that_pageable_is_unsupported(bench, measure):
    arguments = ("link", "--size", "4KiB", "--way", "both", "--pool", "64KiB", *SHORT)
    document = measure(*arguments, "--memory", "pinned,pageable")
    assert len(document["results"]) == 1
    assert "pageable" in document["summary"]["unsupported"][0]
    assert any("pageable" in warning for warning in document["summary"]["warnings"])
    alone = bench(*arguments, "--memory", "pageable")
    assert alone.code == 3
    assert "pageable" in alone.stderr


# ---- adam


def test_adam_stands_beside_its_memory_bound(measure):
    sweep = ("--threads", "1,2", "--dtype", "bf16,fp32")
    document = measure("adam", "--numel", "256Ki", *sweep, *SHORT)
    results = by_name(document)["adam.fp32"]
    combinations = {(r["params"]["dtype"], r["params"]["threads"]) for r in results}
    assert combinations == {("bf16", 1), ("bf16", 2), ("fp32", 1), ("fp32", 2)}
    for result in results:
        details = result["details"]
        assert details["bytes_per_parameter"] == 28
        traffic = result["bandwidth_bytes_per_s"]["median"]
        assert details["numel_per_s"] * 28 == pytest.approx(traffic)
        assert details["memory_bound_bytes_per_s"] > 0
        assert details["share_of_bound"] > 0
        assert result["bytes"] % (28 * 256 * KIB) == 0
    best = max(results, key=lambda r: r["details"]["numel_per_s"])
    assert document["summary"]["share_of_bound"] == best["details"]["share_of_bound"]


def test_adam_chooses_vectors(measure):
    document = measure("adam", "--numel", "64Ki", "--threads", "1", "--simd", "auto,scalar", *SHORT)
    levels = [result["params"]["simd"] for result in document["results"]]
    assert levels[1] == "scalar"
    assert levels[0] != "scalar"
    named = measure("adam", "--numel", "64Ki", "--simd", levels[0].upper(), *SHORT)
    assert named["results"][0]["params"]["simd"] == levels[0]


BYTES = {"split": 26, "bf16": 20, "split+bf16": 18, "int8": 16.125, "split+int8": 14.125}


def test_adam_in_every_format(measure):
    document = measure("adam", "--numel", "256Ki", "--format", ",".join(BYTES), *SHORT)
    for result in document["results"]:
        assert result["params"]["format"] == result["name"].removeprefix("adam.")
        assert result["details"]["share_of_bound"] > 0
    found = [result["details"]["bytes_per_parameter"] for result in document["results"]]
    assert found == list(BYTES.values())


def test_adam_with_the_norm_reads_the_gradient_twice(measure):
    document = measure("adam", "--numel", "256Ki", "--norm", "both", *SHORT)
    found = [
        (r["params"]["norm"], r["details"]["bytes_per_parameter"]) for r in document["results"]
    ]
    assert found == [("off", 28), ("on", 30)]
    assert all(result["details"]["share_of_bound"] > 0 for result in document["results"])


@pytest.mark.parametrize("optimizer, nbytes", [("sgd", 12), ("lion", 20), ("adagrad", 20)])
def test_adam_of_other_optimizers(measure, optimizer, nbytes):
    document = measure("adam", "--numel", "64Ki", "--optimizer", optimizer, *SHORT)
    assert document["results"][0]["details"]["bytes_per_parameter"] == nbytes


def test_adam_beside_torch(measure):
    """Goal: torch's steps are measured in the same rounds, and each of ours is set against those
    that do as much. Method: a tiny model, both formats, with and without the norm."""
    pytest.importorskip("torch")
    peer = ("--compare", "torch", "--python", sys.executable)
    document = measure("adam", "--numel", "4Ki", "--norm", "both", "--threads", "1",
                       "--format", "fp32,bf16", *peer, *SHORT)  # fmt: skip
    ratios = document["summary"]["ratios"]
    against = {(row["against"], row["norm"], row["format"]) for row in ratios}
    torch = [("torch.fp32", "off"), ("torch.fp32+copy", "off"), ("torch.fp32+copy, norm", "on")]
    assert against == {(*one, form) for one in torch for form in ("fp32", "bf16")}
    assert all(0 < row["min"] <= row["median"] <= row["max"] for row in ratios)
    assert all(len(row["rounds"]) == 2 for row in ratios)
    results = by_name(document)
    for name, _ in torch:
        assert [r["params"]["beside"] for r in results[name]] == ["fp32 bf16", "bf16 bf16"]
        assert all(len(r["bandwidth_bytes_per_s"]["samples"]) == 2 for r in results[name])


def python_that(tmp_path, line):
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{line}\n")
    python.chmod(0o755)
    return python


@pytest.mark.parametrize(
    "line, said",
    [
        (f'exec {sys.executable} -I -S "$@"', "-m pip install torch"),
        ("echo no luck >&2; exit 1", "no luck"),
        (None, "cannot be started"),
    ],
)
def test_compare_says_what_is_missing(bench, tmp_path, line, said):
    """Method: a Python without packages, one that fails, and one that is not there."""
    python = tmp_path / "none" if line is None else python_that(tmp_path, line)
    ended = bench("adam", "--numel", "4Ki", "--compare", "torch", "--python", python)
    assert ended.code == 3
    assert said in ended.stderr
    assert str(python) in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize("flags", [("--threads", "1,2"), ("--optimizer", "lion")])
def test_compare_is_of_one_thing(bench, flags):
    ended = bench("adam", "--numel", "4Ki", "--compare", "torch", *flags)
    assert ended.code == 2
    assert "--compare" in ended.stderr


def test_compare_ends_at_a_signal(tmp_path):
    """Method: another library that never answers."""
    begun = tmp_path / "begun"
    python = python_that(tmp_path, f"touch {begun}; exec sleep 600")
    child = start("adam", "--numel", "4Ki", "--compare", "torch", "--python", python)
    while child.poll() is None and not begun.exists():
        time.sleep(0.01)  # between two looks
    child.send_signal(signal.SIGINT)
    assert finish(child).code == 130


@pytest.mark.parametrize(
    "arguments",
    [
        ("adam", "--numel", "1000000B"),
        ("link", "--pool", "4096TiB"),
        ("collective", "--size", "4096TiB"),
        ("pipeline", "--optimizer-tier", "host", "--numel", "1000000B"),
    ],
)
def test_too_little_memory_is_said_before_it_is_taken(bench, arguments):
    ended = bench(*arguments)
    assert ended.code == 3
    assert "available" in ended.stderr
    assert ended.stdout == ""


# ---- collective


def test_collective_has_both_bandwidths(measure):
    document = measure("collective", "--ranks", "1,3", "--size", "1000", *SHORT)
    results = by_name(document)
    assert len(document["results"]) == 3 * 2
    for name, twice in [("all_gather", 1), ("reduce_scatter", 1), ("all_reduce", 2)]:
        for result in results[f"collective.{name}"]:
            ranks = result["params"]["ranks"]
            details = result["details"]
            algorithm = details["algorithm_bytes_per_s"]
            assert algorithm == result["bandwidth_bytes_per_s"]["median"]
            factor = twice * (ranks - 1) / ranks
            assert details["bus_bytes_per_s"] == pytest.approx(algorithm * factor)


@pytest.mark.parametrize("backend", ["gloo", "nccl"])
def test_collective_backends_that_are_not_built_in(bench, backend):
    ended = bench("collective", "--backend", backend)
    assert ended.code == 3
    assert backend in ended.stderr


# ---- pipeline

ENGINE = (
    *("pipeline", "--numel", "128Ki", "--subgroup-bytes", "256KiB", "--threads", "2"),
    *("--block-size", "64KiB", "--queue-depth", "4", "--warmup-steps", "1"),
    *("--bound-runtime", "20ms", "--output", "json", "--force"),
)
PIPELINE = (*ENGINE, "--steps", "2", "--repeats", "2")


def test_pipeline_reports_traffic_bounds_and_endurance(measure, tmp_path):
    document = measure(*PIPELINE, "--path", tmp_path)
    results = by_name(document)
    (step,) = results["pipeline"]
    details = step["details"]
    assert len(step["bandwidth_bytes_per_s"]["samples"]) == 4
    assert details["nvme_read_bytes_per_parameter"] == 12  # a master and two moments
    assert details["nvme_written_bytes_per_parameter"] == 12
    assert step["bytes"] == 4 * 24 * 128 * KIB
    # The files once, the master once, and five steps.
    assert step["written_bytes"] == (12 + 4 + 5 * 12) * 128 * KIB
    assert results["bound.disk"][0]["bandwidth_bytes_per_s"]["median"] > 0
    bounds = {name: details[f"{name}_bound_seconds"] for name in ("disk", "cpu")}
    assert details["predicted_step_seconds"] == max(bounds.values())
    assert bounds[details["bound_by"]] == max(bounds.values())
    share = max(bounds.values()) / details["seconds_per_step"]["median"]
    assert document["summary"]["share_of_bound"] == pytest.approx(share)
    assert details["steps_to_600_tbw"] == int(600e12 / (12 * 128 * KIB))
    assert details["steps_to_7008_tbw"] == int(7008e12 / (12 * 128 * KIB))
    assert list(tmp_path.iterdir()) == []


def test_pipeline_moves_what_the_format_keeps(measure, drive):
    document = measure(*PIPELINE, "--path", drive, "--format", "split+bf16")
    details = by_name(document)["pipeline"][0]["details"]
    assert details["nvme_read_bytes_per_parameter"] == 6  # a residual and two moments
    assert details["nvme_written_bytes_per_parameter"] == 6


@pytest.mark.parametrize(
    "tier, bytes_per_parameter, bounds",
    [
        ("host", 0, {"bound.cpu"}),
        ("hbm", 0, {"bound.cpu", "bound.link"}),
        ("nvme:0.5,host:0.5", 3.75, {"bound.cpu", "bound.disk"}),
    ],
)
def test_pipeline_places_the_state(measure, tmp_path, tier, bytes_per_parameter, bounds):
    paths = ("--path", tmp_path) if "nvme" in tier else ()
    document = measure(*PIPELINE, *paths, "--optimizer-tier", tier, "--dtype", "fp32")
    (step,) = by_name(document)["pipeline"]
    assert set(by_name(document)) == {"pipeline", *bounds}
    # fp32: the parameter is its own master, so there are two moments. Seven subgroups, of which the
    # second, fourth and sixth go to the drive: 3 * 20480 * 8 bytes.
    assert step["details"]["nvme_read_bytes_per_parameter"] == bytes_per_parameter
    assert ("steps_to_600_tbw" in step["details"]) == ("nvme" in tier)


def test_pipeline_compares_checksums(measure, tmp_path):
    document = measure(*PIPELINE, "--path", tmp_path, "--checksums", "both")
    steps = by_name(document)["pipeline"]
    assert [step["params"]["checksums"] for step in steps] == ["on", "off"]
    assert document["summary"]["checksums_on_off_ratio"] > 0


def test_pipeline_reads_a_model(bench, measure, tmp_path):
    model = tmp_path / "model.json"
    model.write_text('{"params": [["a", [100, 100]], ["b", [5]]]}')
    flags = list(PIPELINE)
    del flags[1:3]  # --numel
    document = measure(*flags, "--model", model, "--optimizer-tier", "host")
    assert document["results"][0]["params"]["numel"] == 10005
    model.write_text('{"layers": "many"}')
    ended = bench(*flags, "--model", model, "--optimizer-tier", "host")
    assert ended.code == 2
    assert str(model) in ended.stderr
    assert "layers" in ended.stderr


# Two engines would need twice that; one engine's files, masters and two steps fit.
def test_pipeline_keeps_its_write_budget(measure, tmp_path):
    state = 12 * 128 * KIB
    limit = state + 4 * 128 * KIB + 2 * state + KIB
    document = measure(*PIPELINE, "--path", tmp_path, "--max-write", limit, code=6)
    (step,) = document["results"]
    assert step["written_bytes"] == limit - KIB
    assert step["interrupted"] is True
    assert list(tmp_path.iterdir()) == []


def test_pipeline_dry_run_touches_nothing(bench, tmp_path):
    ended = bench(*PIPELINE, "--path", tmp_path, "--dry-run")
    assert ended.code == 0, ended.stderr
    assert "will write" in ended.stdout
    assert list(tmp_path.iterdir()) == []


def test_pipeline_ends_after_the_step_at_a_signal(check_document, tmp_path):
    """Method: a run of a million steps, interrupted as soon as its store is there."""
    child = start(*ENGINE, "--path", tmp_path, "--steps", "1000000")
    while child.poll() is None and not list(tmp_path.glob("zoffload-*/zo-*")):
        time.sleep(0.01)  # between two looks
    child.send_signal(signal.SIGINT)
    ended = finish(child)
    assert ended.code == 130, ended.stderr
    assert check_document(ended.stdout)["summary"]["interrupted"] is True
    assert list(tmp_path.iterdir()) == []


# Answers as the worker does: a step takes two seconds, and leaves a file.
PEER = """
import json, sys
setup = json.loads(sys.argv[-1])
variant = {"name": "nvme", "norm": False, "bytes_per_parameter": 28}
print(json.dumps({"version": "1", "numel": 1000, "variants": [variant]}), flush=True)
for line in sys.stdin:
    open(f"{setup['folder']}/left", "w").write("behind")
    print(json.dumps({"seconds": 2.0}), flush=True)
"""


def test_pipeline_beside_deepspeed(measure, tmp_path, drive):
    """Goal: its steps take turns with ours on the same drive, its writes are planned, and its files
    are removed. Method: a stand-in whose steps take two seconds by its own account."""
    script = tmp_path / "peer.py"
    script.write_text(PEER)
    python = python_that(tmp_path, f'exec {sys.executable} {script} "$@"')
    peer = ("--compare", "deepspeed", "--python", python)
    alone = measure(*PIPELINE, "--path", drive, "--dry-run")["summary"]["planned_write_bytes"]
    document = measure(*PIPELINE, "--path", drive, *peer, "--dry-run")
    # A warm-up step, four more, and the files: 16 bytes for a parameter each.
    assert document["summary"]["planned_write_bytes"] == alone + 6 * 16 * 128 * KIB
    document = measure(*PIPELINE, "--path", drive, *peer)
    (theirs,) = by_name(document)["deepspeed.nvme"]
    assert theirs["seconds"] == 8
    assert theirs["written_bytes"] == 5 * 16 * 128 * KIB
    assert theirs["details"]["numel_per_s"] == 500
    (ratio,) = document["summary"]["ratios"]
    rates = [128 * KIB / s for s in seconds_by_round(document)]
    assert ratio["rounds"] == pytest.approx([rate / 500 for rate in rates])
    assert list(drive.iterdir()) == []


def seconds_by_round(document):
    (step,) = by_name(document)["pipeline"]
    samples = step["details"]["seconds_per_step"]["samples"]
    return [sum(samples[i : i + 2]) / 2 for i in (0, 2)]


@pytest.mark.parametrize(
    "flags",
    [("--compare", "torch"), ("--dtype", "fp32"), ("--optimizer-tier", "nvme:0.5,host:0.5")],
)
def test_pipeline_compares_what_both_can_do(bench, tmp_path, flags):
    compare = () if "--compare" in flags else ("--compare", "deepspeed")
    ended = bench(*PIPELINE, "--path", tmp_path, *compare, *flags)
    assert ended.code == 2
    assert "--compare is of deepspeed" in ended.stderr


# ---- Bad values


@pytest.mark.parametrize(
    "command, flag, value",
    [
        ("link", "--size", "4XB"),
        ("link", "--way", "sideways"),
        ("link", "--memory", "virtual"),
        ("adam", "--numel", "-3"),
        ("adam", "--format", "fp31"),
        ("adam", "--simd", "mmx"),
        ("adam", "--norm", "maybe"),
        ("adam", "--compare", "torch,jax"),
        ("adam", "--dtype", "fp16"),
        ("adam", "--threads", "0"),
        ("adam", "--threads", "1,100000"),
        ("collective", "--ranks", "2,"),
        ("collective", "--backend", "mpi"),
        ("collective", "--op", "gossip"),
        ("pipeline", "--optimizer-tier", "nvme:0.7"),
        ("pipeline", "--checksums", "maybe"),
        ("pipeline", "--engine", "magic"),
        ("pipeline", "--block-size", "1000"),
        ("pipeline", "--block-size", "1TiB"),
        ("pipeline", "--queue-depth", "100000"),
        ("pipeline", "--threads", "100000"),
        ("pipeline", "--path", None),
        ("pipeline", "--model", "/no/such/file.json"),
    ],
)
def test_bad_values_are_named(bench, command, flag, value, tmp_path):
    given = () if value is None else (flag, value)
    path = ("--path", tmp_path) if command == "pipeline" and flag != "--path" else ()
    ended = bench(command, *path, *given)
    assert ended.code == 2, ended.stderr
    assert flag in ended.stderr
    assert ended.stdout == ""


@pytest.mark.parametrize("command", ["link", "adam", "collective", "pipeline"])
def test_help_ends_with_three_examples(bench, command):
    ended = bench(command, "--help")
    assert ended.code == 0
    assert ended.stdout.count(f"  zoffload-bench {command}") == 3


def test_pipeline_whose_budget_ends_at_the_bounds_is_partial(measure, tmp_path):
    """Goal: a budget that ends after the steps is code 6, not a mistake of the user's, and the
    steps are kept. Method: a byte less than steps and the files of the disk bound take."""
    brief = (*ENGINE, "--steps", "2", "--repeats", "1", "--path", tmp_path)
    planned = measure(*brief, "--dry-run")["summary"]["planned_write_bytes"]
    document = measure(*brief, "--max-write", str(planned - 1), code=6)
    assert [result["name"] for result in document["results"]] == ["pipeline"]
    assert any("--max-write" in warning for warning in document["summary"]["warnings"])


def test_pipeline_names_no_bound_beside_one_that_is_missing(measure, tmp_path):
    """Goal: what bounds a step is not said where the drives' own speed is unknown. Method: no time
    to measure it in."""
    flags = list(ENGINE)
    flags[flags.index("20ms")] = "0"
    document = measure(*flags, "--steps", "1", "--repeats", "1", "--path", tmp_path)
    assert "bound_by" not in document["summary"]
    assert any("--bound-runtime" in warning for warning in document["summary"]["warnings"])


def test_one_measurement_has_no_spread(bench):
    """Goal: no deviation is claimed of a single repeat. Method: the last column of the table."""
    done = bench("adam", "--numel", "64Ki", "--runtime", "1ms", "--repeats", "1")
    titles, row = done.stdout.splitlines()
    assert titles.endswith("share of it  spread") and row.endswith("-")
