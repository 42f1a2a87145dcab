"""zoffload.initialize() and the engine that it returns, under DeepSpeed's names.

engine, optimizer, _, _ = zoffload.initialize(model=model, config="ds.json")
for x, y in loader:
    loss = engine(x, y)
    engine.backward(loss)
    engine.step()
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from . import _core, metrics
from .algorithms import Algorithm
from .buckets import cut_module
from .chosen_optimizer import choose_optimizer
from .core_args import hypers_of
from .errors import InvalidArgument, Unsupported, unavailable
from .gradients import Gradients
from .hooks import Hooks
from .report import report
from .residency import Residency, give_back_freed_memory
from .state_formats import rules_of_config
from .zero import Home

logger = logging.getLogger("zoffload")

ALLOWED_SETTINGS = {"foreach": None, "fused": None}  # whatever the caller's optimizer has of these


# ---- Optimizer -----------------------------------------------------------------------------------


class ZeroOptimizer(torch.optim.Optimizer):
    """The user's view of the optimizer: groups of parameters and their settings, read at each step.

    Its state lives in the engine; see zoffload.utils for a parameter's share of it.
    """

    def __init__(
        self,
        params: Iterable,
        defaults: Mapping[str, Any],
        algorithm: Algorithm,
        config: _core.Config,
    ):
        self.algorithm = algorithm
        self._config = config
        self._open = False
        self._without_momentum: set[int] = set()  # groups that stepped so: they start a new one
        self.last_report: dict | None = None  # of the last step
        super().__init__(params, dict(defaults))
        for number, group in enumerate(self.param_groups):
            algorithm.check_new_group(number, {**group, **ALLOWED_SETTINGS})
        self.has_moments = any(map(algorithm.needs_moments, self.param_groups))

    @property
    def name(self) -> str:
        """The core's: "adamw", "momentum_sgd"."""
        return self.algorithm.core_name(self.has_moments)

    @property
    def moments(self) -> Mapping[str, str]:
        """That are kept: the core's role -> the key in torch's state."""
        return self.algorithm.moments if self.has_moments else {}

    def attach(self, core: _core.Engine, residency: Residency, hooks: Hooks, gradients: Gradients):
        self._core, self._residency = core, residency
        self._hooks, self._gradients = hooks, gradients
        self._metrics = metrics.track([core])
        self._open = True

    def add_param_group(self, param_group: dict) -> None:
        if self._open:
            raise Unsupported(
                "add_param_group(): the engine's parameters are fixed when it is made"
            )
        super().add_param_group(param_group)

    @torch.no_grad()
    def step(self, closure: Callable | None = None) -> None:
        """Updates every parameter that got a gradient; returns while updates are being written."""
        if closure is not None:
            raise Unsupported("step(closure)")
        self._check_settings()
        self._hooks.recover()
        self._residency.drop_all()
        self.last_report = self._core.step(
            hypers_of(self.param_groups),
            self._config.gradient_clipping,
            self._config.skip_nonfinite,
        )
        if self.last_report["skipped"]:
            norm = self.last_report["grad_norm"]
            logger.warning("step skipped: the gradient norm is %s", norm)
        else:
            for number, group in enumerate(self.param_groups):
                if not self.algorithm.needs_moments(group):
                    self._without_momentum.add(number)
        self._metrics.stepped()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forgets the gradients since the last step."""
        self._hooks.forget_gradients()

    def state_dict(self) -> dict:
        raise Unsupported("optimizer.state_dict(): checkpoints are not available in this version")

    def load_state_dict(self, state_dict: dict) -> None:
        raise Unsupported(
            "optimizer.load_state_dict(): checkpoints are not available in this version"
        )

    def _check_settings(self) -> None:
        """At each step: whoever holds the groups may change them."""
        for number, group in enumerate(self.param_groups):
            self.algorithm.check_settings(number, {**group, **ALLOWED_SETTINGS})
            if self.algorithm.always_keeps or not self.algorithm.needs_moments(group):
                continue
            momentum = f"momentum={group['momentum']!r} in parameter group {number}"
            if not self.has_moments:
                raise InvalidArgument(f"{momentum}: it was 0 at initialize(): no buffer is kept")
            if number in self._without_momentum and group["dampening"] != 0:
                raise Unsupported(f"{momentum}, with dampening, after steps without momentum")


# ---- Engine --------------------------------------------------------------------------------------


class Engine:
    """A model whose parameters and optimizer state live where the config puts them.

    What it does not define itself, such as parameters(), is the module's.
    """

    def __init__(self, module: nn.Module, optimizer: ZeroOptimizer, config: _core.Config):
        self.module = module
        self.optimizer = optimizer
        self.config = config
        self.lr_scheduler: Any = None
        self.training_dataloader: DataLoader | None = None
        self.micro_steps = 0
        self.global_steps = 0
        self.skipped_steps = 0
        self._in_no_sync = False

        groups = {p: i for i, group in enumerate(optimizer.param_groups) for p in group["params"]}
        check_groups(module, groups)
        dtype = torch.bfloat16 if config.dtype == "bf16" else torch.float32
        rules = rules_of_config(config)
        self._cut = cut_module(module, groups, dtype, rules.format_of)
        rules.warn_of_unused(stacklevel=3)
        specs = [bucket.spec() for bucket in self._cut.buckets]
        self._core = _core.Engine(specs, core_options(config, optimizer.name))
        self._residency = Residency(self._core, self._cut, optimizer.moments)
        try:
            self._take_over(dtype)
            self._set_moments(optimizer)
        except BaseException:
            self._residency.close()
            raise
        self._gradients = Gradients(self._core, self._cut.buckets)
        self._hooks = Hooks(self._cut, self._residency, self._gradients)
        optimizer.attach(self._core, self._residency, self._hooks, self._gradients)
        self._metrics = optimizer._metrics

    @torch.no_grad()
    def _take_over(self, dtype: torch.dtype) -> None:
        """Moves the initial values to their homes, a bucket at a time, and frees the originals.
        `dtype` is the parameters', and becomes that of fp32 buffers."""
        self._residency.begin_housekeeping()
        for bucket in self._cut.buckets:
            bucket.lay_out(self._core.bucket_layout(bucket.id))
        for bucket in self._cut.buckets:
            given = [record.param.data for record in bucket.records]
            bucket.hide()
            self._residency.gather(bucket)
            for record, value in zip(bucket.records, given, strict=True):
                record.view.copy_(value)
                record.param.grad = None
                record.param.zoffload_home = Home(self._residency, bucket, record)
            self._core.write_back(bucket.id)
            self._residency.release(bucket)
        for child in self.module.modules() if dtype == torch.bfloat16 else ():
            for name, buffer in child.named_buffers(recurse=False):
                if buffer.dtype == torch.float32:
                    setattr(child, name, buffer.to(dtype))
        del given, value
        give_back_freed_memory()

    def _set_moments(self, optimizer: ZeroOptimizer) -> None:
        """Homes start as zeros; only Adagrad may want another value."""
        value = optimizer.defaults.get("initial_accumulator_value", 0.0)
        for bucket in self._cut.buckets if value != 0 else ():
            for record in bucket.records if bucket.trainable else ():
                for role in optimizer.moments:
                    self._residency.write_state(bucket, record, role, torch.tensor(value))

    # ---- Training

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    forward = __call__

    def backward(self, loss: Tensor, retain_graph: bool = False) -> Tensor:
        """Gradients of loss / gradient_accumulation_steps; they leave as they are produced."""
        (loss / self.gradient_accumulation_steps()).backward(retain_graph=retain_graph)
        return loss

    def step(self) -> None:
        """Ends a micro-step; at the last of gradient_accumulation_steps, updates the parameters."""
        if self._in_no_sync:
            raise InvalidArgument("step() inside no_sync(): leave it first")
        if not self.is_gradient_accumulation_boundary():
            self.micro_steps += 1
            return
        self.optimizer.step()
        self.micro_steps += 1  # now, so that a step that failed can be repeated
        self.global_steps += 1
        if self.optimizer.last_report["skipped"]:
            self.skipped_steps += 1
        elif self.lr_scheduler is not None:
            self.lr_scheduler.step()

    def is_gradient_accumulation_boundary(self) -> bool:
        return (self.micro_steps + 1) % self.gradient_accumulation_steps() == 0

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Backward accumulates inside; a rank alone has nothing to leave out."""
        self._in_no_sync = True
        try:
            yield
        finally:
            self._in_no_sync = False

    def zero_grad(self, set_to_none: bool = True) -> None:
        self.optimizer.zero_grad(set_to_none)

    def settle(self) -> None:
        """Waits until the updates that step() started are home. Only benchmarks need it."""
        self._core.settle()

    def train(self, mode: bool = True) -> Engine:
        self.module.train(mode)
        return self

    def eval(self) -> Engine:
        return self.train(False)

    # ---- Questions

    device = torch.device("cpu")
    local_rank = 0
    world_size = 1

    def get_global_grad_norm(self) -> float | None:
        """Of the last step, before clipping; None before the first."""
        report = self.optimizer.last_report
        return None if report is None else report["grad_norm"]

    def get_lr(self) -> list[float]:
        return [group["lr"] for group in self.optimizer.param_groups]

    def train_batch_size(self) -> int:
        return self.config.train_batch_size

    def train_micro_batch_size_per_gpu(self) -> int:
        return self.config.train_micro_batch_size_per_gpu

    def gradient_accumulation_steps(self) -> int:
        return self.config.gradient_accumulation_steps

    def plan(self) -> dict:
        """Where everything lives and what is reserved; str(engine) is the same for people."""
        return self._core.plan()

    def stats(self) -> dict:
        """Bytes by tier, bytes moved since initialize(), and the core's counters."""
        plan, stats = self._core.plan(), self._core.stats()
        return {
            "bytes_by_tier": {
                "hbm": plan["home_bytes"]["hbm"],
                "host": plan["home_bytes"]["host"] + plan["gradient_bytes"],
                "nvme": plan["home_bytes"]["nvme"],
            },
            "host_bytes_budget": self.config.host_bytes or None,
            "host_bytes_high_water": plan["host_bytes"],  # reserved whole when the engine opens
            "nvme_read_bytes": stats["loaded_bytes"]["nvme"],
            "nvme_written_bytes": stats["stored_bytes"]["nvme"],
            **stats,
        }

    def report(self) -> str:
        """For people, after a run: where the time went, and what bounded it."""
        return report(self._metrics)

    def __str__(self) -> str:
        return self._core.plan_summary()

    def __getattr__(self, name: str) -> Any:
        if name == "module":  # not made yet: no module to ask
            raise AttributeError(name)
        return getattr(self.module, name)

    # ---- DeepSpeed's, which the module is not to be asked for

    save_checkpoint = unavailable("Engine.save_checkpoint()")
    load_checkpoint = unavailable("Engine.load_checkpoint()")
    save_16bit_model = unavailable("Engine.save_16bit_model()")
    offload_states = unavailable("Engine.offload_states()")
    reload_states = unavailable("Engine.reload_states()")

    # ---- The end

    def destroy(self) -> None:
        """Stops everything and removes the swap files. The module's parameters are gone; may be
        repeated. What is wanted of them is to be read before, inside zero.GatheredParameters."""
        if not self._residency.close.alive:
            return
        self._residency.close()
        self._hooks.remove()
        self._gradients.unhook()
        for bucket in self._cut.buckets:
            for record in bucket.records:
                record.param.data = torch.empty(0, dtype=bucket.dtype)
                record.param.__dict__.pop("zoffload_home", None)
            bucket.flat.untyped_storage().resize_(0)


def check_groups(module: nn.Module, groups: Mapping[nn.Parameter, int]) -> None:
    known = set(module.parameters())
    for param, group in groups.items():
        if param not in known:
            shape = tuple(param.shape)
            raise InvalidArgument(
                f"model_parameters: group {group} has a parameter of shape {shape} that is not the "
                "model's"
            )


def core_options(config: _core.Config, optimizer_name: str) -> dict:
    """The config's share that the core wants to know."""
    return {
        "params": config.params,
        "optimizer": config.optimizer,
        "host_bytes": config.host_bytes,
        "device_bytes": config.device_bytes,
        "subgroup_bytes": config.subgroup_bytes,
        "subgroup_numel": config.sub_group_numel,
        "threads": config.threads,
        "prefetch": config.prefetch,
        "micro_steps": config.gradient_accumulation_steps,
        "optimizer_name": optimizer_name,
        "nvme_paths": config.nvme_paths,
        "io_engine": config.io_engine,
        "block_bytes": config.io_block_bytes,
        "queue_depth": config.io_queue_depth,
        "profile": config.profile_file,
        "verify_reads": config.verify_reads,
        "allow_memory_paths": config.allow_memory_paths,
        "stall_timeout": config.stall_timeout_seconds,
    }


# ---- initialize ----------------------------------------------------------------------------------


def read_config(config: dict | str | os.PathLike | None, args: Any) -> _core.Config:
    """A dict, a path, or args.deepspeed_config; warns about what has no effect here."""
    if config is None:
        config = getattr(args, "deepspeed_config", None)
    if config is None:
        raise InvalidArgument("initialize(): config is missing: a dict, or the path of a JSON file")
    text = json.dumps(config) if isinstance(config, dict) else Path(config).read_text()
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size != 1:
        raise Unsupported(f"WORLD_SIZE is {world_size}: this version trains with one rank")
    parsed = _core.parse_config(text, world_size)
    for warning in parsed.warnings:
        warnings.warn(warning, stacklevel=3)
    if parsed.stage != 3:
        raise Unsupported(f"zero_optimization.stage is {parsed.stage}: this version does stage 3")
    return parsed


def warn_of_frozen(module: nn.Module, config: _core.Config, optimizer_name: str) -> None:
    """Everything is given to the optimizer, though some is perhaps never trained."""
    rules = rules_of_config(config)
    state_bytes = sum(
        _core.state_bytes(config.dtype, rules.format_of(name), optimizer_name, p.numel())
        for name, p in module.named_parameters()
        if not p.requires_grad
    )
    if state_bytes > 0:
        warnings.warn(
            f"{state_bytes} bytes of optimizer state are reserved for parameters that are frozen "
            "now: give model_parameters= without them if they stay so",
            stacklevel=3,
        )


def make_dataloader(
    data: Any, config: _core.Config, collate_fn: Callable | None
) -> DataLoader | None:
    if data is None:
        return None
    return DataLoader(
        data,
        batch_size=config.train_micro_batch_size_per_gpu,
        shuffle=not isinstance(data, IterableDataset),
        collate_fn=collate_fn,
    )


def initialize(
    args: Any = None,
    model: nn.Module | None = None,
    optimizer: Any = None,
    model_parameters: Iterable | None = None,
    training_data: Any = None,
    lr_scheduler: Any = None,
    collate_fn: Callable | None = None,
    config: dict | str | os.PathLike | None = None,
) -> tuple[Engine, ZeroOptimizer, DataLoader | None, Any]:
    """Moves a model's parameters and optimizer state to where the config says, and returns
    (engine, optimizer, dataloader, lr_scheduler). Whatever can be wrong is an error here.

    In a bf16 model, fp32 buffers become bf16 too; integers and fp64 keep their type, which
    DeepSpeed would cast as well.
    """
    if not isinstance(model, nn.Module):
        raise InvalidArgument(f"initialize(): model is {model!r}, not a torch.nn.Module")
    parsed = read_config(config, args)
    chosen = choose_optimizer(optimizer, model, model_parameters, parsed)
    zero_optimizer = ZeroOptimizer(*chosen, parsed)
    if model_parameters is None and not isinstance(optimizer, torch.optim.Optimizer):
        warn_of_frozen(model, parsed, zero_optimizer.name)
    engine = Engine(model, zero_optimizer, parsed)
    engine.training_dataloader = make_dataloader(training_data, parsed, collate_fn)
    is_factory = callable(lr_scheduler) and not hasattr(lr_scheduler, "step")
    engine.lr_scheduler = lr_scheduler(zero_optimizer) if is_factory else lr_scheduler
    return engine, zero_optimizer, engine.training_dataloader, engine.lr_scheduler
