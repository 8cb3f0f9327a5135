"""A call that a target serves: what it is guaranteed, and the kernels that its builder made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tileops.backend.registry import BUILTIN
from tileops.backend.specs import TargetKernel
from tileops.backend.targets import require_builder, spec_of
from tileops.op.arguments import bind_call
from tileops.op.tuning import warn_untuned

if TYPE_CHECKING:
    from tileops.manifest.record import SignatureCall
    from tileops.op.base import Op
    from tileops.op.state import BindingState


def run_target(
    op: Op,
    binding: BindingState,
    target: str,
    record: SignatureCall,
    inputs: Sequence[Tensor | None],
    out: Tensor | None,
) -> Any:
    """Run the kernel of `target` on checked inputs, made contiguous unless the call writes them.

    A composite that declares no kernel of its own, under a target without a builder for it, runs its composition.
    """
    name = type(op).__name__
    if op._running.tuned:
        warn_untuned(op, target)
    if op.delegate_types and not op.kernel_types and op._construction.backends.builder_of(name, target) is None:
        return op.forward(*inputs) if out is None else op.forward(*inputs, out=out)
    ready = tuple(
        tensor if tensor is None or tensor_name in record.written else tensor.contiguous()
        for tensor_name, tensor in zip(op._plan.inputs, inputs, strict=True)
    )
    kernel = _kernel(op, binding, target, record.device, ready)
    return kernel(*ready) if out is None else kernel(*ready, out=out)


def _kernel(
    op: Op, binding: BindingState, target: str, device: torch.device | None, inputs: Sequence[Tensor | None]
) -> TargetKernel:
    """The target's kernel for these inputs, built once per device and each input's dtype and shape."""
    facts = tuple(None if tensor is None else (tensor.dtype, tuple(tensor.shape)) for tensor in inputs)
    key = (device, facts)
    kernel = binding.target_kernels.get(key)
    if kernel is None:
        with op._running.guard:
            kernel = binding.target_kernels.get(key)
            if kernel is None:
                build = require_builder(op._construction.backends, type(op).__name__, target)
                kernel = build(*(spec_of(tensor) for tensor in inputs), **op._construction.values.parameters)
                binding.target_kernels[key] = kernel
    return kernel


def serves_elsewhere(op: Op) -> bool:
    """Whether a target other than the in-tree kernels already serves the instance through a builder."""
    target = op._binding.target
    return (
        target is not None
        and target != BUILTIN
        and op._construction.backends.builder_of(type(op).__name__, target) is not None
    )


def trace_target(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call the target's kernel from traced code, unchecked; the kernel becomes whatever it is traced to."""
    inputs, out = bind_call(type(op).__name__, op._plan, args, kwargs)
    ready = tuple(tensor if tensor is None else tensor.contiguous() for tensor in inputs)
    device = next((tensor.device for tensor in ready if tensor is not None), None)
    kernel = _kernel(op, op._binding, str(op._binding.target), device, ready)
    return kernel(*ready) if out is None else kernel(*ready, out=out)
