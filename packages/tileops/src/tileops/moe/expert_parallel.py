"""Experts shared among the processes of a group: tokens are sent to the ranks of their experts, and results back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor, distributed

from tileops.errors import ArgumentError, ParameterError, ParameterTypeError, ShapeError
from tileops.moe.prepare_finalize import Dispatch

_NAME = "ExpertParallelPrepareFinalize"
_DTYPES = (torch.float16, torch.bfloat16, torch.float32)
"""The dtypes of tokens, by the number that ranks tell each other."""


@dataclass(frozen=True, slots=True)
class _Route:
    """Which tokens went to which rank: `tokens` in the order sent, rank by rank, and the rows sent and received."""

    tokens_of_call: int
    tokens: Tensor
    sent: list[int]
    received: list[int]


class ExpertParallelPrepareFinalize:
    """Rank r of a process group holds the experts from `r * num_experts // size`, each rank as many.

    A token is sent once to every rank that holds one of its experts, with the ids and weights of all of them; that
    rank's experts give the weighted sum of theirs, rounded to the tokens' dtype, and the ranks' sums are added in
    float32, in the order of ranks, and rounded once. So a token whose experts are all on one rank has that rank's
    result bit for bit.

    Every rank of the group calls, as often and in the same order, also one without tokens; one thread of a process at a
    time. Ranks may have different numbers of tokens, and nothing else: what they must agree on is exchanged with the
    numbers of rows, once per call, and read on the host. So a call waits for the device, and is neither captured into a
    CUDA graph nor compiled. Where a rank does not call, or dies, the others raise torch's error within the group's
    timeout.

    num_experts: the experts of all ranks, a multiple of the group's size. group: the process group, None for the
    default one; gloo for tensors on the CPU, NCCL on GPUs. It stays out of pickles and copies, which use the default.

    Raises ParameterError where the group is missing or num_experts is no multiple of its size.
    """

    def __init__(self, num_experts: int, group: distributed.ProcessGroup | None = None) -> None:
        if not (distributed.is_available() and distributed.is_initialized()):
            raise ParameterError(
                f"{_NAME}: group: expected an initialised process group, received none; "
                "call torch.distributed.init_process_group first"
            )
        given: object = num_experts
        if not isinstance(given, int) or isinstance(given, bool):
            raise ParameterTypeError(
                f"{_NAME}: num_experts: expected an int, received {given!r}; pass the number of all ranks' experts"
            )
        size = distributed.get_world_size(group)
        if size < 1:
            raise ParameterError(
                f"{_NAME}: group: expected a group that this process belongs to, received another; "
                "construct it on the group's ranks alone"
            )
        if num_experts < 1 or num_experts % size:
            raise ParameterError(
                f"{_NAME}: num_experts: expected a multiple of the group's {size} ranks, received {num_experts}; "
                "give each rank as many experts"
            )
        self.num_experts, self.ep_size, self._group = num_experts, size, group

    def prepare(self, hidden_states: Tensor, topk_weights: Tensor, topk_ids: Tensor) -> Dispatch:
        """Send each token to the ranks of its experts, and return those that came here."""
        if torch.compiler.is_compiling():
            raise ArgumentError(
                f"{_NAME}: prepare: expected an eager call, received one under torch.compile, which cannot wait for "
                "the ranks' counts; compile the code around the op"
            )
        here = self.num_experts // self.ep_size
        ranks = torch.arange(self.ep_size, device=topk_ids.device, dtype=topk_ids.dtype)
        owners = torch.div(topk_ids, here, rounding_mode="floor")
        needed = (owners.unsqueeze(-1) == ranks).any(1)
        rank_of, tokens = needed.T.nonzero(as_tuple=True)
        counts = needed.sum(0)
        sent, received = self._counts(counts, hidden_states, topk_ids)
        local_ids = topk_ids[tokens] - (ranks[rank_of] * here).unsqueeze(1)
        routing = torch.cat([local_ids, topk_weights[tokens].view(torch.int32)], 1)
        ids, weights = self._exchange(routing, sent, received).chunk(2, 1)
        return Dispatch(
            hidden_states=self._exchange(hidden_states[tokens], sent, received),
            topk_weights=weights.contiguous().view(torch.float32),
            topk_ids=ids.contiguous(),
            route=_Route(len(topk_ids), tokens, sent, received),
        )

    def finalize(self, expert_output: Tensor, dispatch: Dispatch) -> Tensor:
        """Send each row's result back, and add up each token's, in the order of ranks."""
        route = dispatch.route
        if not isinstance(route, _Route):
            raise ArgumentError(
                f"{_NAME}: dispatch: expected what prepare of this class returned, received route={route!r}; "
                "pass the Dispatch on as it is"
            )
        results = self._exchange(expert_output, route.received, route.sent)
        total = results.new_zeros((route.tokens_of_call, results.shape[1]), dtype=torch.float32)
        for tokens, rows in zip(route.tokens.split(route.sent), results.split(route.sent), strict=True):
            total.index_add_(0, tokens, rows.float())
        return total.to(expert_output.dtype)

    def _counts(self, counts: Tensor, hidden_states: Tensor, topk_ids: Tensor) -> tuple[list[int], list[int]]:
        """The rows that go to each rank and come from it. Raises ShapeError on every rank where two differ."""
        dtype = _DTYPES.index(hidden_states.dtype) if hidden_states.dtype in _DTYPES else -1
        facts = [self.num_experts, hidden_states.shape[1], topk_ids.shape[1], dtype]
        sent = torch.cat([counts.unsqueeze(1), counts.new_tensor(facts).expand(self.ep_size, -1)], 1)
        received = torch.empty_like(sent)
        distributed.all_to_all_single(received, sent, group=self._group)
        rows: list[list[int]] = torch.cat([sent[:, :1], received], 1).tolist()
        for rank, (_, _, *others) in enumerate(rows):
            if others != facts:
                raise ShapeError(
                    f"{_NAME}: prepare: expected every rank to pass {_facts(facts)}, received {_facts(others)} from "
                    f"rank {rank}; construct the op and call it alike on every rank"
                )
        return [row[0] for row in rows], [row[1] for row in rows]

    def _exchange(self, rows: Tensor, sent: list[int], received: list[int]) -> Tensor:
        """Send `sent[r]` of the rows to each rank r, in order, and return those received, `received[r]` from each."""
        arrived = rows.new_empty((sum(received), *rows.shape[1:]))
        distributed.all_to_all_single(arrived, rows.contiguous(), received, sent, group=self._group)
        return arrived

    def __deepcopy__(self, memo: object) -> Self:
        """Itself: it holds nothing that a call changes."""
        return self

    def __reduce__(self) -> tuple[type[Self], tuple[int]]:
        return type(self), (self.num_experts,)


def _facts(facts: list[int]) -> str:
    """What ranks must agree on, in words."""
    experts, hidden, choices, dtype = facts
    shown = str(_DTYPES[dtype]).removeprefix("torch.") if dtype >= 0 else "another dtype"
    return f"{experts} experts, rows of {hidden} {shown}, top_k={choices}"
