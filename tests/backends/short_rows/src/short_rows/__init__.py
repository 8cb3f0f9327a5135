"""Adds the kernel type `rms_norm_short_rows` to RMSNorm: preferred on rows of at most 256 elements."""

from __future__ import annotations

from collections.abc import Callable, Hashable

import torch
from torch import Tensor

from tileops.backend import register_kernel_type
from tileops_kernels.kernel import Kernel
from tileops_kernels.norm import LayerNormCall, RMSNormFwdInterface

LONGEST = 256


class RMSNormShortRowsKernel(Kernel[LayerNormCall], RMSNormFwdInterface):
    """RMSNorm of short rows on a CPU."""

    devices = frozenset({"cpu"})
    preferred_over = frozenset({"rms_norm_cpu"})

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        """None for rows of at most LONGEST elements."""
        return f"serves rows of at most {LONGEST} elements; n={call.n}" if call.n > LONGEST else super().refusal(call)

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> tuple[Hashable, Callable[[], Kernel[LayerNormCall]]]:
        """One entry per row length, eps and dtype."""
        return (call.n, call.eps, call.dtype), lambda: cls(call)

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """See `RMSNormFwdInterface.forward`."""
        rows = x.reshape(-1, self.call.n).float()
        scaled = rows * torch.rsqrt(rows.square().mean(dim=-1, keepdim=True) + self.call.eps)
        if weight is not None:
            scaled = scaled * weight.reshape(-1).float()
        return scaled.to(x.dtype).reshape(x.shape)


register_kernel_type("RMSNormFwdOp", "rms_norm_short_rows", RMSNormShortRowsKernel)
