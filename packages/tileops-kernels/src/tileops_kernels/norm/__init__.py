"""Norm kernels: call specs, interfaces, and tables of the kernel types that ship with this package."""

from __future__ import annotations

from tileops_kernels.norm.batch_norm import BATCH_NORM_INFER_KERNELS, BATCH_NORM_TRAIN_KERNELS
from tileops_kernels.norm.interfaces import (
    BATCH_NORM_INFER,
    BATCH_NORM_TRAIN,
    LAYER_NORM,
    RMS_NORM,
    BatchNormInferCall,
    BatchNormInferFwdInterface,
    BatchNormTrainCall,
    BatchNormTrainFwdInterface,
    LayerNormCall,
    LayerNormFwdInterface,
    RMSNormFwdInterface,
)
from tileops_kernels.norm.layer_norm import LAYER_NORM_KERNELS
from tileops_kernels.norm.rms_norm import RMS_NORM_KERNELS
from tileops_kernels.table import KernelTable

__all__ = [
    "BATCH_NORM_INFER",
    "BATCH_NORM_INFER_KERNELS",
    "BATCH_NORM_TRAIN",
    "BATCH_NORM_TRAIN_KERNELS",
    "LAYER_NORM",
    "LAYER_NORM_KERNELS",
    "RMS_NORM",
    "RMS_NORM_KERNELS",
    "BatchNormInferCall",
    "BatchNormInferFwdInterface",
    "BatchNormTrainCall",
    "BatchNormTrainFwdInterface",
    "LayerNormCall",
    "LayerNormFwdInterface",
    "RMSNormFwdInterface",
    "batch_norm_infer_kernels",
    "batch_norm_train_kernels",
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
