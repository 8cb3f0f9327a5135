"""ArgmaxFwdOp and ArgminFwdOp: torch's positions, shapes and refusals on a grid of edge cases."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from torch import Tensor

from tileops.errors import ArgumentError, AxisError, DTypeError, ParameterTypeError, RuleError, SignatureError
from tileops.reduction import ArgmaxFwdOp, ArgminFwdOp
from tileops.reduction.argreduce import ArgReduceOp
from tileops_testing.fakes import assert_facts, fake_outputs
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, poisoned_allocations
from tileops_testing.numerics import assert_identical
from tileops_testing.references.reduction import argmax_fwd, argmin_fwd

pytestmark = pytest.mark.op("ArgmaxFwdOp", "ArgminFwdOp")

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
OPS: Mapping[str, tuple[Callable[..., ArgReduceOp], Callable[..., Tensor]]] = {
    "argmax": (ArgmaxFwdOp, torch.argmax),
    "argmin": (ArgminFwdOp, torch.argmin),
}
SHAPES = ((), (1,), (3, 4, 5), (0, 4, 5), (3, 0, 5), (3, 4, 0), (0, 0), (1, 1, 1), (7, 33), (5, 8193), (300, 17, 3))


def tied(*shape: int, dtype: torch.dtype, device: torch.device, layout: Layout = "contiguous") -> Tensor:
    """A tensor of few different values, so that every extreme stands in several places."""
    x = TensorInput(shape=shape, dtype=torch.float32, layout=layout, values="normal").make(0, device)
    return x.mul(2).round().to(dtype)


def call(op: ArgReduceOp, x: Tensor) -> Tensor:
    with poisoned_allocations():
        return op(x)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("name", OPS)
def test_axes_are_torchs(name: str, keepdim: bool, shape: Sequence[int], tileops_device: torch.device) -> None:
    """Every axis, good or wrong, gives torch's first positions and shape, or an error where torch raises one."""
    cls, function = OPS[name]
    x = tied(*shape, dtype=torch.float32, device=tileops_device)
    for dim in (None, 0, 1, 2, 3, -1, -2, -3, -4):
        op = cls(dim, keepdim)
        try:
            expected = function(x.cpu(), dim, keepdim)
        except (RuntimeError, IndexError):
            with pytest.raises(SignatureError):
                op(x)
            assert list(op.iter_kernels()) == [], dim
            continue
        y = call(op, x)
        assert y.is_contiguous(), dim
        assert_identical(y.cpu(), expected, what=str(dim))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_layouts_and_dtypes(name: str, dtype: torch.dtype, layout: Layout, tileops_device: torch.device) -> None:
    """The first positions are torch's for every dtype and layout, counted in logical order."""
    cls, function = OPS[name]
    x = tied(40, 17, 3, dtype=dtype, device=tileops_device, layout=layout)
    for dim in (None, 0, 1, 2):
        assert_identical(call(cls(dim), x).cpu(), function(x.cpu(), dim))


@pytest.mark.parametrize(
    ("shape", "dim"),
    [
        ((3, 70_000), 1),
        ((1 << 18,), 0),
        ((100_003,), 0),
        ((100_000, 2), 0),
        ((4096, 3), 0),
        ((8192, 320), 0),
        ((2, 40_000, 5), 1),
        ((64, 4096), None),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", OPS)
def test_parts_of_an_axis(name: str, shape: tuple[int, ...], dim: int | None, tileops_device: torch.device) -> None:
    """An axis that is searched in parts gives the first of all positions, wherever the extremes stand."""
    cls, function = OPS[name]
    op, x = cls(dim), tied(*shape, dtype=torch.float16, device=tileops_device)
    assert_identical(call(op, x).cpu(), function(x.cpu(), dim))
    extent = x.numel() if dim is None else shape[dim]
    value = 100.0 if name == "argmax" else -100.0
    flat = x.view(1, -1, 1) if dim is None else x.view(math.prod(shape[:dim]), extent, -1)
    for first, second in ((0, extent - 1), (extent // 2 - 1, extent // 2), (extent - 1, extent - 1)):
        flat[:, first] = flat[:, second] = value
        assert call(op, x).eq(first).all()
        flat[:, first] = flat[:, second] = 0.0


@pytest.mark.parametrize("place", [0, 1, 31, 32, 255, 4094])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_the_first_nan_is_the_extreme(name: str, dtype: torch.dtype, place: int, tileops_device: torch.device) -> None:
    """Of several NaN the first is found, before any number, along rows, columns and everything."""
    cls, _ = OPS[name]
    x = torch.zeros(3, 4096, dtype=dtype, device=tileops_device)
    x[0, 7], x[0, 9] = math.inf, -math.inf
    x[1, place:] = math.nan
    x[2, -1] = math.nan
    assert call(cls(1), x)[1:].tolist() == [place, 4095]
    assert call(cls(0), x)[-2:].tolist() == [1, 1]
    assert call(cls(), x).item() == 4096 + place


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_infinities_and_equal_elements(name: str, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Rows of one value, infinities among them, give position 0, and zeros of both signs are equal."""
    cls, function = OPS[name]
    for value in (math.inf, -math.inf, 0.0, -0.0, math.nan):
        x = torch.full((5, 300), value, dtype=dtype, device=tileops_device)
        for dim in (0, 1, None):
            assert call(cls(dim), x).eq(0).all()
    x = torch.tensor([[0.0, -0.0, 0.0], [-0.0, 0.0, -0.0], [-math.inf, math.inf, math.inf]], device=tileops_device)
    assert_identical(call(cls(1), x.to(dtype)).cpu(), function(x.to(dtype).cpu(), 1))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_references_are_torchs(dtype: torch.dtype) -> None:
    """The references agree with torch on ties and NaN."""
    x = tied(6, 50, dtype=dtype, device=torch.device("cpu"))
    x[2, 5:] = math.nan
    for dim in (None, 0, 1):
        for keepdim in (False, True):
            assert_identical(argmax_fwd(x, dim=dim, keepdim=keepdim), x.argmax(dim, keepdim))
            assert_identical(argmin_fwd(x, dim=dim, keepdim=keepdim), x.argmin(dim, keepdim))


def test_inputs_are_not_written(tileops_device: torch.device) -> None:
    """A call leaves x as it is, also where it searches parts."""
    x = tied(2, 1 << 17, dtype=torch.float16, device=tileops_device)
    before = x.clone()
    call(ArgmaxFwdOp(1), x)
    call(ArgminFwdOp(), x)
    assert torch.equal(x, before)


def test_shapes_and_axes_share_one_entry(tileops_device: torch.device) -> None:
    """Calls that differ in shape alone share one kernel."""
    op = ArgmaxFwdOp(-1)
    for shape in ((3, 4), (17, 100), (2, 3, 5), (1,), (), (0, 4)):
        call(op, tied(*shape, dtype=torch.float32, device=tileops_device))
    assert len(list(op.iter_kernels())) == 1
    call(op, tied(3, 4, dtype=torch.float16, device=tileops_device))
    assert len(op.built_entries("arg_reduce")) == 2


def test_the_position_of_nothing_is_refused(tileops_device: torch.device) -> None:
    """An axis without elements has no greatest one; the reason is one line."""
    with pytest.raises(RuleError) as failure:
        ArgminFwdOp(1)(torch.empty(2, 0, device=tileops_device))
    assert str(failure.value) == (
        "ArgminFwdOp: x: expected at least 1 element along dim=1, received shape [2, 0]; "
        "pass x with elements there, or another dim"
    )


@pytest.mark.parametrize("name", OPS)
def test_refusals(name: str, tileops_device: torch.device) -> None:
    """Axes out of range, other dtypes, lists of axes and further arguments are refused in one line each."""
    cls, _ = OPS[name]
    x, owner = torch.ones(2, 3, device=tileops_device), cls.__name__
    with pytest.raises(AxisError, match=rf"^{owner}: dim: expected axes from -2 to 1, received 2; pass axes"):
        cls(2)(x)
    with pytest.raises(DTypeError, match=rf"^{owner}: x: expected dtype float16, bfloat16 or float32, received int64"):
        cls(1)(x.long())
    with pytest.raises(ParameterTypeError, match=rf"^{owner}: dim: expected int \| None, received \(0,\); pass dim as"):
        cls((0,))
    with pytest.raises(ArgumentError, match=rf"^{owner}: dtype: expected parameters"):
        cls(0, dtype=torch.int64)


@pytest.mark.parametrize("name", OPS)
def test_positions_have_no_gradient(name: str, tileops_device: torch.device) -> None:
    """Positions require no gradient, also those in an input that requires one."""
    assert not OPS[name][0](1)(torch.ones(2, 3, device=tileops_device).requires_grad_()).requires_grad


@pytest.mark.parametrize("name", OPS)
def test_one_node_for_all_sizes(name: str, tileops_device: torch.device) -> None:
    """With dynamic=True one compilation of one node serves every size of every axis, with eager's bits."""
    torch.compiler.reset()
    op, backend = OPS[name][0](1, True), RecordingBackend()
    assert op.compile_op_names == (f"tileops::reduction_{name}_fwd",)
    compiled = torch.compile(op, fullgraph=True, dynamic=True, backend=backend)
    for shape in ((3, 4, 5), (17, 2, 300), (2, 6, 4097)):
        x = tied(*shape, dtype=torch.float16, device=tileops_device)
        assert_identical(compiled(x), op(x))
    assert [graph.names for graph in backend.graphs] == [op.compile_op_names]
    assert len(list(op.iter_kernels())) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [None, 0, 1, 2])
def test_fake_and_real_strides_agree(dim: int | None, layout: Layout, tileops_device: torch.device) -> None:
    """What the fake promises for any layout, eager calls return, one-element axes included."""
    for keepdim in (False, True):
        op = ArgmaxFwdOp(dim, keepdim)
        for cut in (slice(None), slice(1)):
            x = tied(3, 4, 5, dtype=torch.float16, device=tileops_device, layout=layout)[:, cut]
            assert_facts(fake_outputs(op, (x,)), [op(x)], situation=f"eager {cut}")


def test_record_and_cost(tileops_device: torch.device) -> None:
    """The record holds each tensor's shape and dtype; the cost is each byte moved once."""
    op = ArgmaxFwdOp(0, keepdim=True)
    call(op, tied(3, 64, dtype=torch.float16, device=tileops_device))
    shapes = {name: (facts.shape, facts.dtype) for name, facts in op.last_call.tensors.items()}
    assert shapes == {"x": ((3, 64), torch.float16), "y": ((1, 64), torch.int64)}
    assert (op.eval_roofline().bytes, op.eval_roofline().flops) == (3 * 64 * 2 + 64 * 8, 3 * 64)
