"""What is found of an op beside its entry: its class, its docstring, its kernel types by interface, where it runs."""

from __future__ import annotations

import importlib
import inspect
from typing import TYPE_CHECKING

from tileops.manifest import registry

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tileops.manifest.model import OpEntry
    from tileops.op.base import Op
    from tileops_kernels.kernel import KernelType


def class_of(entry: OpEntry) -> type[Op]:
    """Return the op class of an entry."""
    found: type[Op] = getattr(importlib.import_module(f"tileops.{entry.family}"), entry.name)
    return found


def paragraphs(documented: type) -> list[str]:
    """Return the paragraphs of a class's docstring."""
    return (inspect.getdoc(documented) or "").split("\n\n")


def meaning_of(entry: OpEntry) -> str:
    """Return the first paragraph of the class's docstring: what the op computes."""
    return paragraphs(class_of(entry))[0]


def dtypes_of(entry: OpEntry) -> list[str]:
    """Return the dtypes that an op accepts for its inputs, also where it is one alone, or makes without inputs."""
    found: dict[str, None] = {}
    for kind in entry.signature.forall.values():
        found |= dict.fromkeys(getattr(kind, "values", ()))
    if not entry.signature.inputs:
        for parameter in entry.signature.parameters:
            made = any(tensor.dtype.text == parameter.name for tensor in entry.signature.outputs)
            found |= dict.fromkeys(str(parameter.kind).split(" | ") if made else ())
    return list(found or dict.fromkeys(tensor.dtype.text for tensor in entry.signature.inputs))


def devices_of(entry: OpEntry) -> list[str]:
    """Return the devices on which kernels of this tree serve an op; a composite runs where all of its stages do."""
    types = class_of(entry).kernel_types
    found = {device for kernel_type in types.values() for device in kernel_type.devices}
    stages = [] if entry.composition is None else [stage.op for stage in entry.composition.stages if stage.op]
    for stage in stages:
        among = set(devices_of(registry.default().entry(stage)))
        found = found & among if found else among
    return sorted(found)


def by_interface(op: type[Op]) -> Mapping[str, Mapping[str, KernelType]]:
    """Return the kernel types of an op under the interfaces that they inherit."""
    return {
        key: {name: found for name, found in op.kernel_types.items() if interface in found.__mro__}
        for key, interface in op.interfaces.items()
    }
