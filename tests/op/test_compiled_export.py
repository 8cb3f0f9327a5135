"""Exported programs: one node per op, and an error that says what is missing where the instance is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from tileops.norm import RMSNormFwdOp
from tileops_testing.graphs import node_name
from tileops_testing.suites.suite import cloned

from .branch_calls import BranchCall, each_branch
from .comparing import assert_same

UNPACKING = "_operator.getitem"


class Calls(torch.nn.Module):
    """Calls one op on what it is called with."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op = op

    def forward(self, *inputs: Tensor | None, **buffers: Tensor) -> Any:
        return self.op(*inputs, **buffers)


class Norm(torch.nn.Module):
    """Holds a weight that requires a gradient, as modules do."""

    def __init__(self, op: Any) -> None:
        super().__init__()
        self.op, self.weight = op, torch.nn.Parameter(torch.ones(64))

    def forward(self, x: Tensor) -> Any:
        return self.op(x, self.weight)


def calls_of(program: torch.export.ExportedProgram) -> list[str]:
    """What the program's call nodes call, in order, without the unpacking of several outputs."""
    names = [node_name(node) for node in program.graph.nodes if node.op.startswith("call_")]
    return [name for name in names if name != UNPACKING]


@each_branch()
def test_a_module_with_an_op_exports_to_its_node(call: BranchCall, tileops_device: torch.device) -> None:
    """The program calls the branch's operator and nothing else, and gives what the op gives."""
    op = call.construct()
    inputs, buffers = call.arguments(tileops_device)
    program = torch.export.export(Calls(op), cloned(inputs), dict(buffers))
    others, other_buffers = cloned(inputs), {name: tensor.clone() for name, tensor in buffers.items()}
    expected, received = op(*inputs, **buffers), program.module()(*others, **other_buffers)

    assert calls_of(program) == [call.operator]
    assert_same(received, expected)
    assert_same((*others, *other_buffers.values()), (*inputs, *buffers.values()))


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # torch's own, of how it decomposes programs
@pytest.mark.op("RMSNormFwdOp")
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("strict", [False, True], ids=["unstrict", "strict"])
def test_a_weight_with_a_gradient_adds_no_node(strict: bool, dynamic: bool, tileops_device: torch.device) -> None:
    """A module's weight requires a gradient, and the program is the operator all the same, for every batch."""
    module = Norm(RMSNormFwdOp((64,))).to(tileops_device)
    shapes = {"x": {0: Dim.DYNAMIC}} if dynamic else None
    x = torch.ones(3, 64, device=tileops_device)
    program = torch.export.export(module, (x,), strict=strict, dynamic_shapes=shapes)

    assert calls_of(program) == ["tileops::norm_rms_norm_fwd"]
    assert calls_of(program.run_decompositions()) == ["tileops::norm_rms_norm_fwd"]
    batch = torch.ones(7 if dynamic else 3, 64, device=tileops_device)
    assert program.module()(batch).shape == batch.shape


@pytest.mark.op("RMSNormFwdOp")
def test_backward_through_a_program_is_warned_of_by_torch(tileops_device: torch.device) -> None:
    """A program holds the operator alone, through which torch finds no gradient and says so, naming the operator."""
    module = Norm(RMSNormFwdOp((64,))).to(tileops_device)
    program = torch.export.export(module, (torch.ones(3, 64, device=tileops_device),))
    y = program.module()(torch.ones(3, 64, device=tileops_device))

    with pytest.warns(UserWarning, match="tileops::norm_rms_norm_fwd: an autograd kernel was not registered"):
        y.sum().backward()


LOADS = """
import sys
import torch
from tileops.norm import RMSNormFwdOp

program = torch.export.load(sys.argv[1]).module()
x = torch.ones(3, 64)
try:
    program(x)
except LookupError as error:
    print(error)
op = RMSNormFwdOp((64,), eps=1e-6)
print(torch.equal(program(x), op(x, torch.ones(64))))
del op
try:
    program(x)
except LookupError as error:
    print(error)
"""


@pytest.mark.op("RMSNormFwdOp")
def test_a_program_loaded_where_no_instance_is(tmp_path: Path) -> None:
    """The error says which op with which parameters to construct; constructed, the program runs; collected, it raises.

    Neither is a bare lookup failure, and nothing runs in the place of what is missing.
    """
    code = (
        "import sys, torch; from tests.op.test_compiled_export import Norm; from tileops.norm import RMSNormFwdOp; "
        "program = torch.export.export(Norm(RMSNormFwdOp((64,), eps=1e-6)), (torch.ones(3, 64),)); "
        "torch.export.save(program, sys.argv[1])"
    )
    root, path = Path(__file__).parents[2], str(tmp_path / "norm.pt2")
    lines = []
    for program in (code, LOADS):
        done = subprocess.run(
            [sys.executable, "-c", program, path], cwd=root, capture_output=True, text=True, check=False, timeout=300
        )
        assert done.returncode == 0, done.stderr
        lines = done.stdout.splitlines()

    refused, right, collected = lines
    assert refused == collected
    assert right == "True"
    assert refused.startswith("RMSNormFwdOp: the compiled or exported graph calls instance RMSNormFwdOp-")
    assert "received none; construct RMSNormFwdOp(normalized_shape=(64,), eps=1e-06) before running" in refused
