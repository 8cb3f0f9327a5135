"""The choice of experts: what the kernel types refuse, build and launch, and the order of float32 values."""

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
from tileops_kernels.moe.fused_topk import FusedTopKCPUKernel, FusedTopKKernel, held
from tileops_kernels.moe.placement_interfaces import FusedTopKCall

CALL = FusedTopKCall(
    device=torch.device("cuda", 0),
    facts=DeviceFacts(arch=90, sm_count=132, smem_budget=232448),
    scoring="sigmoid",
    renormalize=True,
    biased=True,
    experts=256,
    dtype=torch.bfloat16,
)


def test_refuses_other_dtypes() -> None:
    """Logits are of the floating-point dtypes that every kernel type here serves."""
    for kernel_type in (FusedTopKKernel, FusedTopKCPUKernel):
        assert kernel_type.refusal(CALL) is None
        assert kernel_type.refusal(replace(CALL, dtype=torch.float64)) == (
            "serves float16, bfloat16, float32, not float64"
        )


def test_rows_are_held_while_registers_last() -> None:
    """A lane keeps its share of a row, rounded up, up to 64 elements; a longer row is read again for each choice."""
    assert [held(experts) for experts in (0, 1, 32, 33, 384, 2048, 2049)] == [1, 1, 1, 2, 12, 64, 0]
    assert FusedTopKKernel(CALL).config() == {"held": 8, "tokens": 4}


def test_entries_serve_rows_of_equal_shares() -> None:
    """An entry depends on the elements of a lane, on a CPU on no extent; a program knows no more."""
    near, far = replace(CALL, experts=250), replace(CALL, experts=384)
    identity = FusedTopKKernel.entry_for(CALL)[0]
    assert FusedTopKKernel.entry_for(near)[0] == identity
    assert FusedTopKKernel(near).programs() == FusedTopKKernel(CALL).programs()
    others = [far, replace(CALL, scoring="softmax"), replace(CALL, renormalize=False), replace(CALL, biased=False)]
    assert len({identity, *(FusedTopKKernel.entry_for(other)[0] for other in others)}) == 1 + len(others)
    assert FusedTopKCPUKernel.entry_for(far)[0] == FusedTopKCPUKernel.entry_for(CALL)[0]
    assert FusedTopKCPUKernel(far).programs() == FusedTopKCPUKernel(CALL).programs()


@pytest.mark.parametrize("biased", [False, True])
def test_launches_get_aligned_matrices(biased: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the offsets, one program gets plain matrices at whole accesses; without tokens none is built."""
    programs: list[Program] = []
    given: list[tuple[Any, ...]] = []

    def load(program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert (arch, " for FusedTopKCall(" in owner) == (90, True)
        programs.append(program)
        return lambda *tensors: given.append(tensors)

    load_instead(monkeypatch, load)
    kernel = FusedTopKKernel(replace(CALL, biased=biased))
    bias = torch.randn(20) if biased else None
    empty, _ = kernel.forward(torch.empty(0, 20).bfloat16(), bias, 3)
    assert (empty.shape, programs) == ((0, 3), [])
    logits = torch.randn(5, 20).bfloat16()
    for tensor in (logits, misplaced(logits)):
        weights, ids = kernel.forward(tensor, None if bias is None else misplaced(bias), 3)
        source, *biases, first, second = given[-1]
        assert torch.equal(source, logits)
        assert [torch.equal(each, bias) for each in biases if bias is not None] == [True] * biased
        assert (first.data_ptr(), second.data_ptr()) == (weights.data_ptr(), ids.data_ptr())
        assert all(each.data_ptr() % 16 == 0 for each in given[-1])
    assert programs == list(kernel.programs())


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_chooses_the_same(threads: int) -> None:
    """Sharing tokens among threads loses and repeats nothing, and equal logits are equal wherever they stand."""
    before = torch.get_num_threads()
    logits = torch.randint(-8, 9, (200, 300), generator=torch.Generator().manual_seed(0)).bfloat16()
    try:
        torch.set_num_threads(threads)
        weights, ids = FusedTopKCPUKernel(replace(CALL, biased=False)).forward(logits, None, 300)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(ids.long(), logits.float().sort(dim=-1, descending=True, stable=True).indices)
    assert torch.allclose(weights.sum(-1), torch.ones(200))


@pytest.mark.parametrize("freed", ["gating_output", "correction_bias"])
def test_freed_storage_is_an_error_on_cpu(freed: str) -> None:
    """A tensor with elements and no memory is refused before its address is used."""
    tensors = {"gating_output": torch.ones(3, 8).bfloat16(), "correction_bias": torch.zeros(8)}
    tensors[freed].untyped_storage().resize_(0)
    with pytest.raises(StorageError, match=f"FusedTopKCPUKernel for FusedTopKCall.*{freed} has elements and no"):
        FusedTopKCPUKernel(CALL)(*tensors.values(), 2)
