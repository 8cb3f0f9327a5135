"""What a reduction launches on CUDA: packed views, bytes and bits of elements, one launch where it suffices."""

from __future__ import annotations

import math
from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.kernels.test_reduce_kernels import cuda_call
from tileops_kernels.build import cuda
from tileops_kernels.build.program import Program
from tileops_kernels.reduction.reduce import ReduceKernel


class Launches:
    """Stands for loaded CUDA programs: computes what each launch should, and keeps what it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs: list[Program] = []
        self.given: list[tuple[Tensor, Tensor]] = []
        self.counts: list[tuple[float, ...]] = []
        monkeypatch.setattr(cuda, "load", self.load)
        monkeypatch.setattr(torch.cuda, "device", lambda _: nullcontext())
        monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: None, raising=False)

    def load(self, program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert arch == 90
        assert owner.startswith("ReduceKernel for ReduceCall(")
        self.programs.append(program)
        rows = program.builder == "reduce_rows"

        def run(x: Tensor, y: Tensor, *count: float) -> None:
            self.given.append((x, y))
            self.counts.append(count)
            if program.builder == "reduce_planes":
                y.copy_(x.double().sum((0, 2, 3)))
                return
            total = x.double().sum((1, 2) if rows else 1)
            y.zero_().select(1, 0).copy_(total if rows else total[..., : y.shape[-1]])

        return run


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((6, 64), (1,)),
        ((6, 64), (0,)),
        ((6, 63), (1,)),
        ((6, 63), (0,)),
        ((2, 33, 64), (0, 2)),
        ((2, 33, 16), (0, 2)),
        ((2, 33, 63), (0, 2)),
        ((2, 3, 5, 64, 2), (0, 3, 4)),
        ((4, 32768), (1,)),
        ((4096, 2), (0,)),
        ((5,), (0,)),
        ((), ()),
        ((3, 1), (1,)),
    ],
)
@pytest.mark.parametrize("offset", [0, 1])
def test_launches_get_packed_views(
    shape: tuple[int, ...], axes: tuple[int, ...], offset: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the shape and offset of x, programs get packed views whose accesses are aligned; one is the result.

    The first part of each slice stands for all.
    """
    launches = Launches(monkeypatch)
    kernel = ReduceKernel(cuda_call(torch.float32))
    flat = torch.ones(torch.Size(shape).numel() + 4)
    start = next(place for place in range(4) if (flat[place:].data_ptr() % 16 == 0) != bool(offset))
    x = flat[start : start + torch.Size(shape).numel()].view(shape)

    y = kernel.forward(x, axes)

    assert torch.equal(y, x.sum(axes) if axes else x)
    assert launches.given[-1][1].data_ptr() == y.data_ptr()
    for program, (source, _) in zip(launches.programs, launches.given, strict=False):
        assert dict(program.arguments)["vector"] == source.shape[-1]
    for tensors in launches.given:
        for tensor in tensors:
            assert tensor.stride() == torch.empty(tensor.shape, device="meta").stride()
        assert tensors[0].shape[-1] == 1 or tensors[0].data_ptr() % 16 == 0
    assert set(launches.programs) <= set(kernel.programs())


@pytest.mark.parametrize(
    ("shape", "builders"),
    [
        ((2, 3, 64), ["reduce_planes"]),
        ((2, 3, 16), ["reduce_rows", "reduce_columns"]),
        ((2, 3, 1 << 14), ["reduce_rows", "reduce_rows", "reduce_columns"]),
    ],
)
def test_outer_and_inner_axes_take_one_launch(
    shape: tuple[int, ...], builders: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A block for each channel where that suffices, told of a mean how many elements there are; else passes."""
    launches = Launches(monkeypatch)
    kernel = ReduceKernel(replace(cuda_call(torch.float32), gives="mean"))
    y = kernel.forward(torch.ones(shape), (0, 2))
    assert y.shape == (3,)
    assert [program.builder for program in launches.programs] == builders
    assert launches.counts[-1] == (shape[0] * shape[2],)
    assert set(launches.programs) <= set(kernel.programs())


def test_booleans_are_launched_as_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program gets booleans as the bytes that they are."""
    launches = Launches(monkeypatch)
    kernel = ReduceKernel(cuda_call(torch.bool, torch.int64))
    assert kernel.forward(torch.tensor([[True, False, True]]), (1,)).tolist() == [2]
    assert launches.given[0][0].dtype is torch.uint8
    assert kernel.forward(torch.ones(2, 3, 128, dtype=torch.bool), (0, 2)).tolist() == [256] * 3
    assert launches.programs[-1].builder == "reduce_planes"
    assert launches.given[-1][0].dtype is torch.uint8


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize(
    ("shape", "axes"), [((6, 64), (1,)), ((6, 64), (0,)), ((3, 7), (1,)), ((3, 7), (0,)), ((), ())]
)
def test_complex_elements_are_launched_as_bits(
    dtype: torch.dtype, shape: tuple[int, ...], axes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program gets the bits of complex elements, no copy of them, in whole accesses where the length has those."""
    launches = Launches(monkeypatch)
    kernel = ReduceKernel(replace(cuda_call(dtype, torch.int64), of="nonzero"))
    x = torch.arange(math.prod(shape)).view(shape).to(dtype)

    for given in (x, x.conj()):
        assert kernel.forward(given, axes).dtype is torch.int64
    source, _ = launches.given[0]
    assert {tensors[0].data_ptr() for tensors in launches.given} == {x.data_ptr()}
    (program, *_) = launches.programs

    values = source.shape[-1]
    assert (source.dtype, dict(program.arguments)["vector"]) == (torch.int64, values * 8 // dtype.itemsize)
    assert source.numel() * 8 == x.numel() * dtype.itemsize
    assert torch.equal(source.reshape(-1).view(dtype), x.reshape(-1))
    assert values == 2 or x.numel() % 2


def test_no_elements_launch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without elements gives the identity without building or launching."""
    launches = Launches(monkeypatch)
    kernel = ReduceKernel(cuda_call(operation="prod"))
    assert kernel.forward(torch.empty(2, 0).half(), (1,)).tolist() == [1.0, 1.0]
    assert kernel.forward(torch.empty(2, 0).half(), (0,)).shape == (0,)
    assert launches.programs == []
