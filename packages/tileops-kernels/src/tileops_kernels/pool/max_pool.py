"""Kernel types of max pooling: one on CUDA and one on CPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from math import inf
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.devices import made_current
from tileops_kernels.dtypes import FLOATS, float_refusal
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.memory import addresses
from tileops_kernels.pool.interfaces import MaxPool2dCall, MaxPool2dFwdInterface, Pair

_CUDA_PROGRAMS = "tileops_kernels.pool.programs.max_pool"
_CPU_PROGRAMS = "tileops_kernels.pool.programs.max_pool_cpu"

_ROW_LIMIT = 2**19
"""Elements of a row, 2 MiB of float32, that a CPU program may hold on the stack."""


@dataclass(frozen=True, slots=True)
class MaxPoolSettings:
    """Launch settings: the threads of a block, each of which makes one element."""

    threads: int


def cuda_settings(call: MaxPool2dCall) -> MaxPoolSettings:
    """Blocks that fill a multiprocessor whatever the window."""
    del call
    return MaxPoolSettings(threads=256)


def _span(call: MaxPool2dCall) -> int:
    """Outputs of a row that a CPU makes together: as many as 64 KiB of the input's row give."""
    return max(1, min(512, 16384 // call.stride[1]))


def _reach(call: MaxPool2dCall) -> int:
    """Elements of a row behind the outputs that are made together."""
    return (_span(call) - 1) * call.stride[1] + (call.kernel_size[1] - 1) * call.dilation[1] + 1


def _window(call: MaxPool2dCall) -> dict[str, str]:
    """The window's arguments as programs take them."""
    named = {
        "kernel": call.kernel_size,
        "stride": call.stride,
        "padding": call.padding,
        "dilation": call.dilation,
    }
    return {name: _text(pair) for name, pair in named.items()}


def _text(pair: Pair) -> str:
    return f"{pair[0]},{pair[1]}"


class MaxPool2dKernel(Kernel[MaxPool2dCall], MaxPool2dFwdInterface):
    """Max pooling on CUDA, one element of the output a thread."""

    general: ClassVar[bool] = True

    def __init__(self, call: MaxPool2dCall) -> None:
        super().__init__(call)
        self.settings = cuda_settings(call)

    @classmethod
    def refusal(cls, call: MaxPool2dCall) -> str | None:
        """None for the dtypes that all kernel types here serve."""
        return float_refusal(call.dtype) or super().refusal(call)

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return asdict(self.settings)

    def programs(self) -> Sequence[Program]:
        """Its one program."""
        return (self.program(),)

    def program(self) -> Program:
        """The program of the call."""
        return Program.of(
            _CUDA_PROGRAMS,
            "max_pool_planes",
            dtype=FLOATS[self.call.dtype],
            index="int64" if self.call.wide else "int32",
            threads=self.settings.threads,
            **_window(self.call),
        )

    def forward(self, planes: Tensor, height: int, width: int) -> Tensor:
        """See `MaxPool2dFwdInterface.forward`."""
        n, c, h, w = planes.shape
        output = planes.new_empty((n, c, height, width))
        if output.numel() == 0:
            return output
        if planes.numel() == 0:
            return output.fill_(-inf)
        with made_current(planes.device):
            run = self._run
            run(
                planes.as_strided((n * c, h, w), (h * w, w, 1)),
                output.as_strided((n * c, height, width), (height * width, width, 1)),
            )
        return output

    @cached_property
    def _run(self) -> cuda.CUDAFunction:
        """The program, built by the first call that launches it."""
        return cuda.load_for(self, self.program())


class MaxPool2dCPUKernel(Kernel[MaxPool2dCall], MaxPool2dFwdInterface):
    """Max pooling on a CPU: planes are shared among the threads that torch uses."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    @classmethod
    def refusal(cls, call: MaxPool2dCall) -> str | None:
        """None for the dtypes that all kernel types here serve, and windows whose row fits the stack of a thread."""
        reason = float_refusal(call.dtype) or super().refusal(call)
        if reason is None and (reach := _reach(call)) > _ROW_LIMIT:
            reason = f"a window reaches over {reach} elements of a row; up to {_ROW_LIMIT} are held on the stack"
        return reason

    @classmethod
    def entry_for(cls, call: MaxPool2dCall) -> tuple[Hashable, Callable[[], MaxPool2dCPUKernel]]:
        """One entry for all threads and extents."""
        return (call.kernel_size, call.stride, call.padding, call.dilation, call.dtype), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """Its one program."""
        return (self.program(),)

    def program(self) -> Program:
        """The program of the call."""
        return Program.of(
            _CPU_PROGRAMS,
            "max_pool_planes",
            dtype=FLOATS[self.call.dtype],
            span=_span(self.call),
            **_window(self.call),
        )

    def forward(self, planes: Tensor, height: int, width: int) -> Tensor:
        """See `MaxPool2dFwdInterface.forward`."""
        n, c, h, w = planes.shape
        output = planes.new_empty((n, c, height, width))
        if output.numel() == 0:
            return output
        if planes.numel() == 0:
            return output.fill_(-inf)
        count = n * c
        run = self._run
        sizes = count, h, height, w, width
        run(*addresses(self, planes=planes), output.data_ptr(), *sizes, torch.get_num_threads())
        return output

    @cached_property
    def _run(self) -> CPUFunction:
        """The program, built by the first call that needs it."""
        return cpu.load_for(self, self.program())


MAX_POOL2D_KERNELS: Mapping[str, KernelType] = {
    "max_pool2d": MaxPool2dKernel,
    "max_pool2d_cpu": MaxPool2dCPUKernel,
}
