"""The peers of the gemm family: torch's product, which is cuBLAS on CUDA."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from tileops_testing.bench.peers import Peers
from tileops_testing.cases import Case

__all__ = ["PEERS"]


def _gemm(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    del device
    trans_a, trans_b = case.parameters.get("trans_a", False), case.parameters.get("trans_b", True)

    def product(a: Tensor, b: Tensor) -> Tensor:
        return (a.T if trans_a else a) @ (b.T if trans_b else b)

    return {"torch": product}


PEERS: Mapping[str, Peers] = {"GemmFwdOp": Peers(_gemm)}
