"""The compile boundary: operators, fakes and `_call_boundary`, generated for an op class from its signature plan.

The only module that registers operators of op classes. An operator takes the signature's inputs in order and the
instance key; it returns the outputs that the op allocates on its effect branch.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from tileops.errors import ArgumentError
from tileops.op.call import check_signature, empty_result, run_call
from tileops.op.gradients import forward_only
from tileops.op.keys import instance
from tileops.op.naming import operator_name

if TYPE_CHECKING:
    from tileops.manifest.plan import EffectBranch, SignaturePlan

_NAMESPACE = "tileops"
_LIBRARIES: dict[str, torch.library.Library] = {}
_SERIAL = itertools.count()


@dataclass(frozen=True, slots=True)
class CompileBoundary:
    """What an op class gets: its operators' qualified names, the generated `_call_boundary`, and that code's text."""

    operator_names: tuple[str, ...]
    call: FunctionType
    source: str


class _Missing:
    """Stands for a required argument that was not passed."""


MISSING = _Missing()


def generate_boundary(op_name: str, plan: SignaturePlan) -> CompileBoundary:
    """Register the operators of `plan`, one per effect branch, and generate the `_call_boundary` that calls them.

    Generating again under the same name replaces the operators registered before.
    """
    if (previous := _LIBRARIES.pop(op_name, None)) is not None:
        previous._destroy()
    library = torch.library.Library(_NAMESPACE, "FRAGMENT")
    _LIBRARIES[op_name] = library
    names = tuple(_define(library, op_name, plan, branch) for branch in plan.branches)
    source = _source(plan)
    return CompileBoundary(names, _compile(source, op_name, plan, names), source)


def schema(op_name: str, plan: SignaturePlan, branch: EffectBranch) -> str:
    """The schema of a branch's operator, as `torch.library.Library.define` takes it."""
    arguments = []
    for index, name in enumerate(plan.inputs):
        written = f"(a{index}!)" if name in branch.writes else ""
        optional = "" if name in plan.required_inputs else "?"
        arguments.append(f"Tensor{written}{optional} {name}")
    returned = ["Tensor"] * len(branch.allocates)
    result = returned[0] if len(returned) == 1 else f"({', '.join(returned)})"
    name = operator_name(plan.entry.family, op_name, branch.suffix)
    return f"{name}({', '.join(arguments)}, str instance_key) -> {result}"


def _define(library: torch.library.Library, op_name: str, plan: SignaturePlan, branch: EffectBranch) -> str:
    text = schema(op_name, plan, branch)
    qualified = f"{_NAMESPACE}::{text.partition('(')[0]}"
    library.define(text, tags=(torch.Tag.pt2_compliant_tag,))
    library.impl(qualified, _run, "CompositeExplicitAutograd")
    torch.library.register_fake(qualified, _infer, lib=library)
    return qualified


def _run(*arguments: Any) -> Any:
    """The body of every operator: one call of the instance under the key."""
    op = instance(arguments[-1])
    return run_call(op, arguments[:-1], op.forward)


def _infer(*arguments: Any) -> Any:
    """The fake of every operator: the signature check on metadata, which gives the outputs.

    An eager call on meta tensors comes here too and is kept as the last call; tracing leaves no record, since its sizes
    may be symbolic.
    """
    op = instance(arguments[-1])
    inputs = arguments[:-1]
    if any(type(value) is Tensor and value.is_meta for value in inputs) and not torch.compiler.is_compiling():
        record = check_signature(op, inputs).record
        op._running.last_call = record
    else:
        record = op._plan.check_call(op._construction.values, *inputs)
    return empty_result(record)


def _source(plan: SignaturePlan) -> str:
    """The text of `_call_boundary` for an op of one effect branch, whose operator is known ahead of time."""
    names = plan.inputs
    required = [name for name in names if name in plan.required_inputs]
    optional = [name for name in names if name not in plan.required_inputs]
    parameters = [f"{name}=MISSING" for name in required] + [f"{name}=None" for name in optional]
    wrong = ["excess", "unknown"]
    wrong += [f"not isinstance({name}, Tensor)" for name in required]
    wrong += [f"not ({name} is None or isinstance({name}, Tensor))" for name in optional]
    needs_gradient = [f"{name}.requires_grad" for name in required]
    needs_gradient += [f"({name} is not None and {name}.requires_grad)" for name in optional]
    passed = ", ".join([*names, "self._instance_key"])
    return "\n".join(
        [
            f"def _call_boundary(self, {', '.join(parameters)}, *excess, **unknown):",
            f"    if {' or '.join(wrong)}:",
            f"        refuse_arguments(({', '.join(names)},), excess, unknown)",
            f"    if is_grad_enabled() and ({' or '.join(needs_gradient)}):",
            f"        return ForwardOnly.apply({passed})",
            f"    return operator({passed})",
            "",
        ]
    )


def _compile(source: str, op_name: str, plan: SignaturePlan, names: tuple[str, ...]) -> FunctionType:
    operator = _overload(names[0])
    scope: dict[str, Any] = {
        "MISSING": MISSING,
        "Tensor": Tensor,
        "ForwardOnly": forward_only(operator, op_name),
        "is_grad_enabled": torch.is_grad_enabled,
        "operator": operator,
        "refuse_arguments": _refuser(op_name, plan),
    }
    filename = f"<tileops compile boundary of {op_name} #{next(_SERIAL)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), scope)  # noqa: S102 - our own generated text
    function: FunctionType = scope["_call_boundary"]
    function.__qualname__ = f"{op_name}._call_boundary"
    return function


def _overload(qualified: str) -> Any:
    packet = getattr(getattr(torch.ops, _NAMESPACE), qualified.partition("::")[2])
    return packet.default


def _refuser(op_name: str, plan: SignaturePlan) -> Callable[..., None]:
    """The function that names what is wrong with a call's arguments."""
    accepted = ", ".join(name if name in plan.required_inputs else f"{name}=None" for name in plan.inputs)

    def refuse_arguments(values: tuple[Any, ...], excess: tuple[Any, ...], unknown: dict[str, Any]) -> None:
        if unknown:
            raise ArgumentError(
                f"{op_name}: {next(iter(unknown))}: expected arguments ({accepted}), received the keyword "
                f"{next(iter(unknown))!r}; "
                f"call it as op({accepted})"
            )
        if excess:
            raise ArgumentError(
                f"{op_name}: expected at most {len(plan.inputs)} arguments ({accepted}), received "
                f"{len(values) + len(excess)}; "
                f"call it as op({accepted})"
            )
        for name, value in zip(plan.inputs, values, strict=True):
            if value is MISSING:
                raise ArgumentError(
                    f"{op_name}: {name}: expected a tensor, received nothing; call it as op({accepted})"
                )
            if not (isinstance(value, Tensor) or (value is None and name not in plan.required_inputs)):
                raise ArgumentError(
                    f"{op_name}: {name}: expected a torch.Tensor, received {type(value).__name__}; "
                    f"pass torch.as_tensor({name}) on the call's device"
                )

    return refuse_arguments
