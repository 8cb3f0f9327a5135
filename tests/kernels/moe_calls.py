"""Call specs of grouped products, on devices with stated facts."""

from __future__ import annotations

from dataclasses import replace

import torch

from tileops_kernels.devices import DeviceFacts
from tileops_kernels.moe import GroupedGemmCall
from tileops_kernels.moe.grouped_gemm import GroupedGemmAsyncKernel, GroupedGemmKernel, GroupedGemmTMAKernel
from tileops_kernels.moe.interfaces import Activation, RowLayout

AMPERE = DeviceFacts(arch=80, sm_count=108, smem_budget=166912)
ADA = DeviceFacts(arch=89, sm_count=142, smem_budget=101376)
HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
CUDA_TYPES = (GroupedGemmTMAKernel, GroupedGemmAsyncKernel, GroupedGemmKernel)
LAYOUTS: tuple[RowLayout, ...] = ("masked", "ends", "per_row")
ACTIVATIONS: tuple[Activation, ...] = ("none", "silu_and_mul", "gelu_and_mul")


def grouped_call(
    n: int = 256,
    k: int = 512,
    *,
    layout: RowLayout = "ends",
    activation: Activation = "none",
    tile_rows: int = 128,
    dtype: torch.dtype = torch.float16,
    out_dtype: torch.dtype | None = None,
    facts: DeviceFacts | None = HOPPER,
    device: torch.device = GPU,
) -> GroupedGemmCall:
    return GroupedGemmCall(
        device=device,
        layout=layout,
        alignment=1,
        activation=activation,
        n=n,
        k=k,
        few_rows=tile_rows < 128,
        tile_rows=tile_rows,
        vectors=k % 8 == 0,
        dtype=dtype,
        out_dtype=out_dtype or dtype,
        facts=facts,
    )


def cpu_call(layout: RowLayout = "ends", activation: Activation = "none", alignment: int = 1) -> GroupedGemmCall:
    call = grouped_call(layout=layout, activation=activation, facts=None, device=CPU)
    return replace(call, alignment=alignment)
