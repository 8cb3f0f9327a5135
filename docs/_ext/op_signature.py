"""An op's signature: a typed table of its names, and in words which calls are accepted."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from op_class import paragraphs
from op_rules import Rules, is_plain
from tables import code, in_words, table

from tileops.manifest.showing import injected_parameters

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tileops.manifest.kinds import Kind
    from tileops.manifest.model import Constructor, Formula, OpEntry, Parameter, Signature, TensorType
    from tileops.op.base import Op


def signature_of(entry: OpEntry, op: type[Op]) -> Iterator[str]:
    """Yield the table, what a call must satisfy, and what the class's docstring says beyond its first paragraph."""
    signature = entry.signature
    rows = [
        [code(parameter.name), "parameter", code(str(parameter.kind)), "", _default(parameter), ""]
        for parameter in signature.parameters
        if parameter.tensor is None
    ]
    tensors = [
        *((parameter.tensor, "parameter") for parameter in signature.parameters if parameter.tensor is not None),
        *((tensor, "input") for tensor in signature.inputs),
        *((tensor, "output") for tensor in signature.outputs),
    ]
    rules = Rules(signature)
    rows += [
        [code(t.name), role, code(t.dtype.text), code(t.shape.text), code("None") if t.is_optional else "", effects]
        for t, role in tensors
        for effects in [_effects(t, rules)]
    ]
    rows += [
        [code(found.name), "parameter", code(found.annotation), "", code(found.default or "required"), found.meaning]
        for found in injected_parameters(op)
    ]
    headings = ["name", "is", "dtype or type", "shape", "default", "effects or meaning"]
    yield table(headings, rows, name="signature")
    yield "Accepted are calls that satisfy all of this; others raise before a kernel runs."
    yield "\n".join(f"- {line}" for line in _accepted(entry))
    names = [*names_of(signature), *(found.name for found in injected_parameters(op))]
    yield from (in_code(paragraph, names) for paragraph in paragraphs(op)[1:])


def names_of(signature: Signature) -> list[str]:
    """Return the names that a caller reads and writes: parameters, inputs and outputs."""
    parameters = [parameter.name for parameter in signature.parameters]
    return [*parameters, *(tensor.name for tensor in (*signature.inputs, *signature.outputs))]


def in_code(text: str, names: Sequence[str]) -> str:
    """Return a docstring's text with its names in code style: those before a colon, those with an underscore, None."""
    name = "|".join(re.escape(one) for one in names)
    listed = re.compile(rf"(?<![\w.])(?:{name})(?:, (?:{name}))*(?=:)")
    alone = re.compile(r"(?<![\w.])(?:" + "|".join([*(one for one in names if "_" in one), "None"]) + r")(?!\w)")
    parts = re.split(r"(`[^`]*`)", text)
    for place in range(0, len(parts), 2):
        parts[place] = listed.sub(lambda found: ", ".join(map(code, found[0].split(", "))), parts[place])
    parts = re.split(r"(`[^`]*`)", "".join(parts))
    for place in range(0, len(parts), 2):
        parts[place] = alone.sub(lambda found: code(found[0]), parts[place])
    return "".join(parts)


def _default(parameter: Parameter) -> str:
    return "required" if parameter.required else code(repr(parameter.default))


def _effects(tensor: TensorType, rules: Rules) -> str:
    marks = {
        f"written{_where(tensor.mutated, rules)}": tensor.mutated is not False,
        "old contents not read": tensor.write_only,
        "contiguous": tensor.contiguous,
        f"on {tensor.device}": tensor.device is not None,
        f"is `{tensor.alias}` where that is written": tensor.alias is not None,
        "may be given as `out=`": tensor.buffer is not None,
        f"`None`{_where(tensor.nullable, rules, 'unless')}": tensor.nullable is not None,
    }
    return ", ".join(mark for mark, there in marks.items() if there)


def _where(condition: bool | Formula | None, rules: Rules, word: str = "where") -> str:
    return "" if condition is None or isinstance(condition, bool) else f" {word} {_condition(condition, rules)}"


def _condition(formula: Formula, rules: Rules) -> str:
    """Return a condition in words, as the entry writes it where there are none."""
    return rules.condition(formula.tree) or code(formula.text)


def _rule(rule: Formula, rules: Rules) -> str:
    """Return a rule as a sentence, and behind it the expression where that says it more exactly."""
    said = rules.sentence(rule.tree)
    if said is None:
        return f"It must hold that `{rule.text}`."
    return said if is_plain(rule.tree) else f"{said} {{expression}}`{rule.text}`"


def _definition(name: str, formula: Formula, rules: Rules) -> str:
    said = rules.definition(formula.tree)
    return (
        f"`{name}` is {said}." if said == code(formula.text) else f"`{name}` is {said}. {{expression}}`{formula.text}`"
    )


def _contents(tensor: TensorType, rule: Formula, rules: Rules) -> str:
    said = rules.contents(rule.tree) or f"must be `{rule.text}`"
    return f"The contents of `{tensor.name}` {said}; no call checks them."


def _accepted(entry: OpEntry) -> Iterator[str]:
    """Yield in words what a call must satisfy."""
    signature = entry.signature
    rules = Rules(signature)
    axes = [name for name, kind in signature.forall.items() if str(kind) == "Dim"]
    if axes:
        yield f"{in_words([f'`{name}`' for name in axes], 'and')}: any length."
    for name, kind in signature.forall.items():
        if name not in axes:
            yield f"`{name}`: {_kind_in_words(name, kind, entry)}"
    yield from _families(signature, rules)
    yield from _sums(signature, rules)
    yield from _presence(signature, rules)
    yield from (_definition(name, formula, rules) for name, formula in signature.let.items())
    yield from (_rule(rule, rules) for rule in signature.shape_rules)
    for tensor in signature.inputs:
        yield from (_contents(tensor, rule, rules) for rule in tensor.requires)
    yield from _together(signature)


def _together(signature: Signature) -> Iterator[str]:
    """Yield in one sentence which dtypes go together: for each choice of the others, what the last one may be."""
    if not signature.dtype_combos:
        return
    rows = [tuple(row.items()) for row in signature.dtype_combos]
    ends: dict[tuple[tuple[str, str], ...], dict[str, list[str]]] = {}
    for *first, (name, dtype) in rows:
        ends.setdefault(tuple(first), {}).setdefault(name, []).append(dtype)
    parts = [
        ", ".join([*(f"`{name}` {dtype}" for name, dtype in first), f"`{last}` {in_words(dtypes, 'or')}"])
        for first, found in ends.items()
        for last, dtypes in found.items()
    ]
    yield f"Together: {'; '.join(parts)}."


def _kind_in_words(name: str, kind: Kind, entry: OpEntry) -> str:
    values = getattr(kind, "values", None)
    if values is not None:
        inputs = [f"`{tensor.name}`" for tensor in entry.signature.inputs if tensor.dtype.text == name]
        shared = f", the same for {in_words(inputs, 'and')}" if len(inputs) > 1 else ""
        return f"{in_words(list(values), 'or')}{shared}."
    if str(kind) == "Seq[int]":
        return "whole numbers that workloads state, from which the contents of their tensors follow."
    return "any number of axes of any length, none included." if str(kind) == "Shape" else f"{kind}."


def _families(signature: Signature, rules: Rules) -> Iterator[str]:
    """Yield what each shape that is written as an application means: `Mat[t, r, c]` is `[r, c]` where t is False."""
    for family in signature.families.values():
        deciding = [formula.tree for formula in family.match]
        cases = [f"`{case.shape.text}` where {rules.case(deciding, case.when)}" for case in family.cases]
        yield f"`{family.name}[{', '.join(family.parameters)}]` is {'; '.join(cases)}."


def _sums(signature: Signature, rules: Rules) -> Iterator[str]:
    """Yield the constructors of each sum type that a parameter has, and what holds of the fields of each."""
    for parameter in signature.parameters:
        members = str(parameter.kind).split(" | ")
        made = [one for name in members if name in signature.sums for one in signature.sums[name].constructors]
        if not made:
            continue
        others = ["`None`"] if "None" in members else []
        yield f"`{parameter.name}` is {in_words([*map(_constructor, made), *others], 'or')}."
        for one in made:
            if one.invariant is not None:
                said, text = _condition(one.invariant, rules), one.invariant.text
                yield f"Of a `{_class(one)}`, {said}." + ("" if said == code(text) else f" {{expression}}`{text}`")


def _constructor(constructor: Constructor) -> str:
    fields = ", ".join(f"{field.name}: {field.kind}" for field in constructor.fields)
    return f"`{_class(constructor)}({fields})` (kind `{constructor.name}`)"


def _class(constructor: Constructor) -> str:
    return constructor.python.rpartition(".")[2]


def _presence(signature: Signature, rules: Rules) -> Iterator[str]:
    """Yield which inputs may be left out, those without a condition in one sentence."""
    free = [f"`{tensor.name}`" for tensor in signature.inputs if tensor.optional is True]
    if free:
        each = "each " if len(free) > 1 else ""
        yield f"{in_words(free, 'and')} may {each}be left out, which is the same as passing `None`."
    for tensor in signature.inputs:
        if not isinstance(tensor.optional, bool):
            yield f"`{tensor.name}` is passed exactly where {_condition(tensor.optional, rules)}."
