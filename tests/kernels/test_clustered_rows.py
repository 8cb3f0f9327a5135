"""RMSNorm of rows that a cluster of blocks holds: which rows, launch settings, programs, and what is launched."""

from __future__ import annotations

import re
import shutil
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from tileops_kernels.build import cuda
from tileops_kernels.build.program import Program
from tileops_kernels.devices import CLUSTER_BLOCKS, DeviceFacts
from tileops_kernels.norm import LayerNormCall, rms_norm_kernels
from tileops_kernels.norm.rms_norm import RMSNormClusteredKernel

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
ADA = DeviceFacts(arch=89, sm_count=142, smem_budget=101376)


def cuda_call(n: int, dtype: torch.dtype = torch.float16, facts: DeviceFacts = HOPPER) -> LayerNormCall:
    return LayerNormCall(device=torch.device("cuda", 0), n=n, eps=1e-6, dtype=dtype, facts=facts)


@pytest.mark.parametrize(
    ("n", "dtype", "facts", "expected"),
    [
        (65536, torch.float16, HOPPER, "rms_norm_streaming"),
        (65544, torch.float16, HOPPER, "rms_norm_clustered"),
        (32772, torch.float32, HOPPER, "rms_norm_clustered"),
        (262144, torch.float16, HOPPER, "rms_norm_clustered"),
        (262144, torch.float16, ADA, "rms_norm_streaming"),
        (262152, torch.float16, HOPPER, "rms_norm_streaming"),
    ],
)
def test_selection(n: int, dtype: torch.dtype, facts: DeviceFacts, expected: str) -> None:
    """Rows that are long enough and that a cluster holds, on devices that have clusters."""
    assert rms_norm_kernels().key_for(cuda_call(n, dtype, facts)) == expected


def test_reasons_name_the_row() -> None:
    """Each refusal says what a cluster needs and what the call has."""
    assert RMSNormClusteredKernel.refusal(cuda_call(1 << 20)) == (
        "a cluster holds rows of 65544 to 262144 elements; n=1048576"
    )
    assert RMSNormClusteredKernel.refusal(cuda_call(70001)) == (
        "rows are read 16 bytes at a time; n=70001 is no multiple of 8 elements"
    )


@pytest.mark.parametrize(
    ("n", "dtype", "steps"),
    [(65544, torch.float16, 3), (98304, torch.float16, 3), (98312, torch.bfloat16, 4), (131072, torch.float32, 8)],
)
def test_a_cluster_has_the_accesses_that_its_row_needs(n: int, dtype: torch.dtype, steps: int) -> None:
    """Eight blocks of 512 threads, two on a multiprocessor, and no more accesses a thread than hold the row."""
    kernel = RMSNormClusteredKernel(cuda_call(n, dtype))
    assert dict(kernel.config()) == {"lanes": 512, "steps": steps, "blocks": 2, "cluster": CLUSTER_BLOCKS}


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_rows_are_held_from_the_first_that_is_worth_it_to_the_longest(dtype: torch.dtype) -> None:
    """Both ends are whole accesses; beside them rows are refused."""
    vector = 16 // dtype.itemsize
    held = {n: RMSNormClusteredKernel.refusal(cuda_call(n, dtype)) is None for n in (8192 * vector, 32768 * vector)}
    assert list(held.values()) == [False, True]
    assert RMSNormClusteredKernel.refusal(cuda_call(8193 * vector, dtype)) is None
    assert RMSNormClusteredKernel.refusal(cuda_call(32769 * vector, dtype)) is not None


def test_eps_and_row_count_are_not_compiled_in() -> None:
    """Calls that differ in eps have the same programs, and no program knows the number of rows."""
    programs = RMSNormClusteredKernel(cuda_call(131072)).programs()
    assert RMSNormClusteredKernel(replace(cuda_call(131072), eps=0.5)).programs() == programs
    assert len(set(programs)) == 2
    assert {name for program in programs for name, _ in program.arguments}.isdisjoint({"m", "eps"})


def test_an_unseen_row_count_builds_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """One program serves any number of rows, as matrices of whole accesses."""
    programs: list[Program] = []
    shapes: list[torch.Size] = []

    def load(program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        programs.append(program)

        def run(x: torch.Tensor, *_: torch.Tensor | float) -> None:
            shapes.append(x.shape)

        return run

    monkeypatch.setattr(cuda, "load", load)
    monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)
    kernel = RMSNormClusteredKernel(cuda_call(131072))
    for rows in (1, 2, 9):
        kernel.forward(torch.ones(rows, 131072).half(), torch.ones(131072).half())

    assert shapes == [(1, 131072), (2, 131072), (9, 131072)]
    assert [program.builder for program in programs] == ["rms_norm_clustered"]


@pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)
@pytest.mark.parametrize("n", [131072, 70000])
def test_blocks_form_clusters_that_meet_twice(n: int) -> None:
    """Row offsets are 64 bits wide, x and y move 16 bytes at a time, and shared memory is told from the start.

    TileLang would else lay it over the partial sums that a block may still read when another writes to it.
    """
    text = cuda.cross_compile(RMSNormClusteredKernel(cuda_call(n)).program(True), arch=90)
    body = text[text.index("__global__") :]

    assert re.search(rf"X \+ .*\(int64_t\)blockIdx\.x.*\* \(int64_t\){n}\)", body)
    assert "*(uint4*)(x + " in body
    steps = re.findall(r"tileops_cluster_\w+|tileops_tell|__syncthreads", body)
    assert steps == [
        "tileops_cluster_arrive",
        "__syncthreads",
        "tileops_cluster_wait",
        "tileops_tell",
        "tileops_cluster_arrive",
        "tileops_cluster_wait",
    ]
    places = dict(re.findall(r"void\* (partial|told) = .*buf_dyn_shmem \+ (\d+)", body))
    assert len(set(places.values())) == len(places) == 2
