"""MoEGroupedGemmFwdOp: each layout, activation and buffer; rows that are no expert's; what it refuses."""

from __future__ import annotations

import math
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from tileops.errors import ArgumentError, DeviceError, DTypeError, LayoutError, ParameterTypeError, ShapeError
from tileops.moe import ContiguousLayout, ContiguousMetadata, ContiguousPacking, MaskedLayout, MoEGroupedGemmFwdOp
from tileops_testing.inputs import TensorInput, poisoned_allocations
from tileops_testing.numerics import assert_close
from tileops_testing.references.moe import REFERENCES

pytestmark = pytest.mark.op("MoEGroupedGemmFwdOp")

Activation = Literal["silu_and_mul", "gelu_and_mul"]
Layout = ContiguousLayout | MaskedLayout

ENDS = ContiguousLayout(metadata_kind=ContiguousMetadata.PHYSICAL_PSUM)
ALIGNED = ContiguousLayout(
    packing=ContiguousPacking.ALIGNED, metadata_kind=ContiguousMetadata.PHYSICAL_PSUM, alignment=4
)
PER_ROW = ContiguousLayout()
MASKED = MaskedLayout(max_m=6)

LAYOUTS: tuple[tuple[Layout, list[int], tuple[int, ...]], ...] = (
    (ENDS, [0, 5, 5, 11], (11,)),
    (ALIGNED, [3, 3, 6, 11], (12,)),
    (PER_ROW, [0, 0, 2, 2, 2, 3, 3], (7,)),
    (MASKED, [0, 6, 1, 3], (4, 6)),
)
"""Layouts of four experts with their metadata and the leading extents of their rows."""


def make(*shape: int, dtype: torch.dtype, device: torch.device, seed: int = 0) -> Tensor:
    return TensorInput(shape=shape, dtype=dtype).make(seed, device)


@pytest.mark.parametrize("out_dtype", [None, torch.float32], ids=str)
@pytest.mark.parametrize("activation", [None, "silu_and_mul", "gelu_and_mul"])
@pytest.mark.parametrize(("layout", "metadata", "rows"), LAYOUTS, ids=["ends", "aligned", "per_row", "masked"])
def test_agrees_with_the_reference(
    layout: Layout,
    metadata: list[int],
    rows: tuple[int, ...],
    activation: Activation | None,
    out_dtype: torch.dtype | None,
    tileops_device: torch.device,
) -> None:
    """Every layout, activation and result dtype gives the reference's values; other rows of a new tensor are zeros."""
    a = make(*rows, 40, dtype=torch.bfloat16, device=tileops_device)
    b = make(4, 48, 40, dtype=torch.bfloat16, device=tileops_device, seed=1)
    entries = torch.tensor(metadata, dtype=torch.int32, device=tileops_device)
    output = MoEGroupedGemmFwdOp(layout, activation, out_dtype)(a, b, entries)
    parameters = {"layout": layout, "activation": activation, "out_dtype": out_dtype}
    expected = REFERENCES["MoEGroupedGemmFwdOp"].expected((a, b, entries), parameters)
    (value,), (terms,) = expected.values, expected.terms
    assert value is not None
    assert_close(output, value, dtype=out_dtype or torch.bfloat16, summed=40, terms=terms)


@pytest.mark.parametrize(("layout", "metadata", "rows"), LAYOUTS, ids=["ends", "aligned", "per_row", "masked"])
def test_out_is_returned_and_other_rows_are_kept(
    layout: Layout, metadata: list[int], rows: tuple[int, ...], tileops_device: torch.device
) -> None:
    """The caller's buffer is the object returned; rows that are no expert's keep what it holds."""
    a = make(*rows, 16, dtype=torch.float16, device=tileops_device)
    b = make(4, 24, 16, dtype=torch.float16, device=tileops_device, seed=1)
    entries = torch.tensor(metadata, dtype=torch.int32, device=tileops_device)
    op = MoEGroupedGemmFwdOp(layout)
    fresh = op(a, b, entries)
    out = torch.full_like(fresh, 7.0)
    assert op(a, b, entries, out=out) is out
    assert op.last_call.has_out
    written = op(a.new_ones(a.shape), b.new_ones(b.shape), entries).ne(0)
    assert torch.equal(out, torch.where(written, fresh, torch.full_like(fresh, 7.0)))


def test_an_unaligned_out_keeps_its_other_rows(tileops_device: torch.device) -> None:
    """A buffer that begins between accesses is written as an aligned one is."""
    a = make(4, 6, 16, dtype=torch.float16, device=tileops_device)
    b = make(4, 8, 16, dtype=torch.float16, device=tileops_device, seed=1)
    counts = torch.tensor([2, 0, 6, 1], dtype=torch.int32, device=tileops_device)
    op = MoEGroupedGemmFwdOp(MASKED)
    out = torch.full((4 * 6 * 8 + 1,), 7.0, dtype=torch.float16, device=tileops_device)[1:].view(4, 6, 8)
    op(a, b, counts, out=out)
    assert torch.equal(out[0, :2], op(a, b, counts)[0, :2])
    assert out[1].eq(7).all()


def test_nan_in_another_row_stays_there(tileops_device: torch.device) -> None:
    """NaN in padding, and in another expert's rows and weights, reaches no other row."""
    a = make(4, 6, 16, dtype=torch.float16, device=tileops_device)
    b = make(4, 8, 16, dtype=torch.float16, device=tileops_device, seed=1)
    counts = torch.tensor([2, 0, 6, 1], dtype=torch.int32, device=tileops_device)
    op = MoEGroupedGemmFwdOp(MASKED)
    clean = op(a, b, counts)
    a[0, 2:], a[1], b[1], a[2, 5] = math.nan, math.nan, math.nan, math.nan
    spoilt = op(a, b, counts)
    assert spoilt.isnan().any(-1).nonzero().tolist() == [[2, 5]]
    assert torch.equal(spoilt[0], clean[0])


def test_gelu_is_exact_in_its_tail(tileops_device: torch.device) -> None:
    """The gelu of a large negative gate keeps its relative accuracy."""
    gates = torch.tensor([-1.0, -3.0, -5.0], dtype=torch.float16, device=tileops_device)
    a = torch.ones(1, 1, dtype=torch.float16, device=tileops_device)
    b = torch.cat([gates, torch.ones_like(gates)]).view(1, 6, 1)
    end = torch.ones(1, dtype=torch.int32, device=tileops_device)
    output = MoEGroupedGemmFwdOp(ENDS, "gelu_and_mul", torch.float32)(a, b, end)
    exact = gates.double() * 0.5 * torch.erfc(-gates.double() / math.sqrt(2))
    assert ((output[0].double() - exact) / exact).abs().max() < 1e-5


@pytest.mark.parametrize(("rows", "experts", "n"), [(0, 4, 8), (3, 4, 0)])
def test_nothing_to_write(rows: int, experts: int, n: int, tileops_device: torch.device) -> None:
    """Without rows or columns the result is empty and no kernel is built."""
    op = MoEGroupedGemmFwdOp(ENDS)
    metadata = torch.full((experts,), rows, dtype=torch.int32, device=tileops_device)
    a = torch.ones(rows, 8, dtype=torch.float16, device=tileops_device)
    assert op(a, torch.ones(experts, n, 8, dtype=torch.float16, device=tileops_device), metadata).shape == (rows, n)
    assert list(op.iter_kernels()) == []


ONE_EXPERT: tuple[tuple[Layout, list[int], tuple[int, ...]], ...] = (
    (ENDS, [70, 70, 70], (70,)),
    (ENDS, [0, 70, 70], (70,)),
    (ENDS, [0, 0, 70], (70,)),
    (ALIGNED, [0, 5, 5], (8,)),
    (PER_ROW, [1] * 7, (7,)),
    (MASKED, [0, 6, 0], (3, 6)),
)
"""Layouts of three experts of which one has every row that counts."""


@pytest.mark.parametrize(("layout", "metadata", "rows"), ONE_EXPERT)
def test_experts_without_rows(
    layout: Layout, metadata: list[int], rows: tuple[int, ...], tileops_device: torch.device
) -> None:
    """Where one expert has every row the others' weights are not read, and other rows are zeros."""
    a = make(*rows, 16, dtype=torch.float16, device=tileops_device)
    b = torch.full((3, 8, 16), math.nan, dtype=torch.float16, device=tileops_device)
    entries = torch.tensor(metadata, dtype=torch.int32, device=tileops_device)
    chosen = 1 if layout is PER_ROW else next(expert for expert, entry in enumerate(metadata) if entry)
    b[chosen] = 1
    sums = a.double().sum(-1, keepdim=True).expand(*rows, 8)
    if layout is MASKED:
        sums = sums * torch.tensor([0, 1, 0], device=tileops_device)[:, None, None]
    if layout is ALIGNED:
        sums = sums * (torch.arange(8, device=tileops_device) < 5)[:, None]
    output = MoEGroupedGemmFwdOp(layout)(a, b, entries)
    assert_close(output, sums, dtype=torch.float16, summed=16, terms=a.double().abs().sum(-1, keepdim=True))


@pytest.mark.parametrize("activation", [None, "silu_and_mul", "gelu_and_mul"])
@pytest.mark.parametrize(("layout", "metadata", "rows"), LAYOUTS, ids=["ends", "aligned", "per_row", "masked"])
def test_no_terms(
    layout: Layout,
    metadata: list[int],
    rows: tuple[int, ...],
    activation: Activation | None,
    tileops_device: torch.device,
) -> None:
    """A product without terms is zeros in experts' rows, whatever the buffer held; other rows are kept."""
    entries = torch.tensor(metadata, dtype=torch.int32, device=tileops_device)
    a = torch.empty(*rows, 0, dtype=torch.float16, device=tileops_device)
    b = torch.empty(4, 8, 0, dtype=torch.float16, device=tileops_device)
    out = torch.full((*rows, 8 if activation is None else 4), math.nan, dtype=torch.float16, device=tileops_device)
    MoEGroupedGemmFwdOp(layout, activation)(a, b, entries, out=out)
    ones = torch.ones(*rows, 1, dtype=torch.float16, device=tileops_device)
    expert_rows = MoEGroupedGemmFwdOp(layout)(ones, ones.new_ones(4, 1, 1), entries)
    assert torch.equal(out.nan_to_num(7), (7 * (1 - expert_rows)).expand_as(out))


def test_no_experts(tileops_device: torch.device) -> None:
    """Without experts every row is padding: zeros in a new tensor, and kept in the caller's."""
    a = torch.ones(3, 8, dtype=torch.float16, device=tileops_device)
    b, ends = a.new_empty(0, 4, 8), torch.empty(0, dtype=torch.int32, device=tileops_device)
    op, out = MoEGroupedGemmFwdOp(ENDS), a.new_full((3, 4), 7)
    with poisoned_allocations():
        assert torch.equal(op(a, b, ends), a.new_zeros(3, 4))
    assert op(a, b, ends, out=out).eq(7).all()


def test_refuses_rows_that_are_no_whole_tiles() -> None:
    """Under an aligned layout the number of rows is a multiple of the alignment."""
    metadata = torch.zeros(2, dtype=torch.int32)
    with pytest.raises(ValueError, match=r"MoEGroupedGemmFwdOp: a: expected a multiple of 4 as axis 0"):
        MoEGroupedGemmFwdOp(ALIGNED)(
            torch.ones(6, 8, dtype=torch.float16), torch.ones(2, 4, 8, dtype=torch.float16), metadata
        )


def test_refuses_metadata_of_other_length() -> None:
    """Metadata has an entry for each expert where the layout says ends."""
    with pytest.raises(ShapeError, match=r"MoEGroupedGemmFwdOp.*layout_metadata.*3"):
        MoEGroupedGemmFwdOp(ENDS)(
            torch.ones(6, 8, dtype=torch.float16),
            torch.ones(2, 4, 8, dtype=torch.float16),
            torch.zeros(3, dtype=torch.int32),
        )


def test_refuses_an_out_of_other_dtype() -> None:
    """The buffer has the result's dtype."""
    with pytest.raises(DTypeError, match=r"MoEGroupedGemmFwdOp.*out.*float32.*float16"):
        MoEGroupedGemmFwdOp(ENDS, None, torch.float32)(
            torch.ones(6, 8, dtype=torch.float16),
            torch.ones(1, 4, 8, dtype=torch.float16),
            torch.tensor([6], dtype=torch.int32),
            out=torch.empty(6, 4, dtype=torch.float16),
        )


@pytest.mark.parametrize(
    ("out", "error", "message"),
    [
        (torch.empty(6, 5).half(), ShapeError, r"out: expected shape \[6, 4\] of output, received \[6, 5\]"),
        (torch.empty(24).half(), ShapeError, r"out: expected shape \[6, 4\] of output, received \[24\]"),
        (
            torch.empty(6, 4),
            DTypeError,
            r"out: expected dtype float16, .*, received float32",
        ),
        (torch.empty(6, 4, device="meta").half(), DeviceError, r"out: expected device cpu, received device meta"),
        (torch.empty(4, 6).half().t(), LayoutError, r"out: expected a contiguous tensor, received strides \[1, 6\]"),
        (torch.empty(6, 8).half()[:, ::2], LayoutError, r"out: expected a contiguous tensor, .* \[8, 2\]"),
        (torch.empty(1, 4).half().expand(6, 4), LayoutError, r"out: expected a contiguous tensor, .* \[0, 1\]"),
        ([], ArgumentError, r"out: expected a torch.Tensor, received list"),
    ],
)
def test_refuses_other_buffers(out: Any, error: type[Exception], message: str) -> None:
    """The buffer has the result's shape, dtype and device and is contiguous; the error says what is wrong."""
    a, b = torch.ones(6, 8, dtype=torch.float16), torch.ones(1, 4, 8, dtype=torch.float16)
    with pytest.raises(error, match=f"MoEGroupedGemmFwdOp: {message}"):
        MoEGroupedGemmFwdOp(ENDS)(a, b, torch.tensor([6], dtype=torch.int32), out=out)


def test_refuses_a_buffer_within_an_input(tileops_device: torch.device) -> None:
    """A buffer that shares memory with what a kernel reads is refused and not written."""
    storage = torch.ones(6 * 8 + 4, dtype=torch.float16, device=tileops_device)
    a, b = storage[:48].view(6, 8), storage.new_ones(1, 8, 8)
    ends = torch.full((24,), 6, dtype=torch.int32, device=tileops_device)
    for name, out in (
        ("a", a),
        ("a", storage[4:].view(6, 8)),
        ("b", b.view(8, 8)[2:]),
        ("layout_metadata", ends.view(torch.float16).view(6, 8)),
    ):
        before = out.clone()
        with pytest.raises(LayoutError) as caught:
            MoEGroupedGemmFwdOp(ENDS)(a, b, ends[:1], out=out)
        assert str(caught.value) == (
            f"MoEGroupedGemmFwdOp: out: expected memory of its own, received some of {name}; pass another buffer"
        )
        assert torch.equal(out.view(torch.int16), before.view(torch.int16))


def test_takes_a_buffer_beside_an_input(tileops_device: torch.device) -> None:
    """A buffer in the storage of an input is written where it holds none of the input's elements."""
    storage = torch.ones(72, dtype=torch.float16, device=tileops_device)
    a, out = storage[:48].view(6, 8), storage[48:].view(6, 4)
    end = torch.tensor([6], dtype=torch.int32, device=tileops_device)
    MoEGroupedGemmFwdOp(ENDS)(a, storage.new_ones(1, 4, 8), end, out=out)
    assert out.eq(8).all()
    assert a.eq(1).all()


def test_refuses_what_is_no_layout() -> None:
    """A layout is one of the two layout classes."""
    with pytest.raises(ParameterTypeError, match=r"MoEGroupedGemmFwdOp.*layout"):
        MoEGroupedGemmFwdOp("masked")  # type: ignore[arg-type]
