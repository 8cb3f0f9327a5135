"""What a call whose input requires a gradient does: the forward runs, the backward raises."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from tileops.errors import GradientError

_LIBRARY = torch.library.Library("tileops", "FRAGMENT")
_LIBRARY.define(
    "backward_refused(Tensor gradient, Tensor like, str op_name) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,)
)


def _refuse(gradient: Tensor, like: Tensor, op_name: str) -> Tensor:  # noqa: ARG001
    raise _refused(op_name)


def _refused(op_name: str) -> GradientError:
    return GradientError(
        f"{op_name}: backward through its output is not defined; expected a call that needs no gradient, received an "
        "input with requires_grad=True; call it under torch.no_grad(), detach its inputs, or differentiate a reference "
        "implementation"
    )


def in_forward_mode() -> bool:
    """Whether forward-mode differentiation is under way, in which inputs may carry tangents."""
    return forward_ad._current_level >= 0


def exporting() -> bool:
    """Whether `torch.export` is at work.

    As `torch.compiler.is_exporting`, which dynamo of torch 2.11 takes to be true of every compilation.
    """
    return torch.compiler._is_exporting_flag


def refuse_tangents(op_name: str, tensors: Sequence[Tensor | None]) -> None:
    """Raise GradientError when one of the tensors carries a tangent, which an operator would drop in silence."""
    if any(tensor is not None and forward_ad.unpack_dual(tensor).tangent is not None for tensor in tensors):
        raise GradientError(
            f"{op_name}: a forward-mode derivative of its output is not defined; expected inputs without tangents, "
            "received one with a tangent; call it outside torch.func.jvp and torch.autograd.forward_ad, or "
            "differentiate a reference implementation"
        )


def _fake(gradient: Tensor, like: Tensor, op_name: str) -> Tensor:  # noqa: ARG001
    return torch.empty_like(like)


_LIBRARY.impl("backward_refused", _refuse, "CompositeExplicitAutograd")
torch.library.register_fake("tileops::backward_refused", _fake, lib=_LIBRARY)


def forward_only(operator: Any, op_name: str, written: Sequence[int] = ()) -> type[torch.autograd.Function]:
    """An autograd function around `operator(*inputs, instance_key)` whose backward raises GradientError.

    `written` are the places of arguments that the operator writes: it is given copies of them, and the function returns
    a tuple of what the operator returns and then these copies, for the caller to copy back. So the written tensors too
    depend on the call, and no gradient is taken past it.

    The error comes from an operator of its own, at run time: raising while a compiler makes the backward graph would
    break the forward too.
    """

    class ForwardOnly(torch.autograd.Function):
        @staticmethod
        def forward(*arguments: Any) -> Any:
            if not written:
                return operator(*arguments)
            copied = [value.clone() if place in written else value for place, value in enumerate(arguments)]
            result = operator(*copied)
            allocated = () if result is None else result if isinstance(result, tuple) else (result,)
            return (*allocated, *(copied[place] for place in written))

        @staticmethod
        def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
            ctx.save_for_backward(*(_shape_of(value) for value in inputs if isinstance(value, Tensor)))
            ctx.passed = tuple(isinstance(value, Tensor) for value in inputs)

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            gradient = next(value for value in gradients if value is not None)
            saved = iter(ctx.saved_tensors)
            return tuple(_OPERATOR(gradient, next(saved), op_name) if is_tensor else None for is_tensor in ctx.passed)

    return ForwardOnly


def needs_gradient(tensors: Sequence[Tensor | None]) -> bool:
    """Whether gradients are recorded now and one of the tensors asks for one."""
    return torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in tensors)


def call_without_gradient(
    op_name: str, run: Callable[[], Any], tensors: Sequence[Tensor | None], written: Sequence[Tensor | None]
) -> Any:
    """The result of `run`, an eager call on `tensors` that writes `written`, through which backward raises.

    For calls without a compile boundary, whose kernels are no operators and would drop gradients in silence.
    """
    passed = [tensor for tensor in tensors if tensor is not None]
    with torch.no_grad():
        result = run()
    for tensor in written:
        if tensor is not None and tensor.is_floating_point():
            tensor.copy_(_DEPENDING([tensor.detach().clone()], op_name, *passed))
    if not isinstance(result, tuple):
        return _depending(result, op_name, passed)
    return tuple([_depending(output, op_name, passed) for output in result])


def _depending(output: Any, op_name: str, passed: Sequence[Tensor]) -> Any:
    if not isinstance(output, Tensor) or not output.is_floating_point() or any(output is item for item in passed):
        return output
    return _DEPENDING([output], op_name, *passed)


class _Refused(torch.autograd.Function):
    """Gives the tensor in its list, as one that depends on the inputs; its backward raises."""

    @staticmethod
    def forward(held: Sequence[Tensor], op_name: str, *inputs: Tensor) -> Tensor:  # noqa: ARG004
        return held[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:  # noqa: ARG004
        ctx.op_name = inputs[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:  # noqa: ARG004
        raise _refused(ctx.op_name)


def _shape_of(tensor: Tensor) -> Tensor:
    """A tensor of one element in memory that has the shape of `tensor`, so that no input is kept alive."""
    return tensor.new_empty(()).expand(tensor.shape)


_OPERATOR = torch.ops.tileops.backward_refused.default
_DEPENDING: Any = _Refused.apply
