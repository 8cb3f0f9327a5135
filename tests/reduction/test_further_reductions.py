"""Means, extremes and counts: torch's values, shapes, dtypes and refusals on a grid of edge cases."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tileops.errors import ArgumentError, DTypeError, ParameterError, RuleError, SignatureError
from tileops.op.base import Op
from tileops.reduction import AllFwdOp, AmaxFwdOp, AminFwdOp, AnyFwdOp, CountNonzeroFwdOp, MeanFwdOp, VectorNormFwdOp
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, lay_out, poisoned_allocations
from tileops_testing.numerics import assert_close, assert_identical
from tileops_testing.references.reduction import mean_fwd, vector_norm_fwd

pytestmark = pytest.mark.op(
    "MeanFwdOp", "AmaxFwdOp", "AminFwdOp", "AllFwdOp", "AnyFwdOp", "CountNonzeroFwdOp", "VectorNormFwdOp"
)

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
COMPLEXES = (torch.complex64, torch.complex128)
EXTREMES: Mapping[str, tuple[Callable[..., Op], Callable[..., Tensor]]] = {
    "amax": (AmaxFwdOp, torch.amax),
    "amin": (AminFwdOp, torch.amin),
}
COUNTS: Mapping[str, tuple[Callable[..., Op], Callable[..., Tensor]]] = {
    "all": (AllFwdOp, torch.all),
    "any": (AnyFwdOp, torch.any),
    "count_nonzero": (CountNonzeroFwdOp, torch.count_nonzero),
}
OPS: Mapping[str, tuple[Callable[..., Op], Callable[..., Tensor]]] = {
    "mean": (MeanFwdOp, torch.mean),
    **EXTREMES,
    **COUNTS,
}
DIMS: tuple[Any, ...] = (None, 0, 1, -1, 2, -3, [0], [0, 2], [-1, 0], [1, 2], [0, 1, 2], [])
WRONG_DIMS: tuple[Any, ...] = ([0, 0], [1, -2], 3, -4, [0, 3])
SHAPES = ((3, 4, 5), (0, 4, 5), (3, 0, 5), (3, 4, 0), (1, 1, 1))


def sparse(*shape: int, dtype: torch.dtype, device: torch.device, layout: Layout = "contiguous") -> Tensor:
    """A tensor of which about one element in three is zero, some rows are all zeros and some hold none."""
    x = TensorInput(shape=shape, dtype=torch.float32, layout=layout, values="normal").make(0, device)
    x = torch.where(x.abs() < 0.4, 0.0, x * 3).to(dtype)
    if x.dim() > 1 and x.shape[0] > 2:
        x[0], x[1] = 0, 1
    return x


def sparse_complex(*shape: int, dtype: torch.dtype, device: torch.device, layout: Layout = "contiguous") -> Tensor:
    """A tensor as `sparse` gives, of whose elements some have a real part alone and some an imaginary one alone."""
    real, imaginary = (sparse(*shape, dtype=torch.float32, device=device) for _ in range(2))
    if shape and shape[-1] > 1:
        imaginary = imaginary.roll(1, -1)
    return lay_out(torch.complex(real, imaginary).to(dtype), layout)


def call(op: Op, x: Tensor) -> Tensor:
    with poisoned_allocations():
        return op(x)  # type: ignore[no-any-return]


def arguments(name: str, dim: Any, keepdim: bool) -> dict[str, Any]:
    """The arguments of op and function alike: torch's extremes take no None, its others no keepdim alone."""
    given: dict[str, Any] = {} if name == "count_nonzero" else {"keepdim": keepdim}
    if dim is not None:
        return {"dim": dim, **given}
    return given if name in EXTREMES or not given else {"dim": None, **given}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", OPS)
def test_axes_are_torchs(name: str, keepdim: bool, shape: Sequence[int], tileops_device: torch.device) -> None:
    """Every way to name axes, good or wrong, gives torch's values and shape, or an error where torch raises one."""
    cls, function = OPS[name]
    x = sparse(*shape, dtype=torch.float32, device=tileops_device)
    for dim in (*DIMS, *WRONG_DIMS):
        given = arguments(name, dim, keepdim)
        op = cls(**given)
        try:
            expected = function(x, **given)
        except (RuntimeError, IndexError):
            with pytest.raises(SignatureError):
                op(x)
            assert list(op.iter_kernels()) == [], dim
            continue
        y = call(op, x)
        assert (y.shape, y.dtype, y.is_contiguous()) == (expected.shape, expected.dtype, True), dim
        if name == "mean":
            assert_close(y, expected.double(), dtype=torch.float32, summed=60, what=str(dim))
        else:
            assert_identical(y, expected, what=str(dim))


@pytest.mark.parametrize(
    ("shape", "layout"),
    [((7, 33), "contiguous"), ((5, 8193), "contiguous"), *(((40, 17, 3), layout) for layout in LAYOUTS)],
    ids=str,
)
@pytest.mark.parametrize("dtype", [*FLOATS, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64, torch.bool])
@pytest.mark.parametrize("name", EXTREMES)
def test_extremes_are_exact(
    name: str, dtype: torch.dtype, shape: Sequence[int], layout: Layout, tileops_device: torch.device
) -> None:
    """The greatest and least elements are torch's, for every dtype, length and layout."""
    cls, function = EXTREMES[name]
    x = sparse(*shape, dtype=dtype, device=tileops_device, layout=layout)
    for dim in (0, 1, tuple(range(len(shape)))):
        assert_identical(call(cls(dim), x), function(x, dim))


@pytest.mark.parametrize(
    ("shape", "layout"),
    [((7, 33), "contiguous"), ((5, 8193), "contiguous"), *(((40, 17, 3), layout) for layout in LAYOUTS)],
    ids=str,
)
@pytest.mark.parametrize("dtype", [*FLOATS, torch.bool, torch.int32, torch.int64])
@pytest.mark.parametrize("name", COUNTS)
def test_counts_are_exact(
    name: str, dtype: torch.dtype, shape: Sequence[int], layout: Layout, tileops_device: torch.device
) -> None:
    """What is not zero is counted as torch counts it, for every dtype, length and layout."""
    cls, function = COUNTS[name]
    x = sparse(*shape, dtype=dtype, device=tileops_device, layout=layout)
    for dim in (0, 1, tuple(range(len(shape)))):
        assert_identical(call(cls(dim), x), function(x, dim))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", COMPLEXES, ids=str)
@pytest.mark.parametrize("name", COUNTS)
def test_counts_of_complex_elements(
    name: str, dtype: torch.dtype, layout: Layout, tileops_device: torch.device
) -> None:
    """A complex element is zero where both of its parts are: torch's results for every axis, length and layout."""
    cls, function = COUNTS[name]
    for shape in ((7, 33), (5, 8193), (300, 17, 3), (3, 4, 5), (4, 0), (1 << 16,), ()):
        x = sparse_complex(*shape, dtype=dtype, device=tileops_device, layout=layout)
        for dim in (None, *range(len(shape)), [0, -1] if len(shape) > 1 else [0], []):
            expected = function(x, dim=dim)
            for given in (x, x.conj()):
                assert_identical(call(cls(dim), given), expected, what=f"{shape} {dim}")


@pytest.mark.parametrize("dtype", COMPLEXES, ids=str)
def test_parts_of_complex_elements(dtype: torch.dtype, tileops_device: torch.device) -> None:
    """NaN, infinities and denormal numbers in either part are not zero; zeros of any signs are."""
    facts = torch.finfo(dtype)
    parts = (math.nan, math.inf, -math.inf, facts.smallest_normal * facts.eps, -1.0)
    elements = [complex(*pair) for part in parts for pair in ((part, 0.0), (-0.0, part), (part, part))]
    zeros = [complex(first, second) for first in (0.0, -0.0) for second in (0.0, -0.0)]
    x = torch.tensor(elements, dtype=dtype, device=tileops_device)
    y = torch.tensor(zeros, dtype=dtype, device=tileops_device)
    assert call(AnyFwdOp([]), torch.cat((x, y))).tolist() == [True] * len(elements) + [False] * len(zeros)
    assert call(CountNonzeroFwdOp(), torch.cat((y, x))).item() == len(elements)
    assert (call(AllFwdOp(), x).item(), call(AnyFwdOp(), y).item()) == (True, False)


@pytest.mark.parametrize("shape", [(7, 33), (3, 300), (5, 8193), (300, 17, 3), (1 << 16,)], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_means(dtype: torch.dtype, shape: Sequence[int], tileops_device: torch.device) -> None:
    """Means along rows, columns and everything are summed in float32 and rounded once."""
    x = TensorInput(shape=tuple(shape), dtype=dtype, values="large").make(0, tileops_device)
    for dim in range(len(shape)):
        y = call(MeanFwdOp(dim), x)
        assert_close(y, mean_fwd(x, dim=dim), dtype=dtype, summed=shape[dim])
    assert_close(call(MeanFwdOp(), x), mean_fwd(x), dtype=dtype, summed=x.numel())


def test_dtype_of_a_mean(tileops_device: torch.device) -> None:
    """A mean of integers needs a floating-point dtype, as torch's does, and elements are converted to it first."""
    x = torch.arange(10, device=tileops_device).view(2, 5)
    for dtype in FLOATS:
        y = call(MeanFwdOp(1, dtype=dtype), x)
        assert (y.dtype, y.tolist()) == (dtype, [2.0, 7.0])
    assert call(MeanFwdOp(dtype=torch.float16), torch.tensor([70000.0, 1.0], device=tileops_device)).isinf()
    with pytest.raises(RuleError) as failure:
        MeanFwdOp()(x)
    assert str(failure.value) == (
        "MeanFwdOp: x: expected a dtype of floating point without dtype, received int64; "
        "convert x with .to(torch.float32), or pass dtype"
    )


def test_a_mean_past_float16_is_right(tileops_device: torch.device) -> None:
    """The sum behind a half-precision mean is not rounded: 100000 elements of 1000 have the mean 1000."""
    x = torch.full((2, 100_000), 1000.0, dtype=torch.float16, device=tileops_device)
    assert call(MeanFwdOp(1), x).tolist() == [1000.0, 1000.0]
    assert call(MeanFwdOp(), x).item() == 1000.0


@pytest.mark.parametrize("place", [0, 1, 31, 32, 255, 4095])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_nan_is_the_extreme(dtype: torch.dtype, place: int, tileops_device: torch.device) -> None:
    """NaN anywhere among the elements is their greatest and their least, and is not zero."""
    x = torch.zeros(3, 4096, dtype=dtype, device=tileops_device)
    x[1, place] = math.nan
    for op in (AmaxFwdOp(1), AminFwdOp(1), MeanFwdOp(1)):
        assert call(op, x).isnan().tolist() == [False, True, False]
    for op in (AmaxFwdOp(0), AminFwdOp(0), MeanFwdOp(0)):
        assert call(op, x).isnan().nonzero().flatten().tolist() == [place]
    assert call(AnyFwdOp(1), x).tolist() == [False, True, False]
    assert call(CountNonzeroFwdOp(1), x).tolist() == [0, 1, 0]
    assert call(AllFwdOp(0), x[1:2]).nonzero().flatten().tolist() == [place]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_infinities_are_elements(dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Rows of infinities have them as extremes and as means, and infinities of both signs have no mean."""
    x = torch.tensor([[-math.inf] * 5, [math.inf] * 5, [-math.inf, 0, 1, 2, math.inf]], device=tileops_device).to(dtype)
    assert call(AmaxFwdOp(1), x).tolist() == [-math.inf, math.inf, math.inf]
    assert call(AminFwdOp(1), x).tolist() == [-math.inf, math.inf, -math.inf]
    y = call(MeanFwdOp(1), x)
    assert (y[:2].tolist(), y[2].isnan().item()) == ([-math.inf, math.inf], True)


def test_extremes_of_integers(tileops_device: torch.device) -> None:
    """The least and greatest values of each dtype are found among others."""
    for dtype in (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64):
        facts = torch.iinfo(dtype)
        least, greatest = facts.min, facts.max
        rows = [[least] * 3, [greatest] * 3, [least, 0, greatest]]
        x = torch.tensor(rows, dtype=dtype, device=tileops_device)
        assert call(AmaxFwdOp(1), x).tolist() == [least, greatest, greatest]
        assert call(AminFwdOp(1), x).tolist() == [least, greatest, least]


def test_what_is_tiny_is_not_zero(tileops_device: torch.device) -> None:
    """Denormal numbers count, in every floating-point dtype, and zeros of both signs do not."""
    for dtype in FLOATS:
        tiny = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        x = torch.tensor([[tiny, -tiny], [0.0, -0.0]], dtype=dtype, device=tileops_device)
        assert call(CountNonzeroFwdOp(1), x).tolist() == [2, 0]
        assert call(AnyFwdOp(1), x).tolist() == [True, False]


def test_the_extreme_of_nothing_is_refused(tileops_device: torch.device) -> None:
    """An axis without elements has no greatest element; where no result asks for one, there is nothing to refuse."""
    empty = torch.empty(2, 0, device=tileops_device)
    with pytest.raises(RuleError) as failure:
        AmaxFwdOp(1)(empty)
    assert str(failure.value) == (
        "AmaxFwdOp: x: expected at least 1 element along dim=1, received shape [2, 0]; "
        "pass x with elements there, or another dim"
    )
    assert call(AmaxFwdOp(0), empty).shape == (0,)


@pytest.mark.parametrize("order", [1, 2, 1.0, 2.0, math.inf])
@pytest.mark.parametrize("keepdim", [False, True])
def test_norms_are_torchs(keepdim: bool, order: float, tileops_device: torch.device) -> None:
    """Every way to name axes, good or wrong, gives torch's norms and shapes, or an error where torch raises one."""
    for shape in SHAPES:
        x = sparse(*shape, dtype=torch.float32, device=tileops_device)
        for dim in (*DIMS, *WRONG_DIMS):
            op = VectorNormFwdOp(order, dim, keepdim)
            try:
                expected = torch.linalg.vector_norm(x.double(), order, dim, keepdim)
            except (RuntimeError, IndexError):
                with pytest.raises(SignatureError):
                    op(x)
                continue
            assert_close(call(op, x), expected, dtype=torch.float32, summed=60, what=f"{shape} {dim}")


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_norms_round_once(dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Half-precision vectors whose squares overflow have finite norms; NaN and infinities pass through."""
    x = TensorInput(shape=(4, 8193), dtype=dtype, values="large").make(0, tileops_device)
    for order in (1.0, 2.0, math.inf):
        for result in (dtype, torch.float32):
            y = call(VectorNormFwdOp(order, 0, dtype=result), x)
            assert_close(y, vector_norm_fwd(x, ord=order, dim=0), dtype=result, summed=4)
        y = call(VectorNormFwdOp(order, 1, dtype=torch.float32), x)
        assert_close(y, vector_norm_fwd(x, ord=order, dim=1), dtype=torch.float32, summed=8193)
        rows = torch.tensor([[1, math.nan, 2], [1, -math.inf, 2], [-math.inf, math.nan, 0]], device=tileops_device)
        y = call(VectorNormFwdOp(order, 1), rows.to(dtype))
        assert (y.isnan().tolist(), y[1].item()) == ([True, False, True], math.inf)


def test_norms_that_are_refused(tileops_device: torch.device) -> None:
    """An order that is none of the three is refused at construction, a narrower dtype by the call."""
    with pytest.raises(ParameterError) as refused:
        VectorNormFwdOp(3)
    assert str(refused.value) == ("VectorNormFwdOp: ord: expected 1, 2 or inf, received 3; pass one of these")
    with pytest.raises(RuleError) as failure:
        VectorNormFwdOp(dtype=torch.float16)(torch.ones(2, device=tileops_device))
    assert str(failure.value) == (
        "VectorNormFwdOp: dtype: expected float32 for T=float32 (the dtype of x), received float16; "
        "pass torch.float32, or leave dtype out"
    )


def test_dtypes_that_are_refused(tileops_device: torch.device) -> None:
    """A dtype that the signature lacks is refused before any kernel is built."""
    for op in (MeanFwdOp(), AmaxFwdOp(), AllFwdOp(), CountNonzeroFwdOp()):
        with pytest.raises(DTypeError, match=rf"^{type(op).__name__}: x: expected dtype float16, bfloat16, float32, "):
            op(torch.ones(2, dtype=torch.float64, device=tileops_device))
        assert list(op.iter_kernels()) == []
    with pytest.raises(ArgumentError, match="CountNonzeroFwdOp: keepdim: expected parameters"):
        CountNonzeroFwdOp(0, keepdim=True)  # type: ignore[call-arg]  # torch's has none either
