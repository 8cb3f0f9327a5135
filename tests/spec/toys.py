"""Ops for tests of the rules: small entries of their own, kernels in plain torch, and hooks to watch and to fail."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from tileops.backend import BackendRegistry, Discovery
from tileops.manifest.model import OpEntry
from tileops.manifest.parse import parse_entry
from tileops.op import Op
from tileops_kernels.calls import CallSpec
from tileops_kernels.interface import InterfaceKey, KernelInterface
from tileops_kernels.kernel import Kernel, KernelType

CPU = torch.device("cpu")


def entry(name: str, text: str) -> OpEntry:
    """The entry of a toy op."""
    return parse_entry(text, name, family="toy")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToyCall(CallSpec):
    """What a toy kernel computes; `length` is not compiled in."""

    dtype: torch.dtype
    compute: str
    length: int = 0


class ToyInterface(KernelInterface, Protocol):
    """Computes `call.compute` of its tensors."""

    request: ClassVar[type[CallSpec]] = ToyCall

    @abstractmethod
    def forward(self, *tensors: Tensor | None) -> Any:
        """Return what COMPUTE says."""
        ...

    def __call__(self, *tensors: Tensor | None) -> Any:
        """Run `forward`."""
        ...


class OtherInterface(KernelInterface, Protocol):
    """A second place where an op calls a kernel."""

    request: ClassVar[type[CallSpec]] = ToyCall

    @abstractmethod
    def forward(self, *tensors: Tensor | None) -> Any:
        """Return what COMPUTE says."""
        ...

    def __call__(self, *tensors: Tensor | None) -> Any:
        """Run `forward`."""
        ...


TOY: InterfaceKey[ToyCall, ToyInterface] = InterfaceKey("toy", ToyInterface, ToyCall)
OTHER: InterfaceKey[ToyCall, OtherInterface] = InterfaceKey("other", OtherInterface, ToyCall)


def _plus(x: Tensor, bias: Tensor | None) -> Tensor:
    return x * 2 if bias is None else x * 2 + bias


def _update(x: Tensor, mean: Tensor, count: Tensor) -> Tensor:
    mean.add_(x)
    count.add_(1)
    return x - mean


COMPUTE: dict[str, Callable[..., Any]] = {
    "double": _plus,
    "triple": lambda x: x * 3,
    "negate": lambda x: -x,
    "negate_": lambda x: x.neg_(),
    "into": lambda x, out: out.copy_(x + 1),
    "plus_one": lambda x: x + 1,
    "split": lambda x: (x + 1, x.sum(-1)),
    "update": _update,
    "centre": lambda x, mean: x - mean,
    "ramp": lambda shape: torch.arange(shape.numel()).to(shape),
    "gather": lambda x, places: x[..., places].contiguous(),
    "scale": lambda x, table: x * table,
}


class Hooks:
    """What toy kernels did, and what a test makes of them."""

    built: ClassVar[list[Kernel[Any]]] = []
    runs: ClassVar[list[str]] = []
    on_build: ClassVar[Callable[[ToyCall], object] | None] = None
    on_run: ClassVar[Callable[[ToyCall], object] | None] = None
    on_result: ClassVar[Callable[[Any], Any] | None] = None
    guard: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def reset(cls) -> None:
        cls.built, cls.runs = [], []
        cls.on_build = cls.on_run = cls.on_result = None


class Watched(Kernel[ToyCall]):
    """What toy kernels share: every compute, on CPU and CUDA; one entry per compute, dtype and device."""

    devices = frozenset({"cpu", "cuda"})
    general = True

    def __init__(self, call: ToyCall) -> None:
        super().__init__(call)
        if Hooks.on_build is not None:
            Hooks.on_build(call)
        with Hooks.guard:
            Hooks.built.append(self)

    @classmethod
    def entry_for(cls, call: ToyCall) -> tuple[Hashable, Callable[[], Kernel[ToyCall]]]:
        return (call.compute, call.dtype, call.device), lambda: cls(call)

    def config(self) -> Mapping[str, object]:
        return {"threads": 64}

    def forward(self, *tensors: Tensor | None) -> Any:
        if Hooks.on_run is not None:
            Hooks.on_run(self.call)
        Hooks.runs.append(self.call.compute)
        result = COMPUTE[self.call.compute](*tensors)
        return result if Hooks.on_result is None else Hooks.on_result(result)


class ToyKernel(Watched, ToyInterface):
    """The general kernel of the first interface."""

    forward = Watched.forward


class OtherKernel(Watched, OtherInterface):
    """The general kernel of the second interface."""

    forward = Watched.forward


class ToyOp(Op, backends=Discovery(BackendRegistry(lambda: ()), find=lambda: ())):
    """Base of the toys, with a registry of their own; a fixture gives each test a fresh one."""

    kernel_types: ClassVar[Mapping[str, KernelType]] = {"toy": ToyKernel}
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {TOY: ToyInterface}

    def run(self, compute: str, device: torch.device | None, dtype: torch.dtype, *tensors: Tensor | None) -> Any:
        """Ask for the kernel of `compute` and run it."""
        return self.kernel_for(TOY, ToyCall(device=device, dtype=dtype, compute=compute))(*tensors)


ONE_INPUT = 'signature: {forall: {S: Shape, T: "DType[float16 | float32]"}, inputs: {x: {dtype: T, shape: "[*S]"}'


class DoubleFwdOp(
    ToyOp,
    entry=entry(
        "DoubleFwdOp",
        ONE_INPUT + ', bias: {dtype: T, shape: "[*S]", optional: true}}, outputs: {y: {dtype: T, shape: "[*S]"}}}',
    ),
):
    """`2 x + bias`: an optional input, one effect branch."""

    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Any:
        bias = None if bias is None else bias.contiguous()
        return self.run("double", x.device, x.dtype, x.contiguous(), bias)


class TripleFwdOp(ToyOp, entry=entry("TripleFwdOp", ONE_INPUT + '}, outputs: {y: {dtype: T, shape: "[*S]"}}}')):
    """`3 x`."""

    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)

    def forward(self, x: Tensor) -> Any:
        return self.run("triple", x.device, x.dtype, x.contiguous())


class NegateFwdOp(
    ToyOp,
    entry=entry(
        "NegateFwdOp",
        """
signature:
  forall: {S: Shape, T: "DType[float16 | float32]"}
  params: {inplace: {type: bool, default: false}}
  inputs: {x: {dtype: T, shape: "[*S]", mutated: inplace}}
  outputs: {y: {dtype: T, shape: "[*S]", alias: x}}
""",
    ),
):
    """`-x`, in place where asked: a written input and an alias under a discriminant."""

    def __init__(self, inplace: bool = False, *, target: str | None = None) -> None:
        self.inplace = inplace
        super().__init__(target=target)

    def forward(self, x: Tensor) -> Any:
        if self.inplace:
            return self.run("negate_", x.device, x.dtype, x)
        return self.run("negate", x.device, x.dtype, x.contiguous())


class IntoFwdOp(
    ToyOp, entry=entry("IntoFwdOp", ONE_INPUT + '}, outputs: {y: {dtype: T, shape: "[*S]", buffer: out}}}')
):
    """`x + 1`, into the caller's buffer where there is one."""

    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)

    def forward(self, x: Tensor, *, out: Tensor | None = None) -> Any:
        if out is None:
            return self.run("plus_one", x.device, x.dtype, x.contiguous())
        return self.run("into", x.device, x.dtype, x.contiguous(), out)


class SplitFwdOp(
    ToyOp,
    entry=entry(
        "SplitFwdOp",
        """
signature:
  forall: {S: Shape, N: Dim, T: "DType[float16 | float32]"}
  params: {sums: {type: bool, default: true}}
  inputs: {x: {dtype: T, shape: "[*S, N]"}}
  outputs:
    y: {dtype: T, shape: "[*S, N]"}
    total: {dtype: T, shape: "[*S]", nullable: sums}
""",
    ),
):
    """`x + 1` and the sums of rows, which may be None."""

    def __init__(self, sums: bool = True, *, target: str | None = None) -> None:
        self.sums = sums
        super().__init__(target=target)

    def forward(self, x: Tensor) -> Any:
        if self.sums:
            return self.run("split", x.device, x.dtype, x.contiguous())
        return self.run("plus_one", x.device, x.dtype, x.contiguous()), None


class CentreFwdOp(
    ToyOp,
    entry=entry(
        "CentreFwdOp",
        """
signature:
  forall: {S: Shape, T: "DType[float16 | float32]"}
  params: {training: {type: bool, default: false}}
  inputs:
    x: {dtype: T, shape: "[*S]"}
    mean: {dtype: T, shape: "[*S]", mutated: training, contiguous: true}
    count: {dtype: int64, shape: "[]", mutated: training, optional: training}
  outputs: {y: {dtype: T, shape: "[*S]"}}
""",
    ),
):
    """Subtracts a mean that training updates: two interfaces, two written inputs, one required by a parameter."""

    kernel_types: ClassVar[Mapping[str, KernelType]] = {"update": ToyKernel, "centre": OtherKernel}
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {TOY: ToyInterface, OTHER: OtherInterface}

    def __init__(self, training: bool = False, *, target: str | None = None) -> None:
        self.training = training
        super().__init__(target=target)

    def forward(self, x: Tensor, mean: Tensor, count: Tensor | None = None) -> Any:
        if self.training:
            return self.run("update", x.device, x.dtype, x.contiguous(), mean, count)
        call = ToyCall(device=x.device, dtype=x.dtype, compute="centre")
        return self.kernel_for(OTHER, call)(x.contiguous(), mean)


class RampFwdOp(
    ToyOp,
    entry=entry(
        "RampFwdOp",
        """
signature:
  params:
    n: {type: int}
    dtype: {type: "float16 | float32"}
    device: {type: "device | None", default: null}
  outputs: {y: {dtype: dtype, shape: "[n]"}}
  shape_rules: [n >= 0]
""",
    ),
):
    """`0, 1, ..., n - 1`: no tensor input, a declared device."""

    def __init__(
        self, n: int, dtype: torch.dtype, device: torch.device | None = None, *, target: str | None = None
    ) -> None:
        self.n = n
        self.dtype = dtype
        self.device = device
        super().__init__(target=target)

    def forward(self) -> Any:
        device = self.device
        assert self.dtype is not None
        return self.run("ramp", device, self.dtype, torch.empty(self.n, dtype=self.dtype, device=device))


class GatherFwdOp(
    ToyOp,
    entry=entry(
        "GatherFwdOp",
        """
signature:
  forall: {S: Shape, N: Dim, K: Dim, T: "DType[float16 | float32]"}
  inputs:
    x: {dtype: T, shape: "[*S, N]"}
    places: {dtype: int64, shape: "[K]", device: cpu}
  outputs: {y: {dtype: T, shape: "[*S, K]"}}
""",
    ),
):
    """`x[..., places]`, with the places on the CPU whatever the call's device."""

    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)

    def forward(self, x: Tensor, places: Tensor) -> Any:
        return self.run("gather", x.device, x.dtype, x.contiguous(), places.contiguous())


class TableFwdOp(
    ToyOp,
    entry=entry(
        "TableFwdOp",
        """
signature:
  forall: {S: Shape, N: Dim, T: "DType[float16 | float32]"}
  params: {table: {dtype: T, shape: "[N]"}}
  inputs: {x: {dtype: T, shape: "[*S, N]"}}
  outputs: {y: {dtype: T, shape: "[*S, N]"}}
""",
    ),
):
    """`x * table`, with a table passed at construction."""

    def __init__(self, table: Tensor, *, target: str | None = None) -> None:
        self.table = table
        super().__init__(target=target)

    def forward(self, x: Tensor) -> Any:
        return self.run("scale", x.device, x.dtype, x.contiguous(), self.parameter_on("table", x.device))


class EveryFwdOp(
    ToyOp,
    entry=entry(
        "EveryFwdOp",
        """
signature:
  forall: {S: Shape, T: "DType[float16 | float32]"}
  params: {keep: {type: bool, default: false}, twice: {type: bool, default: false}}
  inputs:
    x: {dtype: T, shape: "[*S]"}
    state: {dtype: T, shape: "[*S]", mutated: keep}
  outputs:
    y: {dtype: T, shape: "[*S]", buffer: out}
    kept: {dtype: T, shape: "[*S]", alias: state, nullable: keep}
    z: {dtype: T, shape: "[*S]", nullable: twice}
""",
    ),
):
    """Every effect at once: `y = x + 1`, into a buffer; `state` becomes x and is returned; `z = 3 x`."""

    def __init__(self, keep: bool = False, twice: bool = False, *, target: str | None = None) -> None:
        self.keep = keep
        self.twice = twice
        super().__init__(target=target)

    def forward(self, x: Tensor, state: Tensor, *, out: Tensor | None = None) -> Any:
        y = x + 1 if out is None else out.copy_(x + 1)
        return y, state.copy_(x) if self.keep else None, x * 3 if self.twice else None
