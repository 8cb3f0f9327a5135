"""The peers of the reduction family: torch's own functions, inductor's, and Liger's softmax."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from tileops_testing.bench.peers import LIGER_ROW, Peers, liger_function
from tileops_testing.cases import Case

__all__ = ["PEERS"]


def _torch_and_inductor(function: Callable[[Tensor], object]) -> Mapping[str, Callable[..., object]]:
    torch.compiler.reset()
    return {"torch": function, "inductor": torch.compile(function, fullgraph=True)}


def _sum(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    del device
    given: Any = case.parameters
    dim, keepdim, dtype = given.get("dim"), given.get("keepdim", False), given.get("dtype")
    return _torch_and_inductor(lambda x: torch.sum(x, dim=dim, keepdim=keepdim, dtype=dtype))


def _prod(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    del device
    given: Any = case.parameters
    keepdim, dtype = given.get("keepdim", False), given.get("dtype")
    return _torch_and_inductor(lambda x: torch.prod(x, dim=given["dim"], keepdim=keepdim, dtype=dtype))


def _softmax(function: Callable[..., Tensor], liger: str = "") -> Peers:
    """The peers of an op with softmax's implicit axis; Liger's, where it is named, takes the last axis."""

    def peers(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
        given: Any = case.parameters
        dim = given.get("dim")
        shape = case.inputs(case.sizes)["x"].shape  # type: ignore[union-attr]  # required
        rank = len(shape)
        if dim is None:
            dim = 0 if rank in {0, 1, 3} else 1
        found = _torch_and_inductor(lambda x: function(x, dim=dim, dtype=given.get("dtype")))
        rows = dim in {-1, rank - 1} and shape[-1] <= LIGER_ROW and given.get("dtype") is None
        other = liger_function("softmax", liger, device) if liger and rows else None
        return found if other is None else {**found, "liger": other.apply}

    return Peers(peers)


def _along(function: Callable[..., Tensor]) -> Peers:
    """The peers of an op whose axis is the last where none is named."""

    def peers(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
        del device
        dim = case.parameters.get("dim", -1)
        return _torch_and_inductor(lambda x: function(x, dim=dim))

    return Peers(peers)


def _same(function: Callable[..., object]) -> Peers:
    """The peers of an op whose parameters torch's own function takes under the same names."""

    def peers(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
        del device
        given: Any = {name: value for name, value in case.parameters.items() if value is not None}
        return _torch_and_inductor(lambda x: function(x, **given))

    return Peers(peers)


PEERS: Mapping[str, Peers] = {
    "SumFwdOp": Peers(_sum),
    "ProdFwdOp": Peers(_prod),
    "MeanFwdOp": _same(torch.mean),
    "AmaxFwdOp": _same(torch.amax),
    "AminFwdOp": _same(torch.amin),
    "AllFwdOp": _same(torch.all),
    "AnyFwdOp": _same(torch.any),
    "ArgmaxFwdOp": _same(torch.argmax),
    "ArgminFwdOp": _same(torch.argmin),
    "CountNonzeroFwdOp": _same(torch.count_nonzero),
    "VectorNormFwdOp": _same(torch.linalg.vector_norm),
    "CumsumFwdOp": _along(torch.cumsum),
    "CumprodFwdOp": _along(torch.cumprod),
    "SoftmaxFwdOp": _softmax(torch.softmax, "LigerSoftmaxFunction"),
    "LogSoftmaxFwdOp": _softmax(torch.log_softmax),
    "LogSumExpFwdOp": _same(torch.logsumexp),
    "VarFwdOp": _same(torch.var),
    "StdFwdOp": _same(torch.std),
    "VarMeanFwdOp": _same(torch.var_mean),
}
