"""Elementwise kernels: call specs, interfaces, and tables of the kernel types that ship with this package."""

from __future__ import annotations

from tileops_kernels.elementwise.activation import RELU_KERNELS
from tileops_kernels.elementwise.generative import ALIBI_KERNELS, SINUSOIDAL_KERNELS
from tileops_kernels.elementwise.interfaces import (
    ALIBI,
    RELU,
    SINUSOIDAL,
    ActivationCall,
    AlibiCall,
    AlibiFwdInterface,
    ReluFwdInterface,
    SinusoidalCall,
    SinusoidalFwdInterface,
)
from tileops_kernels.table import KernelTable

__all__ = [
    "ALIBI",
    "ALIBI_KERNELS",
    "RELU",
    "RELU_KERNELS",
    "SINUSOIDAL",
    "SINUSOIDAL_KERNELS",
    "ActivationCall",
    "AlibiCall",
    "AlibiFwdInterface",
    "ReluFwdInterface",
    "SinusoidalCall",
    "SinusoidalFwdInterface",
    "alibi_kernels",
    "relu_kernels",
    "sinusoidal_kernels",
]


def relu_kernels() -> KernelTable[ActivationCall, ReluFwdInterface]:
    """A new table of the ReLU kernel types, for use without an op.

    `relu_kernels().entry(ActivationCall(device=x.device, dtype=x.dtype))(x, None)`.
    """
    return KernelTable(RELU, RELU_KERNELS)


def alibi_kernels() -> KernelTable[AlibiCall, AlibiFwdInterface]:
    """A new table of the ALiBi kernel types, for use without an op.

    `alibi_kernels().entry(AlibiCall(device=device, num_heads=8, dtype=torch.float32))(length)`.
    """
    return KernelTable(ALIBI, ALIBI_KERNELS)


def sinusoidal_kernels() -> KernelTable[SinusoidalCall, SinusoidalFwdInterface]:
    """A new table of the sinusoidal kernel types, for use without an op.

    `sinusoidal_kernels().entry(SinusoidalCall(device=device, width=512, dtype=torch.float32))(length)`.
    """
    return KernelTable(SINUSOIDAL, SINUSOIDAL_KERNELS)
