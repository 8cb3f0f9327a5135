"""MoEExpertMLPFwdOp: two grouped products under their stages, eager and compiled."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tileops.errors import DeviceError, DTypeError, LayoutError, ShapeError
from tileops.moe import ContiguousLayout, ContiguousMetadata, MaskedLayout, MoEExpertMLPFwdOp
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import TensorInput
from tileops_testing.numerics import assert_close, assert_identical
from tileops_testing.references.moe import REFERENCES

pytestmark = pytest.mark.op("MoEExpertMLPFwdOp")

ENDS = ContiguousLayout(metadata_kind=ContiguousMetadata.PHYSICAL_PSUM)


def inputs(device: torch.device) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    shapes = (11, 24), (3, 32, 24), (3, 24, 16)
    tensors = [TensorInput(shape=shape, dtype=torch.bfloat16).make(seed, device) for seed, shape in enumerate(shapes)]
    return tensors[0], tensors[1], tensors[2], torch.tensor([4, 4, 11], dtype=torch.int32, device=device)


def test_stages_are_recorded(tileops_device: torch.device) -> None:
    """A call's record files one grouped product under each stage, and its cost is theirs."""
    op = MoEExpertMLPFwdOp(ENDS)
    output = op(*inputs(tileops_device))
    assert output.shape == (11, 24)
    assert {stage: len(calls) for stage, calls in op.last_call.stages.items()} == {"gate_up": 1, "down": 1}
    assert op.eval_roofline().flops == 6 * 24 * 16 * 11
    assert len(list(op.iter_kernels())) == 2
    assert MoEExpertMLPFwdOp.compile_op_names == ()


def test_out_is_returned(tileops_device: torch.device) -> None:
    """The caller's buffer is the object returned, and holds what a new tensor would."""
    op, arguments = MoEExpertMLPFwdOp(ENDS, "gelu_and_mul"), inputs(tileops_device)
    out = torch.empty(11, 24, dtype=torch.bfloat16, device=tileops_device)
    assert op(*arguments, out=out) is out
    assert_identical(out, op(*arguments))


def test_agrees_with_the_reference_where_an_expert_has_all_rows(tileops_device: torch.device) -> None:
    """Experts without rows change nothing, and no row is left out."""
    x, w_gate_up, w_down, _ = inputs(tileops_device)
    ends = torch.tensor([0, 11, 11], dtype=torch.int32, device=tileops_device)
    tensors = x, w_gate_up, w_down, ends
    expected = REFERENCES["MoEExpertMLPFwdOp"].expected(tensors, {"layout": ENDS, "activation": "silu_and_mul"})
    (value,), (terms,) = expected.values, expected.terms
    assert value is not None
    output = MoEExpertMLPFwdOp(ENDS)(*tensors)
    assert_close(output, value, dtype=torch.bfloat16, summed=24, terms=terms, roundings=2)


@pytest.mark.parametrize(("rows", "experts", "hidden"), [(0, 3, 16), (0, 0, 16), (11, 0, 16), (11, 3, 0)])
def test_without_rows_experts_or_hidden_columns(
    rows: int, experts: int, hidden: int, tileops_device: torch.device
) -> None:
    """Without rows the result is empty; without experts or hidden columns it is zeros."""
    x = torch.ones(rows, 24, dtype=torch.bfloat16, device=tileops_device)
    w_gate_up, w_down = x.new_ones(experts, 2 * hidden, 24), x.new_ones(experts, 24, hidden)
    ends = torch.full((experts,), rows, dtype=torch.int32, device=tileops_device)
    assert torch.equal(MoEExpertMLPFwdOp(ENDS)(x, w_gate_up, w_down, ends), torch.zeros_like(x))


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        (torch.empty(11, 16).bfloat16(), ShapeError, r"expected shape \[11, 24\] of output, received \[11, 16\]"),
        (torch.empty(11, 24), DTypeError, r"expected dtype bfloat16, as expert_input has, received float32"),
        (torch.empty(11, 24, device="meta").bfloat16(), DeviceError, r"expected device cpu, received device meta"),
        (torch.empty(24, 11).bfloat16().t(), LayoutError, r"expected a contiguous tensor, received strides \[1, 11\]"),
    ],
)
def test_refuses_other_buffers(out: Tensor, error: type[Exception], message: str) -> None:
    """The composite's own signature refuses a wrong buffer before any stage runs."""
    op = MoEExpertMLPFwdOp(ENDS)
    with pytest.raises(error, match=f"MoEExpertMLPFwdOp: out: {message}"):
        op(*inputs(torch.device("cpu")), out=out)
    assert list(op.iter_kernels()) == []


@pytest.mark.parametrize("name", ["expert_input", "w_gate_up", "w_down", "layout_metadata"])
def test_refuses_a_buffer_within_an_input(name: str, tileops_device: torch.device) -> None:
    """A buffer that shares memory with anything that a call reads is refused before any stage runs."""
    names = "expert_input", "w_gate_up", "w_down", "layout_metadata"
    given = dict(zip(names, inputs(tileops_device), strict=True))
    out = torch.empty(11, 24, dtype=torch.bfloat16, device=tileops_device)
    if name == "layout_metadata":
        given[name] = out.view(-1)[:6].view(torch.int32).copy_(given[name])
    else:
        out = given[name].view(-1)[:264].view(11, 24)
    op = MoEExpertMLPFwdOp(ENDS)
    with pytest.raises(LayoutError) as caught:
        op(**given, out=out)
    assert str(caught.value) == (
        f"MoEExpertMLPFwdOp: out: expected memory of its own, received some of {name}; pass another buffer"
    )
    assert list(op.iter_kernels()) == []


def test_sub_ops_take_the_target() -> None:
    """The two sub-ops are held from construction on, with the composite's target."""
    op = MoEExpertMLPFwdOp(MaskedLayout(max_m=4), target="reference")
    assert [type(sub_op).__name__ for sub_op in op.held_delegates()] == ["MoEGroupedGemmFwdOp"] * 2


def test_compiles_to_the_sub_ops_nodes(tileops_device: torch.device) -> None:
    """Compiled cold, the graph holds the two grouped products, and gives eager's values."""
    torch.compiler.reset()
    op, backend, arguments = MoEExpertMLPFwdOp(ENDS), RecordingBackend(), inputs(tileops_device)
    output = torch.compile(op, fullgraph=True, backend=backend)(*arguments)
    assert [graph.names for graph in backend.graphs] == [("tileops::moe_grouped_gemm_fwd",) * 2]
    assert_identical(output, MoEExpertMLPFwdOp(ENDS)(*arguments))
