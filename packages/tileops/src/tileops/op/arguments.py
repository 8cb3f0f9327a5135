"""Argument lists of constructors and calls: bound, or refused with the argument's name and what is accepted."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from tileops.errors import ArgumentError, LayoutError

if TYPE_CHECKING:
    from tileops.manifest.plan import SignaturePlan


class Missing:
    """Stands for a required argument that was not passed."""


MISSING: Final = Missing()


def constructor_signature(cls: type) -> inspect.Signature:
    """The signature of a class's `__init__` without `self`."""
    signature = inspect.signature(cls.__init__)  # type: ignore[misc]
    parameters = list(signature.parameters.values())[1:]
    return signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty)


def wrong_construction(
    name: str, signature: inspect.Signature, args: Sequence[object], kwargs: Mapping[str, object], reason: str
) -> ArgumentError:
    """The error for a constructor called as `name(*args, **kwargs)`."""
    accepted = list(signature.parameters)
    unknown = [keyword for keyword in kwargs if keyword not in accepted]
    bare = [item.replace(annotation=item.empty) for item in signature.parameters.values()]
    text = str(inspect.Signature(bare))[1:-1]
    if unknown:
        mend = _meant(unknown[0], accepted) or f"construct it as {name}({text})"
        return ArgumentError(
            f"{name}: {unknown[0]}: expected parameters ({text}), received the keyword {unknown[0]!r}; {mend}"
        )
    return ArgumentError(
        f"{name}: {reason}; expected parameters ({text}), "
        f"received {len(args)} positional and the keywords {sorted(kwargs)}; construct it as {name}({text})"
    )


def _meant(keyword: str, accepted: Sequence[str]) -> str:
    """The question whether a misspelt keyword was meant as one that is accepted; empty where none is near."""
    near = get_close_matches(keyword, accepted, n=1)
    return f"did you mean {near[0]}?" if near else ""


def refuse_arguments(
    name: str,
    plan: SignaturePlan,
    values: Sequence[Any],
    out: Any,
    excess: Sequence[Any],
    unknown: Mapping[str, Any],
) -> None:
    """Raise the ArgumentError of a call with inputs `values`, `out`, and arguments that are left over."""
    inputs = [item if item in plan.required_inputs else f"{item}=None" for item in plan.inputs]
    accepted = ", ".join([*inputs, *(["*, out=None"] if any(branch.has_out for branch in plan.branches) else [])])
    mend = f"call it as op({accepted})"
    if unknown:
        keyword = next(iter(unknown))
        if keyword in plan.inputs:
            raise ArgumentError(
                f"{name}: {keyword}: expected one value, received a positional and a keyword one; {mend}"
            )
        names = [*plan.inputs, *(["out"] if any(branch.has_out for branch in plan.branches) else [])]
        raise ArgumentError(
            f"{name}: {keyword}: expected arguments ({accepted}), received the keyword {keyword!r}; "
            f"{_meant(keyword, names) or mend}"
        )
    if excess:
        raise ArgumentError(
            f"{name}: expected at most {len(plan.inputs)} arguments ({accepted}), "
            f"received {len(values) + len(excess)}; {mend}"
        )
    for item, value in zip(plan.inputs, values, strict=True):
        if value is MISSING:
            raise ArgumentError(f"{name}: {item}: expected a tensor, received nothing; {mend}")
        if not (isinstance(value, Tensor) or (value is None and item not in plan.required_inputs)):
            raise not_a_tensor(name, item, value)
        if value is not None:
            require_strided(name, item, value)
    if not (out is None or isinstance(out, Tensor)):
        raise not_a_tensor(name, "out", out)
    if out is not None:
        require_strided(name, "out", out)


def require_strided(name: str, item: str, value: Tensor) -> None:
    """Raise LayoutError for a sparse, nested or otherwise packed tensor, whose elements have no strides."""
    if value.layout is not torch.strided or value.is_nested:
        layout = "nested" if value.is_nested else str(value.layout).removeprefix("torch.")
        raise LayoutError(
            f"{name}: {item}: expected a strided tensor, received layout {layout}; "
            f"pass {item} as a dense tensor, with to_dense() where it is sparse "
            "and to_padded_tensor() where it is nested"
        )


def not_a_tensor(name: str, item: str, value: Any) -> ArgumentError:
    """The error for an argument that is no tensor."""
    mend = f"pass torch.as_tensor({item}) on the call's device" if value is not None else f"pass {item}"
    return ArgumentError(f"{name}: {item}: expected a torch.Tensor, received {type(value).__name__}; {mend}")


def is_traced(values: Sequence[object]) -> bool:
    """Whether a call is being traced: by a compiler, or on fake tensors."""
    return torch.compiler.is_compiling() or any(isinstance(value, FakeTensor) for value in values)


def fakes_are_made() -> bool:
    """Whether a tensor made now is fake: a mode that makes fakes is active, dynamo's own tracing apart."""
    if torch.compiler.is_dynamo_compiling():
        return False
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


def is_meta_call(values: Sequence[object]) -> bool:
    """Whether an eager call passes meta tensors, which are checked and recorded and computed with by nobody."""
    return not is_traced(values) and any(isinstance(value, Tensor) and value.is_meta for value in values)


def bind_call(
    name: str, plan: SignaturePlan, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[tuple[Any, ...], Any]:
    """The inputs in signature order, and `out`, of a call that has no generated boundary to settle them."""
    left = dict(kwargs)
    out = left.pop("out", None) if any(branch.has_out for branch in plan.branches) else None
    values = list(args[: len(plan.inputs)])
    missing = plan.inputs[len(values) :]
    values.extend(left.pop(item, MISSING if item in plan.required_inputs else None) for item in missing)
    refuse_arguments(name, plan, values, out, args[len(plan.inputs) :], left)
    return tuple(values), out
