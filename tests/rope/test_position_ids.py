"""RoPENeoxPositionIdsFwdOp: stated positions up to 2 ** 31 and beyond the bound, heads that turn in part, layouts."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext

import pytest
import torch
from torch import Tensor

from tileops.errors import DeviceError, DTypeError, ParameterError, ParameterTypeError, RuleError, ShapeError
from tileops.rope import RoPEFwdOp, RoPENeoxPositionIdsFwdOp
from tileops_testing.fakes import assert_facts, fake_outputs
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import LAYOUTS, Layout, lay_out, poisoned_allocations
from tileops_testing.numerics import assert_identical
from tileops_testing.references import Expected, reference_for

from .checking import DTYPES, check, make

pytestmark = pytest.mark.op("RoPENeoxPositionIdsFwdOp")

FAR = 1 << 31
PI = Decimal("3.14159265358979323846264338327950288419716939937510")


def ids_of(*positions: int, dtype: torch.dtype = torch.int64, device: torch.device) -> Tensor:
    return torch.tensor(positions, dtype=dtype, device=device)


def expected(x: Tensor, ids: Tensor, **parameters: object) -> Expected:
    return reference_for("RoPENeoxPositionIdsFwdOp", "rope").expected((x, ids), {"max_position": FAR, **parameters})


@pytest.mark.parametrize("ids_dtype", [torch.int32, torch.int64], ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    ("shape", "rotary_dim"),
    [
        ((7, 3, 64), None),
        ((7, 1, 2), None),
        ((7, 5, 70), 64),
        ((7, 4, 128), 2),
        ((7, 9, 12), 12),
        ((7, 2, 600), 520),
        ((7, 33, 17), 8),
        ((1, 1, 128), 96),
    ],
    ids=str,
)
def test_agrees_with_the_reference(
    shape: tuple[int, ...],
    rotary_dim: int | None,
    dtype: torch.dtype,
    ids_dtype: torch.dtype,
    tileops_device: torch.device,
) -> None:
    """Any width, rotated part and number of heads gives the reference's values in a new tensor."""
    x = make(*shape, dtype=dtype, device=tileops_device)
    ids = ids_of(0, 4095, 1, 17, 17, 100_003, 2, dtype=ids_dtype, device=tileops_device)[: shape[0]]
    before = x.clone()
    with poisoned_allocations():
        y = RoPENeoxPositionIdsFwdOp(100_004, rotary_dim=rotary_dim)(x, ids)
    check(y, expected(x, ids, rotary_dim=rotary_dim))
    assert (y.shape, y.is_contiguous(), y.device) == (x.shape, True, x.device)
    assert torch.equal(x, before)


def exact_angles(position: int, frequencies: list[float]) -> list[float]:
    """The position times each float64 frequency, without whole turns, before a digit is lost."""
    with localcontext() as context:
        context.prec = 60
        return [float(Decimal(position) * Decimal(frequency) % (2 * PI)) for frequency in frequencies]


@pytest.mark.parametrize("position", [0, 1, 257, 4095, 1_000_003, (1 << 24) + 1, (1 << 30) + 7, FAR - 1])
def test_far_positions_are_as_exact_as_near_ones(position: int, tileops_device: torch.device) -> None:
    """Cosine and sine are within two roundings of float32 of the exact ones, where float64 angles would not be."""
    x = torch.cat([torch.ones(1, 1, 64), torch.zeros(1, 1, 64)], dim=-1).to(tileops_device)
    y = RoPENeoxPositionIdsFwdOp(FAR)(x, ids_of(position, device=tileops_device))[0, 0].double().cpu()
    frequencies = (10000.0 ** (torch.arange(64, dtype=torch.float64) * (-1 / 64))).tolist()
    angles = torch.tensor(exact_angles(position, frequencies), dtype=torch.float64)
    right = torch.cat([angles.cos(), angles.sin()])
    assert (y - right).abs().max().item() < 2 * 2.0**-24
    assert bool(((y - right).abs() <= 4 * 2.0**-24 * right.abs() + 2.0**-60 + 2.0**-32 * (position > 0)).all())


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_positions_in_order_are_those_of_rope(dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Tokens whose positions are their places turn as RoPEFwdOp turns them."""
    x = make(40, 3, 64, dtype=dtype, device=tileops_device)
    y = RoPENeoxPositionIdsFwdOp(40)(x, torch.arange(40, device=tileops_device))
    again = RoPEFwdOp(input_layout="2d")(x[None])[0]
    torch.testing.assert_close(y, again, rtol=torch.finfo(dtype).eps, atol=2 * torch.finfo(dtype).eps)


def test_position_zero_is_left_as_it_is(tileops_device: torch.device) -> None:
    """A token at position 0 does not turn, bit for bit."""
    x = make(5, 3, 64, dtype=torch.bfloat16, device=tileops_device)
    assert torch.equal(RoPENeoxPositionIdsFwdOp(1)(x, torch.zeros(5, dtype=torch.int32, device=tileops_device)), x)


@pytest.mark.parametrize("position", [-1, 8, -FAR, 1 << 40, -(1 << 63)])
def test_a_position_outside_turns_by_its_own_angle(position: int, tileops_device: torch.device) -> None:
    """Contents are the caller's duty: no position reads or writes out of place, and the other tokens stay right."""
    x = make(3, 2, 2, dtype=torch.float32, device=tileops_device)
    ids = ids_of(1, position, 2, device=tileops_device)
    y = RoPENeoxPositionIdsFwdOp(8)(x, ids)
    (angle,) = exact_angles(position, [1.0])
    first, second = x[1].double().unbind(-1)
    turned = [first * math.cos(angle) - second * math.sin(angle), second * math.cos(angle) + first * math.sin(angle)]
    # A unit of 2 ** -64 turn is lost per position at most.
    torch.testing.assert_close(y[1].double(), torch.stack(turned, -1), rtol=1e-6, atol=1e-6 + abs(position) * 2.0**-61)
    right = RoPENeoxPositionIdsFwdOp(8)(x[[0, 2]], ids[[0, 2]])
    assert torch.equal(y[[0, 2]], right)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("rotary_dim", [0, 2, 10])
def test_columns_past_the_rotated_part_are_copied_bit_by_bit(
    rotary_dim: int, dtype: torch.dtype, tileops_device: torch.device
) -> None:
    """Columns from rotary_dim on keep every bit, a NaN's payload among them; with 0 the whole token does."""
    x = make(5, 3, 12, dtype=dtype, device=tileops_device)
    bits = torch.int32 if dtype is torch.float32 else torch.int16
    x.view(bits)[1, 1, -1] = torch.iinfo(bits).max - 5
    y = RoPENeoxPositionIdsFwdOp(9, rotary_dim=rotary_dim)(x, ids_of(8, 7, 6, 5, 4, device=tileops_device))
    assert torch.equal(y.view(bits)[..., rotary_dim:], x.view(bits)[..., rotary_dim:])
    assert y.data_ptr() != x.data_ptr()


@pytest.mark.parametrize("layout", LAYOUTS[1:])
def test_layouts_agree_bit_for_bit(layout: Layout, tileops_device: torch.device) -> None:
    """Equal elements give equal bits, however tokens and positions lie in memory."""
    op = RoPENeoxPositionIdsFwdOp(64)
    x = lay_out(make(6, 5, 16, dtype=torch.float16, device=tileops_device), layout)
    ids = ids_of(9, 63, 0, 1, 7, 20, device=tileops_device)
    right = op(x.contiguous(), ids)
    assert_identical(op(x, ids), right)
    spread = torch.zeros(12, dtype=torch.int64, device=tileops_device)
    spread[1::2] = ids
    assert_identical(op(x, spread[1::2]), right)
    shared = ids[:1].expand(6)
    assert_identical(op(x, shared), op(x, shared.contiguous()))


def test_nan_and_infinity_stay_in_their_pair(tileops_device: torch.device) -> None:
    """A NaN or an infinity spoils its own pair and nothing else."""
    x = make(2, 3, 64, dtype=torch.float32, device=tileops_device)
    op, ids = RoPENeoxPositionIdsFwdOp(9), ids_of(5, 8, device=tileops_device)
    clean = op(x, ids)
    for bad, spoilt in ((math.nan, torch.isnan), (math.inf, torch.isinf)):
        x[1, 2, 7] = bad
        y = op(x, ids)
        assert spoilt(y).nonzero().tolist() == [[1, 2, 7], [1, 2, 39]]
        y[1, 2, [7, 39]] = clean[1, 2, [7, 39]]
        assert torch.equal(y, clean)


def test_large_float16_values_do_not_overflow_on_the_way(tileops_device: torch.device) -> None:
    """Products are formed in float32: values whose sum fits float16 stay finite."""
    x = torch.full((3, 1, 8), 40000.0, dtype=torch.float16, device=tileops_device)
    ids = ids_of(0, 1, 2, device=tileops_device)
    check(RoPENeoxPositionIdsFwdOp(3)(x, ids), expected(x, ids))


@pytest.mark.parametrize("shape", [(0, 3, 64), (4, 0, 64), (4, 3, 0)], ids=str)
def test_no_elements(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """A call without elements gives an empty tensor of x's shape and builds nothing."""
    op = RoPENeoxPositionIdsFwdOp(8)
    ids = torch.zeros(shape[0], dtype=torch.int64, device=tileops_device)
    assert op(torch.empty(shape, device=tileops_device), ids).shape == shape
    assert list(op.iter_kernels()) == []


def test_tokens_heads_and_positions_share_a_kernel(tileops_device: torch.device) -> None:
    """Numbers of tokens and heads, and positions, are neither compiled in nor part of an entry."""
    op = RoPENeoxPositionIdsFwdOp(FAR)
    for tokens, heads, start in ((1, 1, 0), (3, 7, 4000), (100, 3, 1 << 20), (2, 64, FAR - 2)):
        x = make(tokens, heads, 16, dtype=torch.float32, device=tileops_device)
        ids = torch.arange(start, start + tokens, device=tileops_device)
        check(op(x, ids), expected(x, ids))
    assert len(list(op.iter_kernels())) == 1


@pytest.mark.parametrize("base", [1.0, 10000, 5e5, math.inf])
def test_any_positive_base(base: float, tileops_device: torch.device) -> None:
    """One, an integer, a large base and infinity give the formula's angles."""
    x = make(3, 2, 8, dtype=torch.float32, device=tileops_device)
    ids = ids_of(0, 1, 4095, device=tileops_device)
    check(RoPENeoxPositionIdsFwdOp(4096, base)(x, ids), expected(x, ids, base=float(base)))


@pytest.mark.parametrize(
    ("parameters", "rule"),
    [
        ({"max_position": 0}, "max_position: expected 1 to 2147483648"),
        ({"max_position": FAR + 1}, "max_position: expected 1 to 2147483648"),
        ({"max_position": 8, "base": 0.0}, "base: expected more than 0"),
        ({"max_position": 8, "base": math.nan}, "base: expected more than 0"),
    ],
    ids=str,
)
def test_parameters_are_refused(parameters: dict[str, float], rule: str) -> None:
    """A bound outside 1 to 2 ** 31, or a base without real powers, is refused at construction, naming the rule."""
    with pytest.raises(ParameterError, match=rf"^RoPENeoxPositionIdsFwdOp: {rule}, received"):
        RoPENeoxPositionIdsFwdOp(**parameters)  # type: ignore[arg-type]


def test_wrong_calls_are_refused(tileops_device: torch.device) -> None:
    """Odd, negative and too wide rotated parts, other shapes and foreign dtypes are refused with their own errors."""
    x, ids = torch.ones(3, 2, 6, device=tileops_device), torch.zeros(3, dtype=torch.int64, device=tileops_device)
    within = r"0 to 6 for D=6 \(axis 2 of x\)"
    for rotary_dim, expected in ((3, "a multiple of 2"), (8, within), (-2, within)):
        message = f"^RoPENeoxPositionIdsFwdOp: rotary_dim: expected {expected}, received {rotary_dim}; "
        with pytest.raises((RuleError, ParameterError), match=message):
            RoPENeoxPositionIdsFwdOp(8, rotary_dim=rotary_dim)(x, ids)
    op = RoPENeoxPositionIdsFwdOp(8)
    with pytest.raises(
        RuleError, match=r"^RoPENeoxPositionIdsFwdOp: x: expected a multiple of 2 as axis 2, received 5"
    ):
        op(torch.ones(3, 2, 5, device=tileops_device), ids)
    with pytest.raises(ShapeError, match=r"^RoPENeoxPositionIdsFwdOp: x: expected shape \[N, H, D\]"):
        op(x[0], ids)
    with pytest.raises(ShapeError, match=r"^RoPENeoxPositionIdsFwdOp: position_ids: "):
        op(x, ids[:2])
    with pytest.raises(DTypeError, match=r"^RoPENeoxPositionIdsFwdOp: position_ids: expected dtype int32 or int64"):
        op(x, ids.short())
    with pytest.raises(DTypeError, match=r"^RoPENeoxPositionIdsFwdOp: x: expected dtype float16, bfloat16 or float32"):
        op(x.double(), ids)
    with pytest.raises(DeviceError, match=r"^RoPENeoxPositionIdsFwdOp: "):
        op(x, ids.to("meta"))
    with pytest.raises(ParameterTypeError, match=r"^RoPENeoxPositionIdsFwdOp: max_position: expected "):
        RoPENeoxPositionIdsFwdOp(8.0)  # type: ignore[arg-type]
    assert list(op.iter_kernels()) == []


def test_one_node_for_every_number_of_tokens(tileops_device: torch.device) -> None:
    """A compiled call is one node, compiled once for all numbers of tokens, and equals eager bit for bit."""
    torch.compiler.reset()
    backend = RecordingBackend()
    op = RoPENeoxPositionIdsFwdOp(4096, rotary_dim=6)
    compiled = torch.compile(lambda x, ids: op(x, ids) + 1, fullgraph=True, backend=backend)
    for tokens in (16, 17, 300):
        x = make(tokens, 3, 8, dtype=torch.float16, device=tileops_device, layout="transposed")
        ids = torch.arange(tokens, device=tileops_device) * 13
        torch._dynamo.mark_dynamic(x, 0)
        torch._dynamo.mark_dynamic(ids, 0)
        assert torch.equal(compiled(x, ids), op(x, ids) + 1)
        assert_facts(fake_outputs(op, (x, ids)), [op(x, ids)])
    assert [graph.names[0] for graph in backend.graphs] == ["tileops::rope_neox_position_ids_fwd"]


def test_record_and_cost(tileops_device: torch.device) -> None:
    """The record holds all tensors; the cost is each byte moved once, and three operations a turned element."""
    op = RoPENeoxPositionIdsFwdOp(8, rotary_dim=6)
    op(make(2, 3, 8, dtype=torch.float16, device=tileops_device), ids_of(5, 7, device=tileops_device))
    assert {name: facts.shape for name, facts in op.last_call.tensors.items()} == {
        "x": (2, 3, 8),
        "position_ids": (2,),
        "y": (2, 3, 8),
    }
    assert (op.eval_roofline().bytes, op.eval_roofline().flops) == (2 * 2 * 48 + 16, 3 * 36)
