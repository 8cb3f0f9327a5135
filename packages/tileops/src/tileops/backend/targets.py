"""Which target serves an op instance, and the kernels that it builds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tileops.backend.registry import BUILTIN, BackendRegistry
from tileops.backend.specs import BuildKernel, TargetKernel, TensorSpec
from tileops_kernels.errors import BackendError, OpNotAvailableError


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


def build_kernel(
    registry: BackendRegistry,
    op_name: str,
    target: str,
    specs: Sequence[TensorSpec | None],
    parameters: Mapping[str, object],
) -> TargetKernel:
    """What the target's builder of an op returns for these inputs and parameters.

    Raises OpNotAvailableError when the target registered no builder for the op: there is no fall-back to the in-tree
    kernels. Raises BackendError when the builder returns something that cannot be called.
    """
    builder = require_builder(registry, op_name, target)
    kernel: object = builder(*specs, **parameters)
    if not callable(kernel):
        raise BackendError(
            f"{op_name}: target {target!r}: expected its builder to return a callable, received {kernel!r}; return a "
            "function of the tensors in signature order"
        )
    return kernel


def require_builder(registry: BackendRegistry, op_name: str, target: str) -> BuildKernel:
    """The target's builder of an op.

    Raises OpNotAvailableError when it registered none: there is no fall-back to the in-tree kernels.
    """
    builder = registry.builder_of(op_name, target)
    if builder is None:
        serving = registry.targets_serving(op_name)
        raise OpNotAvailableError(
            f"{op_name}: target: expected a target that serves this op, one of {[BUILTIN, *serving]}, received "
            f"{target!r}, which registered no builder for it; construct the op with target={BUILTIN!r} to run the "
            "in-tree kernels"
        )
    return builder


def spec_of(tensor: Tensor | None) -> TensorSpec | None:
    """What a builder is told of an input; None for one that is absent."""
    return None if tensor is None else TensorSpec(tensor.device, tensor.dtype, tuple(tensor.shape))
