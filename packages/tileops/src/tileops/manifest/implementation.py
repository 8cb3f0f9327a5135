"""What an implemented entry asks of its op class: that it exists, and that code follows the entry."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from tileops.errors import ExpressionError
from tileops.manifest.document import UNREAD
from tileops.manifest.model import Formula
from tileops.manifest.source import run
from tileops.manifest.values import from_manifest

if TYPE_CHECKING:
    from tileops.manifest.model import OpEntry, Parameter, Problem, TensorType


def problems(entry: OpEntry) -> Iterator[Problem]:
    """Yield every difference between an implemented entry and its op class."""
    path = (entry.name,)
    module = f"tileops.{entry.family}"
    try:
        found: object = getattr(importlib.import_module(module), entry.name, None)
    except (ImportError, ValueError) as error:
        yield entry.source.problem(path, "class", f"{error}", f"add the package {module}")
        return
    if not isinstance(found, type):
        yield entry.source.problem(
            path, "class", f"{module} exports no class {entry.name}", "export it, or set status: spec-only"
        )
        return
    yield from class_problems(entry, found)


def class_problems(entry: OpEntry, op: type) -> Iterator[Problem]:
    """Yield every difference between an entry and a class, as far as the entry could be read."""
    lost = entry.signature.lost
    if "params" not in lost:
        yield from _constructor(entry, op)
    if "inputs" not in lost:
        yield from _forward(entry, op)
        if "composition" not in entry.lost:
            yield from _boundary(entry, op)
    if entry.composition is None or not any(
        (entry.composition.lost, *(stage.lost for stage in entry.composition.stages))
    ):
        yield from _stages(entry, op)


def reference(entry: OpEntry) -> Iterator[Problem]:
    """Yield a reference API that its installed package does not have."""
    if entry.ref_api is None:
        return
    parts = entry.ref_api.split(".")
    if not all(part.isidentifier() for part in parts):
        message = f"{entry.ref_api!r} is no dotted name"
        yield entry.source.problem((entry.name, "ref_api"), "ref-api", message, "write it as in torch.matmul")
        return
    try:
        importlib.import_module(parts[0])
    except ImportError:
        return
    try:
        run(lambda: _resolve(parts))
    except (ImportError, ExpressionError):
        message = f"{entry.ref_api} does not exist in the installed {parts[0]}"
        yield entry.source.problem((entry.name, "ref_api"), "ref-api", message, "mend the dotted name")


def _resolve(parts: list[str]) -> object:
    """Return what a dotted name stands for, as an attribute or a module."""
    found: object = importlib.import_module(parts[0])
    for depth, part in enumerate(parts[1:], 2):
        inner = getattr(found, part, None)
        found = importlib.import_module(".".join(parts[:depth])) if inner is None else inner
    return found


def _constructor(entry: OpEntry, op: type) -> Iterator[Problem]:
    path = (entry.name, "signature", "params")
    declared = list(inspect.signature(op).parameters.values())
    injected = set(getattr(op, "injected_parameters", ()))
    taken = [parameter for parameter in declared if parameter.name not in injected]
    expected = [*entry.signature.parameters]
    names = [parameter.name for parameter in taken]
    wanted = [*(parameter.name for parameter in expected), "target"]
    if names != wanted:
        message = f"{entry.name}.__init__ takes ({', '.join(names)}), and the entry asks for ({', '.join(wanted)})"
        yield entry.source.problem(path, "constructor", message, "let the constructor follow the entry")
        return
    for parameter, given in zip(expected, taken, strict=False):
        yield from _parameter(entry, parameter, given)
    target = taken[-1]
    if target.kind is not inspect.Parameter.KEYWORD_ONLY or target.default is not None:
        yield entry.source.problem(path, "constructor", f"{entry.name}.__init__ has to end in *, target=None")


def _parameter(entry: OpEntry, parameter: Parameter, given: inspect.Parameter) -> Iterator[Problem]:
    path = (entry.name, "signature", "params", parameter.name)
    default: object = inspect.Parameter.empty
    if not parameter.required:
        default = from_manifest(parameter.kind, parameter.default, entry.signature.sums)
    unread = parameter.default is UNREAD or _undecided(parameter.tensor)
    if not unread and (given.default != default or type(given.default) is not type(default)):
        shown = "no default" if default is inspect.Parameter.empty else f"the default {default!r}"
        yield entry.source.problem(
            path, "constructor", f"{parameter.name} has {shown} in the entry and not in the class"
        )
    keyword_only = given.kind is inspect.Parameter.KEYWORD_ONLY
    if keyword_only != parameter.keyword_only:
        stated = "keyword-only" if parameter.keyword_only else "positional"
        yield entry.source.problem(
            path, "constructor", f"{parameter.name} is {stated} in the entry and not in the class"
        )


def _undecided(tensor: TensorType | None) -> bool:
    """Whether it is not known if a tensor may be left out."""
    return tensor is not None and isinstance(tensor.optional, Formula) and not tensor.optional.known


def _forward(entry: OpEntry, op: type) -> Iterator[Problem]:
    path = (entry.name, "signature", "inputs")
    forward = getattr(op, "forward", None)
    if forward is None:
        yield entry.source.problem(path, "forward", f"{entry.name} has no forward", "write it")
        return
    taken = list(inspect.signature(forward).parameters.values())[1:]
    out = ["out"] if any(output.buffer for output in entry.signature.outputs) else []
    inputs = {tensor.name: tensor for tensor in entry.signature.inputs}
    wanted = [*inputs, *out]
    names = [parameter.name for parameter in taken]
    if names != wanted:
        message = f"forward takes ({', '.join(names)}), and the entry asks for ({', '.join(wanted)})"
        yield entry.source.problem(path, "forward", message, "let forward follow the entry")
        return
    for parameter in taken:
        optional = parameter.name in out or inputs[parameter.name].is_optional
        if not _undecided(inputs.get(parameter.name)) and optional != (parameter.default is None):
            shown = "the default None" if optional else "no default"
            yield entry.source.problem(path, "forward", f"{parameter.name} needs {shown} in forward")


def _boundary(entry: OpEntry, op: type) -> Iterator[Problem]:
    names = getattr(op, "compile_op_names", ())
    wanted = bool(entry.signature.inputs) and entry.composition is None
    if bool(names) != wanted:
        state = "has" if names else "has no"
        message = f"{entry.name} {state} compile boundary, and the entry {'asks for one' if wanted else 'allows none'}"
        yield entry.source.problem((entry.name,), "boundary", message, "let the base class generate it from the entry")


def _stages(entry: OpEntry, op: type) -> Iterator[Problem]:
    """Yield where a class's sub-ops and kernels differ from its entry's composition."""
    path = (entry.name, "composition")
    delegates: Mapping[str, type] = getattr(op, "delegate_types", {})
    kernels: Mapping[str, object] = getattr(op, "kernel_types", {})
    declared = () if entry.composition is None else entry.composition.stages
    wanted = {stage.name: stage.op for stage in declared if stage.op is not None}
    held = {name: delegate.__name__ for name, delegate in delegates.items()}
    if list(held.items()) != list(wanted.items()):
        shown = ", ".join(f"{name}: {of}" for name, of in held.items()) or "none"
        message = f"delegate_types holds {shown}, and the entry's stages are {', '.join(wanted) or 'none'}"
        yield entry.source.problem(path, "composition", message, "hold the same ops under the same names, in order")
    missing = [stage.name for stage in declared if stage.kernel is not None and not kernels]
    if missing:
        message = f"the stage {missing[0]} is a kernel, and kernel_types is empty"
        yield entry.source.problem(path, "composition", message, "declare the kernel types")
