"""What happens around the experts of a fused op: bringing tokens to the experts that compute them, and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """What the experts of this process compute on, and whatever `finalize` needs to bring the result back.

    hidden_states: `[R, H]`, the rows to compute; topk_weights: float32 `[R, K]`; topk_ids: int32 `[R, K]`, counted from
    this process's first expert, any other number for an expert that is not here.
    """

    hidden_states: Tensor
    topk_weights: Tensor
    topk_ids: Tensor
    route: object = None


@runtime_checkable
class PrepareFinalize(Protocol):
    """How the tokens of a call reach the experts, and how the experts' results become the call's.

    `ep_size` is the number of processes that share the experts, each holding as many, in the order of ranks;
    `num_experts` is their number in all, None where any number will do.
    """

    @property
    def ep_size(self) -> int:
        """The number of processes that share the experts."""
        ...

    @property
    def num_experts(self) -> int | None:
        """The number of experts of all processes, None where any will do."""
        ...

    def prepare(self, hidden_states: Tensor, topk_weights: Tensor, topk_ids: Tensor) -> Dispatch:
        """Return what this process's experts compute on.

        hidden_states: `[M, H]`; topk_weights: float32 `[M, K]`; topk_ids: int32 `[M, K]`, counted over all processes.
        """
        ...

    def finalize(self, expert_output: Tensor, dispatch: Dispatch) -> Tensor:
        """Return the call's result `[M, H]`, from the experts' `[R, H]` of what `prepare` returned."""
        ...


@dataclass(frozen=True, slots=True)
class LocalPrepareFinalize:
    """All experts are in this process: nothing is copied or sent."""

    ep_size: int = 1
    num_experts: int | None = None

    def prepare(self, hidden_states: Tensor, topk_weights: Tensor, topk_ids: Tensor) -> Dispatch:
        """Return the tokens as they are."""
        return Dispatch(hidden_states=hidden_states, topk_weights=topk_weights, topk_ids=topk_ids)

    def finalize(self, expert_output: Tensor, dispatch: Dispatch) -> Tensor:  # noqa: ARG002 - the protocol's
        """Return the experts' result as it is."""
        return expert_output
