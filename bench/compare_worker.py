"""One process that runs optimizer steps of another library, one for each line that it is given.

zoffload-bench carries this text and starts it as `python -c TEXT SETUP`, with the Python that
--python names and a JSON object of what is to be measured. The first line that it answers lists its
variants of a step, or says which module is missing; after that, a line with the number of a variant
is answered with the seconds that one step of it took.
"""

import json
import os
import shutil
import socket
import sys
import time


def torch_steps(torch, setup):
    """AdamW(fused=True); AMP's way to a norm: unscale_() also looks for Inf and NaN."""
    numel = setup["numel"]
    master = torch.nn.Parameter(torch.randn(numel) * 0.1)
    master.grad = torch.randn(numel) * 0.1
    weights = torch.empty(numel, dtype=torch.bfloat16)
    optimizer = torch.optim.AdamW([master], fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=1.0, growth_interval=1 << 30)
    scaler.scale(torch.zeros(()))  # makes the scale

    def copy():
        with torch.no_grad():
            weights.copy_(master)

    def step_and_copy():
        optimizer.step()
        copy()

    def with_norm():
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_([master], 1e30)
        scaler.step(optimizer)
        scaler.update()
        copy()

    # Bytes of memory for a parameter: the gradient, and three arrays of state twice; the copy reads
    # the master; unscale_() and the clipping read and write the gradient, the norm reads it.
    return {
        "fp32": (False, 28, optimizer.step),
        "fp32+copy": (False, 34, step_and_copy),
        "fp32+copy, norm": (True, 34 + 20, with_norm),
    }


def deepspeed_steps(torch, setup):
    """CPUAdam as ZeRO-3 with the optimizer in memory calls it: Inf and NaN are looked for in the
    16-bit gradients, of which the norm is taken too; fp32 copies are unscaled."""
    from deepspeed.ops.adam import DeepSpeedCPUAdam

    numel = setup["numel"]
    master = torch.nn.Parameter(torch.randn(numel) * 0.1)
    master.grad = torch.randn(numel) * 0.1
    gradient = master.grad.to(torch.bfloat16)
    weights = torch.empty(numel, dtype=torch.bfloat16)
    optimizer = DeepSpeedCPUAdam([master], adamw_mode=True)

    def step_and_copy():
        optimizer.step()
        weights.copy_(master.data)

    def with_norm():
        torch.isinf(gradient).any()
        torch.isnan(gradient).any()
        gradient.float().norm(2)
        master.grad.mul_(1.0)
        step_and_copy()

    return {
        "step+copy": (False, 34, step_and_copy),
        "step+copy, norm": (True, 34 + 2 + 2 + 10 + 8, with_norm),
    }


def deepspeed_nvme_steps(torch, setup):
    """ZeRO-3 with the optimizer on NVMe, both pipelines on, on the CPU. The gradients are on their
    way to the drive, or there, when the time begins. Eight subgroups of as many parameters, since
    the pipelines need several, but no more than by default; of DeepSpeed's other settings those
    that we have too are ours, and the rest its own."""
    import deepspeed

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    os.environ.update(RANK="0", LOCAL_RANK="0", WORLD_SIZE="1")
    width = 64
    while width < 1024 and (2 * width) ** 2 * 16 <= setup["numel"]:
        width *= 2
    count = max(1, round(setup["numel"] / width**2))
    layers = [torch.nn.Linear(width, width, bias=False) for _ in range(count)]
    model = torch.nn.Sequential(*layers).to(torch.bfloat16)
    setup["numel"] = count * width**2
    optimizer = {
        "device": "nvme",
        "nvme_path": setup["folder"],
        "pipeline_read": True,
        "pipeline_write": True,
        "buffer_count": 12,  # four arrays of the three subgroups under way
    }
    config = {
        "train_micro_batch_size_per_gpu": 1,
        "bf16": {"enabled": True},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3}},
        "zero_optimization": {
            "stage": 3,
            "sub_group_size": min(max(setup["numel"] // 8, width**2), 10**9),
            "offload_optimizer": optimizer,
        },
        "aio": {
            "block_size": setup["block_bytes"],
            "queue_depth": setup["queue_depth"],
            "overlap_events": True,
            "single_submit": False,
        },
    }
    engine = deepspeed.initialize(model=model, config=config)[0]
    batch = torch.randn(1, width, dtype=torch.bfloat16)

    def step():
        engine.backward(engine(batch).float().square().mean())
        begin = time.perf_counter()
        engine.step()
        return time.perf_counter() - begin

    # State and gradient are read, and the state is written.
    return {"nvme": (False, 12 + 4 + 12, step)}


STEPS = {
    "torch": torch_steps,
    "deepspeed": deepspeed_steps,
    "deepspeed nvme": deepspeed_nvme_steps,
}


def main():
    setup = json.loads(sys.argv[1])
    library, threads, folder = setup["library"], setup["threads"], setup["folder"]
    # Whatever a library prints must not end up among the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    # Read when the threads' library is loaded; DeepSpeed's has one of its own.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    os.environ["DS_ACCELERATOR"] = "cpu"
    # Where an environment that is not active keeps ninja, which compiles DeepSpeed's kernel.
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")
    try:
        import torch

        torch.set_num_threads(threads)
        variants = STEPS[library + " nvme" if folder else library](torch, setup)
    except ModuleNotFoundError as error:
        print(json.dumps({"missing": error.name}), file=answers)
        return
    listed = [
        {"name": name, "norm": norm, "bytes_per_parameter": nbytes}
        for name, (norm, nbytes, _) in variants.items()
    ]
    version = __import__(library).__version__
    ready = {"version": version, "numel": setup["numel"], "variants": listed}
    print(json.dumps(ready), file=answers)
    steps = [step for _, _, step in variants.values()]
    for line in sys.stdin:
        begin = time.perf_counter()
        seconds = steps[int(line)]()  # those of them that count, if not all do
        seconds = time.perf_counter() - begin if seconds is None else seconds
        print(json.dumps({"seconds": seconds}), file=answers)
    if folder:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()
