"""A kernel type added to an interface that an op has: RMSNorm of short rows on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.kernel import Kernel
from tileops_kernels.norm import LayerNormCall, RMSNormFwdInterface

LONGEST = 256
"""Elements of the longest row that it serves."""


class RMSNormShortRowsKernel(Kernel[LayerNormCall], RMSNormFwdInterface):
    """RMSNorm of rows of at most LONGEST elements."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})
    preferred_over: ClassVar[frozenset[str]] = frozenset({"rms_norm_cpu"})

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        """None for rows of at most LONGEST elements."""
        return f"serves rows of at most {LONGEST} elements; n={call.n}" if call.n > LONGEST else super().refusal(call)

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> tuple[Hashable, Callable[[], Kernel[LayerNormCall]]]:
        """One entry for every number of rows and every dtype: forward reads n and eps of the call, and nothing else."""
        return (call.n, call.eps), partial(cls, call)

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """See `RMSNormFwdInterface.forward`."""
        rows = x.reshape(-1, self.call.n).float()
        scaled = rows * torch.rsqrt(rows.square().mean(dim=-1, keepdim=True) + self.call.eps)
        if weight is not None:
            scaled = scaled * weight.reshape(-1).float()
        return scaled.to(x.dtype).reshape(x.shape)
