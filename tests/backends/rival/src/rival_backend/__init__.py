"""Claims what tileops-plain-torch has: the target `plain_torch` of RMSNorm."""

from __future__ import annotations

from tileops.backend import register_detector, register_kernel_builder

register_detector("rival", lambda device: device.type == "cpu")
register_kernel_builder("RMSNormFwdOp", "plain_torch", lambda *specs, **parameters: print)
