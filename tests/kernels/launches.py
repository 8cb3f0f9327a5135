"""Stand-ins for loaded CUDA programs: what kernels launch is looked at on tensors of the CPU."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tileops_kernels.build import cuda

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

    from tileops_kernels.build.program import Program


def load_instead(monkeypatch: pytest.MonkeyPatch, load: Callable[..., cuda.CUDAFunction]) -> None:
    """Have `load` give kernels their CUDA programs, and take the device of every tensor for the current one."""
    monkeypatch.setattr(cuda, "load", load)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)


class Launches:
    """Stands for loaded CUDA programs, and keeps what each launch was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs: list[Program] = []
        self.arguments: list[tuple[Tensor | float, ...]] = []
        load_instead(monkeypatch, self.load)

    def load(self, program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert arch == 90
        self.programs.append(program)
        return lambda *given: self.arguments.append(given)

    def tensors(self) -> list[Tensor]:
        """The tensors that the last launch was given."""
        return [given for given in self.arguments[-1] if isinstance(given, Tensor)]

    def shapes(self) -> list[tuple[int, ...]]:
        """Their shapes."""
        return [tuple(tensor.shape) for tensor in self.tensors()]
