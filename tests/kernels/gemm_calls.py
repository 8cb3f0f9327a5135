"""Call specs of matrix products, on devices with stated facts."""

from __future__ import annotations

import torch

from tileops_kernels.devices import DeviceFacts
from tileops_kernels.gemm import GemmCall

AMPERE = DeviceFacts(arch=80, sm_count=108, smem_budget=166912)
ADA = DeviceFacts(arch=89, sm_count=142, smem_budget=101376)
HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


def gemm_call(
    n: int = 256,
    k: int = 512,
    *,
    trans_a: bool = False,
    trans_b: bool = True,
    few_rows: bool = False,
    most_rows: int = 0,
    dtype: torch.dtype = torch.float16,
    facts: DeviceFacts | None = HOPPER,
    device: torch.device = GPU,
) -> GemmCall:
    return GemmCall(
        device=device,
        n=n,
        k=k,
        trans_a=trans_a,
        trans_b=trans_b,
        few_rows=few_rows,
        most_rows=most_rows or (64 if few_rows else 4096),
        vectors=n % 8 == 0 and k % 8 == 0,
        dtype=dtype,
        facts=facts,
    )


def cpu_call(dtype: torch.dtype = torch.float16, *, trans_a: bool = False, trans_b: bool = True) -> GemmCall:
    return gemm_call(dtype=dtype, trans_a=trans_a, trans_b=trans_b, facts=None, device=CPU)
