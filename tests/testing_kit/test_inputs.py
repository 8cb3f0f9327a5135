"""Seeded inputs: equal seeds give equal tensors, and each layout is what its name says."""

from __future__ import annotations

import pytest
import torch

from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, lay_out, poison, poisoned_allocations

CPU = torch.device("cpu")


def test_equal_seeds_give_equal_tensors() -> None:
    """The seed alone decides the values."""
    spec = TensorInput(shape=(4, 6), dtype=torch.float16)
    assert torch.equal(spec.make(3, CPU), spec.make(3, CPU))
    assert not torch.equal(spec.make(3, CPU), spec.make(4, CPU))


def test_the_largest_tensors_are_drawn_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """No piece repeats another, every element is drawn, and the seed alone decides."""
    monkeypatch.setattr("tileops_testing.inputs._DRAWN_AT_ONCE", 10)
    spec = TensorInput(shape=(4, 6), dtype=torch.float32, values="near_one")
    drawn = spec.make(3, CPU)
    assert torch.equal(spec.make(3, CPU), drawn)
    assert len(drawn.unique()) == 24
    assert ((drawn > 0.4) & (drawn < 1.6)).all()


@pytest.mark.parametrize(
    ("layout", "strides", "offset"),
    [
        ("contiguous", (6, 1), 0),
        ("transposed", (1, 4), 0),
        ("expanded", (0, 1), 0),
        ("sliced", (11, 1), 3),
        ("offset", (6, 1), 1),
    ],
)
def test_layouts(layout: Layout, strides: tuple[int, ...], offset: int) -> None:
    """Each layout has its strides and storage offset."""
    tensor = TensorInput(shape=(4, 6), dtype=torch.float32, layout=layout).make(0, CPU)
    assert (tensor.stride(), tensor.storage_offset(), tensor.shape) == (strides, offset, (4, 6))


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "expanded"])
@pytest.mark.parametrize("shape", [(), (5,), (4, 6), (2, 3, 4), (0, 4)])
def test_layout_keeps_the_elements(layout: Layout, shape: tuple[int, ...]) -> None:
    """Every layout but the expanded one holds the elements of the dense tensor."""
    dense = torch.arange(torch.Size(shape).numel(), dtype=torch.float32).view(shape)
    assert torch.equal(lay_out(dense, layout), dense)


def test_an_input_that_must_be_contiguous_is_at_most_offset() -> None:
    """Of the layouts it takes the one that is contiguous too."""
    spec = TensorInput(shape=(2, 3), dtype=torch.float32, contiguous=True)
    assert [spec.with_layout(layout).layout for layout in LAYOUTS] == [*["contiguous"] * 4, "offset"]


def test_one_axis_is_laid_out_with_gaps() -> None:
    """A transposed or sliced vector lies apart from its start or with gaps."""
    vector = torch.arange(5.0)
    assert lay_out(vector, "transposed").stride() == (2,)
    assert lay_out(vector, "sliced").storage_offset() == 3


@pytest.mark.parametrize(
    ("values", "low", "high"), [("positive", 0.0, 1.0), ("near_one", 0.0, 2.0), ("large", 9e3, 1.1e4)]
)
def test_kinds_of_values(values: str, low: float, high: float) -> None:
    """Each kind of values lies in its range."""
    tensor = TensorInput(shape=(1000,), dtype=torch.float32, values=values).make(0, CPU)  # type: ignore[arg-type]
    assert low < tensor.min() <= tensor.max() <= high


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_complex_inputs_have_two_parts(dtype: torch.dtype) -> None:
    """Both parts of complex elements are drawn, apart from each other, in every layout."""
    for layout in LAYOUTS:
        tensor = TensorInput(shape=(4, 6), dtype=dtype, layout=layout).make(0, CPU)
        assert (tensor.dtype, tensor.shape) == (dtype, (4, 6))
        assert tensor.real.ne(0).all()
        assert tensor.imag.ne(0).all()
        assert tensor.real.ne(tensor.imag).all()


def test_allocations_are_poisoned_within_the_block_only() -> None:
    """Inside the block uninitialised memory is NaN; afterwards torch's settings are as before."""
    with poisoned_allocations():
        assert torch.empty(3).isnan().all()
        assert torch.empty_like(torch.ones(2, dtype=torch.float16)).isnan().all()
        assert (torch.empty(3, dtype=torch.int32) == torch.iinfo(torch.int32).max).all()
    assert not torch.are_deterministic_algorithms_enabled()


def test_poison_fills_every_dtype() -> None:
    """Poison is NaN for floats, the largest number for integers, True for booleans."""
    assert poison(torch.zeros(2, dtype=torch.bfloat16)).isnan().all()
    assert poison(torch.zeros(2, dtype=torch.int8)).eq(127).all()
    assert poison(torch.zeros(2, dtype=torch.bool)).all()
