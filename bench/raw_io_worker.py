"""One process that moves a tensor between memory and a file through an `aio_handle`, on request.

bench/compare_storage.py starts it once with zoffload's Handle and once, in another Python
environment, with DeepSpeed's; both take the same calls. Requests and answers are JSON lines.
"""

import json
import os
import resource
import sys
import time

import torch


def make_handle(library, block_bytes, depth, threads):
    """`depth` None: the library's own defaults for everything but the block size."""
    if library == "zoffload":
        from zoffload.aio import Handle

        return Handle(block_bytes) if depth is None else Handle(block_bytes, queue_depth=depth)
    from deepspeed.ops.op_builder import AsyncIOBuilder

    handle = AsyncIOBuilder().load().aio_handle
    return handle() if depth is None else handle(block_bytes, depth, False, True, threads)


def cpu_seconds():
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def main():
    library, path, numel = sys.argv[1], sys.argv[2], int(sys.argv[3])
    # Whatever a library prints must not end up among the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    handles = {}  # each with a tensor of its own, since a handle prepares the memory that it gives

    def open_handle(key):
        handle = make_handle(library, *key)
        tensor = handle.new_cpu_locked_tensor(numel, torch.empty(0, dtype=torch.uint8))
        tensor.random_(0, 256)
        handles[key] = handle, tensor
        return handles[key]

    owner, tensor = open_handle((1 << 20, None, 1))
    owner.sync_pwrite(tensor, path, 0)
    print(json.dumps({"ready": library}), file=answers)
    for line in sys.stdin:
        request = json.loads(line)
        key = tuple(request["handle"])
        handle, tensor = handles.get(key) or open_handle(key)
        move = getattr(handle, "sync_pread" if request["rw"] == "read" else "sync_pwrite")
        move(tensor, path, 0)
        cpu, start = cpu_seconds(), time.perf_counter()
        for _ in range(request["times"]):
            move(tensor, path, 0)
        answer = {
            "seconds": time.perf_counter() - start,
            "cpu_seconds": cpu_seconds() - cpu,
            "bytes": request["times"] * numel,
        }
        print(json.dumps(answer), file=answers)


if __name__ == "__main__":
    main()
