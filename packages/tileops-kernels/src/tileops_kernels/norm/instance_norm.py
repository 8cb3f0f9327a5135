"""Kernel types of InstanceNorm that moves running statistics: one on CUDA and one on CPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import ClassVar

import torch

from tileops_kernels.build.program import Program
from tileops_kernels.kernel import KernelType
from tileops_kernels.norm.channel_interfaces import InstanceNormTrainCall, InstanceNormTrainFwdInterface
from tileops_kernels.norm.channels import CPU_PROGRAMS, OwnStatistics, OwnStatisticsCPU
from tileops_kernels.norm.planes import plane_settings, plane_vector, power_of_two
from tileops_kernels.norm.rows import WARP

_THREADS = 256
"""Threads of a block whose planes do not need more."""

_LANES = 512
"""Threads at most that a plane has."""

_UNROLL = 8
"""Vectors of a thread at most that it has in registers."""

_INSTANCE_SLOTS = 16
"""Planes of a channel at most that a block has under way together."""

_INSTANCE_TURNS = 4
"""Turns that a block takes at most for the planes of a channel, where multiprocessors have no channel each."""


@dataclass(frozen=True, slots=True)
class InstanceSettings:
    """Launch settings of blocks that have a channel each: see `programs/instance_norm.py`."""

    lanes: int
    slots: int
    unroll: int
    blocks: int


def instance_settings(length: int, dtype: torch.dtype) -> InstanceSettings:
    """A warp for a plane that its registers hold, more lanes for a longer one; other threads have more planes."""
    vectors = length // plane_vector(length, dtype)
    lanes = min(_LANES, power_of_two(vectors), max(WARP, power_of_two(-(-vectors // _UNROLL))))
    slots = max(1, min(_THREADS // lanes, _INSTANCE_SLOTS))
    return InstanceSettings(lanes=lanes, slots=slots, unroll=min(_UNROLL, -(-vectors // lanes)), blocks=1)


class InstanceNormTrainKernel(OwnStatistics[InstanceNormTrainCall], InstanceNormTrainFwdInterface):
    """InstanceNorm by own statistics: a block for the planes of a channel, or three launches that share planes."""

    instances: ClassVar[bool] = True

    def __init__(self, call: InstanceNormTrainCall) -> None:
        super().__init__(call)
        self.channel_settings = instance_settings(call.length, call.dtype)

    def whole_variants(self) -> Mapping[str, Program]:
        """The one program whose blocks have a channel each."""
        settings = {"vector": self.settings.vector, **asdict(self.channel_settings)}
        return {"whole": self.affine_program("instance_norm", "instance_norm_channels", **settings)}

    def whole(self, shape: tuple[int, int, int]) -> str | None:
        """See `OwnStatistics.whole`.

        A block suffices for planes of one part, which it reads once, for few turns, and where channels are about as
        many as multiprocessors, so that few have nothing to do.
        """
        batch, channels, vectors = shape
        settings = self.channel_settings
        parts = -(-vectors // (settings.lanes * settings.unroll))
        turns = -(-batch // settings.slots) * parts
        busy = 8 * channels >= 7 * self.call.sm_count
        return "whole" if parts == 1 or turns <= _INSTANCE_TURNS or busy else None

    @classmethod
    def entry_for(cls, call: InstanceNormTrainCall) -> tuple[Hashable, Callable[[], InstanceNormTrainKernel]]:
        """One entry for all sizes of a plane that have the same settings."""
        settings = plane_settings(call.length, call.dtype), instance_settings(call.length, call.dtype)
        identity = call.device, *settings, call.dtype, call.weight_dtype
        return (*identity, call.eps, call.momentum), partial(cls, call)


class InstanceNormTrainCPUKernel(OwnStatisticsCPU[InstanceNormTrainCall], InstanceNormTrainFwdInterface):
    """InstanceNorm by own statistics on a CPU."""

    def programs(self) -> Sequence[Program]:
        """The one program."""
        return [self.affine_program(CPU_PROGRAMS, "batch_norm_planes", instances=True)]

    @classmethod
    def entry_for(cls, call: InstanceNormTrainCall) -> tuple[Hashable, Callable[[], InstanceNormTrainCPUKernel]]:
        """One entry for planes of every length."""
        return (call.dtype, call.weight_dtype, call.eps, call.momentum), partial(cls, call)


INSTANCE_NORM_TRAIN_KERNELS: Mapping[str, KernelType] = {
    "instance_norm_train": InstanceNormTrainKernel,
    "instance_norm_train_cpu": InstanceNormTrainCPUKernel,
}
"""Every kernel type of `InstanceNormTrainFwdInterface` that ships with this package, under its key."""
