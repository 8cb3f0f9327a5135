"""Reductions on CUDA that combine words of elements: which they are, and what becomes of words."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from tests.kernels.test_reduce_kernels import cuda_call
from tileops_kernels.build import cuda
from tileops_kernels.macros import cuda_words
from tileops_kernels.reduction import Contribution, Operation
from tileops_kernels.reduction.launches import ColumnSettings
from tileops_kernels.reduction.reduce import PlaneSettings, ReduceKernel, RowSettings, Settings

combines_words: Callable[[str, str, str], bool] = cuda_words.combines_words
words: Callable[[str, str, str], str] = cuda_words.words

SOURCES = ("float16", "bfloat16", "float32", "uint8", "int8", "int16", "int32", "int64", "complex64", "complex128")


def test_extremes_and_truths_are_combined_by_words() -> None:
    """Extremes of floating-point elements, and any and all of every dtype whose elements lie within words."""
    floats = {"float16", "bfloat16", "float32"}
    whole = {*floats, "uint8", "int8", "int16", "int32"}
    expected: dict[tuple[Operation, Contribution], set[str]] = {
        ("amax", "value"): floats,
        ("amin", "value"): floats,
        ("amax", "absolute"): floats,
        ("amax", "nonzero"): {*whole, "int64"},
        ("amin", "nonzero"): whole,
        ("sum", "value"): set(),
        ("sum", "nonzero"): set(),
        ("prod", "value"): set(),
    }
    for (operation, of), sources in expected.items():
        assert {source for source in SOURCES if combines_words(operation, of, source)} == sources, (operation, of)


@pytest.mark.parametrize(("source", "size"), [("uint8", 1), ("int8", 1), ("int16", 2)])
def test_elements_of_a_word_do_not_touch_each_other(source: str, size: int) -> None:
    """In `all`, the highest bit of an element stays where it is not zero, whatever its neighbours are."""
    found = re.search(r"return (kept & .*);", words("amin", "nonzero", source))
    assert found
    statement = re.sub(r"(0x\w+)u", r"\1", found[1])
    values = (0, 1, 2, (1 << 8 * size - 1) - 1, 1 << 8 * size - 1, (1 << 8 * size) - 1)
    kept = int.from_bytes((b"\0" * (size - 1) + b"\x80") * (4 // size), "little")
    for first in values:
        for second in values:
            met = first | second << (32 - 8 * size)
            made = eval(statement, {"kept": kept, "met": met}) & 0xFFFFFFFF  # noqa: S307 - the statement is C too
            highest = 1 << 8 * size - 1
            assert bool(made & highest) == bool(first)
            assert bool(made & 1 << 31) == bool(second)


@pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)
@pytest.mark.parametrize(
    ("operation", "of", "dtype", "settings", "expected"),
    [
        ("amax", "value", torch.float16, RowSettings(8, 64, 2, 8), "max.NaN.f16x2"),
        ("amax", "absolute", torch.float32, RowSettings(4, 32, 4, 8), r"max.NaN.f32.*met & 0x7fffffffu"),
        ("amin", "nonzero", torch.bfloat16, PlaneSettings(8), r"min.bf16x2.*met & 0x7fff7fffu"),
        ("amax", "nonzero", torch.bool, ColumnSettings(16, 2, 256, 8), r"return kept \| met;"),
        ("amin", "nonzero", torch.int32, ColumnSettings(4, 32, 8, 8), "met < kept"),
    ],
    ids=str,
)
def test_what_words_become(
    operation: Operation, of: Contribution, dtype: torch.dtype, settings: Settings, expected: str
) -> None:
    """One or two instructions a word, whether rows lie together, columns side by side, or channels in planes."""
    result = torch.bool if of == "nonzero" else dtype
    kernel = ReduceKernel(replace(cuda_call(dtype, result, operation), of=of))
    text = cuda.cross_compile(kernel.program(kernel.first, settings), arch=90)
    assert re.search(expected, text)
    assert "tileops_words((&(kept[0])), (&(x[" in text
