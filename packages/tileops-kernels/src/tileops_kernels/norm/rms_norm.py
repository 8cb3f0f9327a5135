"""Kernel types of RMSNorm."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.build import cpu
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.norm.interfaces import LayerNormCall, RMSNormFwdInterface

DTYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}
"""The dtypes that every kernel type here serves, with TileLang's names for them."""

_PROGRAMS = "tileops_kernels.norm.programs."


def _dtype_refusal(call: LayerNormCall) -> str | None:
    if call.dtype in DTYPES:
        return None
    return f"serves {', '.join(DTYPES.values())}, not {str(call.dtype).removeprefix('torch.')}"


class RMSNormCPUKernel(Kernel[LayerNormCall], RMSNormFwdInterface):
    """RMSNorm on a CPU: rows are shared among the threads that torch uses; any row length."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def __init__(self, call: LayerNormCall) -> None:
        super().__init__(call)
        self._n = call.n
        self._eps = call.eps
        self._weighted: CPUFunction | None = None
        self._plain: CPUFunction | None = None

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        return _dtype_refusal(call) or super().refusal(call)

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> tuple[Hashable, Callable[[], RMSNormCPUKernel]]:
        return (call.n, call.eps, call.dtype), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        return self._program(weighted=True), self._program(weighted=False)

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        rows = x.numel() // self._n
        if rows == 0:
            return y
        threads = torch.get_num_threads()
        if weight is None:
            run = self._plain or self._load(weighted=False)
            run(x.data_ptr(), y.data_ptr(), self._eps, rows, threads)
        else:
            run = self._weighted or self._load(weighted=True)
            run(x.data_ptr(), weight.data_ptr(), y.data_ptr(), self._eps, rows, threads)
        return y

    def _program(self, *, weighted: bool) -> Program:
        return Program.of(
            _PROGRAMS + "rms_norm_cpu", "rms_norm_rows", n=self._n, dtype=DTYPES[self.call.dtype], weighted=weighted
        )

    def _load(self, *, weighted: bool) -> CPUFunction:
        """The program of one of the two signatures, built by the first call that needs it."""
        run = cpu.load(self._program(weighted=weighted), owner=f"{type(self).__name__} for {self.call}")
        if weighted:
            self._weighted = run
        else:
            self._plain = run
        return run


RMS_NORM_KERNELS: Mapping[str, KernelType] = {
    "rms_norm_cpu": RMSNormCPUKernel,
}
"""Every kernel type of `RMSNormFwdInterface` that ships with this package, under its key."""
