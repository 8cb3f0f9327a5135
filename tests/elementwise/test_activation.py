"""ReluFwdOp computes what torch does, in a new tensor or in the input itself, however the input lies in memory."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tileops.elementwise import ReluFwdOp
from tileops.errors import DTypeError, LayoutError, ParameterTypeError
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, poisoned_allocations
from tileops_testing.numerics import assert_identical

pytestmark = pytest.mark.op("ReluFwdOp")

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
SHAPES = ((), (1,), (7,), (3, 5, 7), (2, 4096), (4, 3, 1), (100_003,))


def make(*shape: int, dtype: torch.dtype, device: torch.device, layout: Layout = "contiguous") -> Tensor:
    return TensorInput(shape=shape, dtype=dtype, layout=layout).make(0, device)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_agrees_with_torch(
    shape: tuple[int, ...], dtype: torch.dtype, layout: Layout, tileops_device: torch.device
) -> None:
    """Any shape, dtype and layout gives torch's values in a new contiguous tensor, and leaves the input alone."""
    x = make(*shape, dtype=dtype, device=tileops_device, layout=layout)
    before = x.clone()
    with poisoned_allocations():
        y = ReluFwdOp()(x)
    assert_identical(y, torch.relu(before))
    assert_identical(x, before)
    assert (y.shape, y.is_contiguous(), y.device) == (x.shape, True, x.device)
    assert y.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_special_values(dtype: torch.dtype, tileops_device: torch.device) -> None:
    """NaN stays NaN, infinity stays, its negative becomes 0, a denormal stays, and -0.0 keeps its sign as in torch."""
    tiny = torch.finfo(dtype).smallest_normal / 4
    values = [math.nan, -math.nan, math.inf, -math.inf, 0.0, -0.0, tiny, -tiny]
    x = torch.tensor(values * 3, dtype=dtype, device=tileops_device)
    for op in (ReluFwdOp(), ReluFwdOp(inplace=True)):
        y = op(x.clone())[:8]
        assert y[:2].isnan().all()
        assert y[2:].tolist() == [math.inf, 0.0, 0.0, 0.0, x[6].item(), 0.0]
        assert y[6] > 0
        assert torch.equal(torch.signbit(y[2:]).cpu(), torch.tensor([False, False, False, True, False, False]))


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "expanded"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_in_place(shape: tuple[int, ...], dtype: torch.dtype, layout: Layout, tileops_device: torch.device) -> None:
    """With inplace the result is the very input, whose elements are replaced where they lie."""
    x = make(*shape, dtype=dtype, device=tileops_device, layout=layout)
    expected, address, strides = torch.relu(x), x.data_ptr(), x.stride()
    op = ReluFwdOp(inplace=True)
    y = op(x)
    assert y is x
    assert (x.data_ptr(), x.stride()) == (address, strides)
    assert_identical(x, expected)
    assert op.last_call.written == ("input",)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_in_place_on_a_view_leaves_the_rest_alone(dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Only the elements of the view are written: not those between its rows, before it or behind it."""
    base = -torch.ones(10, 12, dtype=dtype, device=tileops_device)
    for view in (base[2:5, 3:8], base.t()[4:8, ::3], base[7], base[8, 1:]):
        base.fill_(-1)
        ReluFwdOp(inplace=True)(view)
        assert view.eq(0).all()
        assert int(base.eq(-1).sum()) == base.numel() - view.numel()


def test_in_place_on_channels_last(tileops_device: torch.device) -> None:
    """A dense tensor whose axes were exchanged is written where it lies, without a copy of it."""
    x = torch.randn(2, 3, 4, 5, device=tileops_device).to(memory_format=torch.channels_last)
    expected = torch.relu(x)
    assert ReluFwdOp(inplace=True)(x) is x
    assert torch.equal(x, expected)
    assert x.is_contiguous(memory_format=torch.channels_last)


def test_in_place_on_overlapping_memory_is_refused(tileops_device: torch.device) -> None:
    """Writing a tensor of which several elements share memory raises torch's kind of error and changes nothing."""
    x = -torch.ones(1, 3, device=tileops_device)
    with pytest.raises(RuntimeError) as failure:
        ReluFwdOp(inplace=True)(x.expand(2, 3))
    assert isinstance(failure.value, LayoutError)
    assert str(failure.value) == (
        "ReluFwdOp: input: expected memory of its own for each element, received strides [0, 1]; "
        "assign input = input.clone() before the call, which writes it"
    )
    assert x.eq(-1).all()
    assert torch.equal(ReluFwdOp()(x.expand(2, 3)), torch.zeros(2, 3, device=tileops_device))


@pytest.mark.parametrize("inplace", [False, True])
def test_no_elements(inplace: bool, tileops_device: torch.device) -> None:
    """A call without elements builds nothing, and gives what it promises."""
    op, x = ReluFwdOp(inplace=inplace), torch.empty(3, 0, device=tileops_device)
    y = op(x)
    assert (y is x) == inplace
    assert (y.shape, list(op.iter_kernels())) == ((3, 0), [])


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bool], ids=str)
def test_other_dtypes_are_refused(dtype: torch.dtype, tileops_device: torch.device) -> None:
    """A dtype that the signature lacks is refused before any kernel is built."""
    op = ReluFwdOp()
    with pytest.raises(DTypeError) as failure:
        op(torch.zeros(3, dtype=dtype, device=tileops_device))
    assert str(failure.value).startswith(
        f"ReluFwdOp: input: expected dtype float16, bfloat16 or float32, received {str(dtype).removeprefix('torch.')}"
    )
    assert list(op.iter_kernels()) == []


def test_type_of_inplace() -> None:
    """A number in place of a truth value is refused at construction."""
    with pytest.raises(ParameterTypeError) as failure:
        ReluFwdOp(inplace=1)  # type: ignore[arg-type]
    assert str(failure.value) == "ReluFwdOp: inplace: expected bool, received 1; pass inplace as bool"


def test_writing_counts_for_autograd(tileops_device: torch.device) -> None:
    """A tensor that a backward needs is not replaced unnoticed: torch refuses the backward, as after its own relu_."""
    weight = torch.ones(3, device=tileops_device, requires_grad=True)
    x = -torch.ones(3, device=tileops_device)
    y = (weight * x).sum()
    ReluFwdOp(inplace=True)(x)
    assert x._version == 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


def test_one_kernel_for_every_shape(tileops_device: torch.device) -> None:
    """Neither the shape nor the number of elements is compiled in."""
    op = ReluFwdOp()
    for shape in ((3,), (4, 5), (2, 3, 4), (1000,)):
        op(torch.randn(shape, device=tileops_device))
    assert len(list(op.iter_kernels())) == 1


def test_large_tensor(tileops_device: torch.device) -> None:
    """Elements past the reach of 32-bit offsets are computed, to the last."""
    if tileops_device.type != "cuda":
        pytest.skip("5 GB are allocated on a CUDA device only")
    x = torch.full(((1 << 31) + 11,), -1.0, dtype=torch.bfloat16, device=tileops_device)
    ReluFwdOp(inplace=True)(x)
    assert not x.any()
