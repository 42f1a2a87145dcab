"""Two drives of unequal speed as one tier, against the sum of what each does alone.

    python bench/unequal_drives.py --path /mnt/nvme0        # as root

The drives are loop devices in the folder, throttled by the block controller of a control group
(version 1 or 2); the load is `zoffload-bench pipeline` with a profile of the two speeds. Everything
is taken down at the end.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

MIB = 2**20
IMAGE_BYTES = 2048 * MIB
SPEEDS = (300 * MIB, 100 * MIB)  # bytes per second in each direction


def call(*command: str) -> str:
    return subprocess.run(command, check=True, text=True, capture_output=True).stdout.strip()


@contextlib.contextmanager
def loop_drive(folder: Path, name: str):
    """A mounted file system on a loop device of its own: its folder and its device number."""
    image, mounted = folder / f"{name}.img", folder / name
    mounted.mkdir()
    image.touch()
    os.truncate(image, IMAGE_BYTES)
    call("fallocate", "-l", str(IMAGE_BYTES), str(image))
    with contextlib.ExitStack() as stack:
        device = call("losetup", "--find", "--show", "--direct-io=on", str(image))
        stack.callback(call, "losetup", "--detach", device)
        call("mkfs.ext4", "-q", device)
        call("mount", device, str(mounted))
        stack.callback(call, "umount", str(mounted))
        number = os.stat(device).st_rdev
        yield mounted, f"{os.major(number)}:{os.minor(number)}"


@contextlib.contextmanager
def throttled(limits: dict[str, int]):
    """A control group in which each device reads and writes at its limit: its list of processes."""
    version_1 = Path("/sys/fs/cgroup/blkio")
    root = version_1 if version_1.is_dir() else Path("/sys/fs/cgroup")
    group = root / f"zoffload-{os.getpid()}"
    group.mkdir()
    try:
        for device, speed in limits.items():
            if root == version_1:
                for way in ("read", "write"):
                    (group / f"blkio.throttle.{way}_bps_device").write_text(f"{device} {speed}")
            else:
                (group / "io.max").write_text(f"{device} rbps={speed} wbps={speed}")
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


def pipeline(processes: Path, profile: Path, paths: list[Path]) -> float:
    """Bytes that a step moves on NVMe per second, both ways together."""
    program = str(Path(sys.executable).with_name("zoffload-bench"))
    command = [program, "pipeline", "--numel", "16Mi", "--profile", str(profile),
               "--steps", "1", "--repeats", "1", "--warmup-steps", "1", "--bound-runtime", "0.1s",
               "--output", "json", "--quiet"]  # fmt: skip
    for path in paths:
        command += ["--path", str(path)]

    def enter() -> None:
        processes.write_text(str(os.getpid()))

    done = subprocess.run(command, text=True, capture_output=True, preexec_fn=enter)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\nended with {done.returncode}:\n{done.stderr}")
    return json.loads(done.stdout)["results"][0]["bandwidth_bytes_per_s"]["median"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--path", required=True, help="a folder with 5 GiB free")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=options.path)))
        drives = [stack.enter_context(loop_drive(folder, name)) for name in ("fast", "slow")]
        limits = {number: speed for (_, number), speed in zip(drives, SPEEDS, strict=True)}
        processes = stack.enter_context(throttled(limits))
        paths = [path for path, _ in drives]
        entries = [
            {"path": str(path), "io_engine": "io_uring", "block_bytes": MIB, "queue_depth": 8,
             "read_bytes_per_s": speed, "write_bytes_per_s": speed, "mixed_bytes_per_s": 2 * speed}
            for path, speed in zip(paths, SPEEDS, strict=True)
        ]  # fmt: skip
        profile = folder / "profile.json"
        profile.write_text(
            json.dumps(
                {
                    "schema": "zoffload-profile/1",
                    "host": "",
                    "measured": "",
                    "link": {},
                    "paths": entries,
                    "updates": [],
                }
            )  # fmt: skip
        )
        loads = {"fast": paths[:1], "slow": paths[1:], "both": paths}
        speeds = {name: [] for name in loads}
        for round_number in range(options.rounds):
            turn = round_number % len(loads)
            for name in (list(loads) * 2)[turn : turn + len(loads)]:
                speeds[name].append(pipeline(processes, profile, loads[name]))
        medians = {name: statistics.median(values) for name, values in speeds.items()}
        for name, speed in medians.items():
            print(f"{name:5} {speed / MIB:8.1f} MiB/s")
        share = medians["both"] / (medians["fast"] + medians["slow"])
        print(f"both / sum of the two alone: {share:.3f} (target >= 0.95)")
    return 0 if share >= 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
