"""Kernel types of InstanceNorm with running statistics: which serves what, its settings, and what it launches."""

from __future__ import annotations

import shutil

import pytest
import torch
from torch import Tensor

from tests.kernels.launches import Launches
from tileops_kernels.build import cuda
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.norm import BatchNormInferCall, InstanceNormTrainCall, instance_norm_train_kernels
from tileops_kernels.norm.batch_norm import BatchNormInferKernel
from tileops_kernels.norm.instance_norm import InstanceNormTrainKernel, InstanceSettings, instance_settings
from tileops_kernels.norm.planes import LARGE_BYTES

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
CUDA = torch.device("cuda", 0)


def moving(
    length: int, dtype: torch.dtype = torch.float16, weight_dtype: torch.dtype = torch.float32
) -> InstanceNormTrainCall:
    return InstanceNormTrainCall(
        device=CUDA, length=length, eps=1e-5, momentum=0.1, dtype=dtype, weight_dtype=weight_dtype, facts=HOPPER
    )


def test_one_type_for_each_device() -> None:
    """Each device has one kernel type."""
    table = instance_norm_train_kernels()
    assert table.key_for(moving(49)) == "instance_norm_train"
    facts = DeviceFacts(arch=0, sm_count=2, smem_budget=0)
    call = InstanceNormTrainCall(
        device=torch.device("cpu"), length=49, eps=1e-5, momentum=0.1, dtype=torch.float32, facts=facts
    )
    assert table.key_for(call) == "instance_norm_train_cpu"


def test_weights_of_another_half_are_refused() -> None:
    """Weights are of the activations' dtype or float32."""
    refusal = InstanceNormTrainKernel.refusal(moving(49, torch.float16, torch.bfloat16))
    assert refusal == "takes weights in float32 or float16 for float16, not bfloat16"


@pytest.mark.parametrize(
    ("length", "dtype", "settings"),
    [
        (1024, torch.float16, InstanceSettings(lanes=32, slots=8, unroll=4, blocks=1)),
        (1024, torch.float32, InstanceSettings(lanes=32, slots=8, unroll=8, blocks=1)),
        (49, torch.float32, InstanceSettings(lanes=32, slots=8, unroll=2, blocks=1)),
        (2, torch.float16, InstanceSettings(lanes=1, slots=16, unroll=1, blocks=1)),
        (2056, torch.float16, InstanceSettings(lanes=64, slots=4, unroll=5, blocks=1)),
        (1 << 20, torch.bfloat16, InstanceSettings(lanes=512, slots=1, unroll=8, blocks=1)),
    ],
)
def test_instance_settings(length: int, dtype: torch.dtype, settings: InstanceSettings) -> None:
    """Lanes hold a plane in up to eight vectors each, and the other threads more planes."""
    assert instance_settings(length, dtype) == settings


@pytest.mark.parametrize(
    ("length", "shape", "size", "expected"),
    [
        (1024, (8, 64, 128), 1 << 21, ("whole", 0)),
        (1024, (800, 3, 128), 1 << 21, ("whole", 0)),
        (1 << 16, (4, 64, 1 << 13), 1 << 25, ("shared", 2)),
        (1 << 16, (5, 115, 1 << 13), 1 << 25, ("shared", 1)),
        (1 << 16, (5, 116, 1 << 13), 1 << 25, ("whole", 0)),
        (1 << 20, (4, 128, 1 << 17), LARGE_BYTES, ("whole", 0)),
        (1 << 20, (4, 64, 1 << 17), LARGE_BYTES, ("large", 8)),
        (1 << 20, (800, 100, 1 << 17), LARGE_BYTES, ("shared", 1)),
    ],
    ids=["small", "many_entries", "few_channels", "channels_for_most", "for_nearly_all", "large", "few", "many_planes"],
)
def test_variants(length: int, shape: tuple[int, int, int], size: int, expected: tuple[str, int]) -> None:
    """A block has a channel where it reads planes once, has few turns, or all multiprocessors have one; else none."""
    assert InstanceNormTrainKernel(moving(length)).variant(shape, size) == expected


def test_small_maps_are_one_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planes, weights and running statistics go to one program as they are; flags say which weights may be read."""
    launches = Launches(monkeypatch)
    x, mean, var, bias = torch.randn(2, 3, 8, 8).half(), torch.zeros(3), torch.ones(3), torch.ones(3).half()
    y = InstanceNormTrainKernel(moving(64, weight_dtype=torch.float16)).forward(x, mean, var, None, bias)
    (program,) = launches.programs
    assert (program.builder, dict(program.arguments)["scales"]) == ("instance_norm_channels", "float16")
    assert launches.shapes() == [(2, 3, 8, 8), *[(3,)] * 4, (2, 3, 8, 8)]
    planes, weight, shift, means, variances, written, eps, momentum, flags = launches.arguments[-1]
    assert (eps, momentum, flags) == (1e-5, 0.1, 6)
    assert isinstance(weight, Tensor)
    assert weight.dtype == torch.float16
    for given, original in ((planes, x), (shift, bias), (means, mean), (variances, var), (written, y)):
        assert isinstance(given, Tensor)
        assert given.data_ptr() == original.data_ptr()


def test_planes_that_blocks_share_are_channels_of_one_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of maps that are shared, the planes of all entries have statistics of their own, weights those of channels."""
    launches = Launches(monkeypatch)
    x, mean, var = torch.randn(9, 3, 256, 256).half(), torch.zeros(3), torch.ones(3)
    InstanceNormTrainKernel(moving(1 << 16)).forward(x, mean, var, None, None)
    (program,) = launches.programs
    assert (program.builder, dict(program.arguments)["instances"]) == ("batch_norm_training", True)
    assert launches.shapes() == [
        (1, 27, 8192, 8),
        *[(3,)] * 4,
        (4, 27, 3),
        (27,),
        (27,),
        (1, 27, 8192, 8),
    ]


def test_given_statistics_are_launched_with_weights_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half-precision weights beside given statistics are read by the program, one that is missing by no one."""
    launches = Launches(monkeypatch)
    call = BatchNormInferCall(
        device=CUDA, length=64, eps=1e-5, dtype=torch.float16, weight_dtype=torch.float16, facts=HOPPER
    )
    x, mean, var, weight = torch.randn(2, 3, 8, 8).half(), torch.zeros(3), torch.ones(3), torch.ones(3).half()
    BatchNormInferKernel(call).forward(x, mean, var, weight, None)
    assert dict(launches.programs[0].arguments)["scales"] == "float16"
    _, _, _, scale, shift, _, _, flags = launches.arguments[-1]
    assert isinstance(scale, Tensor)
    assert isinstance(shift, Tensor)
    assert (scale.data_ptr(), scale.dtype, flags) == (weight.data_ptr(), torch.float16, 1)
    assert (shift.shape, shift.dtype) == ((3,), torch.float16)


@pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)
def test_offsets_are_wide_and_accesses_whole() -> None:
    """The programs compile for Hopper with 64-bit sizes, and move x and y 16 bytes at a time."""
    for program in InstanceNormTrainKernel(moving(1024, weight_dtype=torch.float16)).programs():
        text = cuda.cross_compile(program, arch=90)
        assert "int64_t batch, int64_t channels" in text
        assert "*(uint4*)(X + " in text or "tileops_read_once((&(x[" in text
        assert "*(uint4*)(Y + " in text
