"""The peers of the norm family: torch's own norms, inductor's, and Liger's Triton kernels."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from tileops_testing.bench.peers import Peers
from tileops_testing.cases import Case, Inputs
from tileops_testing.subject import SubjectOp

__all__ = ["PEERS"]

_LIGER_ROW = 65536
"""The longest row that Liger's kernel launches on."""


def _rms_norm(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    parameters: Any = case.parameters
    shape = tuple(parameters["normalized_shape"])
    given = parameters.get("eps")
    eps: float = torch.finfo(torch.float32).eps if given is None else given

    def norm(x: Tensor, weight: Tensor | None = None) -> Tensor:
        return functional.rms_norm(x, shape, weight, eps)

    torch.compiler.reset()
    peers: dict[str, Callable[..., object]] = {"torch": norm, "inductor": torch.compile(norm, fullgraph=True)}
    if device.type == "cuda" and len(shape) == 1 and importlib.util.find_spec("liger_kernel") is not None:
        liger = importlib.import_module("liger_kernel.ops.rms_norm").LigerRMSNormFunction

        def liger_norm(x: Tensor, weight: Tensor | None = None) -> Tensor:
            result: Tensor = liger.apply(x, weight, eps, 0.0, "llama", False)
            return result

        if case.inputs(case.sizes)["weight"] is not None and shape[0] <= _LIGER_ROW:
            peers["liger"] = liger_norm
    return peers


def _rms_norm_parts(op: SubjectOp, inputs: Inputs) -> Mapping[str, Callable[[], object]]:
    x, weight = inputs
    if x is None:
        raise ValueError("RMSNormFwdOp: x: expected a tensor, received None; give the inputs of a case")
    subject: Any = op
    (entry,) = subject.built_entries("rms_norm")
    return {
        "kernel entry alone": lambda: entry(x, weight),
        "torch.empty_like alone": lambda: torch.empty_like(x),
    }


def _layer_norm(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    del device
    parameters: Any = case.parameters
    shape, eps = tuple(parameters["normalized_shape"]), parameters.get("eps", 1e-5)

    def norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        return functional.layer_norm(x, shape, weight, bias, eps)

    torch.compiler.reset()
    return {"torch": norm, "inductor": torch.compile(norm, fullgraph=True)}


def _batch_norm(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    del device
    parameters: Any = case.parameters

    def norm(
        x: Tensor,
        running_mean: Tensor | None = None,
        running_var: Tensor | None = None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
    ) -> Tensor:
        return functional.batch_norm(x, running_mean, running_var, weight, bias, **parameters)

    torch.compiler.reset()
    return {"torch": norm, "inductor": torch.compile(norm, fullgraph=True)}


def _of(function: Callable[..., object]) -> Peers:
    """The peers of an op that a function of its tensors and `eps` states in torch: as it stands, and compiled."""

    def peers(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
        del device
        parameters: Any = case.parameters
        norm = functools.partial(function, **parameters)
        torch.compiler.reset()
        return {"torch": norm, "inductor": torch.compile(norm, fullgraph=True)}

    return Peers(peers)


def _fused_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, *, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    total = x + residual
    return functional.rms_norm(total, x.shape[-1:], weight, eps), total


def _fused_add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    total = x + residual
    return functional.layer_norm(total, x.shape[-1:], weight, bias, eps), total


def _ada_layer_norm(x: Tensor, scale: Tensor, shift: Tensor, *, eps: float = 1e-5) -> Tensor:
    return torch.addcmul(shift, scale, functional.layer_norm(x, x.shape[-1:], eps=eps))


def _ada_layer_norm_zero(x: Tensor, scale: Tensor, shift: Tensor, gate: Tensor, *, eps: float = 1e-5) -> Tensor:
    return gate * _ada_layer_norm(x, scale, shift, eps=eps)


def _group_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, num_groups: int, eps: float = 1e-5
) -> Tensor:
    return functional.group_norm(x, num_groups, weight, bias, eps)


PEERS: Mapping[str, Peers] = {
    "AdaLayerNormFwdOp": _of(_ada_layer_norm),
    "AdaLayerNormZeroFwdOp": _of(_ada_layer_norm_zero),
    "BatchNormFwdOp": Peers(_batch_norm),
    "FusedAddLayerNormFwdOp": _of(_fused_add_layer_norm),
    "FusedAddRMSNormFwdOp": _of(_fused_add_rms_norm),
    "GroupNormFwdOp": _of(_group_norm),
    "InstanceNormFwdOp": _of(functional.instance_norm),
    "LayerNormFwdOp": Peers(_layer_norm),
    "RMSNormFwdOp": Peers(_rms_norm, _rms_norm_parts),
}
