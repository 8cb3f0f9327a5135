"""An op body that calls an entry, or asks for one, in a wrong way."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from tileops.norm import RMSNormFwdOp
from tileops_kernels.calls import CallSpec
from tileops_kernels.norm import RMS_NORM, LayerNormCall


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCall(CallSpec):
    """A call spec of another interface."""

    n: int


class Wrong(RMSNormFwdOp):
    """Each line that is wrong says which error the checker must give."""

    def forward(self, x: Tensor, weight: Tensor | None = None) -> Tensor:
        call = LayerNormCall(device=x.device, n=64, eps=1e-6, dtype=x.dtype)
        entry = self.kernel_for(RMS_NORM, call)
        entry(x)  # error: call-arg
        entry(x, "weight")  # error: arg-type
        entry(x, weight, 1e-6)  # error: call-arg
        rows: int = entry(x, weight)  # error: assignment
        self.kernel_for(RMS_NORM, 64)  # error: call-overload
        self.kernel_for(RMS_NORM, OtherCall(n=64))  # error: deprecated
        LayerNormCall(device=x.device, n="64", eps=1e-6, dtype=x.dtype)  # error: arg-type
        LayerNormCall(device=x.device, eps=1e-6, dtype=x.dtype)  # error: call-arg
        CallSpec(n=64)  # error: call-arg
        return entry(x, weight) if rows else x
