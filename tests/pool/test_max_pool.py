"""MaxPool2dFwdOp gives bit for bit what torch.nn.functional.max_pool2d does, and refuses what it must."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch.nn import functional

from tileops.errors import DTypeError, ParameterError, ParameterTypeError, ShapeError
from tileops.pool import MaxPool2dFwdOp
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, poisoned_allocations
from tileops_testing.numerics import assert_identical

pytestmark = pytest.mark.op("MaxPool2dFwdOp")

WINDOWS: tuple[dict[str, Any], ...] = (
    {"kernel_size": 1},
    {"kernel_size": 2},
    {"kernel_size": 3, "stride": 2, "padding": 1},
    {"kernel_size": (3, 2), "stride": (1, 3), "padding": (1, 0), "dilation": (2, 1)},
    {"kernel_size": 2, "stride": 1, "padding": 1, "dilation": 5},
    {"kernel_size": 3, "stride": 2, "ceil_mode": True},
    {"kernel_size": 2, "stride": 3, "padding": 1, "ceil_mode": True},
    {"kernel_size": (6, 7), "stride": (6, 7)},
)


@pytest.mark.parametrize("window", WINDOWS, ids=str)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
def test_agrees_with_torch(window: dict[str, Any], dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Every window gives torch's extents and values, NaN and infinities included."""
    planes = TensorInput(shape=(2, 3, 13, 15), dtype=dtype).make(0, tileops_device)
    planes[0, 0, 4, 4], planes[0, 1, 0, 0], planes[1, 2, 12, 14] = math.nan, math.inf, -math.inf
    planes[1, 1] = -math.inf
    with poisoned_allocations():
        output = MaxPool2dFwdOp(**window)(planes)
    assert_identical(output, functional.max_pool2d(planes, **window))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_any_layout(layout: Layout, tileops_device: torch.device) -> None:
    """The output is contiguous and torch's, however the planes lie in memory."""
    planes = TensorInput(shape=(3, 2, 9, 11), dtype=torch.float32, layout=layout).make(0, tileops_device)
    output = MaxPool2dFwdOp(3, padding=1)(planes)
    assert_identical(output, functional.max_pool2d(planes.contiguous(), 3, padding=1))
    assert output.is_contiguous()


def test_long_rows(tileops_device: torch.device) -> None:
    """Rows longer than what a CPU makes at a time are whole."""
    planes = TensorInput(shape=(1, 2, 4, 5000), dtype=torch.float16).make(0, tileops_device)
    window: dict[str, Any] = {"kernel_size": 3, "stride": 2, "padding": 1}
    assert_identical(MaxPool2dFwdOp(**window)(planes), functional.max_pool2d(planes, **window))


@pytest.mark.parametrize("shape", [(0, 3, 8, 8), (2, 0, 8, 8)])
def test_no_planes(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """Without planes the output is empty and no kernel is built."""
    op = MaxPool2dFwdOp(2)
    assert op(torch.empty(shape, device=tileops_device)).shape == (*shape[:2], 4, 4)
    assert list(op.iter_kernels()) == []


def test_windows_outside_their_plane(tileops_device: torch.device) -> None:
    """A window of which every place is padding gives -inf, as in torch, and so does one of a plane without rows."""
    planes = torch.ones(1, 1, 1, 5, device=tileops_device)
    window: dict[str, Any] = {"kernel_size": (1, 2), "padding": (0, 1), "dilation": (1, 6)}
    output = MaxPool2dFwdOp(**window)(planes)
    assert output.tolist() == [[[[-math.inf]]]]
    assert_identical(output, functional.max_pool2d(planes, **window))
    assert MaxPool2dFwdOp(2, padding=1)(planes[:, :, :0]).tolist() == [[[[-math.inf] * 3]]]


@pytest.mark.parametrize(
    ("kernel_size", "stride", "padding", "dilation"),
    [(2, 1, 1, 2), (3, 3, (1, 0), (1, 5)), ((3, 2), (3, 2), 1, 2), (3, None, 1, (2, 1)), ((2, 3), 4, (0, 1), 1)],
)
def test_last_windows_under_ceil_mode(
    kernel_size: Any, stride: Any, padding: Any, dilation: Any, tileops_device: torch.device
) -> None:
    """A last window that is not whole counts where torch counts it, on planes of any extent."""
    window: dict[str, Any] = {
        "kernel_size": kernel_size,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "ceil_mode": True,
    }
    op = MaxPool2dFwdOp(**window)
    for height, width in ((11, 12), (12, 13), (13, 14), (14, 11)):
        planes = TensorInput(shape=(1, 2, height, width), dtype=torch.float32).make(0, tileops_device)
        assert_identical(op(planes), functional.max_pool2d(planes, **window))


def test_extents_do_not_build() -> None:
    """Planes of other extents use the kernel that is there."""
    op = MaxPool2dFwdOp(2)
    for shape in ((1, 1, 4, 4), (2, 3, 9, 8), (1, 1, 2, 700)):
        op(torch.zeros(shape))
    assert len(list(op.iter_kernels())) == 1


def test_refuses_wide_padding() -> None:
    """Padding beyond half the kernel is refused, as torch does."""
    with pytest.raises(ParameterError, match="MaxPool2dFwdOp: padding: expected 0 to 1 for kernel_size=2, received 2"):
        MaxPool2dFwdOp(2, padding=2)


def test_refuses_no_stride() -> None:
    """A stride of zero is refused."""
    with pytest.raises(ParameterError, match="MaxPool2dFwdOp: stride: expected at least 1, received 0"):
        MaxPool2dFwdOp(2, stride=0)


def test_refuses_small_planes() -> None:
    """Planes that hold no window are refused, and what their extent follows from is named."""
    with pytest.raises(ValueError, match="MaxPool2dFwdOp: output: expected at least 1 as axis 2 for H=4"):
        MaxPool2dFwdOp(5)(torch.zeros(1, 1, 4, 9))


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.bool, torch.float64], ids=str)
def test_refuses_other_dtypes(dtype: torch.dtype) -> None:
    """Integers, booleans and float64 are refused."""
    with pytest.raises(DTypeError, match=rf"MaxPool2dFwdOp: input: .*received {str(dtype).removeprefix('torch.')}"):
        MaxPool2dFwdOp(2)(torch.zeros(1, 1, 4, 4, dtype=dtype))


def test_refuses_unbatched_planes() -> None:
    """Planes have a batch axis and a channel axis."""
    with pytest.raises(ShapeError, match=r"MaxPool2dFwdOp: input: expected shape \[N, C, H, W\], received \[3, 8, 8\]"):
        MaxPool2dFwdOp(2)(torch.zeros(3, 8, 8))


def test_refuses_other_parameters() -> None:
    """A kernel size is an integer or a pair."""
    with pytest.raises(ParameterTypeError, match=r"MaxPool2dFwdOp.*kernel_size"):
        MaxPool2dFwdOp("3")  # type: ignore[arg-type]
