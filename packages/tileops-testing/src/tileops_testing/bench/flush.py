"""`CacheFlush`: takes what earlier calls left in the L2 cache of a CUDA device out of it."""

from __future__ import annotations

import ctypes

import torch

from tileops_testing.errors import KitError

__all__ = ["CacheFlush"]

_ROW = 1024
_NOT_SUPPORTED = 801
"""What the driver returns for devices that keep no lines longer than others."""


class CacheFlush:
    """Called, it leaves nothing of earlier calls in a device's L2 cache, and nothing there that waits to be written.

    Reading four times as many bytes as the cache holds does both, but for lines that were read to be evicted last,
    which outlive that, and which the driver gives up when it is asked to. It is asked for when the device is idle.
    Only one kernel runs, torch's least and greatest element of rows, which nothing that is timed is likely to run too.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        cached = torch.cuda.get_device_properties(device).L2_cache_size
        self._read = torch.zeros((-(-cached // _ROW), _ROW), dtype=torch.int32, device=device)
        self._driver = ctypes.CDLL("libcuda.so.1")

    def __call__(self) -> None:
        """Flush the cache; the read is queued on the current stream."""
        torch.cuda.synchronize(self._device)
        with torch.cuda.device(self._device):
            status = self._driver.cuCtxResetPersistingL2Cache()
        if status not in (0, _NOT_SUPPORTED):
            raise KitError(
                f"{self._device}: expected cuCtxResetPersistingL2Cache to give up cache lines that are kept, received "
                f"CUresult {status}; see whether an earlier kernel failed"
            )
        torch.aminmax(self._read, dim=1)
