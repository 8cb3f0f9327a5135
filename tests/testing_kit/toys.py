"""Small ops for the tests of the kit: a right one, and one for each way of being wrong."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tileops_testing.cases import Case
from tileops_testing.inputs import TensorInput
from tileops_testing.references import Reference

_LIBRARY = torch.library.Library("tileops_toys", "DEF")
_LIBRARY.define("double(Tensor x, str key) -> Tensor", tags=(torch.Tag.pt2_compliant_tag,))
_INSTANCES: dict[str, Doubling] = {}
_KEYS = itertools.count()


@dataclass(frozen=True)
class ToyRecord:
    """The record of a toy's call."""

    tensors: Mapping[str, Any]
    written: Sequence[str] = ()


class Doubling:
    """``y = 2 * x``, done right."""

    compile_op_names: ClassVar[tuple[str, ...]] = ("tileops_toys::double",)

    def __init__(self, *, target: str | None = None) -> None:
        self.target = target
        self.kernels: list[object] = []
        self.key = f"{type(self).__name__}-{next(_KEYS)}"
        self.record = ToyRecord({})
        _INSTANCES[self.key] = self

    def __call__(self, x: Tensor) -> Tensor:
        result: Tensor = torch.ops.tileops_toys.double.default(x, self.key)
        return result

    @property
    def last_call(self) -> ToyRecord:
        return self.record

    def iter_kernels(self) -> Sequence[object]:
        return self.kernels

    def run(self, x: Tensor) -> Tensor:
        if x.numel() == 0:
            self.record = ToyRecord({"x": SimpleNamespace(shape=x.shape, dtype=x.dtype)})
            return torch.empty(x.shape, dtype=x.dtype, device=x.device)
        self.build()
        self.record = ToyRecord({"x": SimpleNamespace(shape=x.shape, dtype=x.dtype)})
        return self.compute(x)

    def build(self) -> None:
        if self.kernels:
            return
        if HostRecorder.capturing:
            raise RuntimeError(f"{type(self).__name__}: call it once before capturing, to warm it up")
        self.kernels.append(object())

    def compute(self, x: Tensor) -> Tensor:
        return torch.empty(x.shape, dtype=x.dtype, device=x.device).copy_(x).mul_(2)

    def fake(self, x: Tensor) -> Tensor:
        return torch.empty(x.shape, dtype=x.dtype, device=x.device)


class WrongKernel(Doubling):
    """Off by sixteen units in the last place of one element."""

    def compute(self, x: Tensor) -> Tensor:
        y = super().compute(x)
        y[-1, -1] *= 1 + 16 * torch.finfo(x.dtype).eps
        return y


class UnwrittenTail(Doubling):
    """Leaves the last element as the allocator gave it."""

    def compute(self, x: Tensor) -> Tensor:
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        y.view(-1)[:-1] = 2 * x.reshape(-1)[:-1]
        return y


class GraphBreak(Doubling):
    """Does something on the way to its operator that dynamo cannot trace."""

    def __call__(self, x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return super().__call__(x)


class SecondNode(Doubling):
    """Calls torch outside its operator."""

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x.abs())


class StaleInput(Doubling):
    """Keeps the first input it meets and computes from it ever after."""

    kept: Tensor | None = None

    def compute(self, x: Tensor) -> Tensor:
        if self.kept is None or self.kept.shape != x.shape:
            self.kept = x.clone()
        return super().compute(self.kept)


class ReusesOutput(Doubling):
    """Returns one tensor from every call of a shape."""

    result: Tensor | None = None

    def compute(self, x: Tensor) -> Tensor:
        y = super().compute(x)
        if self.result is None or self.result.shape != x.shape:
            self.result = y
        return self.result.copy_(y)


class StridesOfInput(Doubling):
    """Its fake keeps the strides of the input, which its kernel does not."""

    def fake(self, x: Tensor) -> Tensor:
        return torch.empty_like(x)


class WritesInput(Doubling):
    """Scales its input in place without saying so."""

    def compute(self, x: Tensor) -> Tensor:
        y = super().compute(x)
        if x.is_contiguous():
            x.mul_(2)
        return y


class RowStrideIgnored(Doubling):
    """Reads the storage of its input as if it were contiguous."""

    def compute(self, x: Tensor) -> Tensor:
        return 2 * x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride())


class BuildsEachTime(Doubling):
    """Builds a kernel on every call."""

    def build(self) -> None:
        self.kernels = [*self.kernels, object()]


class WrongRecord(Doubling):
    """Records no tensor."""

    @property
    def last_call(self) -> ToyRecord:
        return ToyRecord({})


class BuildsOnEmpty(Doubling):
    """Builds a kernel for a call that writes nothing."""

    def run(self, x: Tensor) -> Tensor:
        self.build()
        return super().run(x)


class BuildsWhileCapturing(Doubling):
    """Can be captured cold: building is instant."""

    def build(self) -> None:
        if not self.kernels:
            self.kernels.append(object())


class RefusesWithoutReason(Doubling):
    """Refuses a cold capture, and does not say what to do."""

    def build(self) -> None:
        if HostRecorder.capturing and not self.kernels:
            raise RuntimeError("no")
        super().build()


class WrongWhenCold(BuildsWhileCapturing):
    """Captured cold, it leaves its output as the allocator gave it."""

    def compute(self, x: Tensor) -> Tensor:
        if HostRecorder.replaying:
            return torch.full(x.shape, 7.0, dtype=x.dtype, device=x.device)
        return super().compute(x)


class Specialises(Doubling):
    """Its fake turns a symbolic size into a constant."""

    def fake(self, x: Tensor) -> Tensor:
        rows = int(x.shape[0])
        return torch.empty((rows, x.shape[1]), dtype=x.dtype, device=x.device)


class WritesOnlyEagerly(Doubling):
    """Clears its input, unless it is being compiled."""

    def __call__(self, x: Tensor) -> Tensor:
        y = super().__call__(x)
        if not torch.compiler.is_compiling():
            x.zero_()
        return y


class RaisingFake(Doubling):
    """Its fake raises while a graph is traced."""

    def fake(self, x: Tensor) -> Tensor:
        if torch._guards.TracingContext.try_get() is not None:
            raise RuntimeError(f"no fake today for {list(x.shape)}")
        return super().fake(x)


class SkipsRepeated(Doubling):
    """Computes nothing when its input holds what it held on the last call."""

    previous: Tensor | None = None

    def compute(self, x: Tensor) -> Tensor:
        if self.previous is not None and torch.equal(self.previous, x):
            return torch.full(x.shape, 7.0, dtype=x.dtype, device=x.device)
        self.previous = x.clone()
        return super().compute(x)


class Composite(Doubling):
    """No node of its own, and one stage."""

    compile_op_names = ()
    delegate_types: ClassVar[Mapping[str, type[Doubling]]] = {"only": Doubling}

    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)
        self.only = Doubling()

    def __call__(self, x: Tensor) -> Tensor:
        return self.only(x)

    def iter_kernels(self) -> Sequence[object]:
        return self.only.iter_kernels()

    @property
    def last_call(self) -> ToyRecord:
        return self.only.last_call


class StrayNode(Composite):
    """A composite that computes something itself."""

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x).abs().copysign(x)


def _run(x: Tensor, key: str) -> Tensor:
    return _INSTANCES[key].run(x)


def _fake(x: Tensor, key: str) -> Tensor:
    return _INSTANCES[key].fake(x)


_LIBRARY.impl("double", _run, "CompositeExplicitAutograd")
torch.library.register_fake("tileops_toys::double", _fake, lib=_LIBRARY)


def doubling_case(op: type[Doubling], *, rows: int = 3, dtype: torch.dtype = torch.float32) -> Case:
    """Return a case of a toy with ``rows`` rows of five."""
    return Case(
        op=op,
        label="toy",
        parameters={},
        inputs=lambda sizes: {"x": TensorInput(shape=(_int(sizes["rows"]), 5), dtype=dtype)},
        reference=Reference(lambda x: 2 * x.double()),
        sizes={"rows": rows},
    )


def _int(size: object) -> int:
    assert isinstance(size, int)
    return size


@dataclass
class HostRecorder:
    """Stands for a CUDA graph on CPU: replays the operators that a function called, into the same storage."""

    calls: list[tuple[Any, Any, Any, Any]] = field(default_factory=list)
    capturing: ClassVar[bool] = False
    replaying: ClassVar[bool] = False

    def capture(self, function: Any) -> Any:
        HostRecorder.capturing = True
        try:
            with _Listen(self.calls):
                return function()
        finally:
            HostRecorder.capturing = False

    def replay(self) -> None:
        for operator, args, kwargs, result in self.calls:
            HostRecorder.replaying = True
            try:
                again = operator(*args, **kwargs)
            finally:
                HostRecorder.replaying = False
            for kept, value in zip(tree_leaves(result), tree_leaves(again), strict=True):
                if kept is not value:
                    kept.copy_(value)


class _Listen(TorchDispatchMode):
    def __init__(self, calls: list[tuple[Any, Any, Any, Any]]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._calls = calls

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self._calls.append((func, args, kwargs or {}, result))
        return result
