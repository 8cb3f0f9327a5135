"""The peers of the norm family: torch's own norms, inductor's, and Liger's Triton kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from tileops_testing.bench.peers import LIGER_ROW, Peers, liger_function
from tileops_testing.cases import Case, Inputs
from tileops_testing.subject import SubjectOp

__all__ = ["PEERS"]


def _given(case: Case, *names: str) -> bool:
    """Whether a case passes these inputs."""
    inputs = case.inputs(case.sizes)
    return all(inputs[name] is not None for name in names)


def _beside(weight: Tensor | None, x: Tensor, norm: Callable[[Tensor], Tensor]) -> Tensor:
    """norm(x); beside a weight of another dtype in that one and rounded, as torch takes such a pair not everywhere."""
    if weight is None or weight.dtype == x.dtype:
        return norm(x)
    return norm(x.to(weight.dtype)).to(x.dtype)


def _rms_norm(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
    parameters: Any = case.parameters
    shape = tuple(parameters["normalized_shape"])
    given = parameters.get("eps")
    eps: float = torch.finfo(torch.float32).eps if given is None else given

    def norm(x: Tensor, weight: Tensor | None = None) -> Tensor:
        return _beside(weight, x, lambda x: functional.rms_norm(x, shape, weight, eps))

    torch.compiler.reset()
    peers: dict[str, Callable[..., object]] = {"torch": norm, "inductor": torch.compile(norm, fullgraph=True)}
    liger = liger_function("rms_norm", "LigerRMSNormFunction", device)
    if liger is not None and len(shape) == 1 and shape[0] <= LIGER_ROW and _given(case, "weight"):
        peers["liger"] = lambda x, weight: liger.apply(x, weight, eps, 0.0, "llama", False)
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
    parameters: Any = case.parameters
    shape, eps = tuple(parameters["normalized_shape"]), parameters.get("eps", 1e-5)

    def norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None) -> Tensor:
        return _beside(
            bias if weight is None else weight, x, lambda x: functional.layer_norm(x, shape, weight, bias, eps)
        )

    torch.compiler.reset()
    peers: dict[str, Callable[..., object]] = {"torch": norm, "inductor": torch.compile(norm, fullgraph=True)}
    liger = liger_function("layer_norm", "LigerLayerNormFunction", device)
    if liger is not None and len(shape) == 1 and shape[0] <= LIGER_ROW and _given(case, "weight", "bias"):
        peers["liger"] = lambda x, weight, bias: liger.apply(x, weight, bias, eps)
    return peers


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


def _batch_norm_bwd(
    grad_out: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    given = grad_out, x, weight, None, None, mean, rstd
    gradients: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_batch_norm_backward(
        *given, True, 1e-5, [True, True, True]
    )
    return gradients


LigerPeer: TypeAlias = Callable[[Case, torch.device], Callable[..., object] | None]
"""Liger's form of a case, None where it has none."""


def _no_liger(case: Case, device: torch.device) -> None:
    """Of an op that Liger does not have."""
    del case, device


def _of(function: Callable[..., object], liger: LigerPeer = _no_liger) -> Peers:
    """The peers of an op that a function of its tensors and `eps` states in torch: as it stands, compiled, Liger's."""

    def peers(case: Case, device: torch.device) -> Mapping[str, Callable[..., object]]:
        parameters: Any = case.parameters
        norm = functools.partial(function, **parameters)
        torch.compiler.reset()
        found: dict[str, Callable[..., object]] = {"torch": norm, "inductor": torch.compile(norm, fullgraph=True)}
        other = liger(case, device)
        return found if other is None else {**found, "liger": other}

    return Peers(peers)


def _liger_fused_add_rms_norm(case: Case, device: torch.device) -> Callable[..., object] | None:
    liger = liger_function("fused_add_rms_norm", "LigerFusedAddRMSNormFunction", device)
    parameters: Any = case.parameters
    eps = parameters.get("eps", 1e-6)
    width = case.inputs(case.sizes)["x"].shape[-1]  # type: ignore[union-attr]  # required
    if liger is None or width > LIGER_ROW:
        return None
    return lambda x, residual, weight: liger.apply(x, residual, weight, eps, 0.0, "llama", False)


def _liger_group_norm(case: Case, device: torch.device) -> Callable[..., object] | None:
    liger = liger_function("group_norm", "LigerGroupNormFunction", device)
    parameters: Any = case.parameters
    groups, eps = parameters["num_groups"], parameters.get("eps", 1e-5)
    if liger is None or not _given(case, "weight", "bias"):
        return None
    return lambda x, weight, bias: liger.apply(x, weight, bias, x.shape[1], groups, eps)


def _fused_add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor, *, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    total = x + residual
    return _beside(weight, total, lambda total: functional.rms_norm(total, x.shape[-1:], weight, eps)), total


def _fused_add_layer_norm(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    total = x + residual
    return _beside(weight, total, lambda total: functional.layer_norm(total, x.shape[-1:], weight, bias, eps)), total


def _ada_layer_norm(x: Tensor, scale: Tensor, shift: Tensor, *, eps: float = 1e-5) -> Tensor:
    return torch.addcmul(shift, scale, functional.layer_norm(x, x.shape[-1:], eps=eps))


def _ada_layer_norm_zero(x: Tensor, scale: Tensor, shift: Tensor, gate: Tensor, *, eps: float = 1e-5) -> Tensor:
    return gate * _ada_layer_norm(x, scale, shift, eps=eps)


def _group_norm(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, num_groups: int, eps: float = 1e-5
) -> Tensor:
    other = bias if weight is None else weight
    return _beside(other, x, lambda x: functional.group_norm(x, num_groups, weight, bias, eps))


def _instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    **parameters: Any,
) -> Tensor:
    statistics, other = (running_mean, running_var), bias if weight is None else weight
    return _beside(other, x, lambda x: functional.instance_norm(x, *statistics, weight, bias, **parameters))


PEERS: Mapping[str, Peers] = {
    "AdaLayerNormFwdOp": _of(_ada_layer_norm),
    "AdaLayerNormZeroFwdOp": _of(_ada_layer_norm_zero),
    "BatchNormBwdOp": _of(_batch_norm_bwd),
    "BatchNormFwdOp": Peers(_batch_norm),
    "FusedAddLayerNormFwdOp": _of(_fused_add_layer_norm),
    "FusedAddRMSNormFwdOp": _of(_fused_add_rms_norm, _liger_fused_add_rms_norm),
    "GroupNormFwdOp": _of(_group_norm, _liger_group_norm),
    "InstanceNormFwdOp": _of(_instance_norm),
    "LayerNormFwdOp": Peers(_layer_norm),
    "RMSNormFwdOp": Peers(_rms_norm, _rms_norm_parts),
}
