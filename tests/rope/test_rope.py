"""RoPEFwdOp and LongRoPEFwdOp: values, layouts, positions far out, and what construction reads."""

from __future__ import annotations

import math
import pickle
from typing import Literal

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tileops.errors import ArgumentError, DTypeError, ParameterError, RuleError, ShapeError
from tileops.rope import LongRoPEFwdOp, RoPEFwdOp
from tileops_testing.fakes import assert_facts, fake_outputs
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import LAYOUTS, Layout, lay_out, poisoned_allocations
from tileops_testing.numerics import assert_identical

from .checking import DTYPES, SHAPES, check, expected, layout_of, make

pytestmark = pytest.mark.op("RoPEFwdOp", "LongRoPEFwdOp")


@pytest.mark.parametrize("rope_layout", ["neox", "interleaved"])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_agrees_with_the_reference(
    shape: tuple[int, ...], dtype: torch.dtype, rope_layout: str, tileops_device: torch.device
) -> None:
    """Either pairing, any width and number of tokens and heads gives the reference's values in a new tensor."""
    x = make(*shape, dtype=dtype, device=tileops_device)
    before = x.clone()
    op = RoPEFwdOp(rope_layout, input_layout=layout_of(shape))  # type: ignore[arg-type]
    with poisoned_allocations():
        y = op(x)
    check(y, expected("RoPEFwdOp", x, rope_layout=rope_layout, input_layout=layout_of(shape)))
    assert (y.shape, y.is_contiguous(), y.device) == (x.shape, True, x.device)
    assert torch.equal(x, before)


@pytest.mark.parametrize("rope_layout", ["neox", "interleaved"])
@pytest.mark.parametrize("shape", [(6, 64), (2, 5, 3, 16)], ids=str)
@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_layouts_agree_bit_for_bit(
    layout: Layout, shape: tuple[int, ...], rope_layout: str, tileops_device: torch.device
) -> None:
    """Equal elements give equal bits, however x lies in memory, heads first included."""
    op = RoPEFwdOp(rope_layout, input_layout=layout_of(shape))  # type: ignore[arg-type]
    x = lay_out(make(*shape, dtype=torch.float16, device=tileops_device), layout)
    assert_identical(op(x), op(x.clone(memory_format=torch.contiguous_format)))
    if len(shape) == 4:
        swapped = x.transpose(1, 2).contiguous().transpose(1, 2)
        assert_identical(op(swapped), op(x))


@pytest.mark.parametrize("rope_layout", ["neox", "interleaved"])
def test_position_zero_is_left_as_it_is(
    rope_layout: Literal["neox", "interleaved"], tileops_device: torch.device
) -> None:
    """The first token of each sequence does not turn, bit for bit."""
    x = make(2, 3, 4, 64, dtype=torch.bfloat16, device=tileops_device)
    assert torch.equal(RoPEFwdOp(rope_layout, input_layout="2d")(x)[:, 0], x[:, 0])


@pytest.mark.parametrize("width", [2, 12, 70, 600])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_interleaved_is_neox_of_reordered_elements(
    dtype: torch.dtype, width: int, tileops_device: torch.device
) -> None:
    """Elements 2k and 2k + 1 turn as k and k + D / 2 do where they stand there instead."""
    x = make(40, width, dtype=dtype, device=tileops_device)
    halves = torch.cat([x[:, 0::2], x[:, 1::2]], dim=1)
    turned = RoPEFwdOp()(halves)
    y = RoPEFwdOp("interleaved")(x)
    again = torch.cat([y[:, 0::2], y[:, 1::2]], dim=1)
    torch.testing.assert_close(again, turned, rtol=torch.finfo(dtype).eps, atol=torch.finfo(dtype).eps)


def test_known_angles(tileops_device: torch.device) -> None:
    """The unit vector of pair 0 at position 257 turns by 257 radians, which bfloat16 would round to 256."""
    x = torch.zeros(258, 4, device=tileops_device)
    x[:, 0] = 1
    y = RoPEFwdOp()(x)[257]
    assert y.tolist() == pytest.approx([math.cos(257), 0, math.sin(257), 0], abs=1e-7)
    y = RoPEFwdOp("interleaved")(x)[257]
    assert y.tolist() == pytest.approx([math.cos(257), math.sin(257), 0, 0], abs=1e-7)


@pytest.mark.parametrize("rope_layout", ["neox", "interleaved"])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_far_positions_are_right(
    dtype: torch.dtype, rope_layout: Literal["neox", "interleaved"], tileops_device: torch.device
) -> None:
    """Position 100 003 turns by its exact angle, rounded once, in every dtype."""
    x = make(100_004, 4, dtype=dtype, device=tileops_device)
    check(RoPEFwdOp(rope_layout)(x), expected("RoPEFwdOp", x, rope_layout=rope_layout))


def test_growing_lengths_share_a_kernel(tileops_device: torch.device) -> None:
    """Lengths, batches and heads are not compiled in, and lengths up to 4096 share one table."""
    op = RoPEFwdOp(input_layout="2d")
    for batch, length, heads in ((1, 1, 1), (2, 100, 3), (1, 101, 8), (1, 4096, 1)):
        x = make(batch, length, heads, 16, dtype=torch.float32, device=tileops_device)
        check(op(x), expected("RoPEFwdOp", x, input_layout="2d"))
    assert len(list(op.iter_kernels())) == 1
    x = make(1, 4097, 1, 16, dtype=torch.float32, device=tileops_device)
    check(op(x), expected("RoPEFwdOp", x, input_layout="2d"))
    assert len(list(op.iter_kernels())) == 2


@pytest.mark.parametrize(("rope_layout", "pair"), [("neox", (7, 39)), ("interleaved", (6, 7))])
def test_nan_and_infinity_stay_in_their_pair(
    rope_layout: Literal["neox", "interleaved"], pair: tuple[int, int], tileops_device: torch.device
) -> None:
    """A NaN or an infinity spoils its own pair and nothing else."""
    x = make(5, 64, dtype=torch.float32, device=tileops_device)
    op = RoPEFwdOp(rope_layout)
    clean = op(x)
    for bad, spoilt in ((math.nan, torch.isnan), (math.inf, torch.isinf)):
        x[3, 7] = bad
        y = op(x)
        assert spoilt(y).nonzero().tolist() == [[3, pair[0]], [3, pair[1]]]
        y[3, pair] = clean[3, pair]
        assert torch.equal(y, clean)


@pytest.mark.parametrize("rope_layout", ["neox", "interleaved"])
def test_large_float16_values_do_not_overflow_on_the_way(
    rope_layout: Literal["neox", "interleaved"], tileops_device: torch.device
) -> None:
    """Products are formed in float32: values whose sum fits float16 stay finite."""
    x = torch.full((3, 8), 40000.0, dtype=torch.float16, device=tileops_device)
    check(RoPEFwdOp(rope_layout)(x), expected("RoPEFwdOp", x, rope_layout=rope_layout))


@pytest.mark.parametrize("rope_layout", ["neox", "interleaved"])
@pytest.mark.parametrize("shape", [(0, 64), (4, 0), (2, 0, 3, 8), (0, 5, 3, 8), (2, 5, 0, 8)], ids=str)
def test_no_elements(shape: tuple[int, ...], rope_layout: str, tileops_device: torch.device) -> None:
    """A call without elements gives an empty tensor of x's shape and builds nothing."""
    op = RoPEFwdOp(rope_layout, input_layout=layout_of(shape))  # type: ignore[arg-type]
    assert op(torch.empty(shape, device=tileops_device)).shape == shape
    assert list(op.iter_kernels()) == []


FACTORS = tuple(1.0 + k / 8 for k in range(16))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize(("extended", "original"), [(4096, 4096), (131072, 4096), (1024, 4096), (3, 2)])
def test_long_rope_agrees_with_the_reference(
    extended: int, original: int, dtype: torch.dtype, tileops_device: torch.device
) -> None:
    """Factors of any of the three dtypes slow pairs down, and an extended context makes vectors longer."""
    parameters = {
        "rescale_factors": torch.tensor(FACTORS, dtype=dtype),
        "max_position_embeddings": extended,
        "original_max_position_embeddings": original,
    }
    x = make(33, 32, dtype=torch.float16, device=tileops_device)
    check(LongRoPEFwdOp(**parameters)(x), expected("LongRoPEFwdOp", x, **parameters))  # type: ignore[arg-type]


def test_long_rope_amplitude(tileops_device: torch.device) -> None:
    """A context 32 times as long as 4096 makes vectors longer by sqrt(1 + log(32) / log(4096))."""
    x = torch.ones(2, 8, device=tileops_device)
    op = LongRoPEFwdOp(max_position_embeddings=131072)
    assert op(x)[0].tolist() == pytest.approx([math.sqrt(1 + math.log(32) / math.log(4096))] * 8, rel=1e-6)
    assert torch.equal(LongRoPEFwdOp()(x), RoPEFwdOp()(x))


def test_factors_are_read_once_at_construction(tileops_device: torch.device) -> None:
    """Writing into the factors afterwards changes nothing, before the first call or after it; a copy keeps them."""
    factors = torch.full((4,), 2.0, device=tileops_device)
    x = make(9, 8, dtype=torch.float32, device=tileops_device)
    op, early = LongRoPEFwdOp(rescale_factors=factors), LongRoPEFwdOp(rescale_factors=factors)
    right = op(x)
    factors.mul_(3)
    assert torch.equal(op(x), right)
    assert torch.equal(early(x), right)
    assert not torch.equal(LongRoPEFwdOp(rescale_factors=factors)(x), right)
    assert torch.equal(pickle.loads(pickle.dumps(early))(x), right)  # noqa: S301 - made here


def test_factors_may_lie_elsewhere(tileops_device: torch.device) -> None:
    """Factors on the CPU serve calls on any device, strided ones too."""
    factors = torch.tensor([2.0, 9.0, 3.0, 9.0])[::2]
    x = make(5, 4, dtype=torch.float32, device=tileops_device)
    check(LongRoPEFwdOp(rescale_factors=factors)(x), expected("LongRoPEFwdOp", x, rescale_factors=factors))


@pytest.mark.parametrize("kind", ["meta", "fake"])
def test_factors_without_values_are_refused(kind: str) -> None:
    """Construction needs the numbers: a meta or fake tensor has none."""
    if kind == "meta":
        factors = torch.empty(4, device="meta")
    else:
        with FakeTensorMode():
            factors = torch.empty(4)
    with pytest.raises(ArgumentError) as failure:
        LongRoPEFwdOp(rescale_factors=factors)
    assert str(failure.value) == (
        "LongRoPEFwdOp: rescale_factors: expected a tensor with values, which construction reads, received a "
        f"{kind} tensor; construct the op with the factors"
    )


def test_factors_of_another_width_are_refused(tileops_device: torch.device) -> None:
    """A call whose heads do not have two elements per factor is refused, naming the rule."""
    op = LongRoPEFwdOp(rescale_factors=torch.ones(4))
    with pytest.raises(RuleError, match=r"^LongRoPEFwdOp: x: expected 8 as axis 1 for P=4"):
        op(torch.ones(3, 6, device=tileops_device))


def test_a_context_of_one_cannot_be_extended() -> None:
    """The amplitude would divide by log(1): refused at construction, unless the context is not extended."""
    with pytest.raises(ParameterError, match=r"^LongRoPEFwdOp: max_position_embeddings: expected at most 1 for "):
        LongRoPEFwdOp(original_max_position_embeddings=1)
    LongRoPEFwdOp(max_position_embeddings=1, original_max_position_embeddings=1)


@pytest.mark.parametrize("base", [0.0, -1.0, math.nan])
def test_a_base_that_is_not_positive_is_refused(base: float) -> None:
    """Powers of the base must be real: refused at construction, naming the rule."""
    with pytest.raises(ParameterError, match=r"^RoPEFwdOp: base: expected more than 0, received "):
        RoPEFwdOp(base=base)


@pytest.mark.parametrize("base", [1.0, 10000, 5e5, math.inf])
def test_any_positive_base(base: float, tileops_device: torch.device) -> None:
    """One, an integer, a large base and infinity give the formula's angles."""
    x = make(9, 8, dtype=torch.float32, device=tileops_device)
    check(RoPEFwdOp(base=base)(x), expected("RoPEFwdOp", x, base=float(base)))


def test_wrong_calls_are_refused(tileops_device: torch.device) -> None:
    """An odd width, another number of axes and a foreign dtype are each refused with their own error."""
    op = RoPEFwdOp()
    with pytest.raises(RuleError, match=r"^RoPEFwdOp: x: expected a multiple of 2 as axis 1, received 5"):
        op(torch.ones(3, 5, device=tileops_device))
    with pytest.raises(ShapeError, match=r"^RoPEFwdOp: x: expected shape \[S, D\].*received \[1, 3, 2, 4\]"):
        op(torch.ones(1, 3, 2, 4, device=tileops_device))
    with pytest.raises(ShapeError, match=r"^RoPEFwdOp: x: expected shape \[B, S, H, D\].*received \[3, 4\]"):
        RoPEFwdOp(input_layout="2d")(torch.ones(3, 4, device=tileops_device))
    with pytest.raises(DTypeError, match=r"^RoPEFwdOp: x: expected dtype float16, bfloat16 or float32, received"):
        op(torch.ones(3, 4, dtype=torch.float64, device=tileops_device))
    assert list(op.iter_kernels()) == []


@pytest.mark.parametrize(("parameter", "value"), [("rope_layout", "gptj"), ("input_layout", "3d")])
def test_unknown_layouts_are_refused(parameter: str, value: str) -> None:
    """A layout that is not one of the two is refused at construction, listing them."""
    with pytest.raises(ValueError, match=rf"^RoPEFwdOp: {parameter}: expected '.*' \| '.*', received '{value}'"):
        RoPEFwdOp(**{parameter: value})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (RoPEFwdOp(input_layout="2d"), "tileops::rope_fwd"),
        (LongRoPEFwdOp(), "tileops::rope_long_rope_fwd"),
    ],
    ids=["rope", "long-rope"],
)
def test_one_node_for_every_length(op: RoPEFwdOp | LongRoPEFwdOp, name: str, tileops_device: torch.device) -> None:
    """A compiled call is one node, compiled once for all lengths, and equals eager bit for bit."""
    torch.compiler.reset()
    backend = RecordingBackend()
    compiled = torch.compile(lambda x: op(x) + 1, fullgraph=True, backend=backend)
    axis = 0 if op.input_layout == "1d" else 1
    for length in (16, 17, 300):
        shape = (length, 8) if axis == 0 else (2, length, 3, 8)
        x = make(*shape, dtype=torch.float16, device=tileops_device, layout="transposed")
        torch._dynamo.mark_dynamic(x, axis)
        assert torch.equal(compiled(x), op(x) + 1)
        assert_facts(fake_outputs(op, (x,)), [op(x)])
    assert [graph.names[0] for graph in backend.graphs] == [name]


def test_record_and_cost(tileops_device: torch.device) -> None:
    """The record holds both tensors; the cost is each byte moved once."""
    op = RoPEFwdOp(input_layout="2d")
    op(make(2, 3, 4, 8, dtype=torch.float16, device=tileops_device))
    assert {name: facts.shape for name, facts in op.last_call.tensors.items()} == {
        "x": (2, 3, 4, 8),
        "y": (2, 3, 4, 8),
    }
    assert (op.eval_roofline().bytes, op.eval_roofline().flops) == (2 * 2 * 192, 3 * 192)
