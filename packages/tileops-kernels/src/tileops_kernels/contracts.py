"""What kernel types under one interface must satisfy; checked once, when a table is made."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Any

from tileops_kernels.errors import ContractTypeError, ContractValueError
from tileops_kernels.interface import InterfaceKey
from tileops_kernels.kernel import Kernel, KernelType


def check_contracts(owner: str, key: InterfaceKey[Any, Any], types: Mapping[str, KernelType]) -> None:
    """Raise ContractTypeError or ContractValueError unless `types` may stand together under the interface `key`."""
    for name, kernel_type in types.items():
        _check_shape(f"{owner}.{name}", key, kernel_type)
    _check_general(owner, key, types)
    _check_preferences(owner, key, types)


def _check_shape(label: str, key: InterfaceKey[Any, Any], kernel_type: KernelType) -> None:
    if Kernel not in getattr(kernel_type, "__mro__", ()):
        raise ContractTypeError(
            f"{label}: expected a class that inherits Kernel, received {kernel_type!r}; "
            f"inherit Kernel and {key.interface.__name__}"
        )
    if key.interface not in kernel_type.__mro__:
        raise ContractTypeError(
            f"{label}: expected {kernel_type.__name__} to inherit {key.interface.__name__}, "
            f"received bases {[base.__name__ for base in kernel_type.__bases__]}; add the interface to its bases"
        )
    if not isinstance(inspect.getattr_static(kernel_type, "entry_for"), classmethod):
        raise ContractTypeError(
            f"{label}: expected {kernel_type.__name__}.entry_for to be a classmethod, "
            f"received {type(inspect.getattr_static(kernel_type, 'entry_for')).__name__}; decorate it with @classmethod"
        )
    expected = _parameters(key.interface)
    received = _parameters(kernel_type)
    written = not getattr(inspect.getattr_static(kernel_type, "forward"), "__isabstractmethod__", False)
    if not written or received != expected:
        raise ContractTypeError(
            f"{label}: expected {kernel_type.__name__}.forward{_text(expected)} "
            f"as {key.interface.__name__} declares it, "
            f"received {'another forward' if written else 'none'}{_text(received)}; "
            "write forward with the interface's arguments"
        )
    if not isinstance(kernel_type.preferred_over, frozenset | set):
        raise ContractTypeError(
            f"{label}: expected preferred_over to be a set of keys, received {kernel_type.preferred_over!r}; "
            "write frozenset({...})"
        )


def _parameters(holder: Any) -> tuple[tuple[str, inspect._ParameterKind, bool], ...]:
    parameters = inspect.signature(holder.forward).parameters.values()
    return tuple((item.name, item.kind, item.default is not item.empty) for item in parameters)


def _text(parameters: tuple[tuple[str, inspect._ParameterKind, bool], ...]) -> str:
    return "(" + ", ".join(name for name, _, _ in parameters) + ")"


def _check_general(owner: str, key: InterfaceKey[Any, Any], types: Mapping[str, KernelType]) -> None:
    general = sorted(name for name, kernel_type in types.items() if kernel_type.general)
    if len(general) > 1:
        raise ContractValueError(
            f"{owner}.{key}: expected at most one general kernel type, received {general}; "
            "leave general=True on one of them"
        )
    for name in general:
        if types[name].preferred_over:
            raise ContractValueError(
                f"{owner}.{name}: expected the general kernel type to declare no preferred_over, "
                f"received {sorted(types[name].preferred_over)}; it ranks below all others: remove the declaration"
            )


def _check_preferences(owner: str, key: InterfaceKey[Any, Any], types: Mapping[str, KernelType]) -> None:
    for name in sorted(types):
        strangers = sorted((types[name].preferred_over - set(types)) | ({name} & types[name].preferred_over))
        if strangers:
            raise ContractValueError(
                f"{owner}.{name}: expected preferred_over to name other kernel types of {key}, received {strangers}; "
                f"the keys are {sorted(types)}"
            )
    cycle = next(_cycles(types), None)
    if cycle is not None:
        raise ContractValueError(
            f"{owner}.{key}: expected preferred_over without a cycle, received {' > '.join(cycle)}; remove one of them"
        )


def _cycles(types: Mapping[str, KernelType]) -> Iterator[list[str]]:
    settled: set[str] = set()

    def visit(name: str, path: list[str]) -> Iterator[list[str]]:
        if name in path:
            yield [*path[path.index(name) :], name]
            return
        if name in settled:
            return
        for beaten in sorted(types[name].preferred_over):
            yield from visit(beaten, [*path, name])
        settled.add(name)

    for name in sorted(types):
        yield from visit(name, [])
