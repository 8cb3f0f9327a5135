"""Kernel interfaces: a protocol for each place where an op calls a kernel, and the typed key naming it."""

from __future__ import annotations

from typing import ClassVar, Generic, Protocol, TypeVar

from tileops_kernels.calls import CallSpec

CallT = TypeVar("CallT", bound=CallSpec)
InterfaceT = TypeVar("InterfaceT", bound="KernelInterface")


class KernelInterface(Protocol):
    """What a kernel promises at one place where an op calls it.

    A concrete interface sets `request` to its call spec type, declares `forward` with its whole contract in the
    docstring (for each tensor the shape, dtype, layout, device and whether it is written; what is returned; what is
    undefined), and declares `__call__` alike, so that a call of an entry is typed.
    """

    request: ClassVar[type[CallSpec]]


class InterfaceKey(str, Generic[CallT, InterfaceT]):
    """The key of an interface: an ordinary string that also carries the interface and its call spec type for mypy.

    `op.kernel_for(RMS_NORM, call)` is typed by it; `op.kernel_for("rms_norm", call)` finds the same entry untyped.
    """

    __slots__ = ("interface", "request")

    interface: type[InterfaceT]
    request: type[CallT]

    def __new__(cls, name: str, interface: type[InterfaceT], request: type[CallT]) -> InterfaceKey[CallT, InterfaceT]:
        """The key spelled `name`, for `interface` and calls of type `request`."""
        key = super().__new__(cls, name)
        key.interface = interface
        key.request = request
        return key
