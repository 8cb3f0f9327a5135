"""An op's page as Markdown: each section from the entry, the op class, its kernel types or the committed results."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from op_example import example_of, output_of
from op_results import support_of, times_of
from tables import code, in_words, table

from tileops.manifest import registry, workloads
from tileops.manifest.primitives import show_dtype, show_shape
from tileops.manifest.rowsolving import TensorCase
from tileops.op.records import cost_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from tileops.manifest.kinds import Kind
    from tileops.manifest.model import OpEntry, TensorType
    from tileops.manifest.workloads import WorkloadCase
    from tileops.op.base import Op
    from tileops_kernels.kernel import KernelType


@dataclass(frozen=True)
class Section:
    """A heading and the Markdown under it."""

    title: str
    text: str


@dataclass(frozen=True)
class Page:
    """The meaning of an op as Markdown, the sections that follow, and the files that all of it was made from."""

    meaning: str
    sections: tuple[Section, ...]
    made_from: tuple[Path, ...]


def page_of(name: str, data: Path) -> Page:
    """Return the page of an op; `data` is the folder of committed results."""
    entry = registry.default().entry(name)
    op = class_of(entry)
    parts = {
        "Example": _example(entry),
        "Signature": _signature(entry, op),
        "Stages": _stages(entry),
        "Kernel types": _kernel_types(op),
        "Support": _support(name, data),
        "Workloads": _workloads(entry, op, data),
        "Compiled operators": _operators(op),
        "Sources": _sources(entry, op),
    }
    sections = [Section(title, "\n\n".join(text)) for title, part in parts.items() if (text := list(part))]
    module = inspect.getsourcefile(op)
    made_from = [*data.glob("*.json"), *([Path(module)] if module else [])]
    return Page(_paragraphs(op)[0], tuple(sections), tuple(made_from))


def index_of(family: str) -> str:
    """Return the table of a family's implemented ops."""
    entries = [entry for entry in registry.default().family(family) if entry.status == "implemented"]
    rows = [
        [f"[{entry.name}]({entry.name}.md)", _paragraphs(class_of(entry))[0], in_words(_dtypes(entry), "and")]
        for entry in sorted(entries, key=lambda entry: entry.name)
    ]
    return table(["op", "computes", "dtypes"], rows)


def class_of(entry: OpEntry) -> type[Op]:
    """Return the op class of an entry."""
    found: type[Op] = getattr(importlib.import_module(f"tileops.{entry.family}"), entry.name)
    return found


def _paragraphs(documented: type) -> list[str]:
    return (inspect.getdoc(documented) or "").split("\n\n")


def _example(entry: OpEntry) -> Iterator[str]:
    source = example_of(entry)
    yield f"```python\n{source}```"
    yield f"```text\n{output_of(source)}```"


def _signature(entry: OpEntry, op: type[Op]) -> Iterator[str]:
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
    rows += [
        [code(t.name), role, code(t.dtype.text), code(t.shape.text), code("None") if t.is_optional else "", _effects(t)]
        for t, role in tensors
    ]
    yield table(["name", "is", "dtype or type", "shape", "default", "effects"], rows)
    yield "\n".join(f"- {line}" for line in _accepted(entry))
    yield from _paragraphs(op)[1:]


def _default(parameter: object) -> str:
    required = getattr(parameter, "required")  # noqa: B009
    return "required" if required else code(repr(getattr(parameter, "default")))  # noqa: B009


def _effects(tensor: TensorType) -> str:
    marks = {
        "written": tensor.mutated is not False,
        "old contents not read": tensor.write_only,
        "contiguous": tensor.contiguous,
        f"on {tensor.device}": tensor.device is not None,
        f"is `{tensor.alias}` where that is written": tensor.alias is not None,
        "may be given as `out=`": tensor.buffer is not None,
        "None on some calls": tensor.nullable is not None,
    }
    return ", ".join(mark for mark, there in marks.items() if there)


def _accepted(entry: OpEntry) -> Iterator[str]:
    """Yield in words what a call must satisfy."""
    signature = entry.signature
    for name, kind in signature.forall.items():
        yield f"`{name}`: {_kind_in_words(name, kind, entry)}"
    for tensor in signature.inputs:
        if tensor.is_optional:
            yield f"`{tensor.name}` may be left out, which is the same as passing `None`."
    yield from (f"`{name}` is `{formula.text}`." for name, formula in signature.let.items())
    yield from (f"It must hold that `{rule.text}`." for rule in signature.shape_rules)
    for row in signature.dtype_combos:
        yield "Together: " + ", ".join(f"`{name}` {dtype}" for name, dtype in row.items()) + "."


def _kind_in_words(name: str, kind: Kind, entry: OpEntry) -> str:
    values = getattr(kind, "values", None)
    if values is not None:
        inputs = [f"`{tensor.name}`" for tensor in entry.signature.inputs if tensor.dtype.text == name]
        shared = f", the same for {in_words(inputs, 'and')}" if len(inputs) > 1 else ""
        return f"{in_words(list(values), 'or')}{shared}."
    return {"Shape": "any number of axes of any length, none included.", "Dim": "any length."}.get(
        str(kind), f"{kind}."
    )


def _stages(entry: OpEntry) -> Iterator[str]:
    if entry.composition is None:
        return
    yield "A call runs these in order. Under `torch.compile` each op among them is a node of its own."
    rows = [
        [code(stage.name), code(stage.op or stage.kernel or ""), "where it is needed" if stage.optional else "always"]
        for stage in entry.composition.stages
    ]
    yield table(["stage", "op or kernel", "runs"], rows)


def _kernel_types(op: type[Op]) -> Iterator[str]:
    if not op.kernel_types:
        return
    yield "A call is served by the kernel type that runs on its device, does not refuse it, and comes first by rank."
    rows = [
        [code(key), _runs_on(kernel_type), " ".join(_paragraphs(kernel_type)[0].split()), _rank(key, op.kernel_types)]
        for key, kernel_type in op.kernel_types.items()
    ]
    yield table(["key", "runs on", "serves", "rank"], rows)


def _runs_on(kernel_type: KernelType) -> str:
    archs = kernel_type.supported_archs
    listed = "" if archs is None else f" (sm_{', sm_'.join(str(arch) for arch in sorted(archs))})"
    return ", ".join(device + (listed if device == "cuda" else "") for device in sorted(kernel_type.devices))


def _rank(key: str, types: Mapping[str, KernelType]) -> str:
    """Say which other kernel types on the same devices come after this one."""
    kernel_type = types[key]
    others = {other: types[other] for other in types if other != key and types[other].devices & kernel_type.devices}
    if not others:
        return "the only one there"
    if kernel_type.general:
        return "last: serves what the others do not"
    beaten = [code(other) for other in others if other in kernel_type.preferred_over or others[other].general]
    return f"comes before {in_words(beaten, 'and')}" if beaten else ""


def _support(name: str, data: Path) -> Iterator[str]:
    found = support_of(name, data)
    if found is None:
        return
    yield found.introduction
    yield table(found.headings, found.rows)


def _workloads(entry: OpEntry, op: type[Op], data: Path) -> Iterator[str]:
    times = times_of(entry.name, data)
    headings = ["case", "inputs", *times.headings, "MFLOP", "MB", "FLOP/byte"]
    rows = []
    for case in registry.cases(entry.name):  # type: ignore[arg-type]
        flops, traffic = _cost(entry, op, case)
        rows.append(
            [
                case.id,
                _sizes(case),
                *times.of(case.id),
                _rounded(flops / 1e6),
                _rounded(traffic / 1e6),
                f"{flops / traffic:.2f}",
            ]
        )
    yield "Calls of models, with the least arithmetic and the least traffic that each needs."
    if times.introduction:
        yield times.introduction
    yield table(headings, rows, name="measures")


def _cost(entry: OpEntry, op: type[Op], case: WorkloadCase) -> tuple[int, int]:
    """Return the flops and bytes of a case, from a call on meta tensors and the contents of its metadata."""
    construct: Callable[..., Op] = op
    parameters = {
        name: torch.ones(value.shape, dtype=value.dtype) if isinstance(value, TensorCase) else value
        for name, value in case.parameters.items()
    }
    if not case.tensors:
        parameters["device"] = "meta"
    instance = construct(**parameters)
    tensors = [
        None if tensor is None else torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        for tensor in case.tensors.values()
    ]
    instance(*tensors)
    contents = workloads.metadata(entry, case)
    cost = cost_of(instance.last_call.observing(contents) if contents else instance.last_call)
    return cost.flops, cost.bytes


def _rounded(number: float) -> str:
    """Return three significant digits, without an exponent."""
    return f"{number:,.0f}" if number >= 100 else f"{number:#.3g}"


def _sizes(case: WorkloadCase) -> str:
    return ", ".join(
        f"{name} {show_dtype(tensor.dtype)} {show_shape(tensor.shape)}"
        for name, tensor in case.tensors.items()
        if tensor is not None
    )


def _operators(op: type[Op]) -> Iterator[str]:
    if not op.compile_op_names:
        return
    yield "Under `torch.compile` a call is one node, whatever serves it. The last argument names the op instance."
    schemas = [str(_overload(name)._schema) for name in op.compile_op_names]  # noqa: SLF001
    yield "```text\n" + "\n".join(schemas) + "\n```"


def _overload(name: str) -> torch._ops.OpOverload:
    namespace, _, operator = name.partition("::")
    found: torch._ops.OpOverload = getattr(getattr(torch.ops, namespace), operator).default
    return found


def _sources(entry: OpEntry, op: type[Op]) -> Iterator[str]:
    if entry.ref_api is not None:
        yield f"- semantics of {_api(entry.ref_api)}"
    module = op.__module__.replace(".", "/")
    yield f"- manifest entry `{entry.source.file}`"
    yield f"- op class `packages/tileops/src/{module}.py`"
    for path in sorted({kernel_type.__module__.replace(".", "/") for kernel_type in op.kernel_types.values()}):
        yield f"- kernel types `packages/tileops-kernels/src/{path}.py`"


def _api(name: str) -> str:
    if name.startswith("torch."):
        return f"[`{name}`](https://docs.pytorch.org/docs/stable/generated/{name}.html)"
    return f"`{name}`"


def _dtypes(entry: OpEntry) -> list[str]:
    found: dict[str, None] = {}
    for kind in entry.signature.forall.values():
        found |= dict.fromkeys(getattr(kind, "values", ()))
    return list(found)
