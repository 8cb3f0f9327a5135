"""Variances, standard deviations and means: torch's values, shapes, dtypes and refusals on a grid of edge cases."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tileops.errors import ArgumentError, DTypeError, ParameterTypeError, SignatureError
from tileops.op.base import Op
from tileops.reduction import StdFwdOp, VarFwdOp, VarMeanFwdOp
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, Values, poisoned_allocations
from tileops_testing.numerics import assert_close, assert_identical
from tileops_testing.references.reduction import mean_terms, var_mean_fwd

pytestmark = pytest.mark.op("VarFwdOp", "StdFwdOp", "VarMeanFwdOp")

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
INF, NAN = math.inf, math.nan
OPS: Mapping[str, tuple[Callable[..., Op], Callable[..., Any]]] = {
    "var": (VarFwdOp, torch.var),
    "std": (StdFwdOp, torch.std),
    "var_mean": (VarMeanFwdOp, torch.var_mean),
}


def make(
    *shape: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device,
    layout: Layout = "contiguous",
    values: Values = "normal",
) -> Tensor:
    return TensorInput(shape=shape, dtype=dtype, layout=layout, values=values).make(0, device)


def call(op: Op, x: Tensor) -> tuple[Tensor, ...]:
    """The results of a call, always as a tuple."""
    with poisoned_allocations():
        results = op(x)
    return results if isinstance(results, tuple) else (results,)


def torchs(function: Callable[..., Any], x: Tensor, **given: Any) -> tuple[Tensor, ...]:
    """Results of torch in float64, without its warning of corrections that leave nothing to divide by."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = function(x.double(), **given)
    return results if isinstance(results, tuple) else (results,)


def check(x: Tensor, dim: Any, summed: int, correction: float = 1.0) -> None:
    """Compare each op with the reference, whose means may cancel."""
    variance, mean = var_mean_fwd(x, dim=dim, correction=correction)
    given: Any = {"correction": correction}
    for op, expected in (
        (VarFwdOp(dim, **given), (variance,)),
        (StdFwdOp(dim, **given), (variance.sqrt(),)),
        (VarMeanFwdOp(dim, **given), (variance, mean)),
    ):
        for y, wanted, terms in zip(call(op, x), expected, (None, mean_terms(x, dim=dim)), strict=False):
            assert_close(y, wanted, dtype=x.dtype, summed=summed, terms=terms, what=f"{type(op).__name__} {dim}")


@pytest.mark.parametrize("shape", [(3, 4, 5), (0, 4, 5), (3, 0, 5), (3, 4, 0), (1, 1, 1), (4,), ()], ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", OPS)
def test_axes_are_torchs(name: str, keepdim: bool, shape: Sequence[int], tileops_device: torch.device) -> None:
    """Every way to name axes, good or wrong, gives torch's values and shapes, or an error where torch raises one."""
    cls, function = OPS[name]
    x = make(*shape, device=tileops_device)
    dims: tuple[Any, ...] = (None, 0, 1, -1, 2, -3, [0], [0, 2], (-1, 0), [1, 2], [0, 1, 2], [], ())
    wrong: tuple[Any, ...] = ([0, 0], [1, -2], 3, -4, [0, 3])
    for dim in (*dims, *wrong):
        op = cls(dim, keepdim=keepdim)
        try:
            expected = torchs(function, x, dim=dim, keepdim=keepdim)
        except (RuntimeError, IndexError):
            with pytest.raises(SignatureError):
                op(x)
            assert list(op.iter_kernels()) == [], dim
            continue
        for y, wanted in zip(call(op, x), expected, strict=True):
            assert (y.shape, y.dtype, y.is_contiguous()) == (wanted.shape, torch.float32, True), dim
            assert_close(y, wanted, dtype=torch.float32, summed=60, terms=torch.ones_like(wanted), what=str(dim))


@pytest.mark.parametrize("shape", [(7, 33), (3, 300), (5, 8193), (300, 17, 3), (1 << 16,), (40, 1025)], ids=str)
@pytest.mark.parametrize("values", ["normal", "large"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rows_and_columns(
    dtype: torch.dtype, values: Values, shape: Sequence[int], tileops_device: torch.device
) -> None:
    """Rows, columns and everything of any length give the reference's values, rounded once."""
    x = make(*shape, dtype=dtype, device=tileops_device, values=values)
    for dim in range(len(shape)):
        check(x, dim, shape[dim])
    check(x, None, x.numel())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [0, 1, 2, (0, 2)])
def test_any_layout(dim: int | tuple[int, ...], layout: Layout, tileops_device: torch.device) -> None:
    """Inputs of any layout are reduced alike, along axes that are neighbours and axes that are not."""
    check(make(40, 17, 3, device=tileops_device, layout=layout), dim, 120)


@pytest.mark.parametrize("correction", [0, 1, 2, 3, 5, 0.5, 1.5, -1, 2.999, INF, NAN])
@pytest.mark.parametrize("name", OPS)
def test_corrections_are_torchs(name: str, correction: float, tileops_device: torch.device) -> None:
    """Any number is taken from the count; what is not above zero divides as zero, and no warning says so."""
    cls, function = OPS[name]
    for row in ([1.0, 2.0, 4.0], [2.0, 2.0, 2.0]):
        for dim, x in ((1, torch.tensor([row] * 2)), (0, torch.tensor([row] * 2).t())):
            expected = torchs(function, x, dim=dim, correction=correction)
            for y, wanted in zip(call(cls(dim, correction=correction), x.to(tileops_device)), expected, strict=True):
                assert_close(y.cpu(), wanted, dtype=torch.float32, what=str(row))


def test_one_element(tileops_device: torch.device) -> None:
    """One element has the variance NaN unless nothing is taken from its count, then 0."""
    for x in (torch.tensor(2.0, device=tileops_device), torch.full((1, 3), 2.0, device=tileops_device)):
        assert call(VarFwdOp(0), x)[0].isnan().all()
        variance, mean = call(VarMeanFwdOp(0, correction=0), x)
        assert variance.eq(0).all()
        assert mean.eq(2).all()


@pytest.mark.parametrize("count", [1, 64, 5000])
def test_a_large_mean_costs_no_digits(count: int, tileops_device: torch.device) -> None:
    """Elements 30000, 30002, 30004 and 30006 have the variance 5 exactly, and the next floats above 30000 theirs."""
    row = 30000 + torch.tensor([0.0, 2.0, 4.0, 6.0], device=tileops_device).repeat(count)
    step = 2.0**-9
    near = 30000 + step * torch.tensor([0.0, 1.0, 1.0, 0.0], device=tileops_device).repeat(count)
    for x, variance, mean in ((row, 5.0, 30003.0), (near, step * step / 4, 30000.0)):
        for dim, shaped in ((0, x), (1, x.repeat(3, 1)), (0, x.repeat(5, 1).t()), ((0, 2), x.repeat(3, 2, 1))):
            got = call(VarMeanFwdOp(dim, correction=0), shaped)
            assert got[0].div(variance).sub(1).abs().max() < 1e-6
            assert got[1].sub(mean).abs().max() <= step
            assert call(StdFwdOp(dim, correction=0), shaped)[0].div(variance**0.5).sub(1).abs().max() < 1e-6


@pytest.mark.parametrize("shape", [(100_000,), (2000, 50), (50, 2000), (20, 100, 50)], ids=str)
def test_a_first_element_far_off(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """An element from which differences are formed may lie far from all others, or they from it, or both from zero."""
    for first, offset in ((0.0, 30000.0), (1e6, 0.0), (-3e4, 3e4)):
        x = make(*shape, device=tileops_device) + offset
        x[0] = first
        for dim in (*range(len(shape)), None):
            variance, _ = var_mean_fwd(x, dim=dim)
            assert_close(call(VarFwdOp(dim), x)[0], variance, dtype=torch.float32, summed=x.numel(), what=str(first))


def test_squares_do_not_overflow_half_precision(tileops_device: torch.device) -> None:
    """Squares beyond float16 have a variance or a root within it, and a variance beyond it is infinite, as torch's."""
    x = torch.tensor([[-300.0, 300.0] * 200, [-200.0, 200.0] * 200], dtype=torch.float16, device=tileops_device)
    assert call(StdFwdOp(1, correction=0), x)[0].tolist() == [300.0, 200.0]
    assert call(VarFwdOp(1, correction=0), x)[0].tolist() == [INF, 40000.0]
    assert call(VarMeanFwdOp(), torch.full((3, 70000), 60000.0, device=tileops_device).half())[1].item() == 60000.0


@pytest.mark.parametrize("place", [0, 1, 31, 32, 255, 4095])
@pytest.mark.parametrize("value", [NAN, INF, -INF])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_what_is_not_finite_stays_in_its_row(
    dtype: torch.dtype, value: float, place: int, tileops_device: torch.device
) -> None:
    """NaN or an infinity anywhere makes the variance of its row NaN, as torch does, and its mean not finite."""
    x = torch.ones(3, 4096, dtype=dtype, device=tileops_device)
    x[1, place] = value
    for op in (VarFwdOp, StdFwdOp, VarMeanFwdOp):
        rows, columns = call(op(1), x), call(op(0), x)
        assert_identical(rows[0].cpu(), torch.tensor([0.0, NAN, 0.0]).to(dtype))
        assert columns[0].isnan().nonzero().flatten().tolist() == [place]
        for mean in (*rows[1:], *columns[1:]):
            assert mean.isfinite().sum() == mean.numel() - 1
        assert call(op(), x)[0].isnan()


def test_inputs_are_not_written(tileops_device: torch.device) -> None:
    """A call leaves x as it is, and its two results share no memory."""
    x = make(6, 70, device=tileops_device)
    before = x.clone()
    variance, mean = call(VarMeanFwdOp(1), x)
    assert torch.equal(x, before)
    assert variance.untyped_storage().data_ptr() != mean.untyped_storage().data_ptr()


def test_shapes_and_corrections_share_one_entry(tileops_device: torch.device) -> None:
    """Calls that differ in shape alone share one kernel, and so do ops that differ in axes and correction."""
    op = VarFwdOp(-1)
    for shape in ((3, 4), (17, 100), (2, 3, 5), (1,), (), (4, 0)):
        call(op, make(*shape, device=tileops_device))
    assert len(op.built_entries("variance")) == 1
    mean = VarMeanFwdOp(-1, correction=2)
    call(mean, make(3, 4, device=tileops_device))
    assert len(mean.built_entries("var_mean")) == 1


def test_what_is_refused(tileops_device: torch.device) -> None:
    """Integers, as torch refuses them, parameters of other types, and corrections by place are refused."""
    for cls in (VarFwdOp, StdFwdOp, VarMeanFwdOp):
        name = cls.__name__
        with pytest.raises(DTypeError) as failure:
            cls()(torch.ones(2, 3, dtype=torch.int64, device=tileops_device))
        assert str(failure.value) == (
            f"{name}: x: expected dtype float16, bfloat16 or float32, received int64; convert x with .to(torch.float32)"
        )
        wrong: Any
        for wrong in (None, "1", True):
            with pytest.raises(ParameterTypeError, match=rf"^{name}: correction: expected float, received "):
                cls(correction=wrong)
        with pytest.raises(ArgumentError, match=rf"^{name}: too many positional arguments"):
            cls(0, 1)  # type: ignore[call-arg]


def test_record_and_cost(tileops_device: torch.device) -> None:
    """The record holds each tensor's shape and dtype; the cost is each byte moved once."""
    op = VarMeanFwdOp([0], keepdim=True)
    call(op, make(3, 64, dtype=torch.float16, device=tileops_device))
    shapes = {name: (facts.shape, facts.dtype) for name, facts in op.last_call.tensors.items()}
    assert shapes == {
        "x": ((3, 64), torch.float16),
        "variance": ((1, 64), torch.float16),
        "mean": ((1, 64), torch.float16),
    }
    assert (op.eval_roofline().bytes, op.eval_roofline().flops) == (5 * 64 * 2, 4 * 3 * 64)
