"""FusedAddRMSNormFwdOp and FusedAddLayerNormFwdOp give the norm of a sum and the sum, and refuse other calls."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tileops.errors import ArgumentError, DeviceError, DTypeError, ParameterTypeError, ShapeError
from tileops.norm import FusedAddLayerNormFwdOp, FusedAddRMSNormFwdOp
from tileops_kernels.norm import LayerNormCall
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, lay_out, poisoned_allocations
from tileops_testing.numerics import assert_close, assert_identical

FusedOp = FusedAddRMSNormFwdOp | FusedAddLayerNormFwdOp
"""Either op; its tensors are what `inputs` gives."""

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
BOTH = [
    pytest.param(FusedAddRMSNormFwdOp, marks=pytest.mark.op("FusedAddRMSNormFwdOp"), id="rms"),
    pytest.param(FusedAddLayerNormFwdOp, marks=pytest.mark.op("FusedAddLayerNormFwdOp"), id="layer"),
]
both = pytest.mark.parametrize("op_class", BOTH)


def inputs(op_class: type[FusedOp], *shape: int, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Return x, residual and weight, and the bias that a LayerNorm has too."""
    shapes = [shape, shape, shape[-1:], shape[-1:]][: 3 if op_class is FusedAddRMSNormFwdOp else 4]
    return [TensorInput(shape=each, dtype=dtype).make(seed, device) for seed, each in enumerate(shapes)]


def call(op: FusedOp, tensors: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Call an op with the tensors of `inputs`."""
    run: Callable[..., tuple[Tensor, Tensor]] = op
    return run(*tensors)


def torch_norm(op: FusedOp, tensors: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return what torch gives for the sum in float64 on a CPU.

    An infinite element makes the scale zero there, as the definition says; torch's CUDA function makes the row NaN.
    """
    device, wide = tensors[0].device, [tensor.cpu().double() for tensor in tensors]
    total = wide[0] + wide[1]
    if isinstance(op, FusedAddRMSNormFwdOp):
        y = functional.rms_norm(total, total.shape[-1:], wide[2], op.eps)
    else:
        y = functional.layer_norm(total, total.shape[-1:], wide[2], wide[3], op.eps)
    return y.to(device), total.to(device)


@both
@pytest.mark.parametrize("n", [1, 7, 64, 300, 4095, 40000])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_agrees_with_torch(op_class: type[FusedOp], n: int, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Any dtype and row length gives torch's norm of the exact sum, and the sum, each rounded once."""
    tensors = inputs(op_class, 5, n, dtype=dtype, device=tileops_device)
    op = op_class()
    with poisoned_allocations():
        y, total = call(op, tensors)
    expected, exact = torch_norm(op, tensors)
    sizes = (expected.abs() + tensors[2].double().abs() + 1) if len(tensors) == 4 else expected.abs()
    assert_close(y, expected, dtype=dtype, summed=n, terms=sizes)
    assert_close(total, exact, dtype=dtype, what="residual_out")
    for result in (y, total):
        assert (result.shape, result.stride(), result.device) == ((5, n), (n, 1), tensors[0].device)


@pytest.mark.op("FusedAddLayerNormFwdOp")
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_the_sum_is_normalised_before_it_is_rounded(dtype: torch.dtype, tileops_device: torch.device) -> None:
    """What a residual adds below the last digit of x is lost in residual_out and kept in y."""
    x = torch.full((1, 64), 256.0, dtype=dtype, device=tileops_device)
    signs = torch.tensor([1.0, -1.0], dtype=dtype, device=tileops_device).repeat(1, 32)
    ones = torch.ones(64, dtype=dtype, device=tileops_device)
    y, total = FusedAddLayerNormFwdOp(eps=0.0)(x, signs / 16, ones, torch.zeros_like(ones))
    assert torch.equal(total, x)
    assert torch.equal(y, signs)


@both
def test_inputs_are_not_written(op_class: type[FusedOp], tileops_device: torch.device) -> None:
    """The op does not work in place: inputs keep their bits, and x may be its own residual."""
    tensors = inputs(op_class, 3, 64, dtype=torch.float16, device=tileops_device)
    before = [tensor.clone() for tensor in tensors]
    op = op_class()
    call(op, tensors)
    for tensor, kept in zip(tensors, before, strict=True):
        assert_identical(tensor, kept)
    _, total = call(op, [tensors[0], *tensors[:1], *tensors[2:]])
    assert_identical(total, 2 * tensors[0])
    assert op.last_call.written == ()


@both
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(op_class: type[FusedOp], layout: Layout, tileops_device: torch.device) -> None:
    """Equal elements give equal bits, however they lie in memory."""
    laid_out = [lay_out(each, layout) for each in inputs(op_class, 6, 320, dtype=torch.float16, device=tileops_device)]
    copies = [tensor.clone(memory_format=torch.contiguous_format) for tensor in laid_out]
    op = op_class()
    for strided, dense in zip(call(op, laid_out), call(op, copies), strict=True):
        assert_identical(strided, dense)


@both
@pytest.mark.parametrize("shape", [(64,), (1, 64), (2, 3, 64), (2, 1, 3, 64)], ids=str)
def test_batch_axes(op_class: type[FusedOp], shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """Any number of axes stands before the normalised one, none included."""
    tensors = inputs(op_class, *shape, dtype=torch.float32, device=tileops_device)
    op = op_class()
    y, total = call(op, tensors)
    rows, sums = call(op, [tensor.reshape(-1, 64) for tensor in tensors[:2]] + tensors[2:])
    assert_identical(y, rows.reshape(shape))
    assert_identical(total, sums.reshape(shape))


@both
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_and_infinity_stay_in_their_row(
    op_class: type[FusedOp], dtype: torch.dtype, tileops_device: torch.device
) -> None:
    """A NaN in x or residual makes its row of y NaN, an infinity as in torch, and neither changes another by a bit."""
    clean = inputs(op_class, 6, 300, dtype=dtype, device=tileops_device)
    spoilt = [tensor.clone() for tensor in clean]
    spoilt[0][1, 0], spoilt[1][2, 7], spoilt[0][4, 299] = math.nan, math.nan, math.inf
    op = op_class()
    (y, total), (right, sums) = call(op, spoilt), call(op, clean)
    expected, _ = torch_norm(op, spoilt)
    assert torch.equal(y.isnan(), expected.isnan())
    assert y[[1, 2]].isnan().all()
    assert_identical(y[[0, 3, 5]], right[[0, 3, 5]])
    assert_identical(total, spoilt[0] + spoilt[1])
    assert_identical(total[[0, 3, 5]], sums[[0, 3, 5]])


@both
def test_float16_sums_and_squares_do_not_overflow(op_class: type[FusedOp], tileops_device: torch.device) -> None:
    """A sum beyond float16 is infinite in residual_out alone, since what is normalised is the float32 sum."""
    x = torch.tensor([60000.0, -60000.0], dtype=torch.float16, device=tileops_device).repeat(2, 32)
    ones = torch.ones(64, dtype=torch.float16, device=tileops_device)
    y, total = call(op_class(), [x, x, ones, torch.zeros_like(ones)][: 3 + (op_class is FusedAddLayerNormFwdOp)])
    assert torch.equal(y, x.sign())
    assert torch.equal(total, x.sign() * math.inf)


@pytest.mark.op("FusedAddLayerNormFwdOp")
@pytest.mark.parametrize("n", [4, 300, 4096, 40000])
@pytest.mark.parametrize("offset", [30000.0, -1e6])
def test_large_means_cost_no_digits(offset: float, n: int, tileops_device: torch.device) -> None:
    """Sums whose mean is thousands of times their spread are normalised as if they were centred."""
    x = torch.tensor([0.0, 2.0, 4.0, 6.0], device=tileops_device).repeat(3, n // 4)
    expected = torch.tensor([-1.341639, -0.447213, 0.447213, 1.341639], device=tileops_device).repeat(3, n // 4)
    ones = torch.ones(n, device=tileops_device)
    y, _ = FusedAddLayerNormFwdOp()(x, torch.full_like(x, offset), ones, torch.zeros_like(ones))
    torch.testing.assert_close(y, expected, rtol=0, atol=4e-6)


@both
@pytest.mark.parametrize("eps", [1e-6, 0.25])
def test_eps(op_class: type[FusedOp], eps: float, tileops_device: torch.device) -> None:
    """Eps is added to the mean square, or the variance, of the sum."""
    x = torch.tensor([[0.5, -0.5]], device=tileops_device)
    ones = torch.ones(2, device=tileops_device)
    y, _ = call(op_class(eps=eps), [x, x, ones, torch.zeros_like(ones)][: 3 + (op_class is FusedAddLayerNormFwdOp)])
    assert_close(y, 2 / math.sqrt(1 + eps) * x.double(), dtype=torch.float32)


def test_default_eps() -> None:
    """The defaults are those of the sources: 1e-6 for RMSNorm and 1e-5 for LayerNorm."""
    assert (FusedAddRMSNormFwdOp().eps, FusedAddLayerNormFwdOp().eps) == (1e-6, 1e-5)


@both
@pytest.mark.parametrize("shape", [(0, 4096), (3, 0), (2, 0, 8)], ids=str)
def test_no_elements(op_class: type[FusedOp], shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """A call that writes no element gives two empty tensors and builds no kernel."""
    op = op_class()
    results = call(op, inputs(op_class, *shape, dtype=torch.float32, device=tileops_device))
    assert [result.shape for result in results] == [shape, shape]
    assert list(op.iter_kernels()) == []


@both
def test_row_count_does_not_build(op_class: type[FusedOp], tileops_device: torch.device) -> None:
    """Calls that differ in the number of rows share one kernel; another row length has its own."""
    op = op_class()
    for rows, n in ((1, 64), (2, 64), (17, 64), (3, 65)):
        call(op, inputs(op_class, rows, n, dtype=torch.float32, device=tileops_device))
    assert len(list(op.iter_kernels())) == 2


@both
def test_one_node_compiled_once(op_class: type[FusedOp], tileops_device: torch.device) -> None:
    """The op is one node of a compiled graph, which serves every number of rows with eager's bits."""
    torch.compiler.reset()
    op, backend = op_class(), RecordingBackend()
    compiled: Callable[..., tuple[Tensor, Tensor]] = torch.compile(op, fullgraph=True, dynamic=True, backend=backend)
    for rows in (3, 17, 100):
        tensors = inputs(op_class, rows, 64, dtype=torch.float16, device=tileops_device)
        for traced, eager in zip(compiled(*tensors), call(op, tensors), strict=True):
            assert_identical(traced, eager)
    assert [graph.names[:1] for graph in backend.graphs] == [op_class.compile_op_names]
    assert set(backend.graphs[0].names[1:]) == {"_operator.getitem"}


@both
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_cost(op_class: type[FusedOp], dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Both inputs are read and both results written once, and what all rows share is read once."""
    tensors = inputs(op_class, 3, 64, dtype=dtype, device=tileops_device)
    op = op_class()
    call(op, tensors)
    assert op.eval_roofline().bytes == (4 * 3 * 64 + (len(tensors) - 2) * 64) * dtype.itemsize


@pytest.fixture
def x(tileops_device: torch.device) -> Tensor:
    return torch.ones(3, 8, device=tileops_device)


@pytest.fixture
def ones(tileops_device: torch.device) -> Tensor:
    return torch.ones(8, device=tileops_device)


@pytest.mark.op("FusedAddRMSNormFwdOp")
def test_shape_of_residual_is_refused(x: Tensor, ones: Tensor) -> None:
    """A residual of another shape than x is refused, also one that would broadcast."""
    with pytest.raises(ShapeError) as failure:
        FusedAddRMSNormFwdOp()(x, x[:1], ones)
    assert str(failure.value) == (
        "FusedAddRMSNormFwdOp: residual: expected shape [3, 8] for B=(3,), N=8, received [1, 8]; "
        "pass residual of shape [3, 8]"
    )


@pytest.mark.op("FusedAddLayerNormFwdOp")
def test_shape_of_bias_is_refused(x: Tensor, ones: Tensor) -> None:
    """A bias of another shape than the last axis is refused, also one that would broadcast."""
    with pytest.raises(ShapeError) as failure:
        FusedAddLayerNormFwdOp()(x, x, ones, ones[:1])
    assert str(failure.value) == (
        "FusedAddLayerNormFwdOp: bias: expected shape [8] for N=8, received [1]; pass bias of shape [8]"
    )


@pytest.mark.op("FusedAddRMSNormFwdOp")
def test_x_without_axes_is_refused(ones: Tensor) -> None:
    """An x without a last axis is refused."""
    with pytest.raises(ShapeError) as failure:
        FusedAddRMSNormFwdOp()(ones[0], ones[0], ones)
    assert str(failure.value) == (
        "FusedAddRMSNormFwdOp: x: expected shape [*B, N], received []; pass x of shape [*B, N]"
    )


@pytest.mark.op("FusedAddRMSNormFwdOp")
def test_dtype_of_residual_is_refused(x: Tensor, ones: Tensor) -> None:
    """A residual of another dtype than x is refused, naming both."""
    with pytest.raises(DTypeError) as failure:
        FusedAddRMSNormFwdOp()(x, x.half(), ones)
    assert str(failure.value) == (
        "FusedAddRMSNormFwdOp: residual: expected dtype float32, as x has, received float16; "
        "convert residual with .to(torch.float32)"
    )


@both
@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.bool], ids=str)
def test_dtype_of_x_is_refused(op_class: type[FusedOp], x: Tensor, ones: Tensor, dtype: torch.dtype) -> None:
    """A dtype that the signature lacks is refused before any kernel is built."""
    op = op_class()
    with pytest.raises(DTypeError) as failure:
        call(op, [x.to(dtype), x, ones, ones][: 3 + (op_class is FusedAddLayerNormFwdOp)])
    assert str(failure.value) == (
        f"{op_class.__name__}: x: expected dtype float16, bfloat16 or float32, "
        f"received {str(dtype).removeprefix('torch.')}; convert x with .to(torch.float32)"
    )
    assert list(op.iter_kernels()) == []


@pytest.mark.op("FusedAddRMSNormFwdOp")
def test_residual_on_another_device_is_refused(x: Tensor, ones: Tensor) -> None:
    """A residual on another device than x is refused, naming both devices."""
    residual = x.cpu() if x.is_cuda else x.to("meta")
    with pytest.raises(DeviceError) as failure:
        FusedAddRMSNormFwdOp()(x, residual, ones)
    assert str(failure.value) == (
        f"FusedAddRMSNormFwdOp: residual: expected device {x.device}, as x has, received device {residual.device}; "
        + (f"move residual with .to('{x.device}')" if x.is_cuda else "make residual on cpu")
    )


@pytest.mark.op("FusedAddRMSNormFwdOp")
def test_missing_weight_is_refused(x: Tensor) -> None:
    """A call without a weight is refused, showing the arguments."""
    with pytest.raises(ArgumentError) as failure:
        FusedAddRMSNormFwdOp()(x, x)  # type: ignore[call-arg]
    assert str(failure.value) == (
        "FusedAddRMSNormFwdOp: weight: expected a tensor, received nothing; call it as op(x, residual, weight)"
    )


@both
@pytest.mark.parametrize("eps", [None, "1e-6", True])
def test_type_of_eps_is_refused(op_class: type[FusedOp], eps: object) -> None:
    """An eps that is no number is refused at construction."""
    with pytest.raises(ParameterTypeError) as failure:
        op_class(eps=eps)  # type: ignore[arg-type]
    assert str(failure.value) == f"{op_class.__name__}: eps: expected float, received {eps!r}; pass eps as float"


def test_calls_alike_state_one_call_spec() -> None:
    """A call spec is the last one where length and dtypes are its own, and says what the call is where they are not."""
    op = FusedAddLayerNormFwdOp(eps=1e-3)
    x, weight = torch.ones(2, 8).half(), torch.ones(8).half()
    first = op.row_call(x, weight)
    assert op.row_call(x[:1], weight.clone()) is first
    for rows, scale in (
        (x[:, :4], weight[:4]),
        (x, weight.float()),
        (x.float(), weight.float()),
        (x, None),
        (x, weight),
    ):
        call = op.row_call(rows, scale)
        other = None if scale is None or scale.dtype is rows.dtype else scale.dtype
        assert call == LayerNormCall(device=x.device, n=rows.shape[1], eps=1e-3, dtype=rows.dtype, weight_dtype=other)
        assert op.row_call(rows, scale) is call
