"""SumFwdOp and ProdFwdOp compute what their references say, for every dtype, axis, layout and length."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from tileops.reduction import ProdFwdOp, SumFwdOp
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, Values, poisoned_allocations
from tileops_testing.numerics import assert_close
from tileops_testing.references.reduction import prod_fwd, sum_fwd

pytestmark = pytest.mark.op("SumFwdOp", "ProdFwdOp")

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
AXES = (None, 0, 1, 2, 3, -1, -4, (0, 1), (1, 2), (2, 3), (0, 3), (3, 0, -2), (0, 1, 2, 3), ())
LENGTHS = (1, 2, 7, 31, 32, 33, 255, 256, 257, 4096, 8193)


def make(
    *shape: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device,
    layout: Layout = "contiguous",
    values: Values = "positive",
) -> Tensor:
    return TensorInput(shape=shape, dtype=dtype, layout=layout, values=values).make(0, device)


def call(op: SumFwdOp | ProdFwdOp, x: Tensor) -> Tensor:
    with poisoned_allocations():
        return op(x)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize(
    "dim", [None, 0, 1, 2, 3, -1, -4, (0, 1), (1, 2), (2, 3), (0, 3), (3, 0, -2), (0, 1, 2, 3), ()]
)
def test_sum_over_any_axes(
    dim: int | Sequence[int] | None, keepdim: bool, layout: Layout, tileops_device: torch.device
) -> None:
    """One axis, neighbours, axes apart in any order and all of them give the reference's sum, whatever the layout."""
    x = make(3, 4, 5, 6, device=tileops_device, layout=layout)
    y = call(SumFwdOp(dim, keepdim), x)
    expected = sum_fwd(x, dim=dim, keepdim=keepdim)
    assert_close(y, expected, dtype=torch.float32, summed=x.numel())
    assert y.stride() == expected.stride()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_product_over_any_axis(dim: int, keepdim: bool, layout: Layout, tileops_device: torch.device) -> None:
    """The first, middle and last axis give the reference's product, whatever the layout."""
    x = make(3, 4, 5, device=tileops_device, layout=layout, values="near_one")
    y = call(ProdFwdOp(dim, keepdim), x)
    expected = prod_fwd(x, dim=dim, keepdim=keepdim)
    assert_close(y, expected, dtype=torch.float32, summed=5)
    assert y.stride() == expected.stride()


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rows_of_any_length(n: int, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Rows around the lengths that blocks and accesses have give the reference's values."""
    x = make(5, n, dtype=dtype, device=tileops_device)
    assert_close(call(SumFwdOp(1), x), sum_fwd(x, dim=1), dtype=dtype, summed=n)
    x = make(5, n, dtype=dtype, device=tileops_device, values="near_one")
    assert_close(call(ProdFwdOp(1), x), prod_fwd(x, dim=1), dtype=dtype, summed=n)


@pytest.mark.parametrize("inner", [2, 7, 33, 255, 256, 257, 300])
@pytest.mark.parametrize("reduced", [1, 3, 17, 260, 1024])
@pytest.mark.parametrize("outer", [1, 3])
def test_columns_of_any_shape(outer: int, reduced: int, inner: int, tileops_device: torch.device) -> None:
    """An axis before others gives the reference's values, for narrow and wide slices, few and many."""
    for dtype in (torch.float16, torch.float32):
        x = make(outer, reduced, inner, dtype=dtype, device=tileops_device)
        assert_close(call(SumFwdOp(1), x), sum_fwd(x, dim=1), dtype=dtype, summed=reduced)


@pytest.mark.parametrize("shape", [(4,), (1 << 16,), (100_003,), (70, 90, 110), (4, 1 << 15)])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_whole_tensors(shape: tuple[int, ...], dtype: torch.dtype, tileops_device: torch.device) -> None:
    """A reduction to one element, which is done in parts where the length has divisors, gives the reference's value."""
    x = make(*shape, dtype=dtype, device=tileops_device)
    assert_close(call(SumFwdOp(), x), sum_fwd(x), dtype=dtype, summed=x.numel())


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_integers_are_exact(dim: int, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Integers and booleans give int64, exactly."""
    x = torch.randint(0, 2, (37, 300), device=tileops_device).to(dtype)
    y = call(SumFwdOp(dim), x)
    assert (y.dtype, torch.equal(y, x.sum(dim))) == (torch.int64, True)
    x = torch.randint(1, 4, (37, 30), device=tileops_device).to(dtype)
    y = call(ProdFwdOp(dim), x)
    assert (y.dtype, torch.equal(y, x.prod(dim))) == (torch.int64, True)


def test_integers_keep_their_sign_and_wrap(tileops_device: torch.device) -> None:
    """Negative elements count as such, sums beyond narrow dtypes are exact, and int64 wraps as torch's does."""
    assert call(SumFwdOp(), torch.full((1000,), -128, dtype=torch.int8, device=tileops_device)).item() == -128_000
    assert call(SumFwdOp(), torch.full((1000,), 255, dtype=torch.uint8, device=tileops_device)).item() == 255_000
    assert call(SumFwdOp(), torch.full((3,), 2**62, device=tileops_device)).item() == 3 * 2**62 - 2**64
    assert call(ProdFwdOp(0), torch.full((3,), -(2**31), device=tileops_device)).item() == 0x7FFF_FFFF - 0x7FFF_FFFF


@pytest.mark.parametrize(
    ("source", "result"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float16),
        (torch.float32, torch.float16),
        (torch.float32, torch.bfloat16),
        (torch.int32, torch.float32),
        (torch.int64, torch.bfloat16),
        (torch.bool, torch.float16),
        (torch.float32, torch.int64),
        (torch.bool, torch.int64),
    ],
    ids=str,
)
@pytest.mark.parametrize("dim", [0, 1, None])
def test_dtype_of_the_result(
    dim: int | None, source: torch.dtype, result: torch.dtype, tileops_device: torch.device
) -> None:
    """The result has the dtype asked for, for rows, columns and everything."""
    x = make(33, 40, device=tileops_device, values="normal").mul(3).abs().to(source)
    assert_close(
        call(SumFwdOp(dim, dtype=result), x), sum_fwd(x, dim=dim, dtype=result), dtype=result, summed=x.numel()
    )


def test_elements_are_converted_before_they_are_combined(tileops_device: torch.device) -> None:
    """As in torch: a float32 beyond float16 is infinite before the sum, fractions are dropped before an int64 sum."""
    x = torch.tensor([70000.0, -70000.0], device=tileops_device)
    assert call(SumFwdOp(dtype=torch.float16), x).isnan()
    assert call(SumFwdOp(dtype=torch.int64), torch.tensor([2.7, 2.7, -1.5], device=tileops_device)).item() == 3
    x = torch.full((4096,), 1 + 2**-10, device=tileops_device)
    assert call(SumFwdOp(dtype=torch.bfloat16), x).item() == 4096


@pytest.mark.parametrize("shape", [(4096,), (4096, 2), (2, 4096)])
def test_half_sums_are_not_accumulated_in_half(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """A bfloat16 sum of ones passes 256 and a float16 one 2048, along rows, columns and everything."""
    for dtype, dim in ((torch.bfloat16, shape.index(4096)), (torch.float16, shape.index(4096)), (torch.float16, None)):
        y = call(SumFwdOp(dim), torch.ones(shape, dtype=dtype, device=tileops_device))
        assert y.eq(4096 if dim is not None else math.prod(shape)).all()


def test_a_sum_beyond_float16_is_infinite_unless_the_result_is_wider(tileops_device: torch.device) -> None:
    """70000 ones are infinite as float16 and 70000 as float32."""
    x = torch.ones(70000, dtype=torch.float16, device=tileops_device)
    assert call(SumFwdOp(), x).item() == math.inf
    assert call(SumFwdOp(dtype=torch.float32), x).item() == 70000


def test_partial_results_are_not_rounded(tileops_device: torch.device) -> None:
    """A reduction over axes apart, done in passes, rounds once: its parts overflow float16 and cancel."""
    x = torch.full((2, 3, 128), 1000.0, dtype=torch.float16, device=tileops_device)
    x[1] = -1000.0
    assert call(SumFwdOp((0, 2)), x).tolist() == [0.0, 0.0, 0.0]
    x = torch.tensor([300.0, 300.0, 1 / 256, 1 / 256], dtype=torch.float16, device=tileops_device)
    assert call(ProdFwdOp(0), x).item() == pytest.approx(300 * 300 / 65536, rel=2**-10)


@pytest.mark.parametrize("shape", [(1 << 22,), (1 << 18, 8), (1, 1 << 20)])
def test_long_sums_stay_accurate(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """Millions of equal terms, whose roundings have one direction, drift by less than a part in a hundred thousand."""
    y = call(SumFwdOp(0 if shape[0] > 1 else 1), torch.full(shape, 0.1, device=tileops_device))
    expected = max(shape) * float(torch.tensor(0.1))
    assert (y.double() / expected - 1).abs().max() < 1e-5


def test_the_reduction_of_nothing_is_the_identity(tileops_device: torch.device) -> None:
    """A sum of nothing is 0 and a product of nothing 1, in every dtype; no elements of a result are none."""
    for dtype in (*FLOATS, *INTEGERS):
        empty = torch.empty(3, 0, dtype=dtype, device=tileops_device)
        assert call(SumFwdOp(), empty[0]).item() == 0
        assert call(SumFwdOp(1), empty).tolist() == [0, 0, 0]
        assert call(ProdFwdOp(1, keepdim=True), empty).tolist() == [[1], [1], [1]]
        assert call(SumFwdOp(0), empty).shape == (0,)
        assert call(SumFwdOp(0, keepdim=True), empty).shape == (1, 0)


def test_tensors_without_axes(tileops_device: torch.device) -> None:
    """A tensor without axes has the axes 0 and -1, which reduce it to itself in memory of its own."""
    x = torch.tensor(2.0, device=tileops_device)
    for op in (SumFwdOp(), SumFwdOp(0), SumFwdOp(-1, keepdim=True), SumFwdOp(()), ProdFwdOp(0), ProdFwdOp(-1)):
        y = call(op, x)
        assert (y.item(), y.shape, y.data_ptr() == x.data_ptr()) == (2.0, (), False)
    assert call(ProdFwdOp(0), torch.tensor(True, device=tileops_device)).dtype is torch.int64


def test_an_axis_of_one_is_copied(tileops_device: torch.device) -> None:
    """Where nothing is combined the result is a copy, in memory of its own."""
    x = make(1, 5, 7, dtype=torch.float16, device=tileops_device)
    y = call(SumFwdOp(0), x)
    assert torch.equal(y, x[0])
    assert y.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("op", [SumFwdOp(1), ProdFwdOp(1)], ids=["sum", "prod"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_is_not_finite_stays_in_its_row(
    dtype: torch.dtype, value: float, op: SumFwdOp | ProdFwdOp, tileops_device: torch.device
) -> None:
    """NaN and infinities give what torch gives, in their row alone; infinity minus infinity and times zero are NaN."""
    x = torch.ones(4, 300, dtype=dtype, device=tileops_device)
    x[1, 299] = x[2, 0] = value
    x[2, 1] = -value if isinstance(op, SumFwdOp) else 0.0
    y = call(op, x)
    assert torch.equal(
        y[[0, 3]], torch.full((2,), 300.0 if isinstance(op, SumFwdOp) else 1.0, device=y.device).to(dtype)
    )
    assert y[1].isnan() if math.isnan(value) else y[1].item() == value
    assert y[2].isnan()


def test_inputs_are_not_written(tileops_device: torch.device) -> None:
    """A call leaves x as it is."""
    x = make(6, 70, dtype=torch.float16, device=tileops_device)
    before = x.clone()
    call(SumFwdOp(1), x)
    call(ProdFwdOp(0), x)
    assert torch.equal(x, before)


def test_shapes_and_axes_share_one_entry(tileops_device: torch.device) -> None:
    """Calls that differ in shape alone share one kernel."""
    op = SumFwdOp(-1)
    for shape in ((3, 4), (17, 100), (2, 3, 5), (1,), (), (4, 0)):
        call(op, make(*shape, device=tileops_device))
    assert len(list(op.iter_kernels())) == 1
    call(op, make(3, 4, dtype=torch.float16, device=tileops_device))
    assert len(op.built_entries("reduce")) == 2


def test_parameters_as_attributes() -> None:
    """The parameters are attributes, `dtype` among them, which other ops have as None; a list of axes is a tuple."""
    op = ProdFwdOp(1, True, dtype=torch.float32)
    assert (op.dim, op.keepdim, op.dtype, op.asked().operation) == (1, True, torch.float32, "prod")
    assert (SumFwdOp([0, -1]).dim, SumFwdOp().dim, SumFwdOp().dtype) == ((0, -1), None, None)


def test_record_and_cost(tileops_device: torch.device) -> None:
    """The record holds each tensor's shape and dtype; the cost is each byte moved once."""
    op = SumFwdOp(0, keepdim=True, dtype=torch.float32)
    call(op, make(3, 64, dtype=torch.float16, device=tileops_device))
    record = op.last_call
    shapes = {name: (facts.shape, facts.dtype) for name, facts in record.tensors.items()}
    assert shapes == {"x": ((3, 64), torch.float16), "y": ((1, 64), torch.float32)}
    assert (op.eval_roofline().bytes, op.eval_roofline().flops) == (3 * 64 * 2 + 64 * 4, 3 * 64)


def test_one_op_serves_other_calls(tileops_device: torch.device) -> None:
    """An op computes each call by its own rank and dtype, whatever the call before was."""
    op = SumFwdOp(-1)
    for shape, dtype in (((2, 3), torch.float32), ((4, 2, 3), torch.float32), ((4, 2, 3), torch.int64)):
        y = call(op, torch.ones(shape, dtype=dtype, device=tileops_device))
        assert (y.shape, y.dtype, set(y.flatten().tolist())) == (shape[:-1], dtype, {3})
