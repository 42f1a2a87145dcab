"""One process that runs optimizer steps of another library, one for each line that it is given.

zoffload-bench carries this text and starts it as `python -c TEXT LIBRARY NUMEL THREADS`, with the
Python that --python names. The first line that it answers lists its variants of a step, or says
which module is missing; after that, a line with the number of a variant is answered with the
seconds that one step of it took.
"""

import json
import os
import sys
import time


def torch_steps(torch, numel, threads):
    """AdamW(fused=True); AMP's way to a norm: unscale_() also looks for Inf and NaN."""
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


def deepspeed_steps(torch, numel, threads):
    """CPUAdam as ZeRO-3 with the optimizer in memory calls it: Inf and NaN are looked for in the
    16-bit gradients, of which the norm is taken too; fp32 copies are unscaled."""
    from deepspeed.ops.adam import DeepSpeedCPUAdam

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


def main():
    library, numel, threads = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # Whatever a library prints must not end up among the answers.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    # Read when the threads' library is loaded; DeepSpeed's has one of its own.
    os.environ["OMP_NUM_THREADS"] = str(threads)
    # Where an environment that is not active keeps ninja, which compiles DeepSpeed's kernel.
    os.environ["PATH"] = os.path.dirname(sys.executable) + os.pathsep + os.environ.get("PATH", "")
    try:
        import torch

        torch.set_num_threads(threads)
        make = {"torch": torch_steps, "deepspeed": deepspeed_steps}[library]
        variants = make(torch, numel, threads)
    except ModuleNotFoundError as error:
        print(json.dumps({"missing": error.name}), file=answers)
        return
    listed = [
        {"name": name, "norm": norm, "bytes_per_parameter": nbytes}
        for name, (norm, nbytes, _) in variants.items()
    ]
    version = __import__(library).__version__
    print(json.dumps({"version": version, "variants": listed}), file=answers)
    steps = [step for _, _, step in variants.values()]
    for line in sys.stdin:
        begin = time.perf_counter()
        steps[int(line)]()
        print(json.dumps({"seconds": time.perf_counter() - begin}), file=answers)


if __name__ == "__main__":
    main()
