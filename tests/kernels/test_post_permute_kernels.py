"""Sums of tokens' rows: what the kernel types refuse, build and launch, and what the CPU program writes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.kernels.launches import load_instead
from tests.kernels.placing import misplaced
from tileops_kernels.build import cuda
from tileops_kernels.build.program import Program
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.errors import StorageError
from tileops_kernels.moe.placement_interfaces import PostPermuteCall
from tileops_kernels.moe.post_permute import PostPermuteCPUKernel, PostPermuteKernel

CALL = PostPermuteCall(
    device=torch.device("cuda", 0),
    facts=DeviceFacts(arch=90, sm_count=132, smem_budget=232448),
    weighted=True,
    scale=2.5,
    vectors=True,
    dtype=torch.float16,
    out_dtype=torch.float16,
)


def test_refuses_other_dtypes() -> None:
    """Rows and results are of the floating-point dtypes that every kernel type here serves."""
    for kernel_type in (PostPermuteKernel, PostPermuteCPUKernel):
        assert kernel_type.refusal(CALL) is None
        for other in (replace(CALL, dtype=torch.float64), replace(CALL, out_dtype=torch.float64)):
            assert kernel_type.refusal(other) == "serves float16, bfloat16, float32, not float64"


def test_accesses_are_whole_in_the_wider_dtype() -> None:
    """A thread's elements fill an access of the wider dtype, or are one where rows are no whole accesses."""
    wide = replace(CALL, out_dtype=torch.float32)
    assert [PostPermuteKernel(call).vector for call in (CALL, wide, replace(CALL, vectors=False))] == [8, 4, 1]
    assert PostPermuteKernel(CALL).config() == {"vector": 8, "threads": 128, "ahead": 8}


def test_a_program_serves_every_scale() -> None:
    """The scale makes an entry and no program; a CPU entry serves every width."""
    other = replace(CALL, scale=1.0)
    for kernel_type in (PostPermuteKernel, PostPermuteCPUKernel):
        assert kernel_type(other).programs() == kernel_type(CALL).programs()
        assert kernel_type.entry_for(other)[0] != kernel_type.entry_for(CALL)[0]
    assert PostPermuteCPUKernel.entry_for(replace(CALL, vectors=False))[0] == PostPermuteCPUKernel.entry_for(CALL)[0]


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_launches_get_aligned_matrices(weighted: bool, vectors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the offsets, one program gets plain matrices at whole accesses, and the output is written."""
    programs: list[Program] = []
    given: list[tuple[Any, ...]] = []

    def run(*tensors: Any) -> None:
        given.append(tensors)
        tensors[-2].fill_(1)

    def load(program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert (arch, " for PostPermuteCall(" in owner) == (90, True)
        programs.append(program)
        return run

    load_instead(monkeypatch, load)
    kernel = PostPermuteKernel(replace(CALL, weighted=weighted, vectors=vectors))
    vector = kernel.vector
    rows, weights = torch.randn(6, 16).half(), torch.randn(2, 3)
    places, output = torch.arange(6, dtype=torch.int32), torch.zeros(2, 16).half()
    for tensors in ((rows, weights, places, output), tuple(map(misplaced, (rows, weights, places, output)))):
        assert kernel.forward(*tensors) is tensors[3]
        assert tensors[3].eq(1).all()
        source, *factors, indices, target, scale = given[-1]
        assert (scale, len(factors)) == (2.5, int(weighted))
        assert all(torch.equal(each, weights) for each in factors)
        assert torch.equal(source, rows.view(6, -1, vector))
        assert torch.equal(indices, places.view(2, 3))
        assert target.shape == (2, 16 // vector, vector)
        assert all(each.data_ptr() % 16 == 0 for each in (source, *factors, indices, target))
    assert programs == list(kernel.programs())


def test_no_terms_are_zero_without_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without rows or choices the output is zeros, and nothing is built."""
    monkeypatch.setattr(cuda, "load", None)
    kernel = PostPermuteKernel(CALL)
    for rows, weights in ((torch.empty(0, 8), torch.ones(2, 3)), (torch.ones(4, 8), torch.ones(2, 0))):
        output = torch.full((2, 8), torch.nan).half()
        places = torch.full((weights.numel(),), -1, dtype=torch.int32)
        assert kernel.forward(rows.half(), weights, places, output).eq(0).all()


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_sums(threads: int) -> None:
    """Sharing tokens among threads loses and repeats nothing; a place beyond the rows is no row."""
    before = torch.get_num_threads()
    random = torch.Generator().manual_seed(0)
    rows = torch.randint(-3, 4, (50, 300), generator=random).half()
    weights = torch.randint(-3, 4, (200, 3), generator=random).float()
    places = torch.randint(-1, 51, (600,), generator=random, dtype=torch.int32)
    padded = torch.cat([rows, torch.zeros(2, 300).half()]).float()
    expected = (padded[places.long()].view(200, 3, 300) * weights[..., None]).sum(1) * 2.5
    output = torch.full((200, 300), torch.nan).half()
    try:
        torch.set_num_threads(threads)
        PostPermuteCPUKernel(CALL).forward(rows, weights, places, output)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(output, expected.half())


@pytest.mark.parametrize("freed", ["expert_output", "topk_weights", "inverse_indices", "output"])
def test_freed_storage_is_an_error_on_cpu(freed: str) -> None:
    """A tensor with elements and no memory is refused before its address is used."""
    tensors = {
        "expert_output": torch.ones(3, 8).half(),
        "topk_weights": torch.ones(2, 1),
        "inverse_indices": torch.zeros(2, dtype=torch.int32),
        "output": torch.empty(2, 8).half(),
    }
    tensors[freed].untyped_storage().resize_(0)
    with pytest.raises(StorageError, match=f"PostPermuteCPUKernel for PostPermuteCall.*{freed} has elements and no"):
        PostPermuteCPUKernel(CALL)(**tensors)
