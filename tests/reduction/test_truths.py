"""Booleans whose bytes are neither 0 nor 1, as views of other tensors have: every one that is not 0 is true."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tileops.op import Op
from tileops.reduction import (
    AllFwdOp,
    AmaxFwdOp,
    AminFwdOp,
    AnyFwdOp,
    CountNonzeroFwdOp,
    CumprodFwdOp,
    CumsumFwdOp,
    LogSumExpFwdOp,
    ProdFwdOp,
    SumFwdOp,
)
from tileops_testing.numerics import assert_close, assert_identical

CASES: tuple[tuple[Callable[[int], Op], Callable[[Tensor, int], Tensor]], ...] = (
    (SumFwdOp, torch.sum),
    (ProdFwdOp, torch.prod),
    (CumsumFwdOp, torch.cumsum),
    (CumprodFwdOp, torch.cumprod),
    (CountNonzeroFwdOp, torch.count_nonzero),
    (AmaxFwdOp, torch.amax),
    (AminFwdOp, torch.amin),
    (AnyFwdOp, torch.any),
    (AllFwdOp, torch.all),
)

pytestmark = pytest.mark.op(*(str(make.__name__) for make, _ in CASES), "LogSumExpFwdOp")


def truths(rows: int, columns: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Bytes from 0 to 255, as booleans, of which the first row and column hold no 0; and what torch makes of them."""
    generator = torch.Generator().manual_seed(0)
    given = torch.randint(-255, 256, (rows, columns), generator=generator).clamp(0).to(torch.uint8)
    given[0, :], given[:, 0] = 2, 254
    given = given.to(device)
    return given.view(torch.bool), given.ne(0)


@pytest.mark.parametrize("dim", [0, 1])
@pytest.mark.parametrize("shape", [(3, 5), (37, 300), (2, 4096), (4096, 3), (1, 200_000)], ids=str)
@pytest.mark.parametrize(("make", "expected"), CASES, ids=[make.__name__ for make, _ in CASES])
def test_every_byte_but_zero_is_true(
    make: Callable[[int], Op],
    expected: Callable[[Tensor, int], Tensor],
    shape: tuple[int, int],
    dim: int,
    tileops_device: torch.device,
) -> None:
    """A result is that of the booleans that torch makes of such bytes, and booleans that it holds are bytes 0 and 1."""
    given, plain = truths(*shape, tileops_device)

    y = make(dim)(given)

    assert_identical(y, expected(plain, dim))
    if y.dtype is torch.bool:
        assert y.view(torch.uint8).max() <= 1


@pytest.mark.parametrize("dim", [0, 1])
def test_each_weighs_the_same_in_a_log_sum_exp(dim: int, tileops_device: torch.device) -> None:
    """A true element is 1, whatever its byte."""
    given, plain = truths(37, 300, tileops_device)

    assert_close(LogSumExpFwdOp(dim)(given), torch.logsumexp(plain, dim), dtype=torch.float32, summed=300, what="bool")
