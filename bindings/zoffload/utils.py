"""One parameter's state, as deepspeed.utils' safe_get and safe_set functions give it.

They read from and write to the parameter's home, between steps, wherever it is and whether or not
the parameter is gathered.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from .errors import InvalidArgument, unavailable
from .zero import home_of


def _fp32_role(dtype: torch.dtype) -> str:
    return "param" if dtype == torch.float32 else "master"


def _role_of(moments: Mapping[str, str], optim_state_key: str) -> str:
    """The core's name of what torch's optimizer, or DeepSpeed's, keeps under this key."""
    for role, key in moments.items():
        if optim_state_key in (role, key):
            return role
    raise InvalidArgument(
        f"{optim_state_key!r} is no state of this optimizer; there are {(*moments.values(),)}"
    )


def safe_get_full_fp32_param(param: nn.Parameter) -> Tensor | None:
    """A copy of the master weight; None for a parameter that is not trained."""
    residency, bucket, record = home_of(param)
    if not bucket.trainable:
        return None
    return residency.read_state(bucket, record, _fp32_role(bucket.dtype))


@torch.no_grad()
def safe_set_full_fp32_param(param: nn.Parameter, value: Tensor) -> None:
    """Sets the master weight, and the parameter to what it rounds to."""
    residency, bucket, record = home_of(param)
    if not bucket.trainable:
        raise InvalidArgument(f"parameter {record.name} is not trained: it has no master weight")
    residency.write_state(bucket, record, _fp32_role(bucket.dtype), value)


def safe_get_full_optimizer_state(param: nn.Parameter, optim_state_key: str) -> Tensor | None:
    """A copy of `exp_avg`, `momentum_buffer` and the like; None for a parameter that is not
    trained."""
    residency, bucket, record = home_of(param)
    role = _role_of(residency.moments, optim_state_key)
    if not bucket.trainable:
        return None
    return residency.read_state(bucket, record, role)


@torch.no_grad()
def safe_set_full_optimizer_state(param: nn.Parameter, value: Tensor, optim_state_key: str) -> None:
    """Sets `exp_avg`, `momentum_buffer` and the like."""
    residency, bucket, record = home_of(param)
    role = _role_of(residency.moments, optim_state_key)
    if not bucket.trainable:
        raise InvalidArgument(f"parameter {record.name} is not trained: it has no optimizer state")
    residency.write_state(bucket, record, role, value)


# A gradient leaves as soon as it is produced; there is nothing to read it from.
safe_get_full_grad = unavailable("utils.safe_get_full_grad()")
