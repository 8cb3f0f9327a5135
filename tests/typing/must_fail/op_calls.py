"""Calls of an op that its signature does not have."""

from __future__ import annotations

import torch

from tileops.norm import RMSNormFwdOp

op = RMSNormFwdOp((64,))
x = torch.ones(2, 64)
op()  # error: call-arg
op(x, 1.0)  # error: arg-type
op(x, bias=x)  # error: call-arg
RMSNormFwdOp((64,), epsilon=1e-6)  # error: call-arg
RMSNormFwdOp("64")  # error: arg-type
