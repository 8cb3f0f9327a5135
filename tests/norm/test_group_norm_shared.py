"""GroupNormFwdOp agrees with torch where blocks share groups on CUDA: in maps of every size, a megabyte a group."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.norm.test_group_norm import AFFINE, DTYPES, group, make, sizes_of
from tileops.norm import GroupNormFwdOp, InstanceNormFwdOp
from tileops_kernels.norm.planes import LARGE_BYTES
from tileops_testing.inputs import poisoned_allocations
from tileops_testing.numerics import assert_close, assert_identical

SHARED = (
    ((1, 4, 512, 520), 2),
    ((2, 3, 1024, 520), 3),
    ((2, 4, 511, 1027), 2),
    ((1, 2, 1 << 19), 1),
    ((2, 1 << 19), 1),
)


@pytest.fixture(autouse=True)
def _device(tileops_device: torch.device) -> None:
    """Only CUDA has a kernel type of its own for such groups."""
    if tileops_device.type != "cuda":
        pytest.skip("groups of a megabyte are as all others on a CPU: pass --tileops-device=cuda on a machine with one")


@pytest.fixture(params=[LARGE_BYTES, 1], ids=["cached", "large"], autouse=True)
def _large_from(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """What maps that count as large have at least: more bytes than those of a test have, or less."""
    monkeypatch.setattr("tileops_kernels.norm.planes.LARGE_BYTES", request.param)


def keys(op: GroupNormFwdOp | InstanceNormFwdOp) -> set[str]:
    """Return the names of the kernel types that have served an op."""
    return {type(kernel).__name__ for kernel in op.iter_kernels()}


@group
@AFFINE
@pytest.mark.parametrize(("shape", "groups"), SHARED, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_values_agree_with_torch(
    dtype: torch.dtype, shape: tuple[int, ...], groups: int, affine: tuple[str, ...], tileops_device: torch.device
) -> None:
    """Any dtype and channels, with weight and bias in it or in float32, gives torch's values, rounded once."""
    x, op = make(*shape, dtype=dtype, device=tileops_device), GroupNormFwdOp(groups)
    for weight_dtype in {dtype, torch.float32}:
        given = {name: make(shape[1], dtype=weight_dtype, device=tileops_device, seed=len(name)) for name in affine}
        with poisoned_allocations():
            y = op(x, **given)
        wide = {name: tensor.double() for name, tensor in given.items()}
        expected = functional.group_norm(x.double(), groups, wide.get("weight"), wide.get("bias"))
        sizes = sizes_of(functional.group_norm(x.double(), groups), given.get("weight"), given.get("bias"))
        assert_close(y, expected, dtype=dtype, summed=x[0].numel() // groups, terms=sizes)
    assert keys(op) == {"GroupNormSharedKernel"}


@pytest.mark.op("InstanceNormFwdOp")
def test_planes_are_groups_of_one_channel(tileops_device: torch.device) -> None:
    """Planes of a megabyte that are normalised each for itself are shared too."""
    x = make(2, 3, 1 << 19, dtype=torch.bfloat16, device=tileops_device)
    weight, bias = (make(3, dtype=torch.bfloat16, device=tileops_device, seed=seed) for seed in (3, 4))
    op = InstanceNormFwdOp()
    y = op(x, weight=weight, bias=bias)
    expected = functional.instance_norm(x.double(), weight=weight.double(), bias=bias.double())
    sizes = sizes_of(functional.instance_norm(x.double()), weight, bias)
    assert_close(y, expected, dtype=torch.bfloat16, summed=1 << 19, terms=sizes)
    assert keys(op) == {"GroupNormSharedKernel"}


@group
@pytest.mark.parametrize("offset", [30000.0, -1e6])
def test_large_means_cost_no_digits(offset: float, tileops_device: torch.device) -> None:
    """Values that change late in a group, about a mean that is far larger, are normalised as if they were centred."""

    def maps(*values: float) -> Tensor:
        return torch.tensor(values, device=tileops_device).repeat_interleave(100_000).repeat(4).reshape(2, 8, 100_000)

    right = maps(-1.341639, -0.447213, 0.447213, 1.341639)
    y = GroupNormFwdOp(2)(maps(0, 2, 4, 6) + offset)
    torch.testing.assert_close(y, right, rtol=0, atol=4e-6)


@group
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf], ids=str)
def test_nan_and_infinity_stay_in_their_group(value: float, tileops_device: torch.device) -> None:
    """A NaN or an infinity makes its group NaN and changes no other group by a bit."""
    clean = make(2, 4, 1 << 18, dtype=torch.bfloat16, device=tileops_device)
    spoilt = clean.clone()
    spoilt[1, 0, 77777] = value
    op = GroupNormFwdOp(2)
    y, expected = op(spoilt), op(clean)
    assert y[1, :2].isnan().all()
    assert_identical(y[0], expected[0])
    assert_identical(y[1, 2:], expected[1, 2:])
