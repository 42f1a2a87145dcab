"""The promise of the whole project: where state lives never changes a bit of the result."""

import itertools

import pytest

torch = pytest.importorskip("torch")
zoffload = pytest.importorskip("zoffload")

from toys import VOCAB, make_toy  # noqa: E402

PLACEMENTS = {
    "hbm": "hbm",
    "host": "host",
    "nvme": "nvme",
    "mixed": {"hbm": 0.2, "cpu": 0.4, "nvme": 0.4},
}
CASES = list(itertools.product(["fp32", "bf16"], [1, 3], [0.0, 0.05]))
IDS = [f"{dtype}-micro{micro}-clip{clip}" for dtype, micro, clip in CASES]


def train(tmp_path, where, threads, dtype, micro_steps, clip, steps=3):
    """Trains the toy model; the final parameters by name, as bytes, and the last norm."""
    config = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": micro_steps,
        "gradient_clipping": clip,
        "zero_optimization": {"stage": 3},
        "bf16": {"enabled": dtype == "bf16"},
        "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "weight_decay": 0.1}},
        "zoffload": {
            "params": where,
            "optimizer": where,
            "nvme_path": str(tmp_path),
            "threads": threads,
            "subgroup_bytes": 4096 * 12,
        },
    }
    engine, *_ = zoffload.initialize(model=make_toy(blocks=3), config=config)
    generator = torch.Generator().manual_seed(3)
    for _ in range(steps * micro_steps):
        tokens = torch.randint(VOCAB, (2, 8), generator=generator)
        engine.backward(engine(tokens))
        engine.step()
    parameters = {}
    for name, parameter in engine.module.named_parameters():
        with zoffload.zero.GatheredParameters(parameter):
            parameters[name] = bytes(parameter.detach().flatten().clone().view(torch.uint8))
    norm = engine.get_global_grad_norm()
    engine.destroy()
    return parameters, norm


@pytest.mark.parametrize(("dtype", "micro_steps", "clip"), CASES, ids=IDS)
def test_every_placement_and_thread_count_ends_with_the_same_bits(
    tmp_path, dtype, micro_steps, clip
):
    """Goal: parameters and norm are bit-equal over tiers, fractions and worker threads.
    Method: twelve runs of the same training, compared with the first; clipping really acts."""
    runs = {
        (name, threads): train(tmp_path, where, threads, dtype, micro_steps, clip)
        for name, where in PLACEMENTS.items()
        for threads in (1, 2, 4)
    }
    expected, norm = runs["host", 1]
    assert clip == 0 or norm > clip
    for run, (parameters, its_norm) in runs.items():
        assert its_norm == norm, run
        assert parameters == expected, run
    assert not list(tmp_path.iterdir())
