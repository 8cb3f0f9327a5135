"""Pairs of token and expert placed one after the other, as a reader would."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import torch
from torch import Tensor


@dataclass(frozen=True)
class Places:
    """The row of each pair, -1 for none; each expert's first row, the row after its last, and where the next begins."""

    rows: list[int]
    starts: list[int]
    ends: list[int]
    stops: list[int]


def placed(ids: Tensor, experts: int, alignment: int) -> Places:
    """Return where each pair goes, experts and their pairs in order."""
    found = ids.flatten().tolist()
    pairs: dict[int, list[int]] = {expert: [] for expert in range(experts)}
    for pair, expert in enumerate(found):
        if 0 <= expert < experts:
            pairs[expert].append(pair)
    rows, starts, ends, stops, start = [-1] * len(found), [], [], [], 0
    for expert in range(experts):
        starts.append(start)
        for rank, pair in enumerate(pairs[expert]):
            rows[pair] = start + rank
        ends.append(start + len(pairs[expert]))
        start = -(-ends[-1] // alignment) * alignment
        stops.append(start)
    return Places(rows, starts, ends, stops)


TOKENS: Final = (0, 1, 3, 32, 512, 4096)
"""Numbers of tokens that tests try."""


def distinct_ids(tokens: int, top_k: int, experts: int, device: torch.device) -> Tensor:
    """Return distinct experts for each token."""
    random = torch.Generator().manual_seed(tokens)
    return torch.rand(tokens, experts, generator=random).argsort(-1)[:, :top_k].int().to(device)


def wild_ids(tokens: int, top_k: int, experts: int, device: torch.device) -> Tensor:
    """Return ids of which some are no expert's: negative, just beyond, and the ends of int32."""
    random = torch.Generator().manual_seed(tokens)
    ids = torch.randint(-2, experts + 2, (tokens, top_k), generator=random)
    strange = torch.tensor([-(2**31), 2**31 - 1, -1, experts])[torch.randint(0, 4, ids.shape, generator=random)]
    return torch.where(torch.rand(ids.shape, generator=random) < 0.2, strange, ids).int().to(device)
