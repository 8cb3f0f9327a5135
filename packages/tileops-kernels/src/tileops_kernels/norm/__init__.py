"""Norm kernels: call specs, interfaces, and tables of the kernel types that ship with this package."""

from __future__ import annotations

from tileops_kernels.norm.ada_layer_norm import ADA_LAYER_NORM_KERNELS, ADA_LAYER_NORM_ZERO_KERNELS
from tileops_kernels.norm.batch_norm import BATCH_NORM_INFER_KERNELS, BATCH_NORM_TRAIN_KERNELS
from tileops_kernels.norm.batch_norm_bwd import BATCH_NORM_BWD_KERNELS
from tileops_kernels.norm.channel_interfaces import (
    BATCH_NORM_BWD,
    BATCH_NORM_INFER,
    BATCH_NORM_TRAIN,
    INSTANCE_NORM_TRAIN,
    BatchNormBwdCall,
    BatchNormBwdInterface,
    BatchNormInferCall,
    BatchNormInferFwdInterface,
    BatchNormTrainCall,
    BatchNormTrainFwdInterface,
    InstanceNormTrainCall,
    InstanceNormTrainFwdInterface,
)
from tileops_kernels.norm.fused_add_norm import FUSED_ADD_LAYER_NORM_KERNELS, FUSED_ADD_RMS_NORM_KERNELS
from tileops_kernels.norm.group_norm import GROUP_NORM_KERNELS
from tileops_kernels.norm.instance_norm import INSTANCE_NORM_TRAIN_KERNELS
from tileops_kernels.norm.interfaces import (
    ADA_LAYER_NORM,
    ADA_LAYER_NORM_ZERO,
    FUSED_ADD_LAYER_NORM,
    FUSED_ADD_RMS_NORM,
    GROUP_NORM,
    LAYER_NORM,
    RMS_NORM,
    AdaLayerNormFwdInterface,
    AdaLayerNormZeroFwdInterface,
    FusedAddLayerNormFwdInterface,
    FusedAddRMSNormFwdInterface,
    GroupNormCall,
    GroupNormFwdInterface,
    LayerNormCall,
    LayerNormFwdInterface,
    RMSNormFwdInterface,
)
from tileops_kernels.norm.layer_norm import LAYER_NORM_KERNELS
from tileops_kernels.norm.rms_norm import RMS_NORM_KERNELS
from tileops_kernels.table import KernelTable

__all__ = [
    "ADA_LAYER_NORM",
    "ADA_LAYER_NORM_KERNELS",
    "ADA_LAYER_NORM_ZERO",
    "ADA_LAYER_NORM_ZERO_KERNELS",
    "BATCH_NORM_BWD",
    "BATCH_NORM_BWD_KERNELS",
    "BATCH_NORM_INFER",
    "BATCH_NORM_INFER_KERNELS",
    "BATCH_NORM_TRAIN",
    "BATCH_NORM_TRAIN_KERNELS",
    "FUSED_ADD_LAYER_NORM",
    "FUSED_ADD_LAYER_NORM_KERNELS",
    "FUSED_ADD_RMS_NORM",
    "FUSED_ADD_RMS_NORM_KERNELS",
    "GROUP_NORM",
    "GROUP_NORM_KERNELS",
    "INSTANCE_NORM_TRAIN",
    "INSTANCE_NORM_TRAIN_KERNELS",
    "LAYER_NORM",
    "LAYER_NORM_KERNELS",
    "RMS_NORM",
    "RMS_NORM_KERNELS",
    "AdaLayerNormFwdInterface",
    "AdaLayerNormZeroFwdInterface",
    "BatchNormBwdCall",
    "BatchNormBwdInterface",
    "BatchNormInferCall",
    "BatchNormInferFwdInterface",
    "BatchNormTrainCall",
    "BatchNormTrainFwdInterface",
    "FusedAddLayerNormFwdInterface",
    "FusedAddRMSNormFwdInterface",
    "GroupNormCall",
    "GroupNormFwdInterface",
    "InstanceNormTrainCall",
    "InstanceNormTrainFwdInterface",
    "LayerNormCall",
    "LayerNormFwdInterface",
    "RMSNormFwdInterface",
    "ada_layer_norm_kernels",
    "ada_layer_norm_zero_kernels",
    "batch_norm_bwd_kernels",
    "batch_norm_infer_kernels",
    "batch_norm_train_kernels",
    "fused_add_layer_norm_kernels",
    "fused_add_rms_norm_kernels",
    "group_norm_kernels",
    "instance_norm_train_kernels",
    "layer_norm_kernels",
    "rms_norm_kernels",
]


def rms_norm_kernels() -> KernelTable[LayerNormCall, RMSNormFwdInterface]:
    """A new table of the RMSNorm kernel types, for use without an op.

    `rms_norm_kernels().entry(LayerNormCall(device=x.device, n=4096, eps=1e-6, dtype=x.dtype))(x, weight)`.
    """
    return KernelTable(RMS_NORM, RMS_NORM_KERNELS)


def layer_norm_kernels() -> KernelTable[LayerNormCall, LayerNormFwdInterface]:
    """A new table of the LayerNorm kernel types, for use without an op."""
    return KernelTable(LAYER_NORM, LAYER_NORM_KERNELS)


def batch_norm_train_kernels() -> KernelTable[BatchNormTrainCall, BatchNormTrainFwdInterface]:
    """A new table of the kernel types of BatchNorm in training, for use without an op."""
    return KernelTable(BATCH_NORM_TRAIN, BATCH_NORM_TRAIN_KERNELS)


def batch_norm_infer_kernels() -> KernelTable[BatchNormInferCall, BatchNormInferFwdInterface]:
    """A new table of the kernel types of BatchNorm in inference, for use without an op."""
    return KernelTable(BATCH_NORM_INFER, BATCH_NORM_INFER_KERNELS)


def batch_norm_bwd_kernels() -> KernelTable[BatchNormBwdCall, BatchNormBwdInterface]:
    """A new table of the kernel types of BatchNorm's gradients, for use without an op."""
    return KernelTable(BATCH_NORM_BWD, BATCH_NORM_BWD_KERNELS)


def instance_norm_train_kernels() -> KernelTable[InstanceNormTrainCall, InstanceNormTrainFwdInterface]:
    """A new table of the kernel types of InstanceNorm that moves running statistics, for use without an op."""
    return KernelTable(INSTANCE_NORM_TRAIN, INSTANCE_NORM_TRAIN_KERNELS)


def fused_add_rms_norm_kernels() -> KernelTable[LayerNormCall, FusedAddRMSNormFwdInterface]:
    """A new table of the kernel types of RMSNorm of a sum, for use without an op."""
    return KernelTable(FUSED_ADD_RMS_NORM, FUSED_ADD_RMS_NORM_KERNELS)


def fused_add_layer_norm_kernels() -> KernelTable[LayerNormCall, FusedAddLayerNormFwdInterface]:
    """A new table of the kernel types of LayerNorm of a sum, for use without an op."""
    return KernelTable(FUSED_ADD_LAYER_NORM, FUSED_ADD_LAYER_NORM_KERNELS)


def ada_layer_norm_kernels() -> KernelTable[LayerNormCall, AdaLayerNormFwdInterface]:
    """A new table of the AdaLayerNorm kernel types, for use without an op."""
    return KernelTable(ADA_LAYER_NORM, ADA_LAYER_NORM_KERNELS)


def ada_layer_norm_zero_kernels() -> KernelTable[LayerNormCall, AdaLayerNormZeroFwdInterface]:
    """A new table of the AdaLayerNormZero kernel types, for use without an op."""
    return KernelTable(ADA_LAYER_NORM_ZERO, ADA_LAYER_NORM_ZERO_KERNELS)


def group_norm_kernels() -> KernelTable[GroupNormCall, GroupNormFwdInterface]:
    """A new table of the GroupNorm kernel types, for use without an op."""
    return KernelTable(GROUP_NORM, GROUP_NORM_KERNELS)
