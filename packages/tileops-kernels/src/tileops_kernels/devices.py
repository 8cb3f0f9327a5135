"""Device facts: what selection and launch settings may know of a device. Nothing else probes one."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import Final

import torch


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What one device is, as values.

    `arch` is the compute capability as `10 * major + minor` (90 on Hopper) and 0 on a CPU; `sm_count` the number of
    streaming multiprocessors, on a CPU the threads that torch uses; `smem_budget` the bytes of shared memory that one
    block may use, 0 on a CPU.
    """

    arch: int
    sm_count: int
    smem_budget: int


STATED_FACTS: Final[Mapping[int, DeviceFacts]] = MappingProxyType(
    {
        80: DeviceFacts(arch=80, sm_count=108, smem_budget=166912),
        86: DeviceFacts(arch=86, sm_count=84, smem_budget=101376),
        89: DeviceFacts(arch=89, sm_count=142, smem_budget=101376),
        90: DeviceFacts(arch=90, sm_count=132, smem_budget=232448),
        100: DeviceFacts(arch=100, sm_count=148, smem_budget=232448),
        120: DeviceFacts(arch=120, sm_count=188, smem_budget=101376),
    }
)
"""For each CUDA architecture the facts of a large device that has it, to ask about a machine that is not there.

The devices are an A100, an A40, an L40S, an H100 or H200, a B200 and an RTX PRO 6000; shared memory is NVIDIA's limit
for a block of that compute capability.
"""

CLUSTER_ARCHS: Final = frozenset({90})
"""The CUDA architectures on which blocks form clusters, which write to one another's shared memory, and were run so."""
CLUSTER_BLOCKS: Final = 8
"""The most blocks of a cluster that every such device takes."""

_AS_IT_IS: Final = nullcontext()


def device_facts(device: torch.device) -> DeviceFacts:
    """The facts of `device`, read once per device; a device type that TileOPs has no facts of gives zeros."""
    if device.type == "cuda":
        index: int | None = device.index
        return _cuda_facts(torch.cuda.current_device() if index is None else index)
    if device.type == "cpu":
        return DeviceFacts(arch=0, sm_count=torch.get_num_threads(), smem_budget=0)
    return DeviceFacts(arch=0, sm_count=0, smem_budget=0)


@cache
def _cuda_facts(index: int) -> DeviceFacts:
    properties = torch.cuda.get_device_properties(index)
    return DeviceFacts(
        arch=10 * properties.major + properties.minor,
        sm_count=properties.multi_processor_count,
        smem_budget=properties.shared_memory_per_block_optin,  # type: ignore[attr-defined]  # missing in torch's stub
    )


def device_name(device: torch.device | None) -> str:
    """The model of a device, as its driver names it; a CPU's machine and architecture."""
    if device is not None and device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{'unknown' if device is None else device.type} {platform.machine()} {torch.get_num_threads()} threads"


def made_current(device: torch.device) -> AbstractContextManager[object]:
    """A context in which `device`, that of a CUDA tensor, is the current one: nothing to do where it is."""
    return _AS_IT_IS if is_current(device) else torch.cuda.device(device)


def is_current(device: torch.device) -> bool:
    """Whether `device`, that of a CUDA tensor, is the current one.

    Asks as `torch.cuda.current_device` does, but not first whether CUDA is initialised: where a tensor lies, it is.
    """
    return bool(torch._C._cuda_getDevice() == device.index)  # noqa: SLF001


def current_accelerator_device() -> torch.device | None:
    """The accelerator's current device, with its index, or None where the process has no accelerator."""
    if not torch.accelerator.is_available():
        return None
    accelerator = torch.accelerator.current_accelerator()
    if accelerator is None:
        return None
    return torch.device(accelerator.type, torch.accelerator.current_device_index())
