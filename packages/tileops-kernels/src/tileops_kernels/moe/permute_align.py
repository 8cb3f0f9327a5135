"""Kernel types of the permutation in blocks: one on CUDA and one on CPU."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from torch import Tensor

from tileops_kernels.build.program import Program
from tileops_kernels.devices import made_current
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.moe.placement import CPUPlacing, CUDAPlacing, Placement
from tileops_kernels.moe.placement_interfaces import PermuteAlignCall, PermuteAlignFwdInterface


class _PermuteAlign(Kernel[PermuteAlignCall], PermuteAlignFwdInterface):
    """What the kernel types share: without pairs no block is an expert's."""

    def __init__(self, call: PermuteAlignCall) -> None:
        super().__init__(call)
        self.placement = Placement("blocks", call.experts, call.block_size)

    def forward(self, expert_ids: Tensor, rows: int) -> tuple[Tensor, Tensor, Tensor]:
        """See `PermuteAlignFwdInterface.forward`."""
        pairs = expert_ids.new_empty((rows,))
        experts = expert_ids.new_empty((-(-rows // self.call.block_size),))
        filled = expert_ids.new_empty((1,))
        if expert_ids.numel() == 0:
            return pairs.zero_(), experts.fill_(-1), filled.zero_()
        self.place(expert_ids, pairs, experts, filled)
        return pairs, experts, filled

    @abstractmethod
    def place(self, ids: Tensor, pairs: Tensor, experts: Tensor, filled: Tensor) -> None:
        """Write the three results for ids, of which there is one at least."""
        ...


class PermuteAlignKernel(_PermuteAlign):
    """Permutation in blocks on CUDA."""

    def __init__(self, call: PermuteAlignCall) -> None:
        super().__init__(call)
        self._placing = CUDAPlacing(self.placement, self)

    def programs(self) -> Sequence[Program]:
        """The program that counts pairs, and the one that places them."""
        return self.placement.cuda_programs()

    def place(self, ids: Tensor, pairs: Tensor, experts: Tensor, filled: Tensor) -> None:
        """Launch the programs."""
        with made_current(ids.device):
            self._placing(ids, pairs, experts, filled)


class PermuteAlignCPUKernel(_PermuteAlign):
    """Permutation in blocks on a CPU, on one thread."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def __init__(self, call: PermuteAlignCall) -> None:
        super().__init__(call)
        self._placing = CPUPlacing(self.placement, self)

    @classmethod
    def entry_for(cls, call: PermuteAlignCall) -> tuple[Hashable, Callable[[], Kernel[PermuteAlignCall]]]:
        """One entry for all threads."""
        return replace(call, device=None, facts=None), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """Its one program."""
        return (self.placement.cpu_program(),)

    def place(self, ids: Tensor, pairs: Tensor, experts: Tensor, filled: Tensor) -> None:
        """Run the program."""
        self._placing(ids, pairs, experts, filled)


PERMUTE_ALIGN_KERNELS: Mapping[str, KernelType] = {
    "permute_align": PermuteAlignKernel,
    "permute_align_cpu": PermuteAlignCPUKernel,
}
