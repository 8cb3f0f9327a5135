"""The compile boundary: operators, fakes and `_call_boundary`, generated for an op class from its signature plan.

The only module that registers operators of op classes. An operator takes the signature's inputs in order and the
instance key; it returns the outputs that the op allocates on its effect branch.
"""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from tileops.backend.registry import BUILTIN
from tileops.op.arguments import MISSING, is_meta_call, refuse_arguments
from tileops.op.boundary_source import boundary_source, operator_source, written_arguments
from tileops.op.call import check_signature, empty_result, observing, report, run_call
from tileops.op.gradients import exporting, forward_only, in_forward_mode, refuse_tangents
from tileops.op.keys import instance
from tileops.op.naming import operator_name
from tileops.op.observers import PLAIN, transformed, watched
from tileops.op.repeats import absent, run_repeatable

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


def generate_boundary(op_name: str, plan: SignaturePlan) -> CompileBoundary:
    """Register the operators of `plan`, one per effect branch, and generate the `_call_boundary` that calls them.

    Generating again under the same name replaces the operators registered before.
    """
    if (previous := _LIBRARIES.pop(op_name, None)) is not None:
        previous._destroy()
    library = torch.library.Library(_NAMESPACE, "FRAGMENT")
    _LIBRARIES[op_name] = library
    source = boundary_source(plan)
    scope = _scope(op_name, plan)
    run = _compile(operator_source(plan), f"operator of {op_name}", "run_operator", scope)
    names = tuple(_define(library, op_name, plan, branch, run) for branch in plan.branches)
    for number, (name, branch) in enumerate(zip(names, plan.branches, strict=True)):
        scope[f"operator_{number}"] = _overload(name)
        scope[f"ForwardOnly_{number}"] = forward_only(_overload(name), op_name, written_arguments(plan, branch))
    call = _compile(source, f"compile boundary of {op_name}", "_call_boundary", scope)
    call.__qualname__ = f"{op_name}._call_boundary"
    return CompileBoundary(names, call, source)


def schema(op_name: str, plan: SignaturePlan, branch: EffectBranch) -> str:
    """The schema of a branch's operator, as `torch.library.Library.define` takes it."""
    arguments = []
    for index, name in enumerate(plan.inputs):
        written = f"(a{index}!)" if name in branch.writes else ""
        optional = "" if name in plan.required_inputs or written else "?"
        arguments.append(f"Tensor{written}{optional} {name}")
    if branch.has_out:
        arguments.append("Tensor(out!) out")
    returned = ["Tensor"] * len(branch.allocates)
    result = returned[0] if len(returned) == 1 else f"({', '.join(returned)})"
    name = operator_name(plan.entry.family, op_name, branch.suffix)
    return f"{name}({', '.join(arguments)}, str instance_key) -> {result}"


def _define(
    library: torch.library.Library, op_name: str, plan: SignaturePlan, branch: EffectBranch, reading: FunctionType
) -> str:
    text = schema(op_name, plan, branch)
    qualified = f"{_NAMESPACE}::{text.partition('(')[0]}"
    returned = _allocated(plan, branch)
    library.define(text, tags=(torch.Tag.pt2_compliant_tag,))
    if returned is not None or written_arguments(plan, branch):
        library.impl(qualified, _runner(plan, branch, returned), "CompositeExplicitAutograd")
    else:
        library.impl(qualified, reading, "CompositeExplicitAutograd")
    torch.library.register_fake(qualified, _faker(branch, returned), lib=library)
    return qualified


Returned: TypeAlias = Callable[[Any], Any]
"""From what a call gives to what its operator returns: the outputs that the op allocated."""


def _allocated(plan: SignaturePlan, branch: EffectBranch) -> Returned | None:
    """How a branch's operator picks its outputs; None when it returns all of them as they are."""
    if branch.allocates == plan.outputs and plan.outputs:
        return None
    places = [plan.outputs.index(name) for name in branch.allocates]
    if not places:
        return lambda result: None  # noqa: ARG005 - everything that the call gives is the caller's own
    if len(places) == 1:
        return lambda result: result[places[0]]
    return lambda result: tuple(result[place] for place in places)


def _runner(plan: SignaturePlan, branch: EffectBranch, returned: Returned | None) -> Callable[..., Any]:
    """The body of an operator that writes tensors, or returns a part of the outputs: one call of the key's instance.

    What it writes counts as written for autograd, which then refuses to use a tensor saved before. An inference tensor
    is written in inference mode alone.
    """
    places = written_arguments(plan, branch)

    def run_effect(*arguments: Any) -> Any:
        inputs, out = _split(branch, arguments)
        if not torch.is_inference_mode_enabled():
            for place in places:
                if arguments[place].is_inference():
                    arguments[place].as_strided((0,), (1,)).zero_()  # writes nothing; raises PyTorch's own error
        result = run_call(instance(arguments[-1]), inputs, out)
        for place in places:
            if not arguments[place].is_inference():  # such a tensor has no version that anyone could compare
                increment_version(arguments[place])
        return result if returned is None else returned(result)

    return run_effect


def _faker(branch: EffectBranch, returned: Returned | None) -> Callable[..., Any]:
    """The fake of an operator: the signature check on metadata, which gives the outputs.

    An eager call on meta tensors comes here too and is kept as the last call; tracing leaves no record, since its sizes
    may be symbolic.
    """

    def infer(*arguments: Any) -> Any:
        op = instance(arguments[-1])
        inputs, out = _split(branch, arguments)
        if is_meta_call(inputs):
            record = check_signature(op, inputs, out).record
            op._running.last_call = record
            report(op, record)
        else:
            buffer = {} if out is None else {"out": out}
            record = op._plan.check_call(op._construction.values, *inputs, **buffer)
        result = empty_result(record, inputs, out)
        return result if returned is None else returned(result)

    return infer


def _split(branch: EffectBranch, arguments: Sequence[Any]) -> tuple[Sequence[Any], Tensor | None]:
    return (arguments[:-2], arguments[-2]) if branch.has_out else (arguments[:-1], None)


def _scope(op_name: str, plan: SignaturePlan) -> dict[str, Any]:
    """What the generated functions refer to, but for the operators."""
    return {
        "BUILTIN": BUILTIN,
        "MISSING": MISSING,
        "PLAIN": PLAIN,
        "Tensor": Tensor,
        "is_grad_enabled": torch.is_grad_enabled,
        "exporting": exporting,
        "strided": torch.strided,
        "in_forward_mode": in_forward_mode,
        "instance": instance,
        "is_dynamo_compiling": torch.compiler.is_dynamo_compiling,
        "observing": observing,
        "report": report,
        "run_repeatable": run_repeatable,
        "transformed": transformed,
        "watched": watched,
        "refuse_tangents": partial(refuse_tangents, op_name),
        "refuse_arguments": partial(refuse_arguments, op_name, plan),
        **{f"absent_{place}": absent() for place in range(len(plan.inputs))},
    }


def _compile(source: str, title: str, name: str, scope: dict[str, Any]) -> FunctionType:
    """The function `name` of `source`, whose text tracebacks and debuggers find under `title`."""
    filename = f"<tileops {title} #{next(_SERIAL)}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(keepends=True), filename)
    exec(compile(source, filename, "exec"), scope)  # noqa: S102 - our own generated text
    function: FunctionType = scope[name]
    return function


def _overload(qualified: str) -> Any:
    packet = getattr(getattr(torch.ops, _NAMESPACE), qualified.partition("::")[2])
    return packet.default
