"""A backend in plain PyTorch: the target `plain_torch`, and a kernel type of RMSNorm for short rows on a CPU."""

from __future__ import annotations

from plain_torch import target
from plain_torch.short_rows import RMSNormShortRowsKernel
from tileops.backend import BackendRegistry

__all__ = ["RMSNormShortRowsKernel", "register"]


def register(registry: BackendRegistry) -> None:
    """Register all that this distribution brings; `tileops` calls it when the first op is constructed."""
    registry.register_detector("plain_torch", target.claims)
    registry.register_kernel_builder("RMSNormFwdOp", "plain_torch", target.build_rms_norm)
    registry.register_kernel_builder("SoftmaxFwdOp", "plain_torch", target.build_softmax)
    registry.register_kernel_builder("ReluFwdOp", "plain_torch", target.build_relu)
    registry.register_kernel_type("RMSNormFwdOp", "rms_norm_short_rows", RMSNormShortRowsKernel)
