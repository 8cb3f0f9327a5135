"""A kernel type of this project: RMSNorm of rows as short as a head, on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.build import cpu
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.loaded import Loaded
from tileops_kernels.build.program import Program
from tileops_kernels.dtypes import FLOATS, float_refusal
from tileops_kernels.kernel import Kernel
from tileops_kernels.memory import addresses
from tileops_kernels.norm import LayerNormCall, RMSNormFwdInterface

LONGEST = 256
"""Elements of the longest row that is kept in one block."""


class HeadNormKernel(Kernel[LayerNormCall], RMSNormFwdInterface):
    """RMSNorm of rows that fit one block: each is read once, where `rms_norm_cpu` reads it twice."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})
    preferred_over: ClassVar[frozenset[str]] = frozenset({"rms_norm_cpu"})

    def __init__(self, call: LayerNormCall) -> None:
        super().__init__(call)
        self._loaded: Loaded[bool, CPUFunction] = Loaded(lambda each: cpu.load_for(self, self._program(weighted=each)))

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        """None for rows of 1 to LONGEST elements."""
        if not 1 <= call.n <= LONGEST:
            return f"serves rows of 1 to {LONGEST} elements; n={call.n}"
        return float_refusal(call.dtype) or super().refusal(call)

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> tuple[Hashable, Callable[[], Kernel[LayerNormCall]]]:
        """One entry for every number of rows: what forward and the programs read of the call, and nothing else."""
        return (call.n, call.eps, call.dtype), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """The programs with a weight and without."""
        return self._program(weighted=True), self._program(weighted=False)

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """See `RMSNormFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        if y.numel() == 0:
            return y
        passed = {"x": x, "y": y} if weight is None else {"x": x, "weight": weight, "y": y}
        run = self._loaded[weight is not None]
        run(*addresses(self, **passed), self.call.eps, y.numel() // self.call.n, torch.get_num_threads())
        return y

    def _program(self, *, weighted: bool) -> Program:
        module, dtype = "downstream.programs.head_norm", FLOATS[self.call.dtype]
        return Program.of(module, "head_norm_rows", n=self.call.n, dtype=dtype, weighted=weighted)
