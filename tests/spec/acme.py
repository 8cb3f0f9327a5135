"""A target of the tests: serves one op, and remembers what it was told and given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from tileops.backend import BackendRegistry, TensorSpec

from .toys import CPU


class Acme:
    """Registers a builder of `op` whose kernels run `compute`."""

    def __init__(self, registry: BackendRegistry, op: str, compute: Callable[..., Any], name: str = "acme") -> None:
        self.told: list[tuple[TensorSpec | None, ...]] = []
        self.parameters: list[dict[str, Any]] = []
        self.given: list[tuple[Tensor | None, ...]] = []
        self.compute = compute
        registry.register_kernel_builder(op, name, self.build)

    def build(self, *specs: TensorSpec | None, **parameters: Any) -> Callable[..., Any]:
        self.told.append(specs)
        self.parameters.append(parameters)

        def kernel(*tensors: Tensor | None, **buffer: Tensor) -> Any:
            self.given.append(tensors)
            return self.compute(*tensors, **buffer)

        return kernel


def tenfold(x: Tensor, *_: Tensor | None) -> Tensor:
    """Ten times the first input."""
    return x * 10


def spec(*shape: int, dtype: torch.dtype = torch.float32) -> TensorSpec:
    """What a builder is told of a CPU tensor."""
    return TensorSpec(CPU, dtype, shape)
