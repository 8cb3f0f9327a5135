"""Op: the base class of every op, constructed once and called many times."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from typing import Any, ClassVar, Self, overload

import torch

from tileops.errors import ArgumentError, NoCallError
from tileops.manifest import registry
from tileops.manifest.model import OpEntry
from tileops.manifest.plan import SignaturePlan, build_plan
from tileops.manifest.record import SignatureCall
from tileops.op import keys
from tileops.op.boundary import generate_boundary
from tileops.op.call import note_built
from tileops.op.records import CallCost, cost_of
from tileops.op.state import BindingState, ConstructionState, RunningState
from tileops.version import __version__
from tileops_kernels.calls import CallSpec
from tileops_kernels.errors import ContractTypeError, OpNotAvailableError
from tileops_kernels.interface import CallT, InterfaceKey, InterfaceT, KernelInterface
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.table import KernelTable


class Op:
    """Base of op classes.

    A subclass sets `kernel_types` and `interfaces`, writes a constructor that assigns the manifest parameters to
    attributes of the same names and ends with `super().__init__(target=target)`, and writes `forward`. Everything else
    comes from the manifest entry of the class's name, or from `entry=` in the class statement. Construction selects
    nothing, builds nothing and probes no device.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = {}
    """The in-tree kernel types under their keys."""
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {}
    """The kernel interfaces that `forward` asks for, under their keys."""
    injected_parameters: ClassVar[tuple[str, ...]] = ()
    """Constructor parameters beyond the manifest's and `target`."""
    compile_op_names: ClassVar[tuple[str, ...]] = ()
    """Qualified names of the operators that `torch.compile` sees; empty for a class without a compile boundary."""
    dtype: torch.dtype | None = None
    """None unless the op has a dtype parameter."""

    __signature__: ClassVar[inspect.Signature]
    _plan: ClassVar[SignaturePlan]
    _contract: ClassVar[str]
    _call_boundary: ClassVar[Callable[..., Any]]

    def __init_subclass__(cls, *, entry: OpEntry | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.__signature__ = _constructor(cls)
        found = entry if entry is not None else registry.find(cls.__name__)
        if found is None:
            return
        cls._plan = build_plan(found)
        cls._contract = f"{found.digest}{cls._plan.source}"
        if cls._plan.inputs and found.composition is None:
            boundary = generate_boundary(cls.__name__, cls._plan)
            cls.compile_op_names = boundary.operator_names
            cls._call_boundary = boundary.call

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Refuse a wrong argument list of the constructor before any of it runs."""
        try:
            cls.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            raise _wrong_construction(cls, args, kwargs, str(error)) from None
        return super().__new__(cls)

    def __init__(self, *, target: str | None = None) -> None:
        values = self._plan.check_construction(self)
        for name, value in values.parameters.items():
            setattr(self, name, value)
        tables = _tables(self)
        self._instance_key = keys.register(self, (self._contract, values, __version__))
        self._construction = ConstructionState(target, values, self._instance_key, tables)
        self._binding = BindingState()
        self._running = RunningState()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the op on the tensors of its signature, as one call."""
        return self._call_boundary(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002 - for overrides
        """The computation: what a subclass writes. It runs once the signature check has passed."""
        raise ContractTypeError(
            f"{type(self).__name__}: forward is missing; expected a method that takes the signature's inputs, received "
            "none; "
            "define forward in the op class"
        )

    @property
    def serving_target(self) -> str | None:
        """The target that serves this instance, None before the first call that ran something."""
        return self._binding.target

    @property
    def last_call(self) -> SignatureCall:
        """The record of the last completed call. Raises NoCallError before one."""
        record = self._running.last_call
        if record is None:
            raise NoCallError(
                f"{type(self).__name__}: last_call: expected a completed call, received none; call the op before "
                "reading its record"
            )
        return record

    def eval_roofline(self) -> CallCost:
        """Floating-point operations and bytes of the last completed call."""
        return cost_of(self.last_call)

    def built_entries(self, interface: str) -> tuple[KernelInterface, ...]:
        """The entries built for `interface`, oldest first."""
        return self._table(interface).built_entries()

    def iter_kernels(self) -> Iterator[Kernel[Any]]:
        """Every kernel that this instance has built."""
        for table in self._construction.tables.values():
            for entry in table.built_entries():
                if isinstance(entry, Kernel):
                    yield entry

    def kernel_config(self) -> Mapping[str, object]:
        """The launch settings of the first built kernel that has any, empty when none has."""
        return next((config for kernel in self.iter_kernels() if (config := kernel.config())), {})

    @overload
    def kernel_for(self, interface: InterfaceKey[CallT, InterfaceT], call: CallT) -> InterfaceT: ...

    @overload
    def kernel_for(self, interface: str, call: CallSpec) -> Any: ...

    def kernel_for(self, interface: str, call: CallSpec) -> Any:
        """The entry that serves `call` under `interface`: one lookup for a call met before, else built."""
        table = self._construction.tables.get(interface)
        if table is None:
            table = self._table(interface)
        return table.entry(call)

    def key_for(self, interface: str, call: CallSpec) -> str:
        """The key of the kernel type that serves `call`; its device facts may be stated."""
        return self._table(interface).key_for(call)

    def kernel_table(self, interface: str) -> KernelTable[Any, Any]:
        """The kernel table of `interface`, to ask it why a kernel type serves a call and the others do not."""
        return self._table(interface)

    @classmethod
    def signature_source(cls) -> str:
        """The code generated from this op's manifest entry."""
        return cls._plan.source

    def __reduce__(self) -> tuple[Any, ...]:
        fresh = {"_construction", "_binding", "_running", "_instance_key"}
        state = {name: value for name, value in self.__dict__.items() if name not in fresh}
        return _rebuild, (type(self), self._construction.target), state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.__dict__.update(state)
        Op.__init__(self, target=self.__dict__.pop("_target"))

    def _table(self, interface: str) -> KernelTable[Any, Any]:
        table = self._construction.tables.get(interface)
        if table is None:
            raise OpNotAvailableError(
                f"{type(self).__name__}: interface: expected one of {sorted(self._construction.tables)}, received "
                f"{interface!r}; "
                "name an interface that the op class declares in interfaces"
            )
        return table


def _rebuild(cls: type[Op], target: str | None) -> Op:
    """An instance of `cls` that `__setstate__` completes; used by pickle and copy."""
    op: Op = object.__new__(cls)
    op.__dict__["_target"] = target
    return op


def _tables(op: Op) -> dict[str, KernelTable[Any, Any]]:
    """One kernel table per interface of the op class, contracts checked."""
    owner = type(op).__name__
    by_interface: dict[str, dict[str, KernelType]] = {key: {} for key in op.interfaces}
    for name, kernel_type in op.kernel_types.items():
        homes = [key for key, interface in op.interfaces.items() if interface in kernel_type.__mro__]
        if len(homes) != 1:
            raise ContractTypeError(
                f"{owner}.{name}: expected {kernel_type.__name__} to inherit one of "
                f"{[interface.__name__ for interface in op.interfaces.values()]}, received {len(homes)} of them; "
                "inherit Kernel and exactly one interface of the op"
            )
        by_interface[homes[0]][name] = kernel_type
    return {
        key: KernelTable(
            InterfaceKey(key, interface, interface.request), by_interface[key], owner=owner, on_build=note_built
        )
        for key, interface in op.interfaces.items()
    }


def _constructor(cls: type[Op]) -> inspect.Signature:
    """The constructor's signature without `self`."""
    signature = inspect.signature(cls.__init__)
    return signature.replace(
        parameters=list(signature.parameters.values())[1:], return_annotation=inspect.Signature.empty
    )


def _wrong_construction(
    cls: type[Op], args: tuple[object, ...], kwargs: Mapping[str, object], reason: str
) -> ArgumentError:
    accepted = list(cls.__signature__.parameters)
    unknown = [name for name in kwargs if name not in accepted]
    bare = [item.replace(annotation=item.empty) for item in cls.__signature__.parameters.values()]
    text = str(inspect.Signature(bare))[1:-1]
    if unknown:
        near = get_close_matches(unknown[0], accepted, n=1)
        mend = f"did you mean {near[0]}?" if near else f"construct it as {cls.__name__}({text})"
        return ArgumentError(
            f"{cls.__name__}: {unknown[0]}: expected parameters ({text}), received the keyword {unknown[0]!r}; {mend}"
        )
    return ArgumentError(
        f"{cls.__name__}: {reason}; expected parameters ({text}), received {len(args)} positional and the keywords "
        f"{sorted(kwargs)}; construct it as {cls.__name__}({text})"
    )
