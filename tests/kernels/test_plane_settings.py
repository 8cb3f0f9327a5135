"""Planes of norms by channels: the settings of a pass by given statistics, which maps are large, and their splits."""

from __future__ import annotations

import pytest
import torch

from tileops_kernels.norm.planes import (
    LARGE_BYTES,
    PlaneSettings,
    given_settings,
    is_large,
    large_split_count,
    plane_settings,
    split_count,
)


@pytest.mark.parametrize(
    ("length", "dtype", "settings"),
    [
        (1, torch.float16, PlaneSettings(vector=1, lanes=1, slots=128, unroll=1, depth=1)),
        (49, torch.float32, PlaneSettings(vector=1, lanes=32, slots=4, unroll=2, depth=2)),
        (1024, torch.bfloat16, PlaneSettings(vector=8, lanes=32, slots=4, unroll=4, depth=4)),
        (1024, torch.float32, PlaneSettings(vector=4, lanes=64, slots=2, unroll=4, depth=4)),
        (1 << 20, torch.float32, PlaneSettings(vector=4, lanes=256, slots=1, unroll=4, depth=4)),
    ],
)
def test_settings_of_given_statistics(length: int, dtype: torch.dtype, settings: PlaneSettings) -> None:
    """A warp has a short plane, and a block four of them; longer planes have more lanes of four vectors."""
    assert given_settings(length, dtype) == settings


def test_only_maps_that_a_grid_holds_are_large() -> None:
    """Channels and entries beyond what an axis of a grid holds leave a map to the programs that count blocks."""
    assert is_large((65535, 65535, 1), LARGE_BYTES)
    assert not is_large((4, 128, 1 << 17), LARGE_BYTES - 1)
    assert not is_large((65536, 1, 1), LARGE_BYTES)
    assert not is_large((1, 65536, 1), LARGE_BYTES)


def test_splits_fill_the_device_without_running_dry() -> None:
    """Few channels are shared among many blocks, many have one each, and no block is without work."""
    settings = plane_settings(1 << 20, torch.float32)
    assert split_count((4, 128, 1 << 18), settings, 8, 132) == 4
    assert split_count((4, 3, 1 << 18), settings, 8, 132) == 176
    assert split_count((4, 2000, 1 << 18), settings, 8, 132) == 1
    assert split_count((1, 3, 256), settings, 8, 132) == 1
    assert [split_count((2, 3, 2048), settings, depth, 132) for depth in (4, 8)] == [4, 2]


def test_splits_of_large_maps_have_turns_enough() -> None:
    """A channel has up to 64 blocks of eight turns each; few channels have as many as fill the device."""
    settings = plane_settings(1 << 20, torch.float32)
    assert large_split_count((4, 128, 1 << 18), settings, 8, 132) == 64
    assert large_split_count((2, 128, 1 << 17), settings, 8, 132) == 16
    assert large_split_count((8, 2000, 1 << 11), settings, 8, 132) == 1
    assert large_split_count((4, 3, 1 << 18), settings, 8, 132) == 176
