"""A call that a target serves: what it is guaranteed, and the kernels that its builder made."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor

from tileops.backend.registry import BUILTIN
from tileops.backend.specs import TargetKernel
from tileops.backend.targets import build_kernel, spec_of
from tileops.errors import LayoutError, ResultError
from tileops.op.arguments import bind_call
from tileops_kernels.errors import OpNotAvailableError
from tileops_kernels.memory import share_memory

if TYPE_CHECKING:
    from tileops.manifest.record import SignatureCall
    from tileops.op.base import Op
    from tileops.op.state import BindingState

TargetKey: TypeAlias = tuple[torch.device | None, tuple[tuple[torch.dtype, tuple[int, ...]] | None, ...]]
"""What a target's kernel is built for: the call's device, and each input's dtype and shape, None for an absent one."""


def run_target(
    op: Op,
    binding: BindingState,
    record: SignatureCall,
    inputs: Sequence[Tensor | None],
    out: Tensor | None,
    note: Callable[[object], None],
) -> Any:
    """Run the target's kernel on checked inputs, made contiguous unless the call writes them.

    The caller's buffer is memory of its own: no target could know otherwise. `note` is told of a kernel that this call
    built. Raises LayoutError for a buffer within an input, and ResultError for a result in memory that is not its own.
    """
    ready = _ready(op, record.written, inputs)
    if out is not None:
        _refuse_shared(op, out, ready)
    kernel = _kernel(op, binding, record.device, ready, note)
    result = kernel(*ready) if out is None else kernel(*ready, out=out)
    _check_places(op, record, ready, out, result)
    return result


def composes(op: Op, target: str) -> bool:
    """Whether `op` runs its own composition under `target`: it declares no kernel, and the target has no builder.

    An op that was assembled of injected parts does so under every target: no builder is told of them.
    """
    return bool(op.delegate_types) and not op.kernel_types and (op.assembled or not _has_builder(op, target))


def serves_elsewhere(op: Op) -> bool:
    """Whether a target other than the in-tree kernels already serves the instance through a builder."""
    target = op._binding.target
    return target is not None and target != BUILTIN and not op.assembled and _has_builder(op, target)


def trace_target(op: Op, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Call the target's kernel from traced code, unchecked; the kernel becomes whatever it is traced to.

    What the call writes is the caller's own, as in an eager call. Raises OpNotAvailableError when no eager call has
    built the kernel: building cannot be traced.
    """
    inputs, out = bind_call(type(op).__name__, op._plan, args, kwargs)
    ready = _ready(op, _written(op, inputs, out), inputs)
    device = _device(op, ready)
    kernel = op._binding.target_kernels.get(_key(device, ready))
    if kernel is None:
        shapes = [None if tensor is None else list(tensor.shape) for tensor in ready]
        raise OpNotAvailableError(
            f"{type(op).__name__}: target {op._binding.target!r}: expected inputs that its kernels were built for, "
            f"received shapes {shapes} while tracing; call the op once with such inputs before compiling"
        )
    return kernel(*ready) if out is None else kernel(*ready, out=out)


def _ready(op: Op, written: Collection[str], inputs: Sequence[Tensor | None]) -> tuple[Tensor | None, ...]:
    """The inputs as a target's kernel gets them: contiguous, but for those that the call writes."""
    return tuple(
        [
            tensor if tensor is None or name in written else tensor.contiguous()
            for name, tensor in zip(op._plan.inputs, inputs, strict=True)
        ]
    )


def _refuse_shared(op: Op, out: Tensor, inputs: Sequence[Tensor | None]) -> None:
    """Raise LayoutError where the caller's buffer shares memory with an input, which a kernel may read as it writes."""
    for name, tensor in zip(op._plan.inputs, inputs, strict=True):
        if tensor is not None and share_memory(out, tensor):
            raise LayoutError(
                f"{type(op).__name__}: out: expected memory of its own, received some of {name}; pass another buffer"
            )


def _check_places(
    op: Op, record: SignatureCall, inputs: Sequence[Tensor | None], out: Tensor | None, result: Any
) -> None:
    """Raise ResultError unless what the call writes is returned as the caller's own, and any other output is new.

    Compiled code rests on both: an operator returns what it allocates alone, and no part of an input.
    """
    passed: dict[str, Tensor | None] = {**dict(zip(op._plan.inputs, inputs, strict=True)), "out": out}
    taken = {name: tensor for name, tensor in passed.items() if tensor is not None}
    values = result if isinstance(result, tuple | list) else (result,)
    for output, value in zip(record.branch.entry.signature.outputs, values, strict=False):
        own = output.alias if output.alias in record.written else "out" if output.buffer and out is not None else None
        if not isinstance(value, Tensor):
            continue
        if own is None:
            name = next((name for name, tensor in taken.items() if share_memory(value, tensor)), None)
            if name is not None:
                raise ResultError(
                    f"{type(op).__name__}: {output.name}: expected a new tensor, received memory of {name}; "
                    f"the kernel of target {op._binding.target!r} has to allocate it"
                )
            taken[output.name] = value
        elif value is not passed[own]:
            raise ResultError(
                f"{type(op).__name__}: {output.name}: expected the caller's own {own}, received another tensor; "
                f"the kernel of target {op._binding.target!r} has to write {own} and return it"
            )


def _written(op: Op, inputs: Sequence[Tensor | None], out: Tensor | None) -> tuple[str, ...]:
    """The inputs that a call which nothing has checked writes."""
    plan = op._plan
    optional = [item for name, item in zip(plan.inputs, inputs, strict=True) if name not in plan.required_inputs]
    if any(branch.has_out for branch in plan.branches):
        optional.append(out)
    return plan.branches[op._effects[tuple([item is not None for item in optional])]].writes


def _device(op: Op, inputs: Sequence[Tensor | None]) -> torch.device | None:
    """The device of a call that nothing has checked: its first tensor's that is not declared for the CPU."""
    for declared, tensor in zip(op._plan.entry.signature.inputs, inputs, strict=True):
        if tensor is not None and declared.device != "cpu":
            return tensor.device
    return op._construction.values.device


def _kernel(
    op: Op,
    binding: BindingState,
    device: torch.device | None,
    inputs: Sequence[Tensor | None],
    note: Callable[[object], None],
) -> TargetKernel:
    """The target's kernel for these inputs, built once per device and each input's dtype and shape."""
    key = _key(device, inputs)
    kernel = binding.target_kernels.get(key)
    return _build(op, binding, key, inputs, note) if kernel is None else kernel


def _key(device: torch.device | None, inputs: Sequence[Tensor | None]) -> TargetKey:
    return device, tuple([None if tensor is None else (tensor.dtype, tuple(tensor.shape)) for tensor in inputs])


def _build(
    op: Op,
    binding: BindingState,
    key: TargetKey,
    inputs: Sequence[Tensor | None],
    note: Callable[[object], None],
) -> TargetKernel:
    with op._running.guard:
        kernel = binding.target_kernels.get(key)
        if kernel is None:
            parameters = {item.name: op.parameter_on(item.name, key[0]) for item in op._plan.parameters}
            specs = [spec_of(tensor) for tensor in inputs]
            name, target = type(op).__name__, str(binding.target)
            kernel = build_kernel(op._construction.backends, name, target, specs, parameters)
            binding.target_kernels[key] = kernel
            note(kernel)
    return kernel


def _has_builder(op: Op, target: str) -> bool:
    return op._construction.backends.builder_of(type(op).__name__, target) is not None
