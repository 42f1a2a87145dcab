"""The run that offloading is compared with: everything in memory, stepped by torch.optim.AdamW."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class TorchEngine:
    """Plain torch behind the few verbs that train_gpt.py uses of `zoffload.Engine`.

    An fp32 model is its own master copy. A 16-bit model has fp32 masters: each micro-batch's
    gradients are added to the masters' in fp32, the masters are stepped, and the model receives
    them rounded. A call of step() that is not at an accumulation boundary does nothing.
    """

    def __init__(self, model: nn.Module, config: dict):
        """`config` is the dict that zoffload.initialize() takes; placement is not looked at."""
        self._model = model
        self._accumulate = config["gradient_accumulation_steps"]
        self._clip = config["gradient_clipping"]
        self._micro_step = 0
        self._parameters = list(model.parameters())
        if config["bf16"]["enabled"]:
            self._masters = [nn.Parameter(p.detach().float()) for p in self._parameters]
        else:
            self._masters = self._parameters
        self._adam = torch.optim.AdamW(self._masters, fused=True, **config["optimizer"]["params"])

    def __call__(self, *args: Tensor) -> Tensor:
        return self._model(*args)

    def backward(self, loss: Tensor) -> None:
        """Adds this micro-batch's share of the gradient of the step's mean loss."""
        (loss / self._accumulate).backward()
        if self._masters is not self._parameters:
            for parameter, master in zip(self._parameters, self._masters, strict=True):
                self._move_gradient(parameter, master)
        self._micro_step += 1

    def step(self) -> None:
        if self._micro_step % self._accumulate != 0:
            return
        if self._clip > 0:
            torch.nn.utils.clip_grad_norm_(self._masters, self._clip)
        self._adam.step()
        self._adam.zero_grad(set_to_none=True)
        if self._masters is not self._parameters:
            with torch.no_grad():
                for parameter, master in zip(self._parameters, self._masters, strict=True):
                    parameter.copy_(master)

    def stats(self) -> dict:
        """The keys of `zoffload.Engine.stats()`; here, all state is in host memory."""
        tensors = list(self._parameters)
        if self._masters is not self._parameters:
            tensors += self._masters
        for state in self._adam.state.values():
            tensors += [state["exp_avg"], state["exp_avg_sq"]]
        state_bytes = sum(tensor.nbytes for tensor in tensors)
        gradient_bytes = sum(master.nbytes for master in self._masters)
        return {
            "bytes_by_tier": {"hbm": 0, "host": state_bytes + gradient_bytes, "nvme": 0},
            "host_bytes_budget": None,
            "host_bytes_high_water": None,
            "nvme_read_bytes": 0,
            "nvme_written_bytes": 0,
        }

    def destroy(self) -> None:
        """Nothing to give back: the memory is torch's."""

    @staticmethod
    def _move_gradient(parameter: Tensor, master: Tensor) -> None:
        if parameter.grad is None:
            return
        gradient = parameter.grad.float()
        parameter.grad = None
        master.grad = gradient if master.grad is None else master.grad.add_(gradient)
