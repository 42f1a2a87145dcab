#!/usr/bin/env python3
"""Compares two reports of examples/train_gpt.py: one run offloaded, one in memory.

Prints what each run cost, then a verdict. PASSED says that both runs ended with the same bits, and
that the first one really lived on NVMe, under a budget of at most a quarter of its state.
"""

import argparse
import json
import math
import statistics
import sys
from pathlib import Path

BUDGET_SHARE_MAX = 0.25


def state_bytes(report):
    return sum(report["bytes_by_tier"].values())


def problems(offloaded, in_memory):
    """Why the two runs do not show what the quickstart promises; empty if they do."""
    found = []
    if not offloaded["losses"] or not all(map(math.isfinite, offloaded["losses"])):
        found.append("the losses are not finite numbers")
    if offloaded["losses"] != in_memory["losses"]:
        pairs = zip(offloaded["losses"], in_memory["losses"], strict=False)
        step = next((i for i, (a, b) in enumerate(pairs, start=1) if a != b), "the last")
        found.append(f"the losses differ from step {step} on")
    if offloaded["parameters_sha256"] != in_memory["parameters_sha256"]:
        found.append("the final parameters differ")

    if not offloaded["bytes_by_tier"].get("nvme"):
        found.append("the offloaded run kept nothing on NVMe")
    if in_memory["bytes_by_tier"].get("nvme"):
        found.append("the run in memory kept state on NVMe")
    budget = offloaded["host_bytes"]
    if not budget or budget > BUDGET_SHARE_MAX * state_bytes(offloaded):
        found.append(f"the host budget is no limit: more than {BUDGET_SHARE_MAX:.0%} of the state")
    elif (offloaded.get("host_bytes_high_water") or 0) > budget:
        found.append("the engine used more host memory than its budget")
    return found


def mib(count):
    return "-" if count is None else f"{count / 2**20:.1f} MiB"


def median(values):
    """The middle of what was measured; None where nothing was."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def engine_peak(report):
    """The most memory that the process held beyond what it held before the engine was made."""
    peak, before = report["peak_resident_bytes"], report["resident_bytes_before_engine"]
    return None if None in (peak, before) else peak - before


def table(*reports):
    """Rows of a label and one cell for each report."""

    def row(label, cell):
        return [label, *map(cell, reports)]

    yield ["", "state on NVMe", "all in memory"]
    yield row("state", lambda r: mib(state_bytes(r)))
    yield row("  of it on NVMe", lambda r: mib(r["bytes_by_tier"].get("nvme")))
    yield row("host memory: budget", lambda r: mib(r["host_bytes"]) if r["host_bytes"] else "none")
    yield row("host memory: high-water mark", lambda r: mib(r.get("host_bytes_high_water")))
    yield row("process: high-water mark", lambda r: mib(r["peak_resident_bytes"]))
    yield row("  more than before the engine", lambda r: mib(engine_peak(r)))
    yield row("time per step (median)", lambda r: f"{median(r['step_seconds']):.3f} s")
    yield row("disk read per step", lambda r: mib(median(r["read_bytes_per_step"])))
    yield row("disk written per step", lambda r: mib(median(r["written_bytes_per_step"])))
    yield row("loss", lambda r: f"{r['losses'][0]:.3f} -> {r['losses'][-1]:.3f}")
    yield row("sha256 of the parameters", lambda r: r["parameters_sha256"][:12])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("offloaded", type=Path)
    parser.add_argument("in_memory", type=Path)
    arguments = parser.parse_args()
    offloaded = json.loads(arguments.offloaded.read_text())
    in_memory = json.loads(arguments.in_memory.read_text())

    for label, *cells in table(offloaded, in_memory):
        print(f"{label:<30}" + "".join(f"{cell:>22}" for cell in cells))
    print()
    found = problems(offloaded, in_memory)
    if found:
        print("zoffload quickstart: FAILED - " + "; ".join(found))
        return 1
    print("zoffload quickstart: PASSED - both runs ended with the same bits")
    return 0


if __name__ == "__main__":
    sys.exit(main())
