"""Stand-ins for CUDA's current device and for loaded programs: what kernels launch is looked at on a CPU's tensors."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from tileops_kernels.build import cuda

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pytest

    from tileops_kernels.build.program import Program


class CurrentDevice:
    """Stands for CUDA's current device: its index, and the devices that were made current.

    A tensor on the CPU, which stands for one on CUDA, lies on a device whose index is None.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch, index: int | None = None) -> None:
        self.index = index
        self.entered: list[torch.device] = []
        monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: self.index, raising=False)
        monkeypatch.setattr(torch.cuda, "device", self.enter)

    @contextmanager
    def enter(self, device: torch.device) -> Iterator[None]:
        self.entered.append(device)
        before, self.index = self.index, device.index
        try:
            yield
        finally:
            self.index = before


def load_instead(monkeypatch: pytest.MonkeyPatch, load: Callable[..., cuda.CUDAFunction]) -> CurrentDevice:
    """Have `load` give kernels their CUDA programs; a CPU tensor's device, which is returned, is the current one."""
    monkeypatch.setattr(cuda, "load", load)
    return CurrentDevice(monkeypatch)


class Launches:
    """Stands for loaded CUDA programs, and keeps what each launch was given and which device was current then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs: list[Program] = []
        self.arguments: list[tuple[Tensor | float, ...]] = []
        self.indices: list[int | None] = []
        self.current = load_instead(monkeypatch, self.load)

    def load(self, program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert arch == 90
        self.programs.append(program)
        return self.run

    def run(self, *given: Tensor | float) -> None:
        self.arguments.append(given)
        self.indices.append(self.current.index)

    def tensors(self) -> list[Tensor]:
        """The tensors that the last launch was given."""
        return [given for given in self.arguments[-1] if isinstance(given, Tensor)]

    def shapes(self) -> list[tuple[int, ...]]:
        """Their shapes."""
        return [tuple(tensor.shape) for tensor in self.tensors()]
