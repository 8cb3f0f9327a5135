"""Which target serves an op instance, and the kernels that it builds."""

from __future__ import annotations

import torch
from torch import Tensor

from tileops.backend.registry import BUILTIN, BackendRegistry
from tileops.backend.specs import BuildKernel, TensorSpec
from tileops_kernels.errors import OpNotAvailableError


def select_target(
    registry: BackendRegistry, op_name: str, requested: str | None, device: torch.device | None
) -> str | None:
    """The target of an op: the constructor's, then the process default, then the one that claims the call's device.

    None when there is nothing to select from: no target was asked for and the call has no device.
    """
    asked = requested if requested is not None else registry.default_target
    if asked is not None:
        registry.require_target(op_name, asked)
        return asked
    return None if device is None else registry.detect(op_name, device)


def require_builder(registry: BackendRegistry, op_name: str, target: str) -> BuildKernel:
    """The builder of an op that has no composition to run instead; there is no fall-back to the in-tree kernels."""
    builder = registry.builder_of(op_name, target)
    if builder is None:
        serving = registry.registered_targets(op_name)
        raise OpNotAvailableError(
            f"{op_name}: target: expected a target that serves this op, one of {[BUILTIN, *serving]}, received "
            f"{target!r}, "
            f"which registered no builder for it; construct the op with target={BUILTIN!r} to run the in-tree kernels"
        )
    return builder


def spec_of(tensor: Tensor | None) -> TensorSpec | None:
    """What a builder is told of an input; None for one that is absent."""
    return None if tensor is None else TensorSpec(tensor.device, tensor.dtype, tuple(tensor.shape))
