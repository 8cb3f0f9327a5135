"""An entry as text: its type, its branches, its operators and what its workloads cost."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from tileops.manifest import roofline, workloads
from tileops.manifest.plan import SignaturePlan, build_plan
from tileops.manifest.primitives import show_dtype, show_shape

if TYPE_CHECKING:
    from tileops.manifest.model import OpEntry, TensorType


def describe(entry: OpEntry) -> str:
    """Return the page that `show` prints."""
    return "\n".join(_lines(entry, build_plan(entry)))


def _lines(entry: OpEntry, plan: SignaturePlan) -> Iterator[str]:
    signature = entry.signature
    yield f"{entry.name} ({entry.status}), from tileops.{entry.family}"
    if entry.ref_api:
        yield f"follows {entry.ref_api}"
    yield ""
    shown = [
        f"{parameter.name}: {parameter.kind if parameter.tensor is None else _tensor(parameter.tensor)}"
        + ("" if parameter.required else f" = {parameter.default!r}")
        for parameter in signature.parameters
    ]
    yield f"op({', '.join(shown)})"
    op = _op_class(entry)
    for found in [] if op is None else injected_parameters(op):
        default = f" = {found.default}" if found.default else ""
        yield f"  may be given {found.name}: {found.annotation}{default}" + (found.meaning and f", {found.meaning}")
    if signature.forall:
        yield "  : forall " + ", ".join(f"{name}: {kind}" for name, kind in signature.forall.items()) + "."
    yield from (f"    {tensor.name}: {_tensor(tensor)} ->" for tensor in signature.inputs)
    yield "    " + (", ".join(f"{tensor.name}: {_tensor(tensor)}" for tensor in signature.outputs) or "no output")
    yield from (f"  let {name} = {formula.text}" for name, formula in signature.let.items())
    yield from (f"  where {rule.text}" for rule in signature.shape_rules)
    if plan.discriminants:
        yield f"  decided by {', '.join(plan.discriminants)}"
    yield ""
    yield "effect branches"
    for branch in plan.branches:
        writes = f", writes {', '.join(branch.writes)}" if branch.writes else ""
        yield f"  {branch.suffix or '(plain)'}: returns {', '.join(branch.allocates) or 'nothing new'}{writes}"
    schemas = _schemas(entry)
    if schemas:
        yield ""
        yield "operators"
        yield from (f"  {schema}" for schema in schemas)
    if entry.composition is not None:
        yield ""
        yield "stages"
        for stage in entry.composition.stages:
            yield f"  {stage.name}: {stage.op or stage.kernel}{' (optional)' if stage.optional else ''}"
    yield ""
    yield "workloads"
    yield from _costs(entry, plan)


def _tensor(tensor: TensorType) -> str:
    marks = [
        word
        for word, there in (
            ("optional", tensor.is_optional),
            ("mutated", tensor.mutated is not False),
            ("write-only", tensor.write_only),
            ("contiguous", tensor.contiguous),
            (f"on {tensor.device}", tensor.device is not None),
            (f"alias of {tensor.alias}", tensor.alias is not None),
            ("caller may pass out", tensor.buffer is not None),
            ("nullable", tensor.nullable is not None),
        )
        if there
    ]
    return f"Tensor[{tensor.dtype.text}, {tensor.shape.text}]" + (f" ({', '.join(marks)})" if marks else "")


def _costs(entry: OpEntry, plan: SignaturePlan) -> Iterator[str]:
    for case in workloads.cases(entry):
        contents = workloads.metadata(entry, case)
        call = workloads.meta_call(plan, case).observing(contents)
        sizes = ", ".join(
            f"{name} {show_dtype(tensor.dtype)} {show_shape(tensor.shape)}"
            for name, tensor in case.tensors.items()
            if tensor is not None
        )
        cost = f"{roofline.bytes_moved(call) / 1e6:.3f} MB"
        if entry.roofline is not None:
            cost = f"{roofline.flops(call) / 1e9:.3f} GFLOP, {cost}"
        yield f"  {case.id}: {sizes}: {cost}"


@dataclass(frozen=True, slots=True)
class InjectedParameter:
    """A constructor argument that no entry states: its annotation and default as written, and its docstring's words."""

    name: str
    annotation: str
    default: str
    meaning: str


def injected_parameters(op: type) -> list[InjectedParameter]:
    """Return the constructor arguments of an op class beyond its entry's parameters and `target`."""
    names: tuple[str, ...] = getattr(op, "injected_parameters", ())
    given = inspect.signature(op.__init__).parameters  # type: ignore[misc]  # the class's own, of the class itself
    return [
        InjectedParameter(name, _annotation(given[name]), _default(given[name]), _meaning(op, name)) for name in names
    ]


def _annotation(parameter: inspect.Parameter) -> str:
    found = parameter.annotation
    return found if isinstance(found, str) else inspect.formatannotation(found)


def _default(parameter: inspect.Parameter) -> str:
    return "" if parameter.default is inspect.Parameter.empty else repr(parameter.default)


def _meaning(op: type, name: str) -> str:
    """Return what the docstring of a class, or of the nearest base, says behind `name:`, up to the first stop."""
    for documented in op.__mro__:
        text = " ".join((documented.__dict__.get("__doc__") or "").split())
        if (found := re.search(rf"(?:^|[.:] ){name}: (.+?)(?:[.;](?: |$)|$)", text)) is not None:
            return found[1]
    return ""


def _op_class(entry: OpEntry) -> type | None:
    """Return the class of an implemented op."""
    if entry.status != "implemented":
        return None
    found: type | None = getattr(importlib.import_module(f"tileops.{entry.family}"), entry.name, None)
    return found


def _schemas(entry: OpEntry) -> list[str]:
    """Return the schemas of the operators that an implemented op has registered."""
    op = _op_class(entry)
    names: tuple[str, ...] = getattr(op, "compile_op_names", ())
    return [str(getattr(torch.ops.tileops, name.partition("::")[2]).default._schema) for name in names]  # noqa: SLF001


def names_file() -> Path:
    """Return the path of the module that holds the type of op names."""
    return Path(__file__).with_name("names.py")


def names_module(names: Iterable[str]) -> str:
    """Return the module that declares the type of op names."""
    listed = "".join(f'    "{name}",\n' for name in names)
    return (
        '"""The names of all ops as a type; written by `python -m tileops.manifest names`."""\n\n'
        "from typing import Literal, TypeAlias\n\n"
        f"OpName: TypeAlias = Literal[\n{listed}]\n"
    )
