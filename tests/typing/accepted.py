"""Uses that the type checker must accept, with the types that it must find; checked, never run."""

from __future__ import annotations

from typing import assert_type

import torch
from torch import Tensor

from tileops.manifest import registry
from tileops.manifest.model import OpEntry
from tileops.norm import RMSNormFwdOp
from tileops_kernels.norm import RMS_NORM, LayerNormCall, RMSNormFwdInterface, rms_norm_kernels

x = torch.ones(2, 64)
call = LayerNormCall(device=x.device, n=64, eps=1e-6, dtype=x.dtype)

assert_type(rms_norm_kernels().entry(call), RMSNormFwdInterface)
assert_type(rms_norm_kernels().entry(call)(x, None), Tensor)
assert_type(RMSNormFwdOp((64,)).kernel_for(RMS_NORM, call), RMSNormFwdInterface)
assert_type(RMSNormFwdOp((64,)).kernel_for(RMS_NORM, call)(x, torch.ones(64)), Tensor)
assert_type(registry.entry("RMSNormFwdOp"), OpEntry)
assert_type(RMSNormFwdOp((64,))(x, torch.ones(64)), Tensor)
