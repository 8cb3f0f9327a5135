"""The implementation tables of an op: its own kernel types and those of backends, under the interfaces they inherit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tileops.backend.registry import BackendRegistry
from tileops.op.call import note_built
from tileops_kernels.errors import ContractTypeError, ContractValueError
from tileops_kernels.interface import InterfaceKey
from tileops_kernels.kernel import KernelType
from tileops_kernels.table import KernelTable

if TYPE_CHECKING:
    from tileops.op.base import Op


def kernel_tables(op: Op, backends: BackendRegistry) -> dict[str, KernelTable[Any, Any]]:
    """One table per interface of the op's class, contracts checked; no device is probed.

    Raises ContractTypeError or ContractValueError for kernel types that may not stand together.
    """
    owner = type(op).__name__
    by_interface: dict[str, dict[str, KernelType]] = {key: {} for key in op.interfaces}
    for name, kernel_type in _merged(op, backends).items():
        bases = getattr(kernel_type, "__mro__", ())
        homes = [key for key, interface in op.interfaces.items() if interface in bases]
        if len(homes) != 1:
            raise ContractTypeError(
                f"{owner}.{name}: expected {getattr(kernel_type, '__name__', kernel_type)} to inherit one of "
                f"{[interface.__name__ for interface in op.interfaces.values()]}, received {len(homes)} of them; "
                "inherit Kernel "
                "and exactly one interface of the op"
            )
        by_interface[homes[0]][name] = kernel_type
    return {
        key: KernelTable(
            InterfaceKey(key, interface, interface.request), by_interface[key], owner=owner, on_build=note_built
        )
        for key, interface in op.interfaces.items()
    }


def _merged(op: Op, backends: BackendRegistry) -> Mapping[str, KernelType]:
    """The class's kernel types and the backends', whose keys must differ."""
    owner = type(op).__name__
    added = backends.kernel_types_of(owner)
    for key in added:
        if key in op.kernel_types:
            raise ContractValueError(
                f"{owner}.{key}: expected a key of its own, received the in-tree key {key!r} from "
                f"{backends.owner_of_kernel_type(owner, key)}; register the kernel type under another key"
            )
    return {**op.kernel_types, **added}
