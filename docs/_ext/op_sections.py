"""An op's page as Markdown: each section from the entry, the op class, its kernel types or the committed results."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from op_class import by_interface, class_of, devices_of, dtypes_of, meaning_of, paragraphs
from op_example import example_of, output_of
from op_results import support_of, tested_on
from op_signature import signature_of
from op_workloads import measurements_of, workloads_of
from source_pages import link_to, sources_of
from tables import code, in_words, table

from tileops.manifest import registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tileops.manifest.model import OpEntry
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
        "Signature": signature_of(entry, op),
        "Stages": _stages(entry),
        "Kernel types": _kernel_types(op),
        "Support": _support(entry, data),
        "Workloads": workloads_of(entry, op),
        "Measured": measurements_of(entry, op, data),
        "Compiled operators": _operators(op),
        "Sources": _sources(entry),
    }
    sections = [Section(title, "\n\n".join(text)) for title, part in parts.items() if (text := list(part))]
    module = inspect.getsourcefile(op)
    made_from = [*data.glob("*.json"), *([Path(module)] if module else [])]
    return Page(meaning_of(entry), tuple(sections), tuple(made_from))


def index_of(families: Sequence[str], data: Path) -> str:
    """Return the table of the implemented ops of some families; with more than one, their names are a column."""
    several = len(families) > 1
    rows = []
    for family in families:
        entries = [entry for entry in registry.default().family(family) if entry.status == "implemented"]
        for entry in sorted(entries, key=lambda entry: entry.name):
            page = f"{family}/{entry.name}.md" if several else f"{entry.name}.md"
            rows.append(
                [
                    f"[{entry.name}]({page})",
                    family if several else "",
                    meaning_of(entry),
                    ", ".join(dtypes_of(entry)),
                    ", ".join(devices_of(entry)),
                    ", ".join(tested_on(entry.name, data)) or "no results yet",
                ]
            )
    return table(["op", "family", "computes", "dtypes", "kernels for", "tested on"], rows, name="ops")


def _example(entry: OpEntry) -> Iterator[str]:
    source = example_of(entry)
    yield f"```python\n{source}```"
    yield f"```text\n{output_of(source)}```"


def _stages(entry: OpEntry) -> Iterator[str]:
    if entry.composition is None:
        return
    yield "A call runs these in order. Under `torch.compile` each op among them is a node of its own."
    rows = [
        [code(stage.name), _stage(stage.op, stage.kernel), "where it is needed" if stage.optional else "always"]
        for stage in entry.composition.stages
    ]
    yield table(["stage", "op or kernel", "runs"], rows)


def _stage(op: str | None, kernel: str | None) -> str:
    if op is None:
        return code(kernel or "")
    entry = registry.default().entry(op)
    page = f"../{entry.family}/{op}.md"
    return f"[`{op}`]({page})" if entry.status == "implemented" else code(op)


def _kernel_types(op: type[Op]) -> Iterator[str]:
    if not op.kernel_types:
        return
    yield (
        "A call is served by the kernel type that runs on its device, does not refuse it, and comes first by rank: "
        "[how selection works](../../guides/selection.md)."
    )
    interfaces = by_interface(op)
    rows = []
    for interface, types in interfaces.items():
        for key, kernel_type in types.items():
            serves = " ".join(paragraphs(kernel_type)[0].split())
            asked = code(interface) if len(interfaces) > 1 else ""
            rows.append([code(key), asked, _runs_on(kernel_type), serves, _rank(key, types)])
    yield table(["key", "interface", "runs on", "serves", "rank"], rows, name="kernels")


def _runs_on(kernel_type: KernelType) -> str:
    archs = kernel_type.supported_archs
    listed = "" if archs is None else f" (sm_{', sm_'.join(str(arch) for arch in sorted(archs))})"
    return ", ".join(device + (listed if device == "cuda" else "") for device in sorted(kernel_type.devices))


def _rank(key: str, types: Mapping[str, KernelType]) -> str:
    """Say which other kernel types of the interface on the same devices come after this one."""
    kernel_type = types[key]
    others = {other: types[other] for other in types if other != key and types[other].devices & kernel_type.devices}
    if not others:
        return "the only one there"
    if kernel_type.general:
        return "last: serves what the others do not"
    beaten = [code(other) for other in others if other in kernel_type.preferred_over or others[other].general]
    return f"comes before {in_words(beaten, 'and')}" if beaten else "serves what the others refuse"


def _support(entry: OpEntry, data: Path) -> Iterator[str]:
    found = support_of(entry.name, data)
    devices = devices_of(entry)
    if found is None:
        yield f":::{{note}}\nNo results of this op are committed yet. {_without_results(devices)}\n:::"
        return
    if "cuda" not in devices:
        yield ":::{note}\nIt has no kernels for CUDA.\n:::"
    elif not found.on_cuda:
        yield ":::{note}\nNo results of this op on a CUDA device are committed yet.\n:::"
    yield found.introduction
    if not entry.signature.inputs:
        yield "It takes no tensor, so that it is no node of a compiled graph and the compile suite does not run it."
    yield table(found.headings, found.rows, name="support")


def _without_results(devices: Sequence[str]) -> str:
    """Say what is known of an op without results: the repository's tests run on a CPU, and compile for CUDA."""
    told = []
    if "cpu" in devices:
        told.append("The repository's tests run it on a CPU.")
    if "cuda" in devices:
        told.append("Its kernels for CUDA are compiled by the tests, which need no device.")
    else:
        told.append("It has no kernels for CUDA.")
    return " ".join(told)


def _operators(op: type[Op]) -> Iterator[str]:
    if not op.compile_op_names:
        return
    yield (
        "Under `torch.compile` a call is one node, whatever serves it: [compiling](../../guides/compiling.md). The "
        "last argument names the op instance."
    )
    schemas = [str(_overload(name)._schema) for name in op.compile_op_names]  # noqa: SLF001
    yield "```text\n" + "\n".join(schemas) + "\n```"


def _overload(name: str) -> torch._ops.OpOverload:
    namespace, _, operator = name.partition("::")
    found: torch._ops.OpOverload = getattr(getattr(torch.ops, namespace), operator).default
    return found


def _sources(entry: OpEntry) -> Iterator[str]:
    lines = [] if entry.ref_api is None else [f"semantics of {_api(entry.ref_api)}"]
    lines += [f"{source.what} {link_to(source)}" for source in sources_of(entry)]
    yield "\n".join(f"- {line}" for line in lines)


def _api(name: str) -> str:
    if name.startswith("torch.") and not name.startswith("torch.ops."):
        return f"[`{name}`](https://docs.pytorch.org/docs/stable/generated/{name}.html)"
    return f"`{name}`"
