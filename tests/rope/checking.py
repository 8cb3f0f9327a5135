"""Tokens, and comparing what an op makes of them with its reference."""

from __future__ import annotations

import torch
from torch import Tensor

from tileops_testing.inputs import Layout, TensorInput
from tileops_testing.numerics import assert_close
from tileops_testing.references import Expected, reference_for

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
SHAPES = ((300, 64), (3, 2), (5, 70), (2, 600), (1, 128), (2, 17, 3, 64), (1, 5, 2, 12), (3, 1, 1, 8))


def make(*shape: int, dtype: torch.dtype, device: torch.device, layout: Layout = "contiguous") -> Tensor:
    return TensorInput(shape=shape, dtype=dtype, layout=layout).make(0, device)


def expected(op: str, x: Tensor, **parameters: object) -> Expected:
    return reference_for(op, "rope").expected((x,), parameters)


def check(y: Tensor, right: Expected) -> None:
    assert right.values[0] is not None
    assert_close(y, right.values[0], dtype=y.dtype, terms=right.terms[0])


def layout_of(shape: tuple[int, ...]) -> str:
    return "1d" if len(shape) == 2 else "2d"
