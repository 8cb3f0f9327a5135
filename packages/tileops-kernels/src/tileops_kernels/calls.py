"""Call specs: the facts of one call that select a kernel type and build its entry."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from tileops_kernels.devices import DeviceFacts
from tileops_kernels.errors import CallSpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSpec:
    """Base of call specs: frozen, hashable, no tensors and no policies.

    A family adds shapes, dtypes and semantic parameters as keyword-only fields; equal call specs describe the same
    call. `device` may be left out where the process has an accelerator. `facts` is filled in by the kernel table when
    it has to select or build; a caller states it only to ask `key_for` what another machine would select.
    """

    device: torch.device | None = None
    facts: DeviceFacts | None = None

    @property
    def arch(self) -> int:
        """Compute capability of the call's device (90 on Hopper, 0 on a CPU); readable while selecting and building."""
        return self._known().arch

    @property
    def sm_count(self) -> int:
        """Streaming multiprocessors of the call's device; readable while selecting and building."""
        return self._known().sm_count

    @property
    def smem_budget(self) -> int:
        """Bytes of shared memory that a block may use on the call's device; readable while selecting and building."""
        return self._known().smem_budget

    def _known(self) -> DeviceFacts:
        if self.facts is None:
            raise CallSpecError(
                f"{type(self).__name__}: device facts are read before they are settled; expected a call spec that a "
                f"kernel table handed out, received {self}; read them in refusal and entry_for, or state facts= "
                "yourself"
            )
        return self.facts
