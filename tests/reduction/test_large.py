"""Reduction ops past 2**31 elements, whose offsets need 64 bits, and past 65535 slices."""

from __future__ import annotations

import pytest
import torch

from tileops.reduction import ArgmaxFwdOp, CumsumFwdOp, ProdFwdOp, SoftmaxFwdOp, SumFwdOp

pytestmark = [
    pytest.mark.op("SumFwdOp", "ProdFwdOp", "SoftmaxFwdOp", "ArgmaxFwdOp", "CumsumFwdOp"),
    pytest.mark.full,
]

ROWS, COLUMNS = 1 << 20, 2049
NEEDED = 16 << 30


@pytest.fixture
def device(tileops_device: torch.device) -> torch.device:
    if tileops_device.type != "cuda":
        pytest.skip(f"tensors of 2**31 elements are tried on CUDA, the device is {tileops_device}")
    if torch.cuda.mem_get_info(tileops_device)[0] < NEEDED:
        pytest.skip(f"{NEEDED >> 30} GiB of free memory are needed")
    return tileops_device


def test_rows_past_two_to_the_31(device: torch.device) -> None:
    """The last rows of a tensor of more than 2**31 elements are what they are alone."""
    x = torch.zeros(ROWS, COLUMNS, dtype=torch.float16, device=device)
    x[-1], x[ROWS // 2], x[0, 3] = 1.0, 2.0, 0.5
    y = SumFwdOp(1, dtype=torch.float32)(x)
    assert [y[place].item() for place in (0, 1, ROWS // 2, -2, -1)] == [0.5, 0.0, 2.0 * COLUMNS, 0.0, COLUMNS]
    assert SumFwdOp(0, dtype=torch.float32)(x)[:4].tolist() == [3.0, 3.0, 3.0, 3.5]
    assert SumFwdOp(dtype=torch.float32)(x).item() == pytest.approx(3 * COLUMNS + 0.5)
    y = SoftmaxFwdOp(1)(x)
    assert y[1:].eq(torch.tensor(1 / COLUMNS, dtype=torch.float16)).all()
    assert y[0, 3] > y[0, 2] > 0


def test_positions_past_two_to_the_31(device: torch.device) -> None:
    """Positions beyond 2**31 are found whole, and the last rows and columns as the first."""
    x = torch.zeros(ROWS, COLUMNS, dtype=torch.float16, device=device)
    x[0, 3], x[-1, 5] = 1.0, 2.0
    assert ArgmaxFwdOp()(x).item() == x.numel() - COLUMNS + 5
    assert ArgmaxFwdOp(1)(x).nonzero().flatten().tolist() == [0, ROWS - 1]
    assert ArgmaxFwdOp(0)(x)[:6].tolist() == [0, 0, 0, 0, 0, ROWS - 1]


def test_scans_past_two_to_the_31(device: torch.device) -> None:
    """The last rows and the last columns are scanned as they are alone."""
    x = torch.zeros(ROWS, COLUMNS, dtype=torch.float16, device=device)
    x[-1], x[0] = 1.0, 2.0
    y = CumsumFwdOp(1)(x)
    assert (y[-1, :4].tolist(), y[-1, -1].item(), y[1:-1].any().item()) == ([1.0, 2.0, 3.0, 4.0], 2048.0, False)
    del y
    y = CumsumFwdOp(0)(x)
    assert (y[:-1].eq(2).all().item(), y[-1].eq(3).all().item()) == (True, True)


def test_columns_past_two_to_the_31(device: torch.device) -> None:
    """The last columns of the last slice of such a tensor are reduced as the first are."""
    x = torch.ones(2, 2, ROWS // 2, COLUMNS // 2 + 1, dtype=torch.int8, device=device)
    x[-1, :, -1, -1] = 2
    y = ProdFwdOp(1)(x)
    assert (y[-1, -1, -1].item(), y[0, 0, 0].item(), y.sum().item()) == (4, 1, y.numel() + 3)


@pytest.mark.parametrize("slices", [65535, 65536, 70000])
def test_many_slices(slices: int, device: torch.device) -> None:
    """More slices than a second or third grid axis may have are all reduced."""
    x = torch.ones(slices, 3, 4, device=device)
    assert SumFwdOp((1, 2))(x).eq(12).all()
    assert SumFwdOp(1)(x).eq(3).all()
    assert SoftmaxFwdOp(1)(x).mul(3).eq(1).all()
    assert ArgmaxFwdOp(1)(x).eq(0).all()
    assert CumsumFwdOp(1)(x)[:, -1].eq(3).all()
