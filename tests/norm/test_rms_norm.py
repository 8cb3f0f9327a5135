"""RMSNormFwdOp computes what its reference says, for every dtype, layout, row length and parameter."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tileops.norm import RMSNormFwdOp
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, lay_out, poisoned_allocations
from tileops_testing.numerics import assert_close, assert_identical
from tileops_testing.references.norm import rms_norm_fwd

pytestmark = pytest.mark.op("RMSNormFwdOp")

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
LENGTHS = (1, 7, 64, 4095, 4096, 8192, 65536)


def make(*shape: int, dtype: torch.dtype, device: torch.device, layout: Layout = "contiguous", seed: int = 0) -> Tensor:
    return TensorInput(shape=shape, dtype=dtype, layout=layout).make(seed, device)


def call(op: RMSNormFwdOp, x: Tensor, weight: Tensor | None = None) -> Tensor:
    with poisoned_allocations():
        return op(x, weight)


@pytest.mark.parametrize("weighted", [True, False], ids=["weight", "no-weight"])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_agrees_with_the_reference(
    n: int, dtype: torch.dtype, layout: Layout, weighted: bool, tileops_device: torch.device
) -> None:
    """Any dtype, row length and layout of x and weight gives the reference's values in a contiguous tensor."""
    x = make(5, n, dtype=dtype, device=tileops_device, layout=layout)
    weight = make(n, dtype=dtype, device=tileops_device, layout=layout, seed=1) if weighted else None
    y = call(RMSNormFwdOp((n,)), x, weight)
    assert_close(y, rms_norm_fwd(x, weight, normalized_shape=(n,)), dtype=dtype, summed=n)
    assert (y.shape, y.stride(), y.device) == ((5, n), (n, 1), x.device)


@pytest.mark.parametrize("weighted", [True, False], ids=["weight", "no-weight"])
@pytest.mark.parametrize("n", [256, 4096, 5120, 8192, 16384])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_has_the_same_bits_among_others(
    n: int, dtype: torch.dtype, weighted: bool, tileops_device: torch.device
) -> None:
    """However few or many rows a call has, and whatever serves so many, each row's result is the same."""
    x = make(700, n, dtype=dtype, device=tileops_device)
    weight = make(n, dtype=dtype, device=tileops_device, seed=1) if weighted else None
    op = RMSNormFwdOp((n,))
    every = call(op, x, weight)
    for rows in (1, 3, 250):
        assert_identical(call(op, x[:rows], weight), every[:rows])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("n", [7, 4096])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_one_row(n: int, dtype: torch.dtype, layout: Layout, tileops_device: torch.device) -> None:
    """A single row, whose stride torch ignores, gives the reference's values and strides of its own."""
    x = make(1, n, dtype=dtype, device=tileops_device, layout=layout)
    weight = make(n, dtype=dtype, device=tileops_device, seed=1)
    y = call(RMSNormFwdOp((n,)), x, weight)
    assert_close(y, rms_norm_fwd(x, weight, normalized_shape=(n,)), dtype=dtype, summed=n)
    assert y.stride() == (n, 1)


@pytest.mark.parametrize("shape", [(0, 4096), (3, 0, 4096), (0,), (3, 0)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_no_elements(shape: tuple[int, ...], dtype: torch.dtype, tileops_device: torch.device) -> None:
    """A call that writes no element gives an empty tensor of x's shape and dtype, and builds no kernel."""
    op = RMSNormFwdOp(shape[-1:])
    y = op(torch.empty(shape, dtype=dtype, device=tileops_device))
    assert (y.shape, y.dtype, y.device.type) == (shape, dtype, tileops_device.type)
    assert list(op.iter_kernels()) == []
    assert op.last_call.tensors["y"].shape == shape


@pytest.mark.parametrize("batch", [(), (3,), (2, 3)])
@pytest.mark.parametrize("normalized_shape", [(16, 24), (3, 5)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_two_normalized_axes(
    batch: tuple[int, ...], normalized_shape: tuple[int, ...], dtype: torch.dtype, tileops_device: torch.device
) -> None:
    """The mean runs over both trailing axes, and weight has them both; the batch may have any number of axes."""
    x = make(*batch, *normalized_shape, dtype=dtype, device=tileops_device)
    weight = make(*normalized_shape, dtype=dtype, device=tileops_device, layout="transposed", seed=1)
    y = call(RMSNormFwdOp(normalized_shape), x, weight)
    expected = rms_norm_fwd(x, weight, normalized_shape=normalized_shape)
    assert_close(y, expected, dtype=dtype, summed=math.prod(normalized_shape))


@pytest.mark.parametrize(
    ("eps", "scale"), [(None, 1e-4 / math.sqrt(1e-8 + 2.0**-23)), (0, 1.0), (1e-6, 1e-4 / math.sqrt(1e-8 + 1e-6))]
)
def test_eps(eps: float | None, scale: float, tileops_device: torch.device) -> None:
    """Eps is added to the mean square; None is float32's machine epsilon, and 0 adds nothing."""
    x = torch.full((2, 64), 1e-4, device=tileops_device)
    y = call(RMSNormFwdOp((64,), eps=eps), x)
    assert_close(y, torch.full((2, 64), scale, dtype=torch.float64), dtype=torch.float32, summed=64)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_eps_none_is_float32_epsilon_for_half_dtypes(dtype: torch.dtype, tileops_device: torch.device) -> None:
    """With eps None a half-precision row uses float32's epsilon, not its own dtype's."""
    x = torch.full((2, 64), 2.0**-12, dtype=dtype, device=tileops_device)
    expected = torch.full((2, 64), 2.0**-12 / math.sqrt(2.0**-24 + 2.0**-23), dtype=torch.float64)
    assert_close(call(RMSNormFwdOp((64,)), x), expected, dtype=dtype, summed=64)


def test_zero_rows_of_values(tileops_device: torch.device) -> None:
    """A row of zeros gives zeros with a positive eps, and NaN with eps 0, as the formula does."""
    x = torch.zeros(2, 64, device=tileops_device)
    assert call(RMSNormFwdOp((64,)), x).eq(0).all()
    assert call(RMSNormFwdOp((64,), eps=0), x).isnan().all()


@pytest.mark.parametrize("magnitude", [300.0, 1e4, 65504.0])
def test_float16_squares_do_not_overflow(magnitude: float, tileops_device: torch.device) -> None:
    """Rows whose squares overflow float16 give ones: squares are summed in float32."""
    x = torch.full((3, 4096), magnitude, dtype=torch.float16, device=tileops_device)
    weight = torch.ones(4096, dtype=torch.float16, device=tileops_device)
    assert call(RMSNormFwdOp((4096,), eps=1e-6), x, weight).eq(1.0).all()


def test_random_float16_rows_of_ten_thousand(tileops_device: torch.device) -> None:
    """Random rows of about 1e4 in float16 give finite values that agree with the reference."""
    x = TensorInput(shape=(3, 4096), dtype=torch.float16, values="large").make(0, tileops_device)
    y = call(RMSNormFwdOp((4096,)), x)
    assert y.isfinite().all()
    assert_close(y, rms_norm_fwd(x, normalized_shape=(4096,)), dtype=torch.float16, summed=4096)


@pytest.mark.parametrize("n", [7, 4095, 4096])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_stays_in_its_row(n: int, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """One NaN anywhere in a row makes that whole row NaN and changes no other row by a bit."""
    clean = make(5, n, dtype=dtype, device=tileops_device)
    spoilt = clean.clone()
    spoilt[1, 0] = spoilt[3, n - 1] = math.nan
    op = RMSNormFwdOp((n,))
    y, expected = call(op, spoilt), call(op, clean)
    assert y[[1, 3]].isnan().all()
    assert_identical(y[[0, 2, 4]], expected[[0, 2, 4]])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_infinity_gives_zeros_and_nan(dtype: torch.dtype, tileops_device: torch.device) -> None:
    """An infinite element makes the scale zero: NaN where it stands, zero beside it, nothing elsewhere."""
    x = torch.ones(2, 64, dtype=dtype, device=tileops_device)
    x[0, 3] = math.inf
    y = call(RMSNormFwdOp((64,), eps=0), x)
    assert y[0, 3].isnan()
    assert y[0, [0, 2, 4, 63]].eq(0).all()
    assert y[1].eq(1).all()


def test_weight_is_read_on_every_call(tileops_device: torch.device) -> None:
    """Changing the weight in place changes the next result: nothing is kept of a tensor's values."""
    x = make(3, 64, dtype=torch.float32, device=tileops_device)
    weight = torch.ones(64, device=tileops_device)
    op = RMSNormFwdOp((64,))
    before = call(op, x, weight)
    weight.mul_(2)
    assert torch.equal(call(op, x, weight), 2 * before)


def test_inputs_are_not_written(tileops_device: torch.device) -> None:
    """A call leaves x and weight as they are and returns memory of its own."""
    x, weight = (make(*shape, dtype=torch.float16, device=tileops_device) for shape in ((3, 64), (64,)))
    before = x.clone(), weight.clone()
    y = call(RMSNormFwdOp((64,)), x, weight)
    assert torch.equal(x, before[0])
    assert torch.equal(weight, before[1])
    assert y.data_ptr() not in (x.data_ptr(), weight.data_ptr())


def test_row_count_does_not_build(tileops_device: torch.device) -> None:
    """Calls that differ in the number of rows share one kernel."""
    op = RMSNormFwdOp((64,))
    for rows in (1, 2, 3, 17, 100):
        call(op, make(rows, 64, dtype=torch.float32, device=tileops_device))
    assert len(list(op.iter_kernels())) == 1
    assert len(op.built_entries("rms_norm")) == 1


def test_layouts_agree_bit_for_bit(tileops_device: torch.device) -> None:
    """Equal elements give equal bits, however x lies in memory."""
    dense = make(6, 320, dtype=torch.float16, device=tileops_device)
    op = RMSNormFwdOp((320,))
    expected = call(op, dense)
    for layout in ("transposed", "sliced", "offset"):
        assert_identical(call(op, lay_out(dense, layout)), expected, what=layout)


def test_rounding_is_done_once(tileops_device: torch.device) -> None:
    """The product with the weight is rounded once: x/rms is not rounded to bfloat16 before it."""
    x = make(64, 256, dtype=torch.bfloat16, device=tileops_device)
    weight = make(256, dtype=torch.bfloat16, device=tileops_device, seed=1)
    exact = rms_norm_fwd(x, weight, normalized_shape=(256,))
    y = call(RMSNormFwdOp((256,)), x, weight)
    error = ((y.double() - exact) / exact.abs().clamp_min(1e-30)).abs().max()
    assert error <= 2.0**-8 * 1.001


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_record_and_cost(dtype: torch.dtype, tileops_device: torch.device) -> None:
    """The record holds each tensor's shape and dtype; the cost is each byte moved once."""
    op = RMSNormFwdOp((64,))
    call(op, make(3, 64, dtype=dtype, device=tileops_device), make(64, dtype=dtype, device=tileops_device))
    record = op.last_call
    shapes = {name: (facts.shape, facts.dtype) for name, facts in record.tensors.items()}
    assert shapes == {"x": ((3, 64), dtype), "weight": ((64,), dtype), "y": ((3, 64), dtype)}
    assert record.written == ()
    assert op.eval_roofline().bytes == (2 * 3 * 64 + 64) * dtype.itemsize
    assert op.eval_roofline().flops == 4 * 3 * 64 + 3 * 3
