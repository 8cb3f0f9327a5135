"""LogSoftmaxFwdOp: torch's values, shapes, dtypes and refusals on a grid of edge cases."""

from __future__ import annotations

import math
import warnings
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tileops.errors import DTypeError, ParameterTypeError, SignatureError
from tileops.reduction import LogSoftmaxFwdOp
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, poisoned_allocations
from tileops_testing.numerics import assert_close, assert_identical
from tileops_testing.references.reduction import log_softmax_fwd, log_softmax_terms

pytestmark = pytest.mark.op("LogSoftmaxFwdOp")

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
INF, NAN = math.inf, math.nan


def make(
    *shape: int, dtype: torch.dtype = torch.float32, device: torch.device, layout: Layout = "contiguous"
) -> Tensor:
    return TensorInput(shape=shape, dtype=dtype, layout=layout).make(0, device)


def call(op: LogSoftmaxFwdOp, x: Tensor) -> Tensor:
    with poisoned_allocations():
        return op(x)


def check(y: Tensor, x: Tensor, dim: int | None, dtype: torch.dtype | None = None, summed: int = 1) -> None:
    """Compare with the reference, whose differences and logarithms may cancel."""
    terms = log_softmax_terms(x, dim=dim, dtype=dtype)
    expected = log_softmax_fwd(x, dim=dim, dtype=dtype)
    assert_close(y, expected, dtype=dtype or x.dtype, summed=summed, terms=terms)


@pytest.mark.parametrize("shape", [(3, 4, 5), (0, 4, 5), (3, 0, 5), (1, 1, 1), (2, 3), (4,), (), (2, 3, 4, 5)], ids=str)
def test_axes_are_torchs(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """Every axis, good or wrong or implicit, gives torch's values and shape, or an error where torch raises one."""
    x = make(*shape, device=tileops_device)
    for dim in (None, 0, 1, 2, -1, -2, -3, 3, -4):
        op = LogSoftmaxFwdOp(dim)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch warns of the implicit axis
                expected = functional.log_softmax(x, dim)
        except IndexError:
            with pytest.raises(SignatureError):
                op(x)
            assert list(op.iter_kernels()) == []
            continue
        y = call(op, x)
        assert (y.shape, y.dtype, y.is_contiguous()) == (expected.shape, expected.dtype, True), dim
        check(y, x, dim, summed=5)


@pytest.mark.parametrize("n", [1, 2, 7, 33, 255, 257, 4096, 8193, 65536])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_rows_of_any_length(n: int, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Rows around the lengths that blocks and accesses have give the reference's values."""
    x = make(5, n, dtype=dtype, device=tileops_device)
    check(call(LogSoftmaxFwdOp(-1), x), x, -1, summed=n)


@pytest.mark.parametrize("inner", [2, 7, 256, 300])
@pytest.mark.parametrize("reduced", [1, 3, 17, 260])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_columns_of_any_shape(reduced: int, inner: int, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """An axis before others gives the reference's values, for narrow and wide slices."""
    x = make(3, reduced, inner, dtype=dtype, device=tileops_device)
    check(call(LogSoftmaxFwdOp(1), x), x, 1, summed=reduced)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_any_layout(dim: int, layout: Layout, tileops_device: torch.device) -> None:
    """Inputs of any layout give a contiguous result."""
    x = make(3, 4, 5, device=tileops_device, layout=layout)
    y = call(LogSoftmaxFwdOp(dim), x)
    check(y, x, dim, summed=5)
    assert y.stride() == (20, 5, 1)


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ([-INF, -INF], [NAN, NAN]),
        ([0.0, NAN, 1.0], [NAN, NAN, NAN]),
        ([0.0, INF], [NAN, NAN]),
        ([INF, -INF], [NAN, NAN]),
        ([0.0, -INF], [0.0, -INF]),
        ([-INF, -INF, 5.0], [-INF, -INF, 0.0]),
        ([3e38, -3e38], [0.0, -INF]),
    ],
    ids=str,
)
@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("fill", [0, 5000])
def test_bad_rows_are_torchs(
    row: list[float], expected: list[float], dim: int, fill: int, tileops_device: torch.device
) -> None:
    """Rows with NaN, plus infinity or nothing but minus infinity are NaN; minus infinity beside others stays."""
    for before, behind in ((0, fill), (fill, 0)):
        values = [-INF] * before + row + [-INF] * behind
        filling = NAN if math.isnan(expected[0]) else -INF
        x = torch.tensor([values, [0.0] * len(values)], device=tileops_device)
        y = call(LogSoftmaxFwdOp(dim), x.t() if dim == 0 else x)
        y = y.t() if dim == 0 else y
        exact = torch.tensor([*[filling] * before, *expected, *[filling] * behind], device=tileops_device)
        assert_identical(y[0], exact)
        assert_identical(functional.log_softmax(x[0], 0).cpu(), exact.cpu())
        even = torch.full((len(values),), -math.log(len(values)), dtype=torch.float64)
        assert_close(y[1], even, dtype=torch.float32)


@pytest.mark.parametrize("result", DTYPES, ids=str)
@pytest.mark.parametrize("source", DTYPES, ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_dtype_of_the_result(dim: int, source: torch.dtype, result: torch.dtype, tileops_device: torch.device) -> None:
    """The result has the dtype asked for, to which elements are converted first, as torch does."""
    x = make(40, 70, dtype=source, device=tileops_device)
    check(call(LogSoftmaxFwdOp(dim, dtype=result), x), x, dim, result, summed=70)
    beyond = torch.tensor([70000.0, 0.0], device=tileops_device)
    assert call(LogSoftmaxFwdOp(0, dtype=torch.float16), beyond).isnan().all()


def test_results_do_not_underflow(tileops_device: torch.device) -> None:
    """Elements far below the greatest keep their logarithms, where a softmax is zero."""
    x = torch.tensor([[0.0, -200.0, -30000.0]], device=tileops_device)
    assert call(LogSoftmaxFwdOp(1), x).tolist() == [[0.0, -200.0, -30000.0]]


def test_a_growing_axis_builds_nothing(tileops_device: torch.device) -> None:
    """Calls that differ in shape alone share one kernel, also where the axis grows from call to call."""
    op = LogSoftmaxFwdOp(-1)
    for length in (1, 2, 3, 64, 65, 1000):
        call(op, make(2, length, device=tileops_device))
    assert len(op.built_entries("softmax")) == 1


def test_what_is_refused(tileops_device: torch.device) -> None:
    """Integers, as torch's has no kernel for them, and parameters of other types are refused."""
    with pytest.raises(DTypeError) as failure:
        LogSoftmaxFwdOp(0)(torch.ones(2, dtype=torch.int64, device=tileops_device))
    assert str(failure.value) == (
        "LogSoftmaxFwdOp: x: expected dtype float16, bfloat16 or float32, received int64; "
        "convert x with .to(torch.float32)"
    )
    wrong: Any
    for wrong in ((0,), "0", True):
        with pytest.raises(ParameterTypeError, match=r"LogSoftmaxFwdOp: dim: expected int \| None, received "):
            LogSoftmaxFwdOp(wrong)


def test_record_and_cost(tileops_device: torch.device) -> None:
    """The record holds each tensor's shape and dtype; the cost is each byte moved once."""
    op = LogSoftmaxFwdOp(-1, dtype=torch.float32)
    call(op, make(3, 64, dtype=torch.float16, device=tileops_device))
    shapes = {name: (facts.shape, facts.dtype) for name, facts in op.last_call.tensors.items()}
    assert shapes == {"x": ((3, 64), torch.float16), "y": ((3, 64), torch.float32)}
    assert (op.eval_roofline().bytes, op.eval_roofline().flops) == (3 * 64 * 6, 5 * 3 * 64)
