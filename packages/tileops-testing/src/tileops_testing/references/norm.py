"""What each op of the norm family means, in plain PyTorch and float64."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from tileops_testing.references.reference import Reference

__all__ = [
    "REFERENCES",
    "ada_layer_norm_fwd",
    "ada_layer_norm_zero_fwd",
    "batch_norm_bwd",
    "batch_norm_fwd",
    "fused_add_layer_norm_fwd",
    "fused_add_rms_norm_fwd",
    "group_norm_fwd",
    "instance_norm_fwd",
    "layer_norm_fwd",
    "rms_norm_fwd",
]


def rms_norm_fwd(
    x: Tensor, weight: Tensor | None = None, *, normalized_shape: Sequence[int], eps: float | None = None
) -> Tensor:
    """Return ``x / sqrt(mean(x**2) + eps) * weight`` over the trailing ``normalized_shape``, in float64.

    ``eps`` of None is float32's machine epsilon, whatever the dtype of ``x``.
    """
    axes = tuple(range(-len(normalized_shape), 0))
    wide = x.double()
    offset = torch.finfo(torch.float32).eps if eps is None else eps
    scaled = wide * torch.rsqrt(wide.square().mean(dim=axes, keepdim=True) + offset)
    return scaled if weight is None else scaled * weight.double()


def layer_norm_fwd(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    normalized_shape: Sequence[int],
    eps: float = 1e-5,
) -> Tensor:
    """Return ``(x - mean) / sqrt(variance + eps) * weight + bias`` over the trailing ``normalized_shape``, in float64.

    The variance divides by the number of elements.
    """
    scaled = _standard_rows(x, normalized_shape, eps)
    if weight is not None:
        scaled = scaled * weight.double()
    return scaled if bias is None else scaled + bias.double()


def _layer_norm_terms(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    normalized_shape: Sequence[int],
    eps: float = 1e-5,
) -> Tensor:
    """The deviation and its standard unit, scaled by the weight, and the bias: x and its mean leave no more error."""
    sizes = _standard_rows(x, normalized_shape, eps).abs() + 1
    if weight is not None:
        sizes = sizes * weight.double().abs()
    return sizes if bias is None else sizes + bias.double().abs()


def _standard_rows(x: Tensor, normalized_shape: Sequence[int], eps: float) -> Tensor:
    axes = tuple(range(-len(normalized_shape), 0))
    wide = x.double()
    centered = wide - wide.mean(dim=axes, keepdim=True)
    return centered * torch.rsqrt(centered.square().mean(dim=axes, keepdim=True) + eps)


def fused_add_rms_norm_fwd(x: Tensor, residual: Tensor, weight: Tensor, *, eps: float = 1e-6) -> tuple[Tensor, Tensor]:
    """Return the RMSNorm of ``x + residual`` over the last axis, and that sum, in float64."""
    total = x.double() + residual.double()
    return rms_norm_fwd(total, weight, normalized_shape=x.shape[-1:], eps=eps), total


def fused_add_layer_norm_fwd(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """Return the LayerNorm of ``x + residual`` over the last axis, and that sum, in float64."""
    total = x.double() + residual.double()
    return layer_norm_fwd(total, weight, bias, normalized_shape=x.shape[-1:], eps=eps), total


def _fused_add_layer_norm_terms(
    x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor, *, eps: float = 1e-5
) -> tuple[Tensor, Tensor]:
    """Those of a LayerNorm of the sum; the sum is one float32 addition."""
    total = x.double() + residual.double()
    return _layer_norm_terms(total, weight, bias, normalized_shape=x.shape[-1:], eps=eps), total.abs()


def ada_layer_norm_fwd(x: Tensor, scale: Tensor, shift: Tensor, *, eps: float = 1e-5) -> Tensor:
    """Return ``scale * LayerNorm(x) + shift`` over the last axis, in float64."""
    return scale.double() * _standard_rows(x, x.shape[-1:], eps) + shift.double()


def ada_layer_norm_zero_fwd(x: Tensor, scale: Tensor, shift: Tensor, gate: Tensor, *, eps: float = 1e-5) -> Tensor:
    """Return ``gate * (scale * LayerNorm(x) + shift)`` over the last axis, in float64."""
    return gate.double() * ada_layer_norm_fwd(x, scale, shift, eps=eps)


def _ada_layer_norm_terms(x: Tensor, scale: Tensor, shift: Tensor, *, eps: float = 1e-5) -> Tensor:
    """The deviation and its standard unit, scaled, and the shift."""
    return scale.double().abs() * (_standard_rows(x, x.shape[-1:], eps).abs() + 1) + shift.double().abs()


def _ada_layer_norm_zero_terms(x: Tensor, scale: Tensor, shift: Tensor, gate: Tensor, *, eps: float = 1e-5) -> Tensor:
    """The deviation and its standard unit, scaled, and the shift, all gated."""
    return gate.double().abs() * _ada_layer_norm_terms(x, scale, shift, eps=eps)


def batch_norm_fwd(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Return ``(x - mean) / sqrt(variance + eps) * weight + bias`` with statistics of each channel, in float64.

    In training the statistics are the batch's, and the running ones move by ``momentum``, with the variance divided by
    one element less; else they are the running ones.
    """
    scaled = _standard_channels(x, running_mean, running_var, training=training, eps=eps)
    if training and running_mean is not None and running_var is not None and x.numel():
        variance, mean = torch.var_mean(x.double().transpose(0, 1).flatten(1), dim=1)
        running_mean.copy_((1 - momentum) * running_mean.double() + momentum * mean)
        running_var.copy_((1 - momentum) * running_var.double() + momentum * variance)
    if weight is not None:
        scaled = scaled * _by_channel(weight, x)
    return scaled if bias is None else scaled + _by_channel(bias, x)


def _batch_norm_terms(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """The deviation and its standard unit, scaled by the weight, and the bias."""
    del momentum
    sizes = _standard_channels(x, running_mean, running_var, training=training, eps=eps).abs() + 1
    if weight is not None:
        sizes = sizes * _by_channel(weight, x).abs()
    return sizes if bias is None else sizes + _by_channel(bias, x).abs()


def _standard_channels(
    x: Tensor, running_mean: Tensor | None, running_var: Tensor | None, *, training: bool, eps: float
) -> Tensor:
    wide = x.double()
    if training:
        axes = [axis for axis in range(x.ndim) if axis != 1]
        mean = wide.mean(dim=axes, keepdim=True)
        variance = (wide - mean).square().mean(dim=axes, keepdim=True)
    else:
        if running_mean is None or running_var is None:
            raise ValueError("running statistics: expected both of them outside training, received None; pass them")
        mean, variance = _by_channel(running_mean, x), _by_channel(running_var, x)
    return (wide - mean) * torch.rsqrt(variance + eps)


def _by_channel(values: Tensor, x: Tensor) -> Tensor:
    return values.double().reshape(1, -1, *([1] * (x.ndim - 2)))


def batch_norm_bwd(
    grad_out: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, weight and bias of a BatchNorm by the batch's ``mean`` and ``rstd``, in float64.

    With ``s`` for ``(x - mean) * rstd`` and sums over all axes but the channels', those of bias and weight are the sums
    of ``grad_out`` and of ``grad_out * s``; that of x is ``rstd * weight`` times what is left of ``grad_out`` less the
    former's mean and ``s`` times the latter's.
    """
    grad, axes, elements = grad_out.double(), (0, *range(2, x.ndim)), _elements_of_a_channel(x)
    standard = (x.double() - _by_channel(mean, x)) * _by_channel(rstd, x)
    grad_bias, grad_weight = grad.sum(dim=axes), (grad * standard).sum(dim=axes)
    left = grad - _by_channel(grad_bias / elements, x) - standard * _by_channel(grad_weight / elements, x)
    return left * _by_channel(rstd, x) * _by_channel(weight, x), grad_weight, grad_bias


def _batch_norm_bwd_terms(
    grad_out: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Every term by its absolute value, and a deviation by those of x and the mean."""
    grad, axes, elements = grad_out.double().abs(), (0, *range(2, x.ndim)), _elements_of_a_channel(x)
    standard = (x.double().abs() + _by_channel(mean, x).abs()) * _by_channel(rstd, x).abs()
    grad_bias, grad_weight = grad.sum(dim=axes), (grad * standard).sum(dim=axes)
    terms = grad + _by_channel(grad_bias / elements, x) + standard * _by_channel(grad_weight / elements, x)
    return terms * (_by_channel(rstd, x) * _by_channel(weight, x)).abs(), grad_weight, grad_bias


def _elements_of_a_channel(x: Tensor) -> int:
    return max(x.shape[0] * math.prod(x.shape[2:]), 1)


def group_norm_fwd(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, num_groups: int, eps: float = 1e-5
) -> Tensor:
    """Return ``(x - mean) / sqrt(variance + eps) * weight + bias`` with statistics of each group, in float64.

    A group is ``C / num_groups`` neighbouring channels of one batch entry.
    """
    scaled = _standard_groups(x, num_groups, eps)
    if weight is not None:
        scaled = scaled * _by_channel(weight, x)
    return scaled if bias is None else scaled + _by_channel(bias, x)


def _group_norm_terms(
    x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, num_groups: int, eps: float = 1e-5
) -> Tensor:
    """The deviation and its standard unit, scaled by the weight, and the bias."""
    sizes = _standard_groups(x, num_groups, eps).abs() + 1
    if weight is not None:
        sizes = sizes * _by_channel(weight, x).abs()
    return sizes if bias is None else sizes + _by_channel(bias, x).abs()


def _standard_groups(x: Tensor, num_groups: int, eps: float) -> Tensor:
    if not x.numel():
        return x.double()
    return _standard_rows(x.reshape(x.shape[0], num_groups, -1), (1,), eps).reshape(x.shape)


def instance_norm_fwd(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Return ``(x - mean) / sqrt(variance + eps) * weight + bias`` with statistics of each map, in float64.

    A map is a channel of one batch entry. With ``use_input_stats`` the running statistics move by ``momentum`` to the
    mean over the batch of the maps' means, and of their variances divided by one value less; else they are used.
    """
    if not use_input_stats:
        return batch_norm_fwd(x, running_mean, running_var, weight, bias, eps=eps)
    if running_mean is not None and running_var is not None and x.numel():
        variance, mean = torch.var_mean(x.double().flatten(2), dim=2)
        running_mean.copy_((1 - momentum) * running_mean.double() + momentum * mean.mean(dim=0))
        running_var.copy_((1 - momentum) * running_var.double() + momentum * variance.mean(dim=0))
    return group_norm_fwd(x, weight, bias, num_groups=x.shape[1], eps=eps)


def _instance_norm_terms(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Those of a GroupNorm with a group for each channel, or of a BatchNorm by running statistics."""
    if use_input_stats:
        return _group_norm_terms(x, weight, bias, num_groups=x.shape[1], eps=eps)
    return _batch_norm_terms(x, running_mean, running_var, weight, bias, momentum=momentum, eps=eps)


def _normalized_elements(parameters: Mapping[str, object]) -> int:
    shape = parameters["normalized_shape"]
    if not isinstance(shape, Sequence):
        raise TypeError(f"normalized_shape: expected a sequence of integers, received {shape!r}")
    return math.prod(shape)


def _last_axis(parameters: Mapping[str, object]) -> int:
    extent = parameters["N"]
    if not isinstance(extent, int):
        raise TypeError(f"N: expected an integer, received {extent!r}")
    return extent


def _channel_elements(parameters: Mapping[str, object]) -> int:
    batch, length = parameters["B"], parameters["L"]
    if not isinstance(batch, int) or not isinstance(length, Sequence):
        raise TypeError(f"B, L: expected an integer and a sequence of integers, received {batch!r}, {length!r}")
    return max(batch * math.prod(length), 1)


REFERENCES: Mapping[str, Reference] = {
    "AdaLayerNormFwdOp": Reference(ada_layer_norm_fwd, summed=_last_axis, terms=_ada_layer_norm_terms),
    "AdaLayerNormZeroFwdOp": Reference(ada_layer_norm_zero_fwd, summed=_last_axis, terms=_ada_layer_norm_zero_terms),
    "BatchNormBwdOp": Reference(
        batch_norm_bwd, summed=_channel_elements, terms=_batch_norm_bwd_terms, values={"rstd": "positive"}
    ),
    "BatchNormFwdOp": Reference(batch_norm_fwd, terms=_batch_norm_terms, values={"running_var": "positive"}),
    "FusedAddLayerNormFwdOp": Reference(fused_add_layer_norm_fwd, summed=_last_axis, terms=_fused_add_layer_norm_terms),
    "FusedAddRMSNormFwdOp": Reference(fused_add_rms_norm_fwd, summed=_last_axis),
    "GroupNormFwdOp": Reference(group_norm_fwd, terms=_group_norm_terms),
    "InstanceNormFwdOp": Reference(instance_norm_fwd, terms=_instance_norm_terms, values={"running_var": "positive"}),
    "LayerNormFwdOp": Reference(layer_norm_fwd, summed=_normalized_elements, terms=_layer_norm_terms),
    "RMSNormFwdOp": Reference(rms_norm_fwd, summed=_normalized_elements),
}
