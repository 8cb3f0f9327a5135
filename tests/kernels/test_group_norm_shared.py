"""GroupNorm of groups that blocks share: which calls it serves, its settings, and what it launches."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import pytest
import torch

from tests.kernels.launches import Launches
from tileops_kernels.build import cuda
from tileops_kernels.devices import STATED_FACTS
from tileops_kernels.norm import GroupNormCall, group_norm_kernels
from tileops_kernels.norm.group_norm import SHARED_BYTES, GroupNormSharedKernel
from tileops_kernels.norm.planes import LARGE_BYTES

CUDA = torch.device("cuda", 0)
HALF = SHARED_BYTES // 2
"""Elements of half precision in the smallest group that is shared."""


def groups(
    n: int, span: int, dtype: torch.dtype = torch.bfloat16, weight_dtype: torch.dtype | None = None, arch: int = 90
) -> GroupNormCall:
    return GroupNormCall(
        device=CUDA, n=n, span=span, eps=1e-5, dtype=dtype, weight_dtype=weight_dtype, facts=STATED_FACTS[arch]
    )


@pytest.mark.parametrize("arch", STATED_FACTS)
@pytest.mark.parametrize(
    ("n", "span", "dtype", "expected"),
    [
        (HALF, 4, torch.float16, "group_norm_shared"),
        (HALF - 32, 4, torch.float16, "group_norm_streaming"),
        (HALF // 2, 4, torch.float32, "group_norm_shared"),
        (HALF // 2 - 16, 4, torch.float32, "group_norm_streaming"),
        (HALF, 1, torch.bfloat16, "group_norm_shared"),
        (HALF + 4, 4, torch.bfloat16, "group_norm_shared"),
        (HALF - 4, 4, torch.bfloat16, "group_norm"),
        (HALF, HALF, torch.bfloat16, "group_norm_shared"),
    ],
)
def test_groups_of_a_megabyte_are_shared(n: int, span: int, dtype: torch.dtype, expected: str, arch: int) -> None:
    """Groups from 1 MiB on are shared among blocks, whatever their channels; smaller ones have a block each."""
    assert group_norm_kernels().key_for(groups(n, span, dtype, arch=arch)) == expected


def test_size_is_named_in_the_refusal() -> None:
    """A group that is too small is refused with its bytes and the least that is shared; dtypes as in other norms."""
    assert GroupNormSharedKernel.refusal(groups(HALF - 8, 1)) == (
        "blocks share groups of 1048576 bytes or more; n=524280 takes 1048560"
    )
    refusal = GroupNormSharedKernel.refusal(groups(HALF, 1, torch.float16, torch.bfloat16))
    assert refusal == "takes weights in float32 or float16 for float16, not bfloat16"


@pytest.mark.parametrize(
    ("channel", "span", "shape", "size", "expected"),
    [
        (1 << 20, 4, (4, 128, 1 << 17), 1 << 30, (True, 32)),
        (1 << 20, 1, (4, 128, 1 << 17), 1 << 30, (True, 8)),
        (1 << 20, 4, (4, 128, 1 << 17), LARGE_BYTES - 1, (False, 4)),
        (1 << 20, 4, (4, 128, 1 << 17), LARGE_BYTES, (True, 32)),
        (1 << 20, 1, (65535, 1, 1 << 17), LARGE_BYTES, (True, 8)),
        (1 << 20, 1, (65536, 1, 1 << 17), LARGE_BYTES, (False, 1)),
        (1 << 19, 1, (1, 1, 1 << 16), 1 << 20, (False, 32)),
        (1 << 19, 1, (1, 800, 1 << 16), 1 << 28, (False, 1)),
    ],
    ids=["row", "instances", "below", "large", "grid", "beyond_a_grid", "one_group", "many_groups"],
)
def test_variants(channel: int, span: int, shape: tuple[int, int, int], size: int, expected: tuple[bool, int]) -> None:
    """Maps from 512 MiB on that a grid holds are large; groups are split as far as blocks find work."""
    assert GroupNormSharedKernel(groups(channel * span, span)).variant(shape, size) == expected


def test_lengths_share_an_entry_and_programs() -> None:
    """Groups with equal settings share an entry, whatever their length, and what it chooses follows from the call."""
    one, other = (GroupNormSharedKernel.entry_for(groups(4 * length, 4)) for length in (1 << 20, (1 << 18) + 8))
    assert one[0] == other[0]
    assert GroupNormSharedKernel.entry_for(groups(8 << 20, 8))[0] != one[0]
    assert other[1]().variant((4, 128, 1 << 17), 1 << 30) == (True, 32)
    for program, large in zip(one[1]().programs(), (False, True), strict=True):
        assert dict(program.arguments) == {
            "dtype": "bfloat16",
            "scales": "bfloat16",
            "wide": 8,
            "threads": 256,
            "depth": 8,
            "vector": 8,
            "lanes": 256,
            "slots": 1,
            "unroll": 4,
            "span": 4,
            "large": large,
        }


def test_x_is_given_as_groups_and_as_planes(monkeypatch: pytest.MonkeyPatch) -> None:
    """One program gets x in groups for its statistics and in planes for the pass, each in its widest access."""
    launches = Launches(monkeypatch)
    flat = torch.randn(2 * 4 * 513 * 514 + 1).half()[1:]
    x, bias = flat.view(2, 4, 513, 514), torch.ones(4)
    y = GroupNormSharedKernel(groups(2 * 513 * 514, 2, torch.float16, torch.float32)).forward(x, None, bias)
    (program,) = launches.programs
    assert program.builder == "group_norm_shared"
    whole, weight, shift, parts, means, scales, planes, written = launches.tensors()
    assert [tuple(tensor.shape) for tensor in (whole, planes, written)] == [
        (1, 4, 131841, 4),
        (2, 4, 131841, 2),
        (2, 4, 131841, 2),
    ]
    assert (whole.data_ptr() % 16, whole.data_ptr(), written.data_ptr()) == (0, planes.data_ptr(), y.data_ptr())
    assert torch.equal(planes.reshape(x.shape), x)
    assert [tuple(tensor.shape) for tensor in (parts, means, scales)] == [(65, 4, 4), (4, 2), (4,)]
    assert all(tensor.is_contiguous() and tensor.dtype == torch.float32 for tensor in (parts, means, scales))
    assert (weight.shape, weight.dtype, shift.data_ptr()) == ((4,), torch.float32, bias.data_ptr())
    assert launches.arguments[-1][-2:] == (1e-5, 2)


def test_weights_that_are_missing_have_stand_ins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for weight and bias have an element for each channel, also where groups have few statistics."""
    launches = Launches(monkeypatch)
    x = torch.randn(1, HALF).half()
    GroupNormSharedKernel(groups(HALF, HALF, torch.float16)).forward(x, None, None)
    _, weight, shift, *_ = launches.tensors()
    assert {(tuple(tensor.shape), tensor.dtype) for tensor in (weight, shift)} == {((HALF,), torch.float16)}
    assert weight.untyped_storage().nbytes() >= 2 * HALF
    assert launches.arguments[-1][-1] == 0


def test_no_elements_launch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without elements returns without building or launching."""
    launches = Launches(monkeypatch)
    assert GroupNormSharedKernel(groups(HALF, 2)).forward(torch.empty(0, 4, HALF // 2), None, None).numel() == 0
    assert launches.programs == []


@pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)
@pytest.mark.parametrize("large", [False, True], ids=["cached", "large"])
def test_offsets_are_wide_and_accesses_whole(large: bool) -> None:
    """A program compiles for Hopper as three launches with 64-bit sizes, and moves x and y 16 bytes at a time."""
    text = cuda.cross_compile(GroupNormSharedKernel(groups(4 << 20, 4)).program(large), arch=90)
    assert text.count("__launch_bounds__") == 3
    assert "int64_t batch, int64_t channels" in text
    assert "tileops_read_once((&(x[" in text
    assert ("*(uint4*)(Z + " in text) == large
    assert "*(uint4*)(Y + " in text
    assert bool(re.search(r"\(int64_t\)blockIdx\.z\) \* length", text)) == large


def test_dtype_of_weights_is_part_of_a_program() -> None:
    """Weights in float32 beside half-precision maps are read as they are."""
    call = replace(groups(4 << 20, 4), weight_dtype=torch.float32)
    assert [dict(program.arguments)["scales"] for program in GroupNormSharedKernel(call).programs()] == ["float32"] * 2
