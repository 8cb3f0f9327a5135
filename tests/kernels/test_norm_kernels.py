"""Kernel types of LayerNorm and BatchNorm: which serves what, their settings, and what an entry builds and launches."""

from __future__ import annotations

import re
import shutil
from dataclasses import asdict, replace

import pytest
import torch

from tests.kernels.launches import Launches
from tileops_kernels.build import cuda
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.division import divisor32
from tileops_kernels.errors import NoImplementationError
from tileops_kernels.norm import (
    BatchNormBwdCall,
    BatchNormInferCall,
    BatchNormTrainCall,
    LayerNormCall,
    batch_norm_bwd_kernels,
    batch_norm_infer_kernels,
    batch_norm_train_kernels,
    layer_norm_kernels,
)
from tileops_kernels.norm.batch_norm import BatchNormInferKernel, BatchNormTrainKernel
from tileops_kernels.norm.batch_norm_bwd import BatchNormBwdKernel
from tileops_kernels.norm.layer_norm import (
    LayerNormKernel,
    LayerNormOnChipKernel,
    LayerNormStreamingKernel,
    LeanSettings,
    lean_settings,
)
from tileops_kernels.norm.planes import LARGE_BYTES, PlaneSettings, block_suffices, plane_settings
from tileops_kernels.norm.rms_norm import RMSNormOnChipKernel
from tileops_kernels.norm.rows import OnChipSettings
from tileops_kernels.norm.short import ShortSettings

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
CUDA = torch.device("cuda", 0)
needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)


def rows(n: int, dtype: torch.dtype = torch.float16) -> LayerNormCall:
    return LayerNormCall(device=CUDA, n=n, eps=1e-5, dtype=dtype, facts=HOPPER)


def planes(length: int, dtype: torch.dtype = torch.float16) -> BatchNormInferCall:
    return BatchNormInferCall(device=CUDA, length=length, eps=1e-5, dtype=dtype, facts=HOPPER)


def training(length: int, dtype: torch.dtype = torch.float16) -> BatchNormTrainCall:
    return BatchNormTrainCall(device=CUDA, length=length, eps=1e-5, momentum=0.1, dtype=dtype, facts=HOPPER)


def backward(length: int, dtype: torch.dtype = torch.float16) -> BatchNormBwdCall:
    return BatchNormBwdCall(device=CUDA, length=length, dtype=dtype, facts=HOPPER)


@pytest.mark.parametrize(
    ("n", "expected"),
    [(7, "layer_norm"), (4096, "layer_norm_on_chip"), (262144, "layer_norm_streaming"), (262140, "layer_norm")],
)
def test_rows_on_cuda(n: int, expected: str) -> None:
    """Rows of whole 16-byte accesses stay on chip while they fit, then are streamed; others go to the general type."""
    assert layer_norm_kernels().key_for(rows(n)) == expected


def test_selection_elsewhere() -> None:
    """BatchNorm has one kernel type for each mode, its gradients and device, and LayerNorm one on a CPU."""
    cpu = torch.device("cpu")
    facts = DeviceFacts(arch=0, sm_count=2, smem_budget=0)
    assert layer_norm_kernels().key_for(LayerNormCall(device=cpu, n=7, eps=0.1, dtype=torch.float32)) == (
        "layer_norm_cpu"
    )
    assert batch_norm_train_kernels().key_for(training(49)) == "batch_norm_train"
    assert batch_norm_infer_kernels().key_for(planes(49)) == "batch_norm_infer"
    assert batch_norm_bwd_kernels().key_for(backward(49)) == "batch_norm_bwd"
    assert batch_norm_bwd_kernels().key_for(
        BatchNormBwdCall(device=cpu, length=49, dtype=torch.float32, facts=facts)
    ) == ("batch_norm_bwd_cpu")
    call = BatchNormInferCall(device=cpu, length=49, eps=0.1, dtype=torch.float32, facts=facts)
    assert batch_norm_infer_kernels().key_for(call) == "batch_norm_infer_cpu"


def test_other_dtypes_are_refused() -> None:
    """A dtype that no kernel type serves is an error that gives each one's reason."""
    with pytest.raises(NoImplementationError, match=r"batch_norm_infer: serves float16, bfloat16, float32, not float6"):
        batch_norm_infer_kernels().key_for(planes(49, torch.float64))
    with pytest.raises(NoImplementationError, match=r"batch_norm_bwd: serves float16, bfloat16, float32, not float64"):
        batch_norm_bwd_kernels().key_for(backward(49, torch.float64))


@pytest.mark.parametrize(
    ("length", "dtype", "settings"),
    [
        (1, torch.float16, PlaneSettings(vector=1, lanes=1, slots=256, unroll=1, depth=1)),
        (49, torch.float32, PlaneSettings(vector=1, lanes=64, slots=4, unroll=1, depth=1)),
        (1024, torch.float16, PlaneSettings(vector=8, lanes=128, slots=2, unroll=1, depth=1)),
        (8184, torch.float32, PlaneSettings(vector=4, lanes=256, slots=1, unroll=4, depth=4)),
        (8192, torch.float32, PlaneSettings(vector=4, lanes=256, slots=1, unroll=4, depth=8)),
        (1 << 20, torch.float32, PlaneSettings(vector=4, lanes=256, slots=1, unroll=4, depth=8)),
    ],
)
def test_plane_settings(length: int, dtype: torch.dtype, settings: PlaneSettings) -> None:
    """Lanes lie along a plane as far as it reaches, and the other threads of a block along the batch."""
    assert plane_settings(length, dtype) == settings


def test_variants_of_training() -> None:
    """Small channels, then whole ones have a block; others are shared, of large maps otherwise."""
    kernel = BatchNormTrainKernel(training(1024))
    assert kernel.variant((8, 64, 128), 1 << 21) == ("small", 0)
    assert kernel.variant((9, 64, 128), 1 << 21) == ("whole", 0)
    assert kernel.variant((32, 64, 128), 1 << 23) == ("whole", 0)
    assert kernel.variant((33, 64, 128), LARGE_BYTES - 1) == ("shared", 8)
    assert kernel.variant((33, 64, 128), LARGE_BYTES) == ("large", 8)
    assert kernel.variant((512, 64, 128), LARGE_BYTES) == ("large", 32)
    assert kernel.variant((65536, 64, 128), LARGE_BYTES) == ("shared", 8)
    builders = [program.builder for program in kernel.programs()]
    assert builders == ["batch_norm_small", "batch_norm_channels"] + ["batch_norm_training"] * 2


def test_a_block_suffices_for_channels_that_it_holds() -> None:
    """A channel of one turn has one block; of up to four turns too, where no multiprocessor is left without one."""
    assert block_suffices((8, 64, 128), 8, 132)
    assert block_suffices((32, 1, 128), 8, 132)
    assert not block_suffices((33, 131, 128), 8, 132)
    assert block_suffices((33, 132, 128), 8, 132)
    assert block_suffices((128, 132, 128), 8, 132)
    assert not block_suffices((129, 132, 128), 8, 132)


def test_batch_and_plane_sizes_are_not_compiled_in() -> None:
    """Planes with equal settings share an entry, whatever their length; eps and momentum are no part of a program."""
    one, other = (BatchNormTrainKernel.entry_for(training(length)) for length in (1024, 1032))
    assert one[0] != other[0]
    one, other = (BatchNormTrainKernel.entry_for(training(length)) for length in (1024, 1016))
    assert one[0] == other[0]
    found = [{name for name, _ in program.arguments} for program in BatchNormTrainKernel(training(1024)).programs()]
    small = {"dtype", "scales", "vector", "threads", "unroll"}
    shared = {"dtype", "scales", "vector", "lanes", "slots", "unroll", "depth", "large", "instances"}
    assert found == [small, small | {"blocks"}, shared, shared]


def test_gradients_share_entries_and_programs_as_norms_do() -> None:
    """Gradients of planes with equal settings share an entry, and no size is part of a program."""
    one, other = (BatchNormBwdKernel.entry_for(backward(length)) for length in (1024, 1016))
    assert one[0] == other[0]
    found = [{name for name, _ in program.arguments} for program in BatchNormBwdKernel(backward(1024)).programs()]
    shared = {"dtype", "vector", "lanes", "slots", "unroll", "depth", "large"}
    channels = {"dtype", "vector", "threads", "unroll", "blocks"}
    assert found == [channels, channels, shared, shared]


def test_variants_of_gradients() -> None:
    """Channels that a block holds have one; others are shared, of large maps by more blocks of fewer turns."""
    kernel = BatchNormBwdKernel(backward(1 << 20))
    assert kernel.variant((8, 64, 128), 1 << 21) == ("small", 0)
    assert kernel.variant((9, 64, 128), 1 << 21) == ("whole", 0)
    assert kernel.variant((1, 64, 2048), 1 << 21) == ("whole", 0)
    assert kernel.variant((4, 128, 1 << 17), LARGE_BYTES - 1) == ("shared", 4)
    assert kernel.variant((4, 128, 1 << 17), LARGE_BYTES) == ("large", 64)
    assert [program.builder for program in kernel.programs()] == [
        "batch_norm_bwd_channels",
        "batch_norm_bwd_channels",
        "batch_norm_bwd_planes",
        "batch_norm_bwd_planes",
    ]


@pytest.mark.parametrize(
    ("n", "lanes", "rows_of_a_block", "blocks"),
    [
        (264, 32, 2, 16),
        (512, 32, 2, 16),
        (4104, 128, 1, 4),
        (5120, 128, 1, 6),
        (8184, 128, 1, 4),
        (8192, 256, 1, 4),
        (8200, 256, 1, 2),
        (16384, 256, 1, 3),
        (16392, 288, 1, 1),
        (32768, 512, 1, 1),
    ],
)
def test_lean_settings(n: int, lanes: int, rows_of_a_block: int, blocks: int) -> None:
    """The shorter rows have two accesses a thread; the longer up to eight, and their weights late."""
    for dtype in (torch.float16, torch.bfloat16):
        expected = LeanSettings(lanes=lanes, rows=rows_of_a_block, blocks=blocks, lean=True, late=n > 512)
        assert lean_settings(rows(n, dtype)) == expected
        assert dict(LayerNormOnChipKernel(rows(n, dtype)).config()) == asdict(expected)
    assert lanes * rows_of_a_block * blocks <= 1024
    assert -(-n // (8 * lanes)) <= 8


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (rows(128, torch.float32), OnChipSettings(lanes=32, rows=4, blocks=1)),
        (rows(520), OnChipSettings(lanes=96, rows=1, blocks=1)),
        (rows(4096), OnChipSettings(lanes=64, rows=1, blocks=8)),
        (rows(8192, torch.float32), OnChipSettings(lanes=256, rows=1, blocks=2)),
        (replace(rows(8192), weight_dtype=torch.float32), OnChipSettings(lanes=256, rows=1, blocks=2)),
    ],
    ids=["shortest", "between", "up_to_4096", "float32", "float32_weight"],
)
def test_other_rows_are_as_those_of_other_norms(call: LayerNormCall, expected: OnChipSettings) -> None:
    """Rows between short and long ones, and what is float32, have the settings that norms share."""
    assert lean_settings(call) is None
    assert LayerNormOnChipKernel(call).settings == expected


@pytest.mark.parametrize("kernel_type", [LayerNormOnChipKernel, RMSNormOnChipKernel])
@pytest.mark.parametrize(("n", "lanes", "each"), [(8, 1, 1), (96, 16, 1), (128, 16, 1), (136, 16, 2), (256, 16, 2)])
def test_short_settings(
    kernel_type: type[LayerNormOnChipKernel | RMSNormOnChipKernel], n: int, lanes: int, each: int
) -> None:
    """Rows of a warp's accesses in half precision have a program of their own; longer ones and float32 do not."""
    for dtype in (torch.float16, torch.bfloat16):
        kernel = kernel_type(rows(n, dtype))
        settings = kernel.settings
        assert isinstance(settings, ShortSettings)
        assert (settings.lanes, settings.each) == (lanes, each)
        assert settings.lanes * settings.rows in (128, 256)
        assert {program.builder for program in kernel.programs()} == {"short_rows"}
        assert {dict(program.arguments)["centered"] for program in kernel.programs()} == {kernel_type.centered}
    for call in (rows(n, torch.float32), rows(264)):
        assert not isinstance(kernel_type(call).settings, ShortSettings)


def test_a_row_kernel_has_a_program_for_each_signature() -> None:
    """Weight and bias, each passed or not, are four programs, built when a call needs them."""
    programs = LayerNormOnChipKernel(rows(64)).programs()
    found = [(dict(program.arguments)["weighted"], dict(program.arguments)["biased"]) for program in programs]
    assert found == [(True, True), (True, False), (False, True), (False, False)]


@pytest.mark.parametrize("kernel_type", [LayerNormOnChipKernel, LayerNormStreamingKernel, LayerNormKernel])
def test_row_launches_get_aligned_rows(
    kernel_type: type[LayerNormOnChipKernel | LayerNormStreamingKernel | LayerNormKernel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever shape and offset its inputs have, a program gets plain rows at multiples of 16 bytes."""
    launches = Launches(monkeypatch)
    flat = torch.randn(6 * 64 + 1).half()
    x, bias = flat[1:].view(2, 3, 8, 8), flat[1:65].view(8, 8)
    y = kernel_type(rows(64)).forward(x, None, bias)
    given = launches.tensors()
    assert [tuple(tensor.shape) for tensor in given] == [(6, 64), (64,), (6, 64)]
    assert all(tensor.data_ptr() % 16 == 0 for tensor in given)
    assert torch.equal(given[0], x.reshape(6, 64))
    assert torch.equal(given[1], bias.reshape(64))
    assert given[2].data_ptr() == y.data_ptr()
    assert dict(launches.programs[0].arguments)["biased"] is True
    assert dict(launches.programs[0].arguments)["weighted"] is False


def test_plane_launches_say_what_may_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor that is not passed has another of its shape in its place, and its flag is not set."""
    launches = Launches(monkeypatch)
    x, mean, var = torch.randn(2, 3, 8, 8).half(), torch.zeros(3), torch.ones(3)
    BatchNormTrainKernel(training(64)).forward(x, mean, var, None, torch.ones(3))
    *_, eps, momentum, flags, factor, shift = launches.arguments[-1]
    assert (eps, momentum, flags, factor, shift) == (1e-5, 0.1, 6, *divisor32(8))
    assert launches.programs[-1].builder == "batch_norm_small"
    assert launches.tensors()[3].data_ptr() == mean.data_ptr()
    assert launches.tensors()[0].shape == (2, 3, 8, 8)
    BatchNormTrainKernel(training(64)).forward(x, None, None, None, None)
    assert launches.arguments[-1][-3] == 0
    BatchNormInferKernel(planes(64)).forward(x, mean, var, torch.ones(3), None)
    assert launches.arguments[-1][-1] == 1


def test_channels_too_large_for_a_block_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel that no block holds is launched with partial statistics of as many blocks as there is work for."""
    launches = Launches(monkeypatch)
    x, mean, var = torch.randn(65, 3, 8, 64).half(), torch.zeros(3), torch.ones(3)
    BatchNormTrainKernel(training(512)).forward(x, mean, var, None, None)
    assert launches.programs[-1].builder == "batch_norm_training"
    assert launches.shapes() == [
        (65, 3, 64, 8),
        *[(3,)] * 4,
        (17, 3, 3),
        (3,),
        (3,),
        (65, 3, 64, 8),
    ]


@pytest.mark.parametrize(
    ("batch", "builder", "partials"), [(32, "batch_norm_bwd_channels", []), (33, "batch_norm_bwd_planes", [(9, 3, 2)])]
)
def test_gradient_launches(
    batch: int, builder: str, partials: list[tuple[int, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever its inputs' offsets, a program gets planes at multiples of 16 bytes, and writes what is returned."""
    launches, shape = Launches(monkeypatch), (batch, 3, 8, 64)
    flat = torch.randn(batch * 3 * 512 + 1).half()
    grad_out, x = flat[1:].view(shape), torch.randn(shape).half()
    given = torch.zeros(3), torch.ones(3), torch.rand(3)
    results = BatchNormBwdKernel(backward(512)).forward(grad_out, x, *given)
    tensors, whole = launches.tensors(), (batch, 3, 64, 8)
    assert launches.programs[-1].builder == builder
    assert [tuple(tensor.shape) for tensor in tensors] == [whole, whole, *[(3,)] * 3, *partials, whole, (3,), (3,)]
    assert tensors[0].data_ptr() % 16 == 0
    assert torch.equal(tensors[0].reshape(shape), grad_out)
    for tensor, original in zip((*tensors[1:5], *tensors[-3:]), (x, *given, *results), strict=True):
        assert tensor.data_ptr() == original.data_ptr()


def test_no_elements_launch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without elements returns without building or launching."""
    launches = Launches(monkeypatch)
    assert LayerNormOnChipKernel(rows(64)).forward(torch.empty(0, 64).half(), None, None).shape == (0, 64)
    assert BatchNormTrainKernel(training(8)).forward(torch.empty(0, 3, 8).half(), *[None] * 4).shape == (0, 3, 8)
    empty, given = torch.empty(0, 3, 8).half(), torch.ones(3)
    assert BatchNormBwdKernel(backward(8)).forward(empty, empty, given, given, given)[1].tolist() == [0, 0, 0]
    assert launches.programs == []


@needs_nvcc
@pytest.mark.parametrize(
    ("kernel_type", "n"),
    [(LayerNormOnChipKernel, 16384), (LayerNormStreamingKernel, 262144), (LayerNormKernel, 4095)],
    ids=["on_chip", "streaming", "general"],
)
def test_row_offsets_are_wide(
    kernel_type: type[LayerNormOnChipKernel | LayerNormStreamingKernel | LayerNormKernel], n: int
) -> None:
    """The programs compile for Hopper and compute row offsets in 64 bits."""
    text = cuda.cross_compile(kernel_type(rows(n)).program(True, True), arch=90)
    assert re.search(rf"\(int64_t\)blockIdx\.x\).*\* \(int64_t\){n}\)", text)


@needs_nvcc
def test_weights_of_long_rows_are_read_late() -> None:
    """Weights of long rows come after the sums, which leaves their registers to the row; of shorter ones before."""
    text = cuda.cross_compile(LayerNormOnChipKernel(rows(8192)).program(True, True), arch=90)
    assert text.index("__shfl_xor_sync") < text.index("(W + ")
    assert "__launch_bounds__(256, 4)" in text
    short = cuda.cross_compile(LayerNormOnChipKernel(rows(512)).program(True, True), arch=90)
    assert short.index("(W + ") < short.index("__shfl_xor_sync")
    assert "__launch_bounds__(64, 16)" in short


@needs_nvcc
@pytest.mark.parametrize(
    "kernel",
    [BatchNormTrainKernel(training(1024)), BatchNormInferKernel(planes(1024)), BatchNormBwdKernel(backward(1024))],
    ids=["train", "infer", "bwd"],
)
def test_plane_offsets_are_wide_and_accesses_whole(
    kernel: BatchNormTrainKernel | BatchNormInferKernel | BatchNormBwdKernel,
) -> None:
    """The programs compile for Hopper with 64-bit sizes, and move x and y 16 bytes at a time."""
    for program in kernel.programs():
        text = cuda.cross_compile(program, arch=90)
        assert "int64_t batch, int64_t channels" in text
        assert "*(uint4*)(X + " in text or "tileops_read_once((&(x[" in text
        assert "*(uint4*)(Y + " in text
