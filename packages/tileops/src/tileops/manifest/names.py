"""The names of all ops as a type; written by `python -m tileops.manifest names`."""

from typing import Literal, TypeAlias

OpName: TypeAlias = Literal[
    "AddFwdOp",
    "AlibiFwdOp",
    "ArgmaxFwdOp",
    "BatchNormFwdOp",
    "ClampTensorFwdOp",
    "FusedMoEFwdOp",
    "FusedMoESharedExpertFwdOp",
    "GQAPagedFwdOp",
    "GQAPrefillPagedWithKVCacheFwdOp",
    "GQAVarlenFwdOp",
    "GemmFwdOp",
    "LongRoPEFwdOp",
    "MaxPool2dFwdOp",
    "MaxPool2dIndicesFwdOp",
    "MeanPoolingFwdOp",
    "MoEExpertMLPFwdOp",
    "MoEGroupedGemmFwdOp",
    "ProdFwdOp",
    "RMSNormFwdOp",
    "ReciprocalFwdOp",
    "ReluFwdOp",
    "RoPEFwdOp",
    "RoPELlama31FwdOp",
    "RoPENeoxPositionIdsFwdOp",
    "SinusoidalFwdOp",
    "SoftmaxFwdOp",
    "SumFwdOp",
    "YaRNFwdOp",
]
