"""Op: the base class of every op, constructed once and called many times."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterator, Mapping
from functools import partial
from typing import Any, ClassVar, Self, overload

import torch
from torch import Tensor
from typing_extensions import deprecated

from tileops.backend.discovery import Discovery
from tileops.backend.process import PROCESS
from tileops.errors import NoCallError, ParameterError, TracedConstructionError
from tileops.manifest import registry
from tileops.manifest.model import OpEntry
from tileops.manifest.plan import SignaturePlan, build_plan
from tileops.manifest.record import SignatureCall
from tileops.op import keys
from tileops.op.arguments import bind_call, constructor_signature, fakes_are_made, is_traced, wrong_construction
from tileops.op.boundary import generate_boundary
from tileops.op.boundary_source import effects
from tileops.op.call import fake_result, run_call
from tileops.op.delegates import hold, hold_copies
from tileops.op.gradients import call_without_gradient, in_forward_mode, needs_gradient, refuse_tangents
from tileops.op.implementations import kernel_tables
from tileops.op.parameters import parameter_on
from tileops.op.records import CallCost, cost_of
from tileops.op.sharing import shared_instance
from tileops.op.state import BindingState, ConstructionState, RunningState
from tileops.op.target_call import serves_elsewhere, trace_target
from tileops.op.tuning import request_tune
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
    delegate_types: ClassVar[Mapping[str, type[Op]]] = {}
    """The op classes of a composite's stages, in stage order."""
    injected_parameters: ClassVar[tuple[str, ...]] = ()
    """Constructor parameters beyond the manifest's and `target`."""
    compile_op_names: ClassVar[tuple[str, ...]] = ()
    """Qualified names of the operators that `torch.compile` sees; empty for a class without a compile boundary."""
    dtype: torch.dtype | None = None
    """None unless the op has a dtype parameter."""
    assembled: bool = False
    """Whether parts of a composite were injected that no manifest parameter states, and no target's builder knows."""
    collective: bool = False
    """Whether a call computes together with other processes: it then runs also where it writes no element itself."""

    __signature__: ClassVar[inspect.Signature]
    _computed: ClassVar[Callable[..., Any] | None] = None
    """The `forward` that `computation` was written for, None for an op that writes none."""
    _plan: ClassVar[SignaturePlan]
    _contract: ClassVar[str]
    _backends: ClassVar[Discovery] = PROCESS

    def __init_subclass__(
        cls, *, entry: OpEntry | None = None, backends: Discovery | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        if backends is not None:
            cls._backends = backends
        cls.__signature__ = constructor_signature(cls)
        if "computation" in vars(cls):
            cls._computed = cls.forward
        found = entry if entry is not None else registry.find(cls.__name__)
        if found is None:
            return
        cls._plan = build_plan(found)
        cls._contract = f"{found.digest}{cls._plan.source}"
        cls.compile_op_names, boundary_call = (), Op._call_boundary
        if cls._plan.inputs and found.composition is None:
            boundary = generate_boundary(cls.__name__, cls._plan)
            cls.compile_op_names = boundary.operator_names
            boundary_call = boundary.call
        cls._call_boundary = boundary_call  # type: ignore[method-assign]
        cls.__call__ = boundary_call  # type: ignore[method-assign]  # the same call with a frame less

    def __new__(cls, *args: object, **kwargs: object) -> Self:
        """Refuse a wrong argument list of the constructor before any of it runs."""
        try:
            cls.__signature__.bind(*args, **kwargs)
        except TypeError as error:
            raise wrong_construction(cls.__name__, cls.__signature__, args, kwargs, str(error)) from None
        return super().__new__(cls)

    def __init__(self, *, target: str | None = None) -> None:
        if not hasattr(type(self), "_plan"):
            raise _without_entry(type(self))
        if torch.compiler.is_dynamo_compiling():
            raise _while_tracing(type(self).__name__)
        backends = self._backends.load()  # 1: before any tracing
        if target is not None:
            backends.require_target(type(self).__name__, target)
        values = self._plan.check_construction(self)  # 2: parameters
        for name, value in values.parameters.items():
            setattr(self, name, value)
        tables = kernel_tables(self, backends)  # 3: implementations
        self._construction = ConstructionState(target, backends, values, tables)
        self._effects = effects(self._plan, values)
        self._instance_key = keys.register(self, (self._contract, values, __version__))  # 4: key
        self._binding = BindingState()  # 5: nothing selected, nothing built
        self._running = RunningState()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the op on the tensors of its signature, as one call."""
        return self._call_boundary(*args, **kwargs)

    def _call_boundary(self, *args: Any, **kwargs: Any) -> Any:
        """A call of an op without a compile boundary: bound by name, or traced through.

        When traced, nothing is checked; a target that already serves the instance runs its kernel, else `forward` runs
        and the operators of sub-ops become the graph's nodes.
        """
        if not self._plan.inputs and fakes_are_made():
            return fake_result(self)
        if is_traced([*args, *kwargs.values()]):
            return trace_target(self, args, kwargs) if serves_elsewhere(self) else self.forward(*args, **kwargs)
        inputs, out = bind_call(type(self).__name__, self._plan, args, kwargs)
        if in_forward_mode():
            refuse_tangents(type(self).__name__, inputs)
        run = partial(run_call, self, inputs, out, body=self._forward_by_name)
        if not needs_gradient((*inputs, out)):
            return run()
        buffer = {} if out is None else {"out": out}
        branch = self._plan.branches[self._plan.select_branch(self._construction.values, *inputs, **buffer)]
        written = [item for name, item in zip(self._plan.inputs, inputs, strict=True) if name in branch.writes]
        return call_without_gradient(type(self).__name__, run, (*inputs, out), [*written, out])

    def _forward_by_name(self, *inputs: Tensor | None, **buffer: Tensor) -> Any:
        """`forward` with the signature's inputs passed under their names."""
        return self.forward(**dict(zip(self._plan.inputs, inputs, strict=True)), **buffer)

    def forward(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002 - for overrides
        """The computation: what a subclass writes. It runs once the signature check has passed."""
        raise ContractTypeError(
            f"{type(self).__name__}: forward is missing; expected a method that takes the signature's inputs, "
            "received none; define forward in the op class"
        )

    def computation(self, *args: Any, **kwargs: Any) -> Callable[..., Any] | None:  # noqa: ARG002 - for overrides
        """What computes calls like this one when it is given their inputs contiguous; None for `forward` itself.

        A subclass that writes it calls it in `forward`. It follows from the inputs' metadata and the op's parameters
        alone, since later calls whose inputs are alike run it at once.
        """
        return None

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
                f"{type(self).__name__}: last_call: expected a completed call, received none; "
                "call the op before reading its record"
            )
        return record

    def eval_roofline(self) -> CallCost:
        """Floating-point operations and bytes of the last completed call."""
        return cost_of(self.last_call)

    def built_entries(self, interface: str) -> tuple[KernelInterface, ...]:
        """The entries built for `interface`, oldest first."""
        return self._table(interface).built_entries()

    def iter_kernels(self) -> Iterator[Kernel[Any]]:
        """Every kernel that this instance and its sub-ops have built, its own first."""
        for table in self._construction.tables.values():
            for entry in table.built_entries():
                if isinstance(entry, Kernel):
                    yield entry
        for sub_op in self.held_delegates():
            yield from sub_op.iter_kernels()

    def kernel_config(self) -> Mapping[str, object]:
        """The launch settings of the first built kernel that has any, empty when none has."""
        return next((config for kernel in self.iter_kernels() if (config := kernel.config())), {})

    @overload
    def kernel_for(self, interface: InterfaceKey[CallT, InterfaceT], call: CallT) -> InterfaceT: ...

    @overload  # a typed key with another call spec must not pass as a plain string
    @deprecated("the call spec is not of the type that the interface asks for")
    def kernel_for(self, interface: InterfaceKey[Any, Any], call: CallSpec) -> Any: ...

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

    def delegate_for(self, stage: str, identity: Hashable, given: Op | None = None, /, **params: Any) -> Op:
        """The sub-op of a composite for `(stage, identity)`: held, else `given`, else built from `params`, once.

        It is the only way to hold a sub-op. A built one takes this op's `target`; a given one keeps its own.
        Raises DelegateError for a stage that the class does not declare.
        """
        return hold(self, stage, identity, given, params)

    def held_delegates(self) -> tuple[Op, ...]:
        """The sub-ops that this composite holds, oldest first."""
        return tuple(self._running.delegates.values())

    def request_tune(self) -> None:
        """Tune every kernel that this instance and its sub-ops have built or will build.

        A kernel type without configurations is left as it is. When a target serves the op, its kernels decide their own
        settings: nothing is tuned, and one TuningWarning per instance says so.
        """
        request_tune(self)

    def parameter_on(self, name: str, device: torch.device | None) -> Any:
        """The value of a manifest parameter; a construction-time tensor is moved to `device`, once per device.

        `forward` reads its construction-time tensors through it. One that is declared to stay on the CPU stays there.
        """
        return parameter_on(self, name, device)

    def roof_key(self) -> str:
        """The compute unit whose peak bounds this op: `cuda_core.fp32` unless an op class names another."""
        return "cuda_core.fp32"

    @classmethod
    def shared(cls, *args: Any, **kwargs: Any) -> Self:
        """The instance for these constructor arguments that the whole process shares while anyone holds it.

        An op holds no weights, so layers with equal parameters can share one: their compiled code is then one graph.
        """
        return shared_instance(cls, args, kwargs)

    @classmethod
    def signature_source(cls) -> str:
        """The code generated from this op's manifest entry."""
        return cls._plan.source

    def __setattr__(self, name: str, value: object) -> None:
        """Refuse a new value for a parameter that construction has settled: calls and compiled graphs rest on it."""
        if "_construction" in self.__dict__ and name in self._construction.values.parameters:
            raise ParameterError(
                f"{type(self).__name__}: {name}: expected the value given at construction, received {value!r} later; "
                f"construct another {type(self).__name__}"
            )
        super().__setattr__(name, value)
        if name in ("forward", "computation") and "_running" in self.__dict__:
            self._running.repeats = ()

    def __repr__(self) -> str:
        """The constructor's call, with the settled parameters."""
        given = ", ".join(f"{name}={value!r}" for name, value in self._construction.values.parameters.items())
        return f"{type(self).__name__}({given})"

    def __reduce__(self) -> tuple[Any, ...]:
        fresh = {"_construction", "_binding", "_running", "_instance_key", "_effects"}
        state = {name: value for name, value in self.__dict__.items() if name not in fresh}
        return _rebuild, (type(self), self._construction.target), (state, dict(self._running.delegates))

    def __setstate__(self, state: tuple[Mapping[str, Any], Mapping[tuple[str, Hashable], Op]]) -> None:
        attributes, delegates = state
        self.__dict__.update(attributes)
        Op.__init__(self, target=self.__dict__.pop("_target"))
        hold_copies(self, delegates)

    def _table(self, interface: str) -> KernelTable[Any, Any]:
        table = self._construction.tables.get(interface)
        if table is None:
            raise OpNotAvailableError(
                f"{type(self).__name__}: interface: expected one of {sorted(self._construction.tables)}, "
                f"received {interface!r}; name an interface that the op class declares in interfaces"
            )
        return table


def _while_tracing(owner: str) -> TracedConstructionError:
    return TracedConstructionError(
        f"{owner}: construction: expected outside of compiled code, received while it is traced; construct the op "
        "once, before compiling, and call it inside"
    )


def _rebuild(cls: type[Op], target: str | None) -> Op:
    """An instance of `cls` that `__setstate__` completes; used by pickle and copy."""
    op: Op = object.__new__(cls)
    op.__dict__["_target"] = target
    return op


def _without_entry(cls: type[Op]) -> ContractTypeError:
    """The error for constructing a class that no manifest entry describes."""
    return ContractTypeError(
        f"{cls.__name__}: entry: expected a manifest entry of this name, received none; "
        "construct an op class that derives from it, or give the class an entry= of its own"
    )
