"""AdaLayerNormFwdOp and AdaLayerNormZeroFwdOp scale, shift and gate each row by its own, and refuse other calls."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tileops.errors import ArgumentError, DTypeError, ParameterTypeError, ShapeError
from tileops.norm import AdaLayerNormFwdOp, AdaLayerNormZeroFwdOp
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, lay_out, poisoned_allocations
from tileops_testing.numerics import assert_close, assert_identical

AdaOp = AdaLayerNormFwdOp | AdaLayerNormZeroFwdOp
"""Either op; its tensors are what `inputs` gives."""

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
BOTH = [
    pytest.param(AdaLayerNormFwdOp, marks=pytest.mark.op("AdaLayerNormFwdOp"), id="ada"),
    pytest.param(AdaLayerNormZeroFwdOp, marks=pytest.mark.op("AdaLayerNormZeroFwdOp"), id="zero"),
]
both = pytest.mark.parametrize("op_class", BOTH)


def inputs(op_class: type[AdaOp], *shape: int, dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Return x, scale and shift, and the gate that AdaLayerNormZero has too."""
    count = 3 if op_class is AdaLayerNormFwdOp else 4
    return [TensorInput(shape=shape, dtype=dtype).make(seed, device) for seed in range(count)]


def call(op: AdaOp, tensors: list[Tensor]) -> Tensor:
    """Call an op with the tensors of `inputs`."""
    run: Callable[..., Tensor] = op
    return run(*tensors)


def torch_norm(op: AdaOp, tensors: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Return what torch gives in float64, and what the terms behind each element add up to."""
    x, scale, shift, *gate = (tensor.double() for tensor in tensors)
    normed = functional.layer_norm(x, x.shape[-1:], eps=op.eps)
    y, sizes = scale * normed + shift, scale.abs() * (normed.abs() + 1) + shift.abs()
    return (gate[0] * y, gate[0].abs() * sizes) if gate else (y, sizes)


@both
@pytest.mark.parametrize("n", [1, 7, 64, 300, 1152, 4095, 40000])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_agrees_with_torch(op_class: type[AdaOp], n: int, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Any dtype and row length gives torch's values in float64, rounded once."""
    tensors = inputs(op_class, 5, n, dtype=dtype, device=tileops_device)
    op = op_class()
    with poisoned_allocations():
        y = call(op, tensors)
    expected, sizes = torch_norm(op, tensors)
    assert_close(y, expected, dtype=dtype, summed=n, terms=sizes)
    assert (y.shape, y.stride(), y.device) == ((5, n), (n, 1), tensors[0].device)


@both
def test_each_row_has_its_own_scale(op_class: type[AdaOp], tileops_device: torch.device) -> None:
    """Scale, shift and gate of one row change that row alone, also where many threads share the rows."""
    tensors = inputs(op_class, 300, 64, dtype=torch.float32, device=tileops_device)
    op = op_class()
    before = call(op, tensors)
    for parameter in tensors[1:]:
        changed = parameter.clone()
        changed[217] += 1
        after = call(op, [changed if tensor is parameter else tensor for tensor in tensors])
        assert (after != before).any(dim=1).nonzero().flatten().tolist() == [217]


@both
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(op_class: type[AdaOp], layout: Layout, tileops_device: torch.device) -> None:
    """Equal elements give equal bits, however they lie in memory."""
    laid_out = [lay_out(each, layout) for each in inputs(op_class, 6, 320, dtype=torch.float16, device=tileops_device)]
    copies = [tensor.clone(memory_format=torch.contiguous_format) for tensor in laid_out]
    op = op_class()
    assert_identical(call(op, laid_out), call(op, copies))


@both
def test_parameters_of_a_batch_entry(op_class: type[AdaOp], tileops_device: torch.device) -> None:
    """What is one row for each batch entry is passed expanded over its tokens."""
    x, *rest = inputs(op_class, 2, 5, 64, dtype=torch.float32, device=tileops_device)
    expanded = [tensor[:, :1].expand(2, 5, 64) for tensor in rest]
    op = op_class()
    assert_identical(call(op, [x, *expanded]), call(op, [x, *(tensor.contiguous() for tensor in expanded)]))


@both
@pytest.mark.parametrize("shape", [(64,), (1, 64), (2, 3, 64), (2, 1, 3, 64)], ids=str)
def test_batch_axes(op_class: type[AdaOp], shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """Any number of axes stands before the normalised one, none included."""
    tensors = inputs(op_class, *shape, dtype=torch.float32, device=tileops_device)
    op = op_class()
    rows = call(op, [tensor.reshape(-1, 64) for tensor in tensors])
    assert_identical(call(op, tensors), rows.reshape(shape))


@both
@pytest.mark.parametrize("n", [4, 300, 4096, 40000])
@pytest.mark.parametrize("offset", [30000.0, -1e6])
def test_large_means_cost_no_digits(op_class: type[AdaOp], offset: float, n: int, tileops_device: torch.device) -> None:
    """Rows whose mean is thousands of times their spread are normalised as if they were centred."""
    x = torch.tensor([0.0, 2.0, 4.0, 6.0], device=tileops_device).repeat(3, n // 4)
    expected = torch.tensor([-1.341639, -0.447213, 0.447213, 1.341639], device=tileops_device).repeat(3, n // 4)
    ones = torch.ones_like(x)
    tensors = [x + offset, ones, torch.zeros_like(x), ones][: 3 + (op_class is AdaLayerNormZeroFwdOp)]
    torch.testing.assert_close(call(op_class(), tensors), expected, rtol=0, atol=4e-6)


@both
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_and_infinity_stay_in_their_row(
    op_class: type[AdaOp], dtype: torch.dtype, tileops_device: torch.device
) -> None:
    """A NaN or an infinity in x makes its row NaN, one in a parameter its element, and no other changes by a bit."""
    clean = inputs(op_class, 5, 300, dtype=dtype, device=tileops_device)
    spoilt = [tensor.clone() for tensor in clean]
    spoilt[0][1, 0], spoilt[0][3, 299], spoilt[1][2, 7] = math.nan, math.inf, math.nan
    op = op_class()
    y, expected = call(op, spoilt), call(op, clean)
    assert y[[1, 3]].isnan().all()
    assert y[2].isnan().nonzero().flatten().tolist() == [7]
    assert_identical(y[[0, 4]], expected[[0, 4]])


@both
def test_float16_products_do_not_overflow_on_the_way(op_class: type[AdaOp], tileops_device: torch.device) -> None:
    """Deviations whose squares overflow float16 give finite values, and a large scale times a small gate too."""
    x = torch.tensor([60000.0, -60000.0], dtype=torch.float16, device=tileops_device).repeat(2, 32)
    scale, gate = torch.full_like(x, 2.0), torch.full_like(x, 0.5)
    if op_class is AdaLayerNormZeroFwdOp:
        tensors = [x, torch.full_like(x, 65504.0), torch.full_like(x, 0.0), torch.full_like(x, 2.0**-15)]
        expected = x.sign() * (65504.0 * 2.0**-15)
    else:
        tensors, expected = [x, scale, gate], x.sign() * 2 + 0.5
    assert torch.equal(call(op_class(), tensors), expected)


@both
@pytest.mark.parametrize("eps", [1e-5, 0.25])
def test_eps(op_class: type[AdaOp], eps: float, tileops_device: torch.device) -> None:
    """Eps is added to the variance."""
    x = torch.tensor([[1.0, -1.0]], device=tileops_device)
    ones = torch.ones_like(x)
    tensors = [x, ones, torch.zeros_like(x), ones][: 3 + (op_class is AdaLayerNormZeroFwdOp)]
    assert_close(call(op_class(eps=eps), tensors), x.double() / math.sqrt(1 + eps), dtype=torch.float32)


@both
@pytest.mark.parametrize("shape", [(0, 1152), (3, 0), (2, 0, 8)], ids=str)
def test_no_elements(op_class: type[AdaOp], shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """A call that writes no element gives an empty tensor and builds no kernel."""
    op = op_class()
    assert call(op, inputs(op_class, *shape, dtype=torch.float32, device=tileops_device)).shape == shape
    assert list(op.iter_kernels()) == []


@both
def test_row_count_does_not_build(op_class: type[AdaOp], tileops_device: torch.device) -> None:
    """Calls that differ in the number of rows share one kernel; another row length has its own."""
    op = op_class()
    for rows, n in ((1, 64), (2, 64), (17, 64), (3, 65)):
        call(op, inputs(op_class, rows, n, dtype=torch.float32, device=tileops_device))
    assert len(list(op.iter_kernels())) == 2


@both
def test_one_node_compiled_once(op_class: type[AdaOp], tileops_device: torch.device) -> None:
    """The op is one node of a compiled graph, which serves every number of rows with eager's bits."""
    torch.compiler.reset()
    op, backend = op_class(), RecordingBackend()
    compiled: Callable[..., Tensor] = torch.compile(op, fullgraph=True, dynamic=True, backend=backend)
    for rows in (3, 17, 100):
        tensors = inputs(op_class, rows, 64, dtype=torch.float16, device=tileops_device)
        assert_identical(compiled(*tensors), call(op, tensors))
    assert [graph.names for graph in backend.graphs] == [op_class.compile_op_names]


@both
def test_cost(op_class: type[AdaOp], tileops_device: torch.device) -> None:
    """Each input is read once and the result written once."""
    tensors = inputs(op_class, 3, 64, dtype=torch.float16, device=tileops_device)
    op = op_class()
    call(op, tensors)
    assert op.eval_roofline().bytes == (len(tensors) + 1) * 3 * 64 * 2


@both
@pytest.mark.parametrize("shape", [(1, 8), (8,), (3, 1)], ids=str)
def test_shape_of_scale_is_refused(op_class: type[AdaOp], shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """A scale of another shape than x is refused, also one that would broadcast."""
    x = torch.ones(3, 8, device=tileops_device)
    scale = torch.ones(shape, device=tileops_device)
    with pytest.raises(ShapeError) as failure:
        call(op_class(), [x, scale, x, x][: 3 + (op_class is AdaLayerNormZeroFwdOp)])
    assert str(failure.value) == (
        f"{op_class.__name__}: scale: expected shape [3, 8] for B=(3,), N=8, received {list(shape)}; "
        "pass scale of shape [3, 8]"
    )


@both
def test_dtype_of_shift_is_refused(op_class: type[AdaOp], tileops_device: torch.device) -> None:
    """A shift of another dtype than x is refused, naming both."""
    x = torch.ones(3, 8, dtype=torch.float16, device=tileops_device)
    with pytest.raises(DTypeError) as failure:
        call(op_class(), [x, x, x.float(), x][: 3 + (op_class is AdaLayerNormZeroFwdOp)])
    assert str(failure.value) == (
        f"{op_class.__name__}: shift: expected dtype float16, as x has, received float32; "
        "convert shift with .to(torch.float16)"
    )


@pytest.mark.op("AdaLayerNormZeroFwdOp")
def test_missing_gate_is_refused(tileops_device: torch.device) -> None:
    """AdaLayerNormZero without a gate is refused, showing the arguments."""
    x = torch.ones(3, 8, device=tileops_device)
    with pytest.raises(ArgumentError) as failure:
        AdaLayerNormZeroFwdOp()(x, x, x)  # type: ignore[call-arg]
    assert str(failure.value) == (
        "AdaLayerNormZeroFwdOp: gate: expected a tensor, received nothing; call it as op(x, scale, shift, gate)"
    )


@both
@pytest.mark.parametrize("eps", [None, "1e-5", True])
def test_type_of_eps_is_refused(op_class: type[AdaOp], eps: object) -> None:
    """An eps that is no number is refused at construction."""
    with pytest.raises(ParameterTypeError) as failure:
        op_class(eps=eps)  # type: ignore[arg-type]
    assert str(failure.value) == f"{op_class.__name__}: eps: expected float, received {eps!r}; pass eps as float"
