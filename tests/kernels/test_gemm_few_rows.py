"""Kernel types of products of few rows or few tiles: which serve what, their settings, and what they launch."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
import torch
from torch import Tensor

from tests.kernels.gemm_calls import ADA, AMPERE, HOPPER, gemm_call
from tests.kernels.launches import load_instead
from tests.kernels.placing import misplaced
from tileops_kernels.build import cuda
from tileops_kernels.build.program import Program
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.gemm import gemm_kernels
from tileops_kernels.gemm.gemm import GemmDotsKernel, GemmPartsKernel
from tileops_kernels.gemm.tiles import parts_of
from tileops_kernels.products import DotSettings


@pytest.mark.parametrize("facts", [HOPPER, ADA, AMPERE])
def test_a_handful_of_rows(facts: DeviceFacts) -> None:
    """Up to eight rows are multiplied in registers where weights are stored by rows, whole accesses or not."""
    for n, k in ((256, 512), (257, 511), (1 << 16, 1 << 16)):
        call = replace(gemm_call(n, k, few_rows=True, facts=facts), handful=True)
        assert gemm_kernels().key_for(call) == "gemm_dots"
        for stored in (replace(call, trans_b=False), replace(call, trans_a=True)):
            assert gemm_kernels().key_for(stored) != "gemm_dots"
    assert GemmDotsKernel.refusal(gemm_call()) == "serves up to 8 rows, and there are more"
    assert GemmDotsKernel.refusal(replace(gemm_call(trans_b=False), handful=True)) == (
        "reads rows of both operands, not trans_a=False and trans_b=False"
    )


def test_a_handful_of_rows_has_two_entries() -> None:
    """Rows of whole accesses are read 16 bytes at a time, others an element at a time; extents change nothing else."""
    whole, others = (replace(gemm_call(k=k), handful=True) for k in (512, 511))
    assert GemmDotsKernel(whole).settings == DotSettings(vector=8, unroll=4, group=8, threads=256)
    assert GemmDotsKernel(others).settings == DotSettings(vector=1, unroll=16, group=8, threads=256)
    for call, same in ((whole, replace(whole, n=3, k=8, vectors=False)), (others, replace(others, n=3, k=7))):
        kernel = GemmDotsKernel(call)
        assert GemmDotsKernel.entry_for(same)[0] == GemmDotsKernel.entry_for(call)[0]
        assert GemmDotsKernel(same).programs() == kernel.programs()
        assert dict(kernel.config()) == asdict(kernel.settings)
        assert kernel.config().items() <= dict(kernel.programs()[0].arguments).items()
    assert GemmDotsKernel.entry_for(whole)[0] != GemmDotsKernel.entry_for(others)[0]


def test_few_tiles_of_many_terms() -> None:
    """On Hopper the terms of few tiles are divided among blocks, unless a handful of rows needs no tiles."""
    for trans_a, trans_b in ((False, True), (True, True), (False, False)):
        call = gemm_call(2112, 7168, most_rows=128, trans_a=trans_a, trans_b=trans_b)
        assert gemm_kernels().key_for(call) == "gemm_parts"
        assert gemm_kernels().key_for(replace(call, most_rows=64, few_rows=True)) == "gemm_parts"
        assert gemm_kernels().key_for(replace(call, facts=AMPERE)) == ("gemm" if call.trans_a else "gemm_async")
        assert gemm_kernels().key_for(replace(call, n=257, vectors=False)) == "gemm"
    assert gemm_kernels().key_for(replace(gemm_call(2112, 7168, most_rows=8), handful=True)) == "gemm_dots"
    assert GemmPartsKernel.refusal(gemm_call()) == (
        "divides the terms of few tiles, and here the tiles are enough or the terms are few"
    )


@pytest.mark.parametrize(
    ("tiles", "steps", "found"),
    [
        (17, 112, (7, 16)),
        (56, 32, (2, 16)),
        (64, 112, (2, 56)),
        (1, 32, (8, 4)),
        (1, 3, (1, 3)),
        (1, 1, (1, 1)),
        (132, 112, (1, 112)),
        (200, 112, (1, 112)),
        (30, 33, (4, 9)),
    ],
)
def test_parts_are_a_block_for_each_multiprocessor(tiles: int, steps: int, found: tuple[int, int]) -> None:
    """As many parts as 132 blocks allow, each of four steps or more; they have all steps, and none is empty."""
    parts, each = parts_of(tiles, steps, 132)
    assert (parts, each) == found
    assert (parts - 1) * each < steps <= parts * each


def test_parts_are_added(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two programs serve every number of rows: parts of the product in float32, then their sum."""
    launched: list[tuple[Tensor | int, ...]] = []

    def multiply(a: Tensor, b: Tensor, found: Tensor, each: int) -> None:
        launched.append((a, b, found, each))
        for part in range(found.shape[0]):
            terms = slice(part * each, (part + 1) * each)
            found[part] = a[:, terms].float() @ b[:, terms].float().t()

    def add(found: Tensor, d: Tensor) -> None:
        d.copy_(found.sum(0))

    programs: list[Program] = []

    def load(program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert arch == 90
        assert owner.startswith("GemmPartsKernel for GemmCall(")
        programs.append(program)
        return add if program.builder == "gemm_sums" else multiply

    load_instead(monkeypatch, load)
    kernel = GemmPartsKernel(gemm_call(24, 2056, most_rows=128))
    b = torch.randint(-3, 4, (24, 2056)).half()
    for m in (1, 9, 130):
        a = torch.randint(-3, 4, (m, 2056)).half()
        for given in ((a, b), (misplaced(a), misplaced(b))):
            assert torch.equal(kernel.forward(*given), (a.float() @ b.float().t()).half())
            left, right, found, each = launched[-1]
            assert isinstance(left, Tensor)
            assert isinstance(right, Tensor)
            assert isinstance(found, Tensor)
            assert (left.data_ptr() % 16, right.data_ptr() % 16) == (0, 0)
            assert (tuple(found.shape), each) == ((9, m, 24), 256)
    assert kernel.forward(b[:0], b).shape == (0, 24)
    assert torch.equal(kernel.forward(b[:, :0], b[:, :0]), torch.zeros(24, 24).half())
    assert programs == list(kernel.programs())
    assert {name for name, _ in programs[0].arguments}.isdisjoint({"m", "n", "k"})
    assert dict(kernel.config()) == asdict(kernel.settings)
