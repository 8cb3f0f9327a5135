"""The text of `_call_boundary`: arguments, effect branch, operator, and the caller's objects."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tileops.errors import SignatureError
from tileops.op.arguments import MISSING
from tileops.op.observers import as_is, plain

if TYPE_CHECKING:
    from tileops.manifest.plan import EffectBranch, SignaturePlan
    from tileops.manifest.record import ConstructionIndices


def boundary_source(plan: SignaturePlan) -> str:
    """Source of `_call_boundary` for the ops of `plan`; a class with one effect branch decides nothing on a call.

    An exported program holds the operator alone: what would refuse a backward is no part of it. Where nothing of torch
    would see the operator, in-tree kernels serve the instance and no input is written, the call runs without it.
    """
    names, buffered = plan.inputs, _buffered(plan)
    required, optional = _required(plan), _optional(plan)
    parameters = [f"{name}=MISSING" if name in required else f"{name}=None" for name in names]
    wrong = ["excess", "unknown"]
    wrong += [f"not ({_strided(name)})" for name in required]
    wrong += [f"not ({name} is None or ({_strided(name)}))" for name in optional]
    settled = ", ".join(names) + ","
    lines = [
        f"def _call_boundary(self, {', '.join(parameters)}, *excess{', out=None' * buffered}, **unknown):",
        *_unobserved(plan),
        f"    if {' or '.join(wrong)}:",
        f"        refuse_arguments(({settled}), {'out' if buffered else 'None'}, excess, unknown)",
        "    if in_forward_mode():",
        f"        refuse_tangents(({settled}))",
        f"    differentiate = is_grad_enabled() and ({_needs_gradient(required, optional)}) and not exporting()",
    ]
    if len(plan.branches) == 1:
        return "\n".join([*lines, *_branch(plan, plan.branches[0], 0, "    "), ""])
    lines.append(f"    branch = self._effects[{_bits(optional)}]")
    for number, branch in enumerate(plan.branches):
        lines.append(f"    if branch == {number}:")
        lines += _branch(plan, branch, number, "        ")
    return "\n".join([*lines, ""])


def operator_source(plan: SignaturePlan) -> str:
    """Source of the body of operators that write nothing and return all outputs: one call of the key's instance."""
    lines = [
        f"def run_operator({', '.join(plan.inputs)}, instance_key):",
        "    self = instance(instance_key)",
        *_where(_of_each(plan, plain), "    "),
        *_repeated(plan, "repeat.binding is self._binding"),
        f"    {_run_repeatable(plan)}",
    ]
    return "\n".join([*lines, ""])


def effects(plan: SignaturePlan, values: ConstructionIndices) -> dict[tuple[bool, ...], int]:
    """The effect branch of every combination of optional tensors that an instance may be called with.

    A combination that the signature refuses is given branch 0, whose operator raises the error.
    """
    optional = [name for name in plan.inputs if name not in plan.required_inputs]
    found = {}
    for bits in itertools.product((False, True), repeat=len(optional) + _buffered(plan)):
        passed = dict(zip(optional, bits, strict=False))
        inputs = [MISSING if passed.get(name, True) else None for name in plan.inputs]
        buffer = {"out": MISSING if bits[-1] else None} if _buffered(plan) else {}
        try:
            found[bits] = plan.select_branch(values, *inputs, **buffer)
        except SignatureError:
            found[bits] = 0
    return found


def _buffered(plan: SignaturePlan) -> bool:
    return any(branch.has_out for branch in plan.branches)


def _required(plan: SignaturePlan) -> list[str]:
    return [name for name in plan.inputs if name in plan.required_inputs]


def _optional(plan: SignaturePlan) -> list[str]:
    """The tensors that a call may leave out, the caller's buffer last."""
    return [name for name in plan.inputs if name not in plan.required_inputs] + ["out"] * _buffered(plan)


def _strided(name: str) -> str:
    return f"isinstance({name}, Tensor) and {name}.layout is strided and not {name}.is_nested"


def _bits(optional: list[str]) -> str:
    return f"({', '.join(f'{name} is not None' for name in optional)}{',' if optional else ''})"


def _needs_gradient(required: list[str], optional: list[str]) -> str:
    needs = [f"{name}.requires_grad" for name in required]
    needs += [f"({name} is not None and {name}.requires_grad)" for name in optional]
    return " or ".join(needs)


def _branch(plan: SignaturePlan, branch: EffectBranch, number: int, indent: str) -> list[str]:
    """The lines that run one branch and return allocated outputs and the caller's own objects."""
    passed = ", ".join([*plan.inputs, *(["out"] if branch.has_out else []), "self._instance_key"])
    returned = _returned(plan, branch)
    direct = returned == "result"
    keep = "return" if direct else "result ="
    lines = [f"{indent}if differentiate:"]
    written, allocated = written_arguments(plan, branch), len(branch.allocates)
    if written:
        lines.append(f"{indent}    copies = ForwardOnly_{number}.apply({passed})")
        names = [*plan.inputs, "out"]
        lines += [f"{indent}    {names[place]}.copy_(copies[{allocated + i}])" for i, place in enumerate(written)]
        lines.append(f"{indent}    {keep} {'copies[0]' if allocated == 1 else f'copies[:{allocated}]'}")
    else:
        lines.append(f"{indent}    {keep} ForwardOnly_{number}.apply({passed})")
    if direct:
        return [*lines, f"{indent}return operator_{number}({passed})"]
    return [*lines, f"{indent}else:", f"{indent}    {keep} operator_{number}({passed})", f"{indent}return {returned}"]


def _unobserved(plan: SignaturePlan) -> list[str]:
    """The lines that run a call that writes no input without its operator: none where every branch writes one."""
    reading = [number for number, branch in enumerate(plan.branches) if not written_arguments(plan, branch)]
    if not reading:
        return []
    required, optional = _required(plan), _optional(plan)
    conditions = ["self._binding.target == BUILTIN", *_of_each(plan, partial(as_is, plan))]
    if len(reading) < len(plan.branches):
        conditions.append(f"self._effects[{_bits(optional)}] in {tuple(reading)}")
    conditions += [f"not (is_grad_enabled() and ({_needs_gradient(required, optional)}))", "not transformed()"]
    asked = ["not is_dynamo_compiling()", "not (excess or unknown)", *["out is None"] * _buffered(plan)]
    return [
        *_where([*asked, *_of_each(plan, plain), "not watched()"], "    "),
        *_repeated(plan, "repeat.binding is self._binding and not (repeat.differentiable and is_grad_enabled())"),
        *_where(conditions, "        "),
        f"            {_run_repeatable(plan)}",
    ]


def _where(conditions: list[str], indent: str) -> list[str]:
    """The head of an `if`, one condition a line."""
    first, *others = conditions
    return [f"{indent}if (", f"{indent}    {first}", *(f"{indent}    and {each}" for each in others), f"{indent}):"]


def _of_each(plan: SignaturePlan, condition: Callable[[str], str]) -> list[str]:
    """A condition of every tensor that a call passes, the required ones first."""
    conditions = [condition(name) for name in _required(plan)]
    return conditions + [
        f"({name} is None or ({condition(name)}))" for name in plan.inputs if name not in plan.required_inputs
    ]


def _repeated(plan: SignaturePlan, allowed: str) -> list[str]:
    """The lines that run a call whose inputs are alike those of one that is kept, where it is `allowed`.

    Its target is selected, it has no sub-ops and its inputs are checked: what is left is to check the result, and to
    record the call.
    """
    single, inputs = len(plan.outputs) == 1, ", ".join(plan.inputs)
    promised = "repeat.promised(result)"
    if not single:
        promised = f"type(result) is tuple and len(result) == {len(plan.outputs)} and repeat.promised(*result)"
    seen = f"observing(repeat.seen, ({inputs},))" if plan.metadata_inputs else "repeat.seen"
    return [
        "        for repeat in self._running.repeats:",
        f"            if repeat.alike({_compared(plan)}) and {allowed}:",
        "                result = (repeat.computation if type(self).forward is repeat.replaced else self.forward)(",
        f"                    {inputs}",
        "                )",
        f"                record = {seen}.record",
        f"                if not ({promised}):",
        "                    self._plan.check_result(record, result)",
        "                self._running.last_call = record",
        "                report(self, record)",
        f"                return {'result' if single else 'tuple(result)'}",
    ]


def _run_repeatable(plan: SignaturePlan) -> str:
    run = f"run_repeatable(self, ({', '.join(plan.inputs)},), ({_compared(plan)},))"
    return f"return {run}" if len(plan.outputs) == 1 else f"return tuple({run})"


def _compared(plan: SignaturePlan) -> str:
    """The inputs of a call, with stand-ins for those that it leaves out, each of its own."""
    return ", ".join(
        name if name in plan.required_inputs else f"absent_{place} if {name} is None else {name}"
        for place, name in enumerate(plan.inputs)
    )


def written_arguments(plan: SignaturePlan, branch: EffectBranch) -> tuple[int, ...]:
    """The places, among an operator's arguments, of the inputs that the branch writes and of the caller's buffer."""
    inputs = tuple(place for place, name in enumerate(plan.inputs) if name in branch.writes)
    return (*inputs, len(plan.inputs)) if branch.has_out else inputs


def _returned(plan: SignaturePlan, branch: EffectBranch) -> str:
    if branch.allocates == plan.outputs and plan.outputs:
        return "result"
    objects = []
    for output in plan.entry.signature.outputs:
        if output.name in branch.allocates:
            place = branch.allocates.index(output.name)
            objects.append("result" if len(branch.allocates) == 1 else f"result[{place}]")
        elif output.alias in branch.writes:
            objects.append(str(output.alias))
        elif output.buffer and branch.has_out:
            objects.append("out")
        else:
            objects.append("None")
    return objects[0] if len(objects) == 1 else f"({', '.join(objects)})" if objects else "None"
