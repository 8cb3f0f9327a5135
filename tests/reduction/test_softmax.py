"""SoftmaxFwdOp computes what its reference says, for every dtype, axis, layout and length."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tileops.reduction import SoftmaxFwdOp
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, poisoned_allocations
from tileops_testing.numerics import assert_close, assert_identical
from tileops_testing.references.reduction import softmax_fwd

pytestmark = pytest.mark.op("SoftmaxFwdOp")

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LENGTHS = (1, 2, 7, 32, 33, 255, 257, 4096, 8193, 65536)
INF, NAN = math.inf, math.nan


def make(
    *shape: int, dtype: torch.dtype = torch.float32, device: torch.device, layout: Layout = "contiguous"
) -> Tensor:
    return TensorInput(shape=shape, dtype=dtype, layout=layout).make(0, device)


def call(op: SoftmaxFwdOp, x: Tensor) -> Tensor:
    with poisoned_allocations():
        return op(x)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -2, -3])
def test_any_axis(dim: int, layout: Layout, tileops_device: torch.device) -> None:
    """The first, middle and last axis give the reference's values in a contiguous tensor, whatever the layout."""
    x = make(3, 4, 5, device=tileops_device, layout=layout)
    y = call(SoftmaxFwdOp(dim), x)
    assert_close(y, softmax_fwd(x, dim=dim), dtype=torch.float32, summed=5)
    assert y.stride() == (20, 5, 1)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_of_any_length(n: int, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Rows around the lengths that blocks and accesses have give the reference's values."""
    x = make(5, n, dtype=dtype, device=tileops_device)
    assert_close(call(SoftmaxFwdOp(-1), x), softmax_fwd(x, dim=-1), dtype=dtype, summed=n)


@pytest.mark.parametrize("inner", [2, 7, 33, 256, 300])
@pytest.mark.parametrize("reduced", [1, 3, 17, 260])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_columns_of_any_shape(reduced: int, inner: int, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """An axis before others gives the reference's values, for narrow and wide slices."""
    x = make(3, reduced, inner, dtype=dtype, device=tileops_device)
    assert_close(call(SoftmaxFwdOp(1), x), softmax_fwd(x, dim=1), dtype=dtype, summed=reduced)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([-INF, -INF], [NAN, NAN]),
        ([0.0, NAN, 1.0], [NAN, NAN, NAN]),
        ([0.0, INF], [NAN, NAN]),
        ([INF, -INF], [NAN, NAN]),
        ([0.0, -INF], [1.0, 0.0]),
        ([-INF, 0.0], [0.0, 1.0]),
        ([-INF, -INF, 5.0], [0.0, 0.0, 1.0]),
        ([-3e38, -3e38], [0.5, 0.5]),
        ([3e38, -3e38], [1.0, 0.0]),
        ([torch.finfo(torch.float32).min] * 2, [0.5, 0.5]),
    ],
    ids=str,
)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("fill", [0, 5000])
def test_bad_rows_are_not_hidden(
    row: list[float], expected: list[float], dim: int, fill: int, tileops_device: torch.device
) -> None:
    """Rows with NaN or plus infinity, and rows of minus infinity alone, give NaN; minus infinity beside others is 0.

    The same holds along columns, and in long rows that are filled up with minus infinity, before and behind.
    """
    for before, behind in ((0, fill), (fill, 0)):
        values = [-INF] * before + row + [-INF] * behind
        wanted = [expected[0] if math.isnan(expected[0]) else 0.0]
        x = torch.tensor([values, [0.0] * len(values)], device=tileops_device)
        y = call(SoftmaxFwdOp(dim), x.t() if dim == 0 else x)
        y = y.t() if dim == 0 else y
        exact = torch.tensor([*wanted * before, *expected, *wanted * behind], device=tileops_device)
        assert_identical(y[0], exact)
        assert_close(y[1], torch.full((len(values),), 1 / len(values)), dtype=torch.float32, summed=len(values))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bad_rows_leave_others_alone(dtype: torch.dtype, tileops_device: torch.device) -> None:
    """A NaN changes no other row by a bit."""
    clean = make(5, 300, dtype=dtype, device=tileops_device)
    spoilt = clean.clone()
    spoilt[1, 0] = spoilt[3, 299] = NAN
    y, expected = call(SoftmaxFwdOp(1), spoilt), call(SoftmaxFwdOp(1), clean)
    assert y[[1, 3]].isnan().all()
    assert_identical(y[[0, 2, 4]], expected[[0, 2, 4]])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_equal_elements(dtype: torch.dtype, tileops_device: torch.device) -> None:
    """512 equal elements give exactly 1/512 each, however large they are."""
    for value in (0.0, 60000.0, -60000.0):
        x = torch.full((3, 512), value, dtype=dtype, device=tileops_device)
        assert call(SoftmaxFwdOp(-1), x).mul(512).eq(1).all()
        assert call(SoftmaxFwdOp(0), x.t().contiguous()).mul(512).eq(1).all()


def test_large_differences_underflow_to_zero(tileops_device: torch.device) -> None:
    """Elements far below the greatest give zero, not NaN, and a denormal result is kept."""
    x = torch.tensor([[0.0, -90.0, -200.0]], device=tileops_device)
    y = call(SoftmaxFwdOp(1), x)
    assert y[0, 0] == 1
    assert y[0, 1].item() == pytest.approx(math.exp(-90), rel=1e-5)
    assert y[0, 2] == 0


@pytest.mark.parametrize("rank", [0, 1, 2, 3, 4])
def test_implicit_axis(rank: int, tileops_device: torch.device) -> None:
    """Without dim the axis is 0 for tensors of 0, 1 and 3 axes and 1 for others."""
    x = make(*(2, 3, 4, 5)[:rank], device=tileops_device)
    y = call(SoftmaxFwdOp(), x)
    assert_close(y, softmax_fwd(x, dim=0 if rank in {0, 1, 3} else 1), dtype=torch.float32, summed=5)


@pytest.mark.parametrize("dim", [0, -1, None])
def test_tensors_without_axes(dim: int | None, tileops_device: torch.device) -> None:
    """A tensor without axes gives 1, or NaN for what is not finite."""
    y = call(SoftmaxFwdOp(dim), torch.tensor(2.0, device=tileops_device))
    assert (y.item(), y.shape) == (1.0, ())
    assert call(SoftmaxFwdOp(dim), torch.tensor(INF, device=tileops_device)).isnan()


@pytest.mark.parametrize(("shape", "dim"), [((0,), 0), ((3, 0), 1), ((3, 0), 0), ((0, 3), -1), ((2, 0, 3), 1)])
def test_no_elements(shape: tuple[int, ...], dim: int, tileops_device: torch.device) -> None:
    """A call that writes no element gives an empty tensor of x's shape and builds no kernel."""
    op = SoftmaxFwdOp(dim, dtype=torch.float32)
    y = op(torch.empty(shape, dtype=torch.float16, device=tileops_device))
    assert (y.shape, y.dtype) == (shape, torch.float32)
    assert list(op.iter_kernels()) == []


@pytest.mark.parametrize("result", DTYPES, ids=str)
@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_dtype_of_the_result(dim: int, source: torch.dtype, result: torch.dtype, tileops_device: torch.device) -> None:
    """The result has the dtype asked for, to which elements are converted first, as torch does."""
    x = make(40, 70, dtype=source, device=tileops_device)
    y = call(SoftmaxFwdOp(dim, dtype=result), x)
    assert_close(y, softmax_fwd(x, dim=dim, dtype=result), dtype=result, summed=70)


def test_elements_are_converted_first(tileops_device: torch.device) -> None:
    """A float32 beyond float16 is infinite before the softmax."""
    x = torch.tensor([70000.0, 0.0], device=tileops_device)
    assert call(SoftmaxFwdOp(0, dtype=torch.float16), x).isnan().all()


def test_inputs_are_not_written(tileops_device: torch.device) -> None:
    """A call leaves x as it is and returns memory of its own."""
    x = make(6, 70, device=tileops_device)
    before = x.clone()
    y = call(SoftmaxFwdOp(1), x)
    assert torch.equal(x, before)
    assert y.data_ptr() != x.data_ptr()


def test_a_growing_axis_builds_nothing(tileops_device: torch.device) -> None:
    """Calls that differ in shape alone share one kernel, also where the axis grows from call to call."""
    op = SoftmaxFwdOp(-1)
    for length in (1, 2, 3, 64, 65, 1000):
        call(op, make(2, length, device=tileops_device))
    assert len(list(op.iter_kernels())) == 1
    assert len(op.built_entries("softmax")) == 1


def test_parameters_as_attributes() -> None:
    """The parameters are attributes of the instance."""
    assert (SoftmaxFwdOp(1, dtype=torch.float16).dim, SoftmaxFwdOp(1, dtype=torch.float16).dtype) == (1, torch.float16)
    assert (SoftmaxFwdOp().dim, SoftmaxFwdOp().dtype) == (None, None)


def test_record_and_cost(tileops_device: torch.device) -> None:
    """The record holds each tensor's shape and dtype; the cost is each byte moved once."""
    op = SoftmaxFwdOp(-1, dtype=torch.float32)
    call(op, make(3, 64, dtype=torch.float16, device=tileops_device))
    shapes = {name: (facts.shape, facts.dtype) for name, facts in op.last_call.tensors.items()}
    assert shapes == {"x": ((3, 64), torch.float16), "y": ((3, 64), torch.float32)}
    assert (op.eval_roofline().bytes, op.eval_roofline().flops) == (3 * 64 * 6, 5 * 3 * 64)
