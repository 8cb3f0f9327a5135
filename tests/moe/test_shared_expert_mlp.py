"""SharedExpertMLPFwdOp: against products in float64, any extents and layouts, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tileops.errors import DeviceError, DTypeError, ShapeError
from tileops.moe import SharedExpertMLPFwdOp
from tileops_testing.inputs import TensorInput, lay_out, poisoned_allocations
from tileops_testing.numerics import assert_close, assert_identical

pytestmark = pytest.mark.op("SharedExpertMLPFwdOp")

Tensors = tuple[Tensor, Tensor, Tensor]


def inputs(m: int, h: int, s: int, dtype: torch.dtype, device: torch.device) -> Tensors:
    """Rows, and weights small enough that hidden rows stay of the size of those."""
    x = TensorInput(shape=(m, h), dtype=dtype).make(0, device)
    w_gate_up = TensorInput(shape=(2 * s, h), dtype=dtype).make(1, device) / math.sqrt(max(h, 1))
    w_down = TensorInput(shape=(h, s), dtype=dtype).make(2, device) / math.sqrt(max(s, 1))
    return x, w_gate_up, w_down


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    ("m", "h", "s"), [(1, 40, 24), (3, 33, 17), (32, 64, 48), (70, 24, 40), (2, 1, 1), (1, 520, 300)]
)
def test_agrees_with_products_in_float64(
    m: int, h: int, s: int, dtype: torch.dtype, tileops_device: torch.device
) -> None:
    """Any number of rows and columns gives the products' values, the hidden ones rounded between them."""
    x, w_gate_up, w_down = inputs(m, h, s, dtype, tileops_device)
    with poisoned_allocations():
        output = SharedExpertMLPFwdOp()(x, w_gate_up, w_down)
    gate, up = x.double() @ w_gate_up[:s].double().T, x.double() @ w_gate_up[s:].double().T
    hidden = (gate / (1 + torch.exp(-gate)) * up).to(dtype).double()
    rounded_otherwise = torch.finfo(dtype).eps / torch.finfo(torch.float32).eps / 32
    terms = hidden.abs() @ w_down.double().abs().T * rounded_otherwise
    assert_close(output, hidden @ w_down.double().T, dtype=dtype, summed=max(h, s), terms=terms, roundings=2)


@pytest.mark.parametrize(("m", "h", "s"), [(0, 24, 16), (3, 0, 16), (3, 24, 0), (0, 0, 0)])
def test_without_rows_or_columns(m: int, h: int, s: int, tileops_device: torch.device) -> None:
    """Without elements the result is empty, without hidden columns it is zeros, and nothing is built."""
    op = SharedExpertMLPFwdOp()
    with poisoned_allocations():
        output = op(*inputs(m, h, s, torch.float16, tileops_device))
    assert torch.equal(output, torch.zeros(m, h, dtype=torch.float16, device=tileops_device))


def test_nan_stays_in_its_row(tileops_device: torch.device) -> None:
    """A row's NaN reaches no other row."""
    x, w_gate_up, w_down = inputs(5, 40, 24, torch.bfloat16, tileops_device)
    clean = SharedExpertMLPFwdOp()(x, w_gate_up, w_down)
    x[2, 3] = math.nan
    spoilt = SharedExpertMLPFwdOp()(x, w_gate_up, w_down)
    assert spoilt.isnan().all(-1).tolist() == [False, False, True, False, False]
    assert_identical(spoilt[[0, 1, 3, 4]], clean[[0, 1, 3, 4]])


def test_strided_inputs_are_read_where_they_lie(tileops_device: torch.device) -> None:
    """Transposed and sliced inputs give bit for bit what dense ones do, in a new contiguous tensor."""
    dense = inputs(3, 40, 24, torch.float16, tileops_device)
    given = lay_out(dense[0], "sliced"), lay_out(dense[1], "transposed"), lay_out(dense[2], "offset")
    output = SharedExpertMLPFwdOp()(*given)
    assert output.is_contiguous()
    assert_identical(output, SharedExpertMLPFwdOp()(*dense))


def test_cost(tileops_device: torch.device) -> None:
    """A call costs three products."""
    op = SharedExpertMLPFwdOp()
    op(*inputs(3, 40, 24, torch.float16, tileops_device))
    assert op.eval_roofline().flops == 6 * 3 * 40 * 24
    assert op.eval_roofline().bytes == 2 * (2 * 3 * 40 + 3 * 40 * 24)


def test_refuses_what_does_not_fit() -> None:
    """Each wrong argument is named with what was expected, before a kernel is built."""
    op = SharedExpertMLPFwdOp()
    x, w_gate_up, w_down = inputs(3, 40, 24, torch.float16, torch.device("cpu"))
    with pytest.raises(ShapeError, match=r"w_down: expected shape \[40, 24\].*received \[40, 23\]"):
        op(x, w_gate_up, w_down[:, :23])
    with pytest.raises(ShapeError, match="w_gate_up: "):
        op(x, w_gate_up[:47], w_down)
    with pytest.raises(DTypeError, match=r"w_down: expected dtype float16.*received bfloat16"):
        op(x, w_gate_up, w_down.bfloat16())
    with pytest.raises(DeviceError, match="w_down: expected device cpu, as hidden_states has, received device meta"):
        op(x, w_gate_up, w_down.to("meta"))
    assert list(op.iter_kernels()) == []
