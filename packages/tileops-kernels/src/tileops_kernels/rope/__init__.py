"""Rotary position embedding kernels: call specs, interfaces, and the kernel types that ship with this package."""

from __future__ import annotations

from tileops_kernels.rope.frequencies import (
    Frequencies,
    InterpolatedFrequencies,
    RescaledFrequencies,
    SmoothedFrequencies,
)
from tileops_kernels.rope.interfaces import (
    ROPE,
    ROPE_POSITION_IDS,
    RoPECall,
    RoPEFwdInterface,
    RoPEPositionIdsCall,
    RoPEPositionIdsFwdInterface,
    table_positions,
)
from tileops_kernels.rope.rope import ROPE_KERNELS, ROPE_POSITION_IDS_KERNELS
from tileops_kernels.table import KernelTable

__all__ = [
    "ROPE",
    "ROPE_KERNELS",
    "ROPE_POSITION_IDS",
    "ROPE_POSITION_IDS_KERNELS",
    "Frequencies",
    "InterpolatedFrequencies",
    "RescaledFrequencies",
    "RoPECall",
    "RoPEFwdInterface",
    "RoPEPositionIdsCall",
    "RoPEPositionIdsFwdInterface",
    "SmoothedFrequencies",
    "rope_kernels",
    "rope_position_ids_kernels",
    "table_positions",
]


def rope_kernels() -> KernelTable[RoPECall, RoPEFwdInterface]:
    """A new table of the RoPE kernel types, for use without an op.

    `rope_kernels().entry(RoPECall(device=x.device, width=128, rotated=128, interleaved=False,
    frequencies=Frequencies(1e4), positions=table_positions(length), dtype=x.dtype))(x, length, heads)`.
    """
    return KernelTable(ROPE, ROPE_KERNELS)


def rope_position_ids_kernels() -> KernelTable[RoPEPositionIdsCall, RoPEPositionIdsFwdInterface]:
    """A new table of the RoPE kernel types for stated positions, for use without an op.

    `rope_position_ids_kernels().entry(RoPEPositionIdsCall(device=x.device, width=128, rotated=128,
    frequencies=Frequencies(1e4), ids_dtype=ids.dtype, dtype=x.dtype))(x, ids)`.
    """
    return KernelTable(ROPE_POSITION_IDS, ROPE_POSITION_IDS_KERNELS)
