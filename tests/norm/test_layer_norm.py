"""LayerNormFwdOp computes what its reference says, with weight and bias each passed or not, and refuses the rest."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tileops.errors import DTypeError, ParameterError, ParameterTypeError, ShapeError
from tileops.norm import LayerNormFwdOp
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, lay_out, poisoned_allocations
from tileops_testing.numerics import assert_close, assert_identical
from tileops_testing.references.norm import layer_norm_fwd

pytestmark = pytest.mark.op("LayerNormFwdOp")

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def make(*shape: int, dtype: torch.dtype, device: torch.device, layout: Layout = "contiguous", seed: int = 0) -> Tensor:
    return TensorInput(shape=shape, dtype=dtype, layout=layout).make(seed, device)


def check(x: Tensor, normalized_shape: tuple[int, ...], **affine: Tensor) -> Tensor:
    """Call the op and compare with the reference; return what it gave."""
    with poisoned_allocations():
        y = LayerNormFwdOp(normalized_shape)(x, **affine)
    expected = layer_norm_fwd(x, affine.get("weight"), affine.get("bias"), normalized_shape=normalized_shape)
    sizes = layer_norm_fwd(x, normalized_shape=normalized_shape).abs() + 1
    if "weight" in affine:
        sizes = sizes * affine["weight"].abs()
    if "bias" in affine:
        sizes = sizes + affine["bias"].abs()
    assert_close(y, expected, dtype=x.dtype, summed=math.prod(normalized_shape), terms=sizes)
    return y


@pytest.mark.parametrize("affine", [(), ("weight",), ("bias",), ("weight", "bias")], ids="-".join)
@pytest.mark.parametrize("n", [1, 7, 31, 64, 300, 4095, 4096, 40000])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_agrees_with_the_reference(
    n: int, dtype: torch.dtype, affine: tuple[str, ...], tileops_device: torch.device
) -> None:
    """Any dtype and row length, with weight and bias each passed or not, gives the reference's values."""
    x = make(5, n, dtype=dtype, device=tileops_device)
    given = {name: make(n, dtype=dtype, device=tileops_device, seed=len(name)) for name in affine}
    y = check(x, (n,), **given)
    assert (y.shape, y.stride(), y.device) == ((5, n), (n, 1), x.device)


@pytest.mark.parametrize("affine", [(), ("weight",), ("bias",), ("weight", "bias")], ids="-".join)
@pytest.mark.parametrize("n", [256, 1032, 4096, 5120, 8192, 16384])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_row_has_the_same_bits_among_others(
    n: int, dtype: torch.dtype, affine: tuple[str, ...], tileops_device: torch.device
) -> None:
    """However few or many rows a call has, and whatever serves so many, each row's result is the same."""
    x = make(300, n, dtype=dtype, device=tileops_device) + 3
    given = {name: make(n, dtype=dtype, device=tileops_device, seed=len(name)) for name in affine}
    op = LayerNormFwdOp((n,))
    every = op(x, **given)
    for rows in (1, 3, 250):
        assert_identical(op(x[:rows], **given), every[:rows])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout: Layout, tileops_device: torch.device) -> None:
    """Equal elements of x, weight and bias give equal bits, however they lie in memory."""
    dense = [make(*shape, dtype=torch.float16, device=tileops_device) for shape in ((6, 320), (320,), (320,))]
    laid_out = [lay_out(tensor, layout) for tensor in dense]
    copies = [tensor.clone(memory_format=torch.contiguous_format) for tensor in laid_out]
    op = LayerNormFwdOp((320,))
    assert_identical(op(*laid_out), op(*copies))


def test_two_normalized_axes(tileops_device: torch.device) -> None:
    """Mean and variance run over both trailing axes, and weight and bias have them both."""
    x = make(2, 3, 16, 24, dtype=torch.float32, device=tileops_device)
    weight, bias = (make(16, 24, dtype=torch.float32, device=tileops_device, seed=seed) for seed in (1, 2))
    check(x, (16, 24), weight=weight, bias=bias)


@pytest.mark.parametrize("n", [4, 300, 4096, 40000])
@pytest.mark.parametrize("offset", [30000.0, -1e6])
def test_large_means_cost_no_digits(offset: float, n: int, tileops_device: torch.device) -> None:
    """Rows whose mean is thousands of times their spread are normalised as if they were centred."""
    x = torch.tensor([0.0, 2.0, 4.0, 6.0], device=tileops_device).repeat(3, n // 4)
    expected = torch.tensor([-1.341639, -0.447213, 0.447213, 1.341639], device=tileops_device).repeat(3, n // 4)
    y = LayerNormFwdOp((n,))(x + offset)
    torch.testing.assert_close(y, expected, rtol=0, atol=4e-6)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_and_infinity_stay_in_their_row(dtype: torch.dtype, tileops_device: torch.device) -> None:
    """A NaN or an infinity makes its row NaN and changes no other row by a bit."""
    clean = make(5, 300, dtype=dtype, device=tileops_device)
    spoilt = clean.clone()
    spoilt[1, 0], spoilt[3, 299] = math.nan, math.inf
    op = LayerNormFwdOp((300,))
    y, expected = op(spoilt), op(clean)
    assert y[[1, 3]].isnan().all()
    assert_identical(y[[0, 2, 4]], expected[[0, 2, 4]])


def test_float16_squares_do_not_overflow(tileops_device: torch.device) -> None:
    """Deviations whose squares overflow float16 give finite values."""
    x = torch.tensor([60000.0, -60000.0], dtype=torch.float16, device=tileops_device).repeat(2, 32)
    assert torch.equal(LayerNormFwdOp((64,))(x), x.sign())


def test_constant_rows_give_the_bias(tileops_device: torch.device) -> None:
    """Rows without spread give the bias exactly, zero without one."""
    x = torch.full((2, 300), 3.7, device=tileops_device)
    bias = make(300, dtype=torch.float32, device=tileops_device)
    assert LayerNormFwdOp((300,))(x).abs().max() <= 1e-4
    torch.testing.assert_close(LayerNormFwdOp((300,))(x, bias=bias), bias.expand(2, 300), rtol=0, atol=1e-4)


@pytest.mark.parametrize("eps", [1e-5, 0.25])
def test_eps(eps: float, tileops_device: torch.device) -> None:
    """Eps is added to the variance."""
    x = torch.tensor([[1.0, -1.0]], device=tileops_device)
    scale = 1 / math.sqrt(1 + eps)
    assert_close(LayerNormFwdOp((2,), eps=eps)(x), scale * x.double(), dtype=torch.float32)


@pytest.mark.parametrize("shape", [(0, 4096), (3, 0)], ids=str)
def test_no_elements(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """A call that writes no element gives an empty tensor and builds no kernel."""
    op = LayerNormFwdOp(shape[-1:])
    assert op(torch.empty(shape, device=tileops_device)).shape == shape
    assert list(op.iter_kernels()) == []


def test_row_count_does_not_build(tileops_device: torch.device) -> None:
    """Calls that differ in the number of rows share one kernel."""
    op = LayerNormFwdOp((64,))
    for rows in (1, 2, 17):
        op(make(rows, 64, dtype=torch.float32, device=tileops_device))
    assert len(list(op.iter_kernels())) == 1


def test_one_node_compiled_once(tileops_device: torch.device) -> None:
    """The op is one node of a compiled graph, which serves every number of rows with eager's bits."""
    torch.compiler.reset()
    op, backend = LayerNormFwdOp((64,)), RecordingBackend()
    bias = make(64, dtype=torch.float16, device=tileops_device)
    compiled = torch.compile(op, fullgraph=True, dynamic=True, backend=backend)
    for rows in (3, 17, 100):
        x = make(rows, 64, dtype=torch.float16, device=tileops_device)
        assert_identical(compiled(x, None, bias), op(x, bias=bias))
    assert [graph.names for graph in backend.graphs] == [("tileops::norm_layer_norm_fwd",)]


def test_dtype_of_bias_is_refused(tileops_device: torch.device) -> None:
    """A bias of another dtype than x is refused, naming both."""
    with pytest.raises(DTypeError) as failure:
        LayerNormFwdOp((8,))(torch.ones(3, 8, device=tileops_device), bias=torch.ones(8, device=tileops_device).half())
    assert str(failure.value) == (
        "LayerNormFwdOp: dtypes: expected (x=float16, bias=float16), (x=bfloat16, bias=bfloat16), "
        "(x=float32, bias=float32), (x=float16, bias=float32) or (x=bfloat16, bias=float32), "
        "received (x=float32, bias=float16); convert the inputs to one of these rows"
    )


def test_shape_of_weight_is_refused(tileops_device: torch.device) -> None:
    """A weight of another shape than the normalized one is refused, also one that would broadcast."""
    with pytest.raises(ShapeError) as failure:
        LayerNormFwdOp((8,))(torch.ones(3, 8, device=tileops_device), torch.ones(1, device=tileops_device))
    assert str(failure.value) == (
        "LayerNormFwdOp: weight: expected shape [8] for normalized_shape=(8,), received [1]; pass weight of shape [8]"
    )


def test_parameters_are_refused() -> None:
    """An empty normalized shape and an eps of None, which torch refuses too, are refused at construction."""
    with pytest.raises(ParameterError) as empty:
        LayerNormFwdOp(())
    with pytest.raises(ParameterTypeError) as absent:
        LayerNormFwdOp((8,), eps=None)  # type: ignore[arg-type]
    assert str(empty.value) == (
        "LayerNormFwdOp: normalized_shape: expected at least 1 element, received (); "
        "pass normalized_shape of at least 1 element"
    )
    assert str(absent.value) == "LayerNormFwdOp: eps: expected float, received None; pass eps as float"
