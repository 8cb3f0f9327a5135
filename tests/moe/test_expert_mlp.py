"""MoEExpertMLPFwdOp: two grouped products under their stages, eager and compiled."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tileops.moe import ContiguousLayout, ContiguousMetadata, MaskedLayout, MoEExpertMLPFwdOp
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import TensorInput
from tileops_testing.numerics import assert_identical

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
