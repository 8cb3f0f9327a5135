"""The peers of the pool family: torch's pooling."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tileops_testing.bench.peers import Peers
from tileops_testing.cases import Case

__all__ = ["PEERS"]


def _max_pool2d(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    del device
    parameters: Any = case.parameters

    def pool(planes: Tensor) -> Tensor:
        result: Tensor = functional.max_pool2d(planes, **parameters)
        return result

    return {"torch": pool}


PEERS: Mapping[str, Peers] = {"MaxPool2dFwdOp": Peers(_max_pool2d)}
