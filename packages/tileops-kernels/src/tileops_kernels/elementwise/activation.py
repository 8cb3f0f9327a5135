"""Kernel types of the activations: one on CUDA and one on CPU, each for all dtypes and any number of elements."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.loaded import Loaded
from tileops_kernels.build.program import Program
from tileops_kernels.devices import made_current
from tileops_kernels.dtypes import FLOATS, float_refusal
from tileops_kernels.elementwise.interfaces import ActivationCall, ReluFwdInterface
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.memory import ACCESS_BYTES

_CUDA_PROGRAMS = "tileops_kernels.elementwise.programs.activation"
_CPU_PROGRAMS = "tileops_kernels.elementwise.programs.activation_cpu"


@dataclass(frozen=True, slots=True)
class ElementSettings:
    """Launch settings of neighbouring elements: see the builder `relu_elements`."""

    vector: int
    unroll: int
    threads: int


def element_settings(dtype: torch.dtype, *, aligned: bool) -> ElementSettings:
    """Four 16-byte accesses a thread; as many elements one by one where addresses are not aligned."""
    vector = ACCESS_BYTES // dtype.itemsize
    return ElementSettings(vector=vector, unroll=4, threads=256) if aligned else ElementSettings(1, 4 * vector, 256)


class ReluKernel(Kernel[ActivationCall], ReluFwdInterface):
    """ReLU on CUDA: 16 bytes at a time where x begins at a multiple of them, else element by element."""

    def __init__(self, call: ActivationCall) -> None:
        super().__init__(call)
        self._loaded: Loaded[tuple[bool, bool], cuda.CUDAFunction] = Loaded(
            lambda key: cuda.load_for(self, self.program(aligned=key[0], inplace=key[1]))
        )

    @classmethod
    def refusal(cls, call: ActivationCall) -> str | None:
        """None for the dtypes that all activations serve."""
        return float_refusal(call.dtype) or super().refusal(call)

    def config(self) -> Mapping[str, object]:
        """The launch settings of aligned tensors."""
        return asdict(element_settings(self.call.dtype, aligned=True))

    def programs(self) -> Sequence[Program]:
        """The programs for aligned tensors and others, each into another tensor and in place."""
        return [self.program(aligned=a, inplace=i) for a in (True, False) for i in (True, False)]

    def program(self, *, aligned: bool, inplace: bool) -> Program:
        """The program of one alignment and one effect."""
        dtype = self.call.dtype
        settings = element_settings(dtype, aligned=aligned)
        return Program.of(_CUDA_PROGRAMS, "relu_elements", dtype=FLOATS[dtype], inplace=inplace, **asdict(settings))

    def forward(self, x: Tensor, out: Tensor | None) -> Tensor:
        """See `ReluFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format) if out is None else out
        elements = x.numel()
        if elements == 0:
            return y
        aligned = x.data_ptr() % ACCESS_BYTES == 0
        run = self._loaded[aligned, out is not None]
        with made_current(x.device):
            if out is None:
                run(x.as_strided((elements,), (1,)), y.view(elements))
            else:
                run(x.as_strided((elements,), (1,)))
        return y


class ReluCPUKernel(Kernel[ActivationCall], ReluFwdInterface):
    """ReLU on a CPU: elements are shared among the threads that torch uses."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    @classmethod
    def refusal(cls, call: ActivationCall) -> str | None:
        """None for the dtypes that all activations serve."""
        return float_refusal(call.dtype) or super().refusal(call)

    @classmethod
    def entry_for(cls, call: ActivationCall) -> tuple[Hashable, Callable[[], ReluCPUKernel]]:
        """One entry for each dtype."""
        return call.dtype, partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """The program into another tensor and the one in place."""
        return self.program(inplace=False), self.program(inplace=True)

    def program(self, *, inplace: bool) -> Program:
        """The program of one effect."""
        return Program.of(_CPU_PROGRAMS, "relu_elements", dtype=FLOATS[self.call.dtype], inplace=inplace)

    def forward(self, x: Tensor, out: Tensor | None) -> Tensor:
        """See `ReluFwdInterface.forward`."""
        if out is None:
            y = torch.empty_like(x, memory_format=torch.contiguous_format)
            if elements := x.numel():
                self._into_another(x.data_ptr(), y.data_ptr(), elements, torch.get_num_threads())
            return y
        if elements := x.numel():
            self._in_place(x.data_ptr(), elements, torch.get_num_threads())
        return out

    @cached_property
    def _into_another(self) -> CPUFunction:
        """The program into another tensor, built by the first call that needs it."""
        return cpu.load_for(self, self.program(inplace=False))

    @cached_property
    def _in_place(self) -> CPUFunction:
        """The program in place, built by the first call that needs it."""
        return cpu.load_for(self, self.program(inplace=True))


RELU_KERNELS: Mapping[str, KernelType] = {"relu": ReluKernel, "relu_cpu": ReluCPUKernel}
"""Every kernel type of `ReluFwdInterface` that ships with this package, under its key."""
