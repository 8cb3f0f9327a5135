"""Composite toys: stages, an optional one, an injected sub-op, and kernels of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from tileops.op import Op
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType

from . import toys
from .toys import ONE_INPUT, DoubleFwdOp, ToyOp, TripleFwdOp, entry


class ChainFwdOp(
    ToyOp,
    entry=entry(
        "ChainFwdOp",
        """
signature:
  forall: {S: Shape, T: "DType[float16 | float32]"}
  params: {twice: {type: bool, default: false}}
  inputs: {x: {dtype: T, shape: "[*S]"}, bias: {dtype: T, shape: "[*S]", optional: true}}
  outputs: {y: {dtype: T, shape: "[*S]"}}
composition:
  kind: composite
  stages:
    - {name: first, op: DoubleFwdOp}
    - {name: second, op: TripleFwdOp, optional: true}
""",
    ),
):
    """`2 x + bias`, then `3 y` where asked: no kernel of its own, an optional stage, an injected first sub-op."""

    kernel_types: ClassVar[Mapping[str, KernelType]] = {}
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {}
    delegate_types: ClassVar[Mapping[str, type[Op]]] = {"first": DoubleFwdOp, "second": TripleFwdOp}
    injected_parameters = ("first",)

    def __init__(self, twice: bool = False, first: Op | None = None, *, target: str | None = None) -> None:
        self.twice = twice
        super().__init__(target=target)
        self.first = self.delegate_for("first", "only", first)
        if twice:
            self.delegate_for("second", torch.float32)

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Any:
        y = self.delegate_for("first", "only")(x, bias)
        return self.delegate_for("second", x.dtype)(y) if self.twice else y


class StrayFwdOp(ChainFwdOp, entry=ChainFwdOp._plan.entry):
    """Calls a sub-op that it does not hold."""

    stray: ClassVar[Op | None] = None

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Any:
        assert StrayFwdOp.stray is not None
        return StrayFwdOp.stray(self.delegate_for("first", "only")(x, bias))


class NestedFwdOp(
    ToyOp,
    entry=entry(
        "NestedFwdOp",
        ONE_INPUT
        + '}, outputs: {y: {dtype: T, shape: "[*S]"}}}\n'
        + "composition: {kind: composite, stages: [{name: chain, op: ChainFwdOp}]}",
    ),
):
    """A composite of a composite."""

    kernel_types: ClassVar[Mapping[str, KernelType]] = {}
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {}
    delegate_types: ClassVar[Mapping[str, type[Op]]] = {"chain": ChainFwdOp}

    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)

    def forward(self, x: Tensor) -> Any:
        return self.delegate_for("chain", None, twice=True)(x)


class CacheFwdOp(
    ToyOp,
    entry=entry(
        "CacheFwdOp",
        """
signature:
  forall: {S: Shape, T: "DType[float16 | float32]"}
  inputs: {x: {dtype: T, shape: "[*S]"}, cache: {dtype: T, shape: "[*S]", mutated: true}}
  outputs: {y: {dtype: T, shape: "[*S]", buffer: out}}
composition: {kind: composite, stages: [{name: last, op: TripleFwdOp}]}
""",
    ),
):
    """A composite that writes an input and takes a buffer."""

    kernel_types: ClassVar[Mapping[str, KernelType]] = {}
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {}
    delegate_types: ClassVar[Mapping[str, type[Op]]] = {"last": TripleFwdOp}

    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)

    def forward(self, x: Tensor, cache: Tensor, *, out: Tensor | None = None) -> Any:
        cache.copy_(x)
        y = self.delegate_for("last", None)(x)
        return y if out is None else out.copy_(y)


class MixedFwdOp(
    ToyOp,
    entry=entry(
        "MixedFwdOp",
        ONE_INPUT
        + '}, outputs: {y: {dtype: T, shape: "[*S]"}}}\n'
        + "composition: {kind: composite, stages: [{name: own, kernel: toy}, {name: last, op: TripleFwdOp}]}",
    ),
):
    """A composite that declares a kernel of its own."""

    delegate_types: ClassVar[Mapping[str, type[Op]]] = {"last": TripleFwdOp}

    def __init__(self, *, target: str | None = None) -> None:
        super().__init__(target=target)

    def forward(self, x: Tensor) -> Any:
        y = self.run("negate", x.device, x.dtype, x.contiguous())
        return self.delegate_for("last", None)(y)


def names() -> tuple[str, ...]:
    """The names of every toy, as the registry of a test knows them."""
    found = [*vars(toys).values(), *globals().values()]
    toys_found = {value.__name__ for value in found if isinstance(value, type) and issubclass(value, ToyOp)}
    return (*toys_found, "TunedFwdOp")


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """A tensor of ones on the CPU."""
    return torch.ones(shape, dtype=dtype)
