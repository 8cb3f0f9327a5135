"""CumsumFwdOp and CumprodFwdOp: torch's values, shapes, dtypes and refusals on a grid of edge cases."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import pytest
import torch
from torch import Tensor

from tileops.errors import ArgumentError, AxisError, DTypeError, GradientError, ParameterTypeError, RuleError
from tileops.reduction import CumprodFwdOp, CumsumFwdOp
from tileops.reduction.scan import ScanOp
from tileops_testing.fakes import assert_facts, fake_outputs
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, Values, poisoned_allocations
from tileops_testing.numerics import assert_close, assert_identical
from tileops_testing.references.reduction import cumprod_fwd, cumsum_fwd, cumsum_terms

pytestmark = pytest.mark.op("CumsumFwdOp", "CumprodFwdOp")

FLOATS = (torch.float16, torch.bfloat16, torch.float32)
INTEGERS = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
OPS: Mapping[str, tuple[Callable[..., ScanOp], Callable[..., Tensor]]] = {
    "cumsum": (CumsumFwdOp, torch.cumsum),
    "cumprod": (CumprodFwdOp, torch.cumprod),
}
SHAPES = ((1,), (5,), (0,), (3, 4, 5), (0, 4, 5), (3, 0, 5), (3, 4, 0), (1, 1, 1), (2, 3, 4, 5))


def make(
    *shape: int,
    dtype: torch.dtype = torch.float32,
    device: torch.device,
    layout: Layout = "contiguous",
    values: Values = "near_one",
) -> Tensor:
    return TensorInput(shape=shape, dtype=dtype, layout=layout, values=values).make(0, device)


def call(op: ScanOp, x: Tensor) -> Tensor:
    with poisoned_allocations():
        return op(x)


def assert_scanned(name: str, x: Tensor, dim: int) -> None:
    """A call gives the reference's values, and a contiguous tensor of x's shape."""
    y = call(OPS[name][0](dim), x)
    assert y.is_contiguous()
    if name == "cumsum":
        terms = cumsum_terms(x, dim=dim)
        assert_close(y, cumsum_fwd(x, dim=dim), dtype=y.dtype, summed=x.shape[dim], terms=terms, what=str(dim))
    else:
        assert_close(y, cumprod_fwd(x, dim=dim), dtype=y.dtype, summed=7 * x.shape[dim], what=str(dim))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_axes_are_torchs(name: str, shape: Sequence[int], tileops_device: torch.device) -> None:
    """Every axis, good or wrong, gives torch's values, or an error where torch raises one."""
    cls, function = OPS[name]
    x = make(*shape, device=tileops_device)
    for dim in range(-5, 5):
        try:
            expected = function(x, dim)
        except IndexError:
            with pytest.raises(AxisError):
                cls(dim)(x)
            continue
        y = call(cls(dim), x)
        assert (y.shape, y.is_contiguous()) == (expected.shape, True)
        assert_close(y, expected.double(), dtype=torch.float32, summed=7 * 5, what=str(dim))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_layouts_and_dtypes(name: str, dtype: torch.dtype, layout: Layout, tileops_device: torch.device) -> None:
    """Every axis gives the reference's values, for every dtype and layout."""
    x = make(40, 17, 3, dtype=dtype, device=tileops_device, layout=layout)
    for dim in range(3):
        assert_scanned(name, x, dim)


@pytest.mark.parametrize("n", [1, 2, 7, 31, 32, 33, 127, 128, 255, 256, 257, 4096, 8193, 40_000])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_rows_of_any_length(n: int, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Rows around the lengths that blocks and accesses have give the reference's values."""
    assert_scanned("cumsum", make(5, n, dtype=dtype, device=tileops_device, values="normal"), 1)
    x = make(5, n, device=tileops_device)
    assert_scanned("cumprod", (x / x.roll(1, 1)).to(dtype), 1)  # products of these stay near one, however many


@pytest.mark.parametrize("inner", [2, 7, 33, 255, 1024, 1500])
@pytest.mark.parametrize("length", [1, 3, 17, 260, 1024])
@pytest.mark.parametrize("outer", [1, 3])
def test_columns_of_any_shape(outer: int, length: int, inner: int, tileops_device: torch.device) -> None:
    """An axis before others gives the reference's values, for narrow and wide slices, few and many."""
    for dtype in (torch.float16, torch.float32):
        assert_scanned("cumsum", make(outer, length, inner, dtype=dtype, device=tileops_device, values="normal"), 1)


@pytest.mark.parametrize("shape", [(1, 262_144), (3, 98_304), (2, 65_537), (1, 100_003)], ids=str)
@pytest.mark.parametrize("name", OPS)
def test_few_long_rows(name: str, shape: tuple[int, int], tileops_device: torch.device) -> None:
    """Rows that are scanned in parts, which begin with the totals of those before, give the reference's values."""
    values: Values = "normal" if name == "cumsum" else "near_one"
    assert_scanned(name, make(*shape, dtype=torch.bfloat16, device=tileops_device, values=values), 1)
    x = torch.randint(-5, 6, shape, device=tileops_device)
    assert_identical(call(OPS[name][0](1), x), OPS[name][1](x, 1))


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize("name", OPS)
def test_integers_are_exact(name: str, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Integers and booleans give torch's int64, which wraps, along rows and columns."""
    cls, function = OPS[name]
    x = torch.randint(-3, 4, (37, 300), device=tileops_device).to(dtype)
    for dim in (0, 1):
        assert_identical(call(cls(dim), x), function(x, dim))
    if dtype is torch.int64:
        x = torch.full((9, 5), 2**62 + 1, device=tileops_device)
        for dim in (0, 1):
            assert_identical(call(cls(dim), x), function(x, dim))


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("place", [0, 31, 300, 4095])
@pytest.mark.parametrize("name", OPS)
def test_what_is_not_finite_stays(name: str, place: int, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """NaN and infinities stay from where they stand, in their slice alone; what cancels them gives NaN, as in torch."""
    cls, function = OPS[name]
    x = torch.ones(6, 4100, dtype=dtype, device=tileops_device)
    x[0, place], x[1, place], x[2, place] = math.nan, math.inf, -math.inf
    x[3, place], x[3, place + 3] = math.inf, -math.inf
    x[4, place], x[4, place + 3] = math.inf, 0.0
    for rows in (x, x.t().contiguous()):
        dim = 1 if rows is x else 0
        y, expected = call(cls(dim), rows), function(rows.double(), dim).to(dtype)
        assert torch.equal(y.isnan(), expected.isnan())
        assert torch.equal(y[y.isinf()], expected[y.isinf()])
        assert torch.equal(y.isinf(), expected.isinf())


@pytest.mark.parametrize("shape", [(4096,), (4096, 2), (2, 4096)], ids=str)
def test_half_sums_are_not_accumulated_in_half(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """The sums of ones are the numbers of terms, rounded once: in bfloat16 past 256, in float16 past 2048."""
    dim = shape.index(4096)
    counts = torch.arange(1, 4097, device=tileops_device)
    for dtype in (torch.bfloat16, torch.float16):
        y = call(CumsumFwdOp(dim), torch.ones(shape, dtype=dtype, device=tileops_device))
        expected = counts.to(dtype).view([4096 if axis == dim else 1 for axis in range(len(shape))])
        assert_identical(y, expected.expand(shape))


def test_an_overflow_is_infinite(tileops_device: torch.device) -> None:
    """A float16 sum past the greatest number is infinite, and one that comes back is finite again."""
    x = torch.tensor([60000.0, 60000.0, -60000.0], dtype=torch.float16, device=tileops_device)
    assert call(CumsumFwdOp(), x).tolist() == [60000.0, math.inf, 60000.0]
    x = torch.tensor([300.0, 300.0, 1 / 256, 1 / 256], dtype=torch.float16, device=tileops_device)
    assert call(CumprodFwdOp(), x).tolist() == [300.0, math.inf, 351.5, pytest.approx(300 * 300 / 65536, rel=2**-10)]


@pytest.mark.parametrize("shape", [(1 << 20, 4), (2, 1 << 20)], ids=str)
def test_long_sums_stay_accurate(shape: tuple[int, int], tileops_device: torch.device) -> None:
    """A million equal terms, whose roundings have one direction, drift by less than a part in ten thousand."""
    dim = shape.index(1 << 20)
    y = call(CumsumFwdOp(dim), torch.full(shape, 0.1, device=tileops_device))
    last = y.select(dim, -1).double()
    assert (last / ((1 << 20) * float(torch.tensor(0.1))) - 1).abs().max() < 1e-4


def test_inputs_are_not_written(tileops_device: torch.device) -> None:
    """A call leaves x as it is, and gives memory of its own also where nothing is added."""
    x = make(6, 70, dtype=torch.float16, device=tileops_device)
    before = x.clone()
    call(CumsumFwdOp(1), x)
    call(CumprodFwdOp(0), x)
    assert torch.equal(x, before)
    y = call(CumsumFwdOp(0), x[:1])
    assert_identical(y, x[:1])
    assert y.data_ptr() != x.data_ptr()


def test_shapes_and_axes_share_one_entry(tileops_device: torch.device) -> None:
    """Calls that differ in shape alone share one kernel."""
    op = CumsumFwdOp()
    for shape in ((3, 4), (17, 100), (2, 3, 5), (1,), (0, 4), (1, 70_000)):
        call(op, make(*shape, device=tileops_device))
    assert len(list(op.iter_kernels())) == 1
    call(op, make(3, 4, dtype=torch.float16, device=tileops_device))
    assert len(op.built_entries("scan")) == 2


@pytest.mark.parametrize("name", OPS)
def test_refusals(name: str, tileops_device: torch.device) -> None:
    """Tensors without axes, axes out of range, other dtypes and other arguments are refused in one line each."""
    cls, _ = OPS[name]
    x, owner = torch.ones(2, 3, device=tileops_device), cls.__name__
    with pytest.raises(AxisError, match=rf"^{owner}: dim: expected axes from -2 to 1, received 2; pass axes"):
        cls(2)(x)
    without = "expected at least 1 axis, received 0; pass x of at least 1 axis"
    with pytest.raises(RuleError, match=rf"^{owner}: x: {without}"):
        cls(0)(x.sum())
    with pytest.raises(DTypeError, match=rf"^{owner}: x: expected dtype float16, bfloat16, .* int64, received float64"):
        cls(1)(x.double())
    with pytest.raises(ParameterTypeError, match=rf"^{owner}: dim: expected int, received None; pass dim as int"):
        cls(None)
    with pytest.raises(ArgumentError, match=rf"^{owner}: dtype: expected parameters"):
        cls(0, dtype=torch.int64)


@pytest.mark.parametrize("name", OPS)
def test_backward_is_refused_by_name(name: str, tileops_device: torch.device) -> None:
    """A call whose input needs a gradient computes; running backward through it raises, naming the op."""
    cls, _ = OPS[name]
    y = cls(1)(torch.ones(2, 3, device=tileops_device).requires_grad_())
    assert y.requires_grad
    with pytest.raises(GradientError, match=rf"^{cls.__name__}: backward through its output is not defined; "):
        y.sum().backward()


@pytest.mark.parametrize("name", OPS)
def test_one_node_for_all_sizes(name: str, tileops_device: torch.device) -> None:
    """With dynamic=True one compilation of one node serves every size of every axis, with eager's bits."""
    torch.compiler.reset()
    op, backend = OPS[name][0](1), RecordingBackend()
    assert op.compile_op_names == (f"tileops::reduction_{name}_fwd",)
    compiled = torch.compile(op, fullgraph=True, dynamic=True, backend=backend)
    for shape in ((3, 4, 5), (17, 2, 300), (2, 6, 4097)):
        x = make(*shape, dtype=torch.float16, device=tileops_device)
        assert_identical(compiled(x), op(x))
    assert [graph.names for graph in backend.graphs] == [op.compile_op_names]
    assert len(list(op.iter_kernels())) == 1


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dim", [0, 1, -1])
def test_fake_and_real_strides_agree(dim: int, layout: Layout, tileops_device: torch.device) -> None:
    """What the fake promises for any layout, eager calls return, zero-size and one-element axes included."""
    op = CumsumFwdOp(dim)
    for cut in (slice(None), slice(1), slice(0)):
        x = make(3, 4, 5, dtype=torch.float16, device=tileops_device, layout=layout)[:, cut]
        assert_facts(fake_outputs(op, (x,)), [op(x)], situation=f"eager {cut}")


def test_record_and_cost(tileops_device: torch.device) -> None:
    """The record holds each tensor's shape and dtype; the cost is each byte moved once."""
    op = CumprodFwdOp(0)
    call(op, make(3, 64, dtype=torch.int8, device=tileops_device, values="integers"))
    shapes = {name: (facts.shape, facts.dtype) for name, facts in op.last_call.tensors.items()}
    assert shapes == {"x": ((3, 64), torch.int8), "y": ((3, 64), torch.int64)}
    assert (op.eval_roofline().bytes, op.eval_roofline().flops) == (3 * 64 * (1 + 8), 3 * 64)


def test_one_op_serves_other_calls(tileops_device: torch.device) -> None:
    """An op computes each call by its own dtype, whatever the call before was."""
    op = CumsumFwdOp(-1)
    for dtype, result in ((torch.float16, torch.float16), (torch.bool, torch.int64), (torch.float16, torch.float16)):
        y = op(torch.ones(2, 3, dtype=dtype, device=tileops_device))
        assert (y.dtype, y.tolist()) == (result, [[1, 2, 3], [1, 2, 3]])
