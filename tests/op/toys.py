"""An op with an entry of its own and kernels in plain torch, for tests of the op layer."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from tileops.manifest.parse import parse_entry
from tileops.op import Op
from tileops_kernels.calls import CallSpec
from tileops_kernels.interface import InterfaceKey, KernelInterface
from tileops_kernels.kernel import Kernel, KernelType

DOUBLE_ENTRY = parse_entry(
    """
signature:
  forall:
    S: Shape
    T: DType[float16 | float32]
  params:
    factor: {type: float, default: 2.0}
  inputs:
    x: {dtype: T, shape: "[*S]"}
    bias: {dtype: T, shape: "[*S]", optional: true}
  outputs:
    y: {dtype: T, shape: "[*S]"}
""",
    "ScaledFwdOp",
    family="toy",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScaledCall(CallSpec):
    """Scaling of a tensor of `dtype`."""

    dtype: torch.dtype
    factor: float


class ScaledInterface(KernelInterface, Protocol):
    """`x * factor + bias`."""

    request: ClassVar[type[CallSpec]] = ScaledCall

    @abstractmethod
    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Return a new tensor."""
        ...

    def __call__(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Run `forward`."""
        ...


SCALED: InterfaceKey[ScaledCall, ScaledInterface] = InterfaceKey("scaled", ScaledInterface, ScaledCall)


class ScaledKernel(Kernel[ScaledCall], ScaledInterface):
    """The kernel, in plain torch; `failure` is raised by each run while it is set."""

    devices = frozenset({"cpu", "cuda"})
    builds: ClassVar[int] = 0
    failure: ClassVar[BaseException | None] = None
    result: ClassVar[Callable[[Tensor], Any] | None] = None

    def __init__(self, call: ScaledCall) -> None:
        super().__init__(call)
        ScaledKernel.builds += 1

    @classmethod
    def entry_for(cls, call: ScaledCall) -> tuple[Hashable, Callable[[], ScaledKernel]]:
        """Each call builds its own entry."""
        return (call.dtype, call.factor), lambda: cls(call)

    def config(self) -> Mapping[str, object]:
        """Launch settings, as a real kernel has."""
        return {"threads": 128}

    def forward(self, x: Tensor, bias: Tensor | None) -> Tensor:
        """Compute, or do what the test asked for."""
        if ScaledKernel.failure is not None:
            raise ScaledKernel.failure
        y = x * self.call.factor if bias is None else x * self.call.factor + bias
        return y if ScaledKernel.result is None else ScaledKernel.result(y)


class ScaledFwdOp(Op, entry=DOUBLE_ENTRY):
    """`x * factor + bias`."""

    kernel_types: ClassVar[Mapping[str, KernelType]] = {"scaled": ScaledKernel}
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {SCALED: ScaledInterface}

    def __init__(self, factor: float = 2.0, *, target: str | None = None) -> None:
        self.factor = factor
        super().__init__(target=target)
        self.derived = f"by {self.factor}"

    def forward(self, x: Tensor, bias: Tensor | None = None) -> Tensor:
        """Compute on checked inputs."""
        call = ScaledCall(device=x.device, dtype=x.dtype, factor=self.factor)
        return self.kernel_for(SCALED, call)(x.contiguous(), None if bias is None else bias.contiguous())
