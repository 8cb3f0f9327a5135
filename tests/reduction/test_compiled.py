"""The reduction ops in compiled code: one node, one compilation for all sizes, strides as promised."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tileops.op.base import Op
from tileops.reduction import (
    LogSoftmaxFwdOp,
    LogSumExpFwdOp,
    ProdFwdOp,
    SoftmaxFwdOp,
    StdFwdOp,
    SumFwdOp,
    VarFwdOp,
    VarMeanFwdOp,
)
from tileops_testing.fakes import assert_facts, fake_outputs
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput
from tileops_testing.numerics import assert_identical

pytestmark = pytest.mark.op(
    "SumFwdOp",
    "ProdFwdOp",
    "SoftmaxFwdOp",
    "LogSoftmaxFwdOp",
    "LogSumExpFwdOp",
    "VarFwdOp",
    "StdFwdOp",
    "VarMeanFwdOp",
)

OPS: dict[str, Callable[[], Op]] = {
    "sum": lambda: SumFwdOp((0, 2)),
    "sum-keepdim": lambda: SumFwdOp(1, True, dtype=torch.float32),
    "sum-all": SumFwdOp,
    "prod": lambda: ProdFwdOp(-1),
    "softmax": lambda: SoftmaxFwdOp(-1),
    "softmax-middle": lambda: SoftmaxFwdOp(1, dtype=torch.float32),
    "log-softmax": lambda: LogSoftmaxFwdOp(-1),
    "log-sum-exp": lambda: LogSumExpFwdOp((0, 2), True),
    "var": lambda: VarFwdOp(1, correction=0),
    "std-all": StdFwdOp,
    "var-mean": lambda: VarMeanFwdOp((0, -1), correction=2, keepdim=True),
}


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    torch.compiler.reset()


def make(*shape: int, device: torch.device, layout: Layout = "contiguous") -> Tensor:
    return TensorInput(shape=shape, dtype=torch.float16, layout=layout, values="near_one").make(0, device)


def results(returned: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    """What a call returned, as a list."""
    return list(returned) if isinstance(returned, tuple) else [returned]


def test_operator_names() -> None:
    """Each class has one operator, named after family and class."""
    assert SumFwdOp.compile_op_names == ("tileops::reduction_sum_fwd",)
    assert ProdFwdOp.compile_op_names == ("tileops::reduction_prod_fwd",)
    assert SoftmaxFwdOp.compile_op_names == ("tileops::reduction_softmax_fwd",)
    assert LogSumExpFwdOp.compile_op_names == ("tileops::reduction_log_sum_exp_fwd",)
    assert VarMeanFwdOp.compile_op_names == ("tileops::reduction_var_mean_fwd",)


@pytest.mark.parametrize("name", OPS)
def test_one_node_for_all_sizes(name: str, tileops_device: torch.device) -> None:
    """With dynamic=True one compilation of one node serves every size of every axis, with eager's bits.

    Two results are taken from that node.
    """
    op, backend = OPS[name](), RecordingBackend()
    compiled = torch.compile(op, fullgraph=True, dynamic=True, backend=backend)
    for shape in ((3, 4, 5), (17, 2, 300), (2, 6, 4097)):
        x = make(*shape, device=tileops_device)
        for y, expected in zip(results(compiled(x)), results(op(x)), strict=True):
            assert_identical(y, expected)
    taken = ("_operator.getitem",) * (2 if name == "var-mean" else 0)
    assert [graph.names for graph in backend.graphs] == [(*type(op).compile_op_names, *taken)]
    assert len(list(op.iter_kernels())) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", OPS)
def test_fake_and_real_strides_agree(name: str, layout: Layout, tileops_device: torch.device) -> None:
    """What the fake promises for any layout, eager calls return, zero-size and one-element axes included."""
    op = OPS[name]()
    for cut in (slice(None), slice(1), slice(0)):
        x = make(3, 4, 5, device=tileops_device, layout=layout)[:, cut]
        assert_facts(fake_outputs(op, (x,)), results(op(x)), situation=f"eager {cut}")


def test_layers_share_an_instance(tileops_device: torch.device) -> None:
    """Equal arguments give one shared instance, whether axes come as a list or a tuple."""
    op = SumFwdOp.shared([0, 2], dtype=torch.float32)
    assert SumFwdOp.shared((0, 2), dtype=torch.float32) is op
    assert SumFwdOp.shared((0, 1), dtype=torch.float32) is not op
    assert op(make(2, 3, 4, device=tileops_device)).shape == (3,)


def test_meta_calls_build_nothing() -> None:
    """A call on meta tensors is checked and gives the result's shape and dtype."""
    op = SumFwdOp((0, -1), keepdim=True)
    y = op(torch.empty(2, 3, 4, device="meta", dtype=torch.int16))
    assert (y.shape, y.dtype, y.device.type) == ((1, 3, 1), torch.int64, "meta")
    assert list(op.iter_kernels()) == []
