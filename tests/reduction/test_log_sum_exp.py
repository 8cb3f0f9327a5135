"""LogSumExpFwdOp: torch's values, shapes, dtypes and refusals on a grid of edge cases."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tileops.errors import DTypeError, ParameterTypeError, RuleError, SignatureError
from tileops.reduction import LogSumExpFwdOp
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, Values, poisoned_allocations
from tileops_testing.numerics import assert_close, assert_identical
from tileops_testing.references.reduction import log_sum_exp_fwd, log_sum_exp_terms

pytestmark = pytest.mark.op("LogSumExpFwdOp")

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
INF, NAN = math.inf, math.nan


def make(
    *shape: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device,
    layout: Layout = "contiguous",
    values: Values = "normal",
) -> Tensor:
    return TensorInput(shape=shape, dtype=dtype, layout=layout, values=values).make(0, device)


def call(op: LogSumExpFwdOp, x: Tensor) -> Tensor:
    with poisoned_allocations():
        return op(x)


def check(x: Tensor, dim: int | Sequence[int], keepdim: bool = False) -> None:
    """Compare a call with the reference, whose greatest element and logarithm may cancel."""
    axes = [dim] if isinstance(dim, int) else dim
    summed = math.prod(x.shape[axis] for axis in axes) if x.dim() else 1
    assert_close(
        call(LogSumExpFwdOp(dim, keepdim), x),
        log_sum_exp_fwd(x, dim=dim, keepdim=keepdim),
        dtype=x.dtype if x.dtype.is_floating_point else torch.float32,
        summed=summed,
        terms=log_sum_exp_terms(x, dim=dim, keepdim=keepdim),
        what=str(dim),
    )


@pytest.mark.parametrize("shape", [(3, 4, 5), (0, 4, 5), (3, 0, 5), (3, 4, 0), (1, 1, 1), (4,), ()], ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
def test_axes_are_torchs(keepdim: bool, shape: Sequence[int], tileops_device: torch.device) -> None:
    """Every way to name axes, good or wrong, gives torch's values and shape, or an error where torch raises one."""
    x = make(*shape, device=tileops_device)
    given: tuple[Any, ...] = (0, 1, -1, 2, -3, [0], [0, 2], (-1, 0), [1, 2], [0, 1, 2], [0, 0], [1, -2], 3, -4, [0, 3])
    for dim in given:
        op = LogSumExpFwdOp(dim, keepdim)
        try:
            expected = torch.logsumexp(x, dim, keepdim)
        except (RuntimeError, IndexError):
            with pytest.raises(SignatureError):
                op(x)
            assert list(op.iter_kernels()) == [], dim
            continue
        y = call(op, x)
        assert (y.shape, y.dtype, y.is_contiguous()) == (expected.shape, expected.dtype, True), dim
        check(x, dim, keepdim)


@pytest.mark.parametrize("shape", [(7, 33), (3, 300), (5, 8193), (300, 17, 3), (1 << 16,), (2, 1 << 16)], ids=str)
@pytest.mark.parametrize("values", ["normal", "large"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rows_and_columns(
    dtype: torch.dtype, values: Values, shape: Sequence[int], tileops_device: torch.device
) -> None:
    """Rows, columns and everything of any length give the reference's values, also of large elements."""
    x = make(*shape, dtype=dtype, device=tileops_device, values=values)
    for dim in (*range(len(shape)), tuple(range(len(shape)))):
        check(x, dim)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [0, 1, 2, (0, 2)])
def test_any_layout(dim: int | tuple[int, ...], layout: Layout, tileops_device: torch.device) -> None:
    """Inputs of any layout are reduced alike, along axes that are neighbours and axes that are not."""
    check(make(40, 17, 3, device=tileops_device, layout=layout), dim)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integers(dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Integers and truths are taken as float32, which the result is, as torch does."""
    x = TensorInput(shape=(7, 300), dtype=torch.float32).make(0, tileops_device).mul(20).to(dtype)
    for dim in (0, 1):
        y = call(LogSumExpFwdOp(dim), x)
        assert y.dtype == torch.logsumexp(x, dim).dtype == torch.float32
        check(x, dim)
    beyond = torch.tensor([2**24 + 1, 0], device=tileops_device)
    assert call(LogSumExpFwdOp(0), beyond).item() == torch.logsumexp(beyond, 0).item() == 2.0**24


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([-INF, -INF], -INF),
        ([0.0, -INF], 0.0),
        ([0.0, INF], INF),
        ([INF, INF], INF),
        ([INF, -INF], INF),
        ([0.0, NAN, 1.0], NAN),
        ([INF, NAN], NAN),
        ([NAN, -INF], NAN),
        ([3e38, 3e38], 3e38),
        ([-3e38, -3e38], -3e38),
        ([3e38, -3e38], 3e38),
        ([torch.finfo(torch.float32).min] * 3, torch.finfo(torch.float32).min),
        ([torch.finfo(torch.float32).max] * 3, torch.finfo(torch.float32).max),
    ],
    ids=str,
)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("fill", [0, 5000, 40_000])
def test_what_is_not_finite(
    row: list[float], expected: float, dim: int, fill: int, tileops_device: torch.device
) -> None:
    """NaN gives NaN, else plus infinity gives itself, and nothing but minus infinity gives minus infinity, as torch's.

    The same holds along columns, and in long rows that are filled up with minus infinity, before and behind. Another
    row stays what it is.
    """
    for before, behind in ((0, fill), (fill, 0)):
        values = [-INF] * before + row + [-INF] * behind
        x = torch.tensor([values, [0.0] * len(values)], device=tileops_device)
        assert_identical(torch.logsumexp(x[0], 0).cpu(), torch.tensor(expected))
        y = call(LogSumExpFwdOp(dim), x.t() if dim == 0 else x)
        assert_identical(y[0].cpu(), torch.tensor(expected))
        assert y[1].item() == pytest.approx(math.log(len(values)), rel=1e-6)


def test_partial_results_keep_what_is_not_finite(tileops_device: torch.device) -> None:
    """Axes apart, reduced in passes, give infinities and NaN in their own results alone."""
    x = torch.zeros(3, 4, 300, device=tileops_device)
    x[:, 0], x[1, 1, 7], x[2, 2, 299] = -INF, INF, NAN
    y = call(LogSumExpFwdOp((0, 2)), x)
    assert_identical(y[:3].cpu(), torch.tensor([-INF, INF, NAN]))
    assert y[3].item() == pytest.approx(math.log(900), rel=1e-6)


@pytest.mark.parametrize("shape", [(1 << 22,), (1 << 18, 8), (1, 1 << 20)], ids=str)
def test_long_sums_stay_accurate(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """Millions of equal terms, whose roundings have one direction, give the logarithm of their number."""
    y = call(LogSumExpFwdOp(0 if shape[0] > 1 else 1), torch.full(shape, -20.0, device=tileops_device))
    assert (y.double() - (math.log(max(shape)) - 20)).abs().max() < 1e-5


def test_an_empty_list_is_refused(tileops_device: torch.device) -> None:
    """A list without axes is refused, where torch 2.13 fails with an internal text or gives a value by keepdim."""
    with pytest.raises(RuleError) as failure:
        LogSumExpFwdOp([])(torch.ones(2, 3, device=tileops_device))
    assert str(failure.value) == (
        "LogSumExpFwdOp: y: [*reduced(S, dim, keepdim, 'reject')]: expected a value, received none: "
        "an empty list of axes reduces nothing; pass arguments for which it has one"
    )


def test_what_is_refused(tileops_device: torch.device) -> None:
    """A dtype that the signature lacks and parameters of other types, None among them, are refused."""
    with pytest.raises(DTypeError, match=r"^LogSumExpFwdOp: x: expected dtype float16, bfloat16, float32, bool, "):
        LogSumExpFwdOp(0)(torch.ones(2, dtype=torch.float64, device=tileops_device))
    wrong: Any
    for wrong in (None, "0", True):
        with pytest.raises(ParameterTypeError, match=r"^LogSumExpFwdOp: dim: expected int \| list\[int\], received "):
            LogSumExpFwdOp(wrong)


def test_shapes_and_axes_share_one_entry(tileops_device: torch.device) -> None:
    """Calls that differ in shape alone share one kernel; inputs are not written."""
    op = LogSumExpFwdOp(-1)
    for shape in ((3, 4), (17, 100), (2, 3, 5), (1,), (), (4, 0)):
        x = make(*shape, device=tileops_device)
        before = x.clone()
        call(op, x)
        assert torch.equal(x, before)
    assert len(op.built_entries("log_sum_exp")) == 1


def test_record_and_cost(tileops_device: torch.device) -> None:
    """The record holds each tensor's shape and dtype; the cost is each byte moved once."""
    op = LogSumExpFwdOp([0], keepdim=True)
    call(op, make(3, 64, dtype=torch.float16, device=tileops_device))
    shapes = {name: (facts.shape, facts.dtype) for name, facts in op.last_call.tensors.items()}
    assert shapes == {"x": ((3, 64), torch.float16), "y": ((1, 64), torch.float16)}
    assert (op.eval_roofline().bytes, op.eval_roofline().flops) == (4 * 64 * 2, 4 * 3 * 64)
