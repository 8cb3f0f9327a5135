"""The peers of the rope family: torch's own arithmetic on tables of cosines and sines, and inductor's.

Liger's kernel has no place here: it writes queries and keys in place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tileops_testing.bench.peers import Peers
from tileops_testing.cases import Case

__all__ = ["PEERS"]


def _table(case: Case) -> Tensor:
    """The cosines and then the sines of every position: what the reference makes of pairs (1, 0), as neighbours or not.

    A table for neighbours has both by turns.
    """
    given: Any = case.parameters
    *places, width = case.inputs(case.sizes)["x"].shape  # type: ignore[union-attr]  # required
    unit = torch.zeros(1, places[1], 1, width) if len(places) == 3 else torch.zeros(*places, width)
    if given.get("rope_layout") == "interleaved":
        unit[..., 0::2] = 1
    else:
        unit[..., : width // 2] = 1
    result: Any = case.reference.function(unit, **given)
    table: Tensor = result.float()
    return table


def _places(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    table = _table(case).to(device)
    parameters: Any = case.parameters
    if parameters.get("rope_layout") == "interleaved":
        cosines, sines = table[..., 0::2].contiguous(), table[..., 1::2].contiguous()

        def rotate(x: Tensor) -> Tensor:
            first, second = x.float().unflatten(-1, (-1, 2)).unbind(-1)
            turned = [first * cosines - second * sines, second * cosines + first * sines]
            return torch.stack(turned, dim=-1).flatten(-2).to(x.dtype)
    else:
        cosines, sines = (part.contiguous() for part in table.chunk(2, dim=-1))

        def rotate(x: Tensor) -> Tensor:
            first, second = x.float().chunk(2, dim=-1)
            turned = [first * cosines - second * sines, second * cosines + first * sines]
            return torch.cat(turned, dim=-1).to(x.dtype)

    torch.compiler.reset()
    return {"torch": rotate, "inductor": torch.compile(rotate, fullgraph=True)}


def _position_ids(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    parameters: Any = case.parameters
    *_, width = case.inputs(case.sizes)["x"].shape  # type: ignore[union-attr]  # required
    given = parameters.get("rotary_dim")
    rotated = width if given is None else given
    unit = torch.zeros(parameters["max_position"], 1, rotated)
    unit[..., : rotated // 2] = 1
    result: Any = case.reference.function(unit, torch.arange(len(unit)), **parameters)
    cosines, sines = (part.contiguous() for part in result.float().to(device).chunk(2, dim=-1))

    def rotate(x: Tensor, position_ids: Tensor) -> Tensor:
        turning, rest = x.split([rotated, width - rotated], dim=-1)
        first, second = turning.float().chunk(2, dim=-1)
        cosine, sine = cosines[position_ids], sines[position_ids]
        turned = torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)
        return torch.cat([turned.to(x.dtype), rest], dim=-1)

    torch.compiler.reset()
    return {"torch": rotate, "inductor": torch.compile(rotate, fullgraph=True)}


PEERS: Mapping[str, Peers] = {
    "LongRoPEFwdOp": Peers(_places),
    "RoPEFwdOp": Peers(_places),
    "RoPELlama31FwdOp": Peers(_places),
    "RoPENeoxPositionIdsFwdOp": Peers(_position_ids),
    "YaRNFwdOp": Peers(_places),
}
