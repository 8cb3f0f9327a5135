"""Code that depends on the kernels alone, and uses a table or an entry in a wrong way."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tileops_kernels.calls import CallSpec
from tileops_kernels.norm import LayerNormCall, rms_norm_kernels


@dataclass(frozen=True, slots=True, kw_only=True)
class OtherCall(CallSpec):
    """A call spec of another family."""

    n: int


table = rms_norm_kernels()
x = torch.ones(2, 64)
call = LayerNormCall(device=x.device, n=64, eps=1e-6, dtype=x.dtype)
table.entry(OtherCall(n=64))  # error: arg-type
table.key_for(OtherCall(n=64))  # error: arg-type
table.entry(call)(x)  # error: call-arg
table.entry(call)(x, 1.0)  # error: arg-type
number: int = table.entry(call)(x, None)  # error: assignment
call.n = 128  # error: misc
