"""Kernel types of norms of a sum, with scales of a row's own, and of groups: selection, settings, and launches."""

from __future__ import annotations

import re
import shutil
from typing import Any

import pytest
import torch

from tests.kernels.launches import Launches
from tileops_kernels.build import cuda
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.errors import NoImplementationError, StorageError
from tileops_kernels.norm import (
    GroupNormCall,
    LayerNormCall,
    ada_layer_norm_kernels,
    ada_layer_norm_zero_kernels,
    fused_add_layer_norm_kernels,
    fused_add_rms_norm_kernels,
    group_norm_kernels,
    layer_norm_kernels,
)
from tileops_kernels.norm.ada_layer_norm import (
    ADA_LAYER_NORM_KERNELS,
    ADA_LAYER_NORM_ZERO_KERNELS,
    AdaNormCPUKernel,
    AdaNormZeroKernel,
    AdaNormZeroOnChipKernel,
    AdaNormZeroStreamingKernel,
)
from tileops_kernels.norm.fused_add_norm import (
    FUSED_ADD_LAYER_NORM_KERNELS,
    FUSED_ADD_RMS_NORM_KERNELS,
    AddLayerNormKernel,
    AddLayerNormOnChipKernel,
    AddLayerNormStreamingKernel,
    AddRMSNormCPUKernel,
    AddRMSNormKernel,
    AddRMSNormOnChipKernel,
    AddRMSNormStreamingKernel,
)
from tileops_kernels.norm.group_norm import GroupNormKernel, GroupNormNarrowKernel, GroupNormOnChipKernel
from tileops_kernels.norm.rows import OnChipSettings, on_chip_settings, vector_width

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
CUDA = torch.device("cuda", 0)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
TABLES: dict[str, Any] = {
    "fused_add_rms_norm": fused_add_rms_norm_kernels,
    "fused_add_layer_norm": fused_add_layer_norm_kernels,
    "ada_layer_norm": ada_layer_norm_kernels,
    "ada_layer_norm_zero": ada_layer_norm_zero_kernels,
}
needs_nvcc = pytest.mark.skipif(
    shutil.which("nvcc") is None,
    reason="no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]",
)


def rows(n: int, dtype: torch.dtype = torch.float16) -> LayerNormCall:
    return LayerNormCall(device=CUDA, n=n, eps=1e-5, dtype=dtype, facts=HOPPER)


@pytest.mark.parametrize("norm", TABLES)
@pytest.mark.parametrize(
    ("n", "dtype", "strategy"),
    [
        (7, torch.float16, ""),
        (4095, torch.float16, ""),
        (4096, torch.float16, "_on_chip"),
        (16384, torch.bfloat16, "_on_chip"),
        (16392, torch.bfloat16, "_streaming"),
        (8192, torch.float32, "_on_chip"),
        (8196, torch.float32, "_streaming"),
        (262140, torch.float16, ""),
    ],
)
def test_rows_on_cuda(norm: str, n: int, dtype: torch.dtype, strategy: str) -> None:
    """Rows of whole 16-byte accesses stay on chip while they fit, then are streamed; others go to the general type."""
    assert TABLES[norm]().key_for(rows(n, dtype)) == norm + strategy


@pytest.mark.parametrize("norm", TABLES)
def test_rows_on_cpu(norm: str) -> None:
    """One kernel type serves every row length on a CPU, and no other dtype."""
    call = LayerNormCall(device=torch.device("cpu"), n=7, eps=0.1, dtype=torch.float32)
    assert TABLES[norm]().key_for(call) == f"{norm}_cpu"
    with pytest.raises(NoImplementationError, match=rf"{norm}_cpu: serves float16, bfloat16, float32, not float64"):
        TABLES[norm]().key_for(LayerNormCall(device=torch.device("cpu"), n=7, eps=0.1, dtype=torch.float64))


@pytest.mark.parametrize("dtype", DTYPES)
def test_on_chip_settings_leave_registers(dtype: torch.dtype) -> None:
    """A thread has at most four accesses to a row, and as many blocks share a multiprocessor as 512 threads make."""
    for n in [*range(8, 1200, 8), 1152, 4096, 5120, 8192, 16384]:
        call = rows(n, dtype)
        if AddLayerNormOnChipKernel.refusal(call) is not None:
            continue
        settings = AddLayerNormOnChipKernel(call).settings
        assert settings == on_chip_settings(call, threads=512, accesses=4)
        assert AdaNormZeroOnChipKernel(call).settings == settings
        steps = -(-n // (vector_width(call) * settings.lanes))
        assert steps <= 4, n
        assert settings.lanes * settings.rows <= 1024, n
        assert steps == 1 or settings.blocks * settings.lanes <= 512, n


@pytest.mark.parametrize(
    ("n", "dtype", "settings"),
    [
        (128, torch.float16, OnChipSettings(lanes=16, rows=8, blocks=1)),
        (1152, torch.bfloat16, OnChipSettings(lanes=64, rows=1, blocks=8)),
        (4096, torch.bfloat16, OnChipSettings(lanes=128, rows=1, blocks=4)),
        (16384, torch.bfloat16, OnChipSettings(lanes=512, rows=1, blocks=1)),
    ],
)
def test_settings_of_the_rows_of_models(n: int, dtype: torch.dtype, settings: OnChipSettings) -> None:
    """The settings of lengths that models have."""
    assert AddRMSNormOnChipKernel(rows(n, dtype)).settings == settings


@pytest.mark.parametrize(
    ("types", "given", "fixed"),
    [
        (FUSED_ADD_RMS_NORM_KERNELS, {"weighted"}, {"added": True, "centered": False}),
        (FUSED_ADD_LAYER_NORM_KERNELS, {"weighted", "biased"}, {"added": True}),
        (ADA_LAYER_NORM_KERNELS, {"weighted", "biased"}, {"modulated": True}),
        (ADA_LAYER_NORM_ZERO_KERNELS, {"weighted", "biased", "gated"}, {"modulated": True}),
    ],
    ids=list(TABLES),
)
def test_a_kernel_has_one_program(types: Any, given: set[str], fixed: dict[str, bool]) -> None:
    """Every tensor is required, so an entry has one program, which knows neither the number of rows nor eps."""
    for kernel_type in types.values():
        (program,) = kernel_type(rows(64)).programs()
        arguments = dict(program.arguments)
        assert {name for name in given if arguments[name] is True} == given
        assert {name: arguments[name] for name in fixed} == fixed
        assert arguments.keys().isdisjoint({"m", "eps"})


@pytest.mark.parametrize(
    "kernel_type", [AddRMSNormOnChipKernel, AddRMSNormStreamingKernel, AddRMSNormKernel], ids=lambda t: t.__name__
)
def test_sums_get_aligned_rows_and_two_results(
    kernel_type: type[AddRMSNormOnChipKernel | AddRMSNormStreamingKernel | AddRMSNormKernel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever shape and offset its inputs have, a program gets plain rows at multiples of 16 bytes."""
    launches = Launches(monkeypatch)
    flat = torch.randn(2 * 6 * 64 + 65).half()
    x, residual, weight = flat[1:385].view(2, 3, 64), flat[385:769].view(2, 3, 64), flat[769:833]
    y, total = kernel_type(rows(64)).forward(x, residual, weight)
    given = launches.tensors()
    assert [(tuple(tensor.shape), tensor.stride()) for tensor in given] == [
        ((6, 64), (64, 1)),
        ((6, 64), (64, 1)),
        ((64,), (1,)),
        ((6, 64), (64, 1)),
        ((6, 64), (64, 1)),
    ]
    assert all(tensor.data_ptr() % 16 == 0 for tensor in given)
    assert torch.equal(given[0], x.reshape(6, 64))
    assert torch.equal(given[1], residual.reshape(6, 64))
    assert torch.equal(given[2], weight)
    assert [tensor.data_ptr() for tensor in given[3:]] == [y.data_ptr(), total.data_ptr()]
    assert launches.arguments[-1][-1] == 1e-5
    assert y.shape == total.shape == x.shape


@pytest.mark.parametrize(
    "kernel_type", [AdaNormZeroOnChipKernel, AdaNormZeroStreamingKernel, AdaNormZeroKernel], ids=lambda t: t.__name__
)
def test_parameters_of_rows_get_aligned_rows(
    kernel_type: type[AdaNormZeroOnChipKernel | AdaNormZeroStreamingKernel | AdaNormZeroKernel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Scale, shift and gate are given as rows, aligned, in the order of the call."""
    launches = Launches(monkeypatch)
    flat = torch.randn(4 * 6 * 64 + 1).half()[1:]
    tensors = flat.view(4, 2, 3, 64).unbind()
    y = kernel_type(rows(64)).forward(*tensors)
    *given, result = launches.tensors()
    for tensor, right in zip(given, tensors, strict=True):
        assert (tensor.stride(), tensor.data_ptr() % 16) == ((64, 1), 0)
        assert torch.equal(tensor, right.reshape(6, 64))
    assert (result.shape, result.data_ptr(), y.shape) == ((6, 64), y.data_ptr(), (2, 3, 64))


def test_no_elements_launch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call without elements returns without building or launching."""
    launches = Launches(monkeypatch)
    x, weight = torch.empty(0, 64).half(), torch.ones(64).half()
    assert [result.shape for result in AddRMSNormKernel(rows(64)).forward(x, x, weight)] == [(0, 64), (0, 64)]
    assert AdaNormZeroKernel(rows(64)).forward(x, x, x, x).shape == (0, 64)
    assert launches.arguments == []


@pytest.mark.parametrize("freed", ["x", "residual", "weight"])
def test_freed_storage_of_a_sum_is_an_error(freed: str) -> None:
    """A tensor with elements and no memory is refused by its name before its address is used."""
    tensors = {"x": torch.ones(3, 8), "residual": torch.ones(3, 8), "weight": torch.ones(8)}
    tensors[freed].untyped_storage().resize_(0)
    call = LayerNormCall(device=torch.device("cpu"), n=8, eps=1e-5, dtype=torch.float32)
    with pytest.raises(StorageError, match=rf"^AddRMSNormCPUKernel for .*: {freed} has elements and no storage"):
        AddRMSNormCPUKernel(call)(**tensors)


@pytest.mark.parametrize("freed", ["x", "scale", "shift"])
def test_freed_storage_of_a_modulated_row_is_an_error(freed: str) -> None:
    """A tensor with elements and no memory is refused by its name before its address is used."""
    tensors = {name: torch.ones(3, 8) for name in ("x", "scale", "shift")}
    tensors[freed].untyped_storage().resize_(0)
    call = LayerNormCall(device=torch.device("cpu"), n=8, eps=1e-5, dtype=torch.float32)
    with pytest.raises(StorageError, match=rf"^AdaNormCPUKernel for .*: {freed} has elements and no storage"):
        AdaNormCPUKernel(call)(**tensors)


@pytest.mark.parametrize("n", [36326, 50257])
def test_long_rows_of_float16_build_on_a_cpu(n: int) -> None:
    """Lengths at which TileLang cannot simplify the address of an element inside a row, vocabularies among them."""
    call = LayerNormCall(device=torch.device("cpu"), n=n, eps=0.0, dtype=torch.float16)
    x = torch.ones(2, n, dtype=torch.float16)
    y, total = fused_add_rms_norm_kernels().entry(call)(x, x, x[0])
    assert torch.equal(y, x)
    assert torch.equal(total, 2 * x)
    call = LayerNormCall(device=torch.device("cpu"), n=n, eps=1e-5, dtype=torch.float16)
    assert torch.equal(ada_layer_norm_kernels().entry(call)(x, x, 3 * x), 3 * x)


@pytest.mark.parametrize("offset", [30000.0, -1e6])
def test_a_mean_of_many_elements_still_moves_on_a_cpu(offset: float) -> None:
    """Half a million elements whose values change late leave no less exact a mean than a few do."""
    values = torch.tensor([0.0, 2.0, 4.0, 6.0]).repeat_interleave(125_000)[None]
    expected = torch.tensor([-1.341639, -0.447213, 0.447213, 1.341639]).repeat_interleave(125_000)[None]
    call = LayerNormCall(device=torch.device("cpu"), n=500_000, eps=1e-5, dtype=torch.float32)
    torch.testing.assert_close(
        layer_norm_kernels().entry(call)(values + offset, None, None), expected, rtol=0, atol=4e-6
    )
    group = GroupNormCall(device=torch.device("cpu"), n=500_000, span=4, eps=1e-5, dtype=torch.float32)
    maps = (values + offset).reshape(1, 4, 125_000)
    y = group_norm_kernels().entry(group)(maps, None, None)
    torch.testing.assert_close(y, expected.reshape(1, 4, 125_000), rtol=0, atol=4e-6)


@pytest.mark.parametrize(
    ("n", "span", "dtype", "expected"),
    [
        (4096, 4, torch.float16, "group_norm_on_chip"),
        (7200, 8, torch.float16, "group_norm_narrow"),
        (4096, 512, torch.float16, "group_norm_on_chip"),
        (4096, 1024, torch.float16, "group_norm_narrow"),
        (32768, 32, torch.float16, "group_norm_streaming"),
        (8192, 8, torch.float32, "group_norm_on_chip"),
    ],
)
def test_groups_on_cuda(n: int, span: int, dtype: torch.dtype, expected: str) -> None:
    """Groups of channels of whole 16-byte accesses stay on chip while they fit; others are general."""
    call = GroupNormCall(device=CUDA, n=n, span=span, eps=1e-5, dtype=dtype, facts=HOPPER)
    assert group_norm_kernels().key_for(call) == expected


@pytest.mark.parametrize(
    ("n", "span", "settings"),
    [
        (49, 1, OnChipSettings(lanes=16, rows=8, blocks=1)),
        (196, 1, OnChipSettings(lanes=16, rows=8, blocks=1)),
        (1568, 8, OnChipSettings(lanes=64, rows=2, blocks=1)),
        (784, 16, OnChipSettings(lanes=128, rows=1, blocks=1)),
        (7200, 8, OnChipSettings(lanes=480, rows=1, blocks=1)),
        (2, 2, OnChipSettings(lanes=1, rows=128, blocks=1)),
    ],
)
def test_settings_of_narrow_accesses(n: int, span: int, settings: OnChipSettings) -> None:
    """Groups of channels that are no whole accesses have few threads with four or eight narrower ones each."""
    call = GroupNormCall(device=CUDA, n=n, span=span, eps=1e-5, dtype=torch.float16, facts=HOPPER)
    assert GroupNormNarrowKernel(call).settings == settings


def test_channels_are_named_in_the_refusal() -> None:
    """A group whose length is a multiple of an access is refused where its channels are not, naming their length."""
    call = GroupNormCall(device=CUDA, n=7200, span=8, eps=1e-5, dtype=torch.float16, facts=HOPPER)
    assert GroupNormOnChipKernel.refusal(call) == (
        "rows are read 16 bytes at a time; n=7200 in channels of 900 is no multiple of 8 elements"
    )


def test_groups_get_a_matrix_of_parameters(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program gets groups as rows, and weight and bias as a row of channels for each group, aligned."""
    launches = Launches(monkeypatch)
    flat = torch.randn(2 * 6 * 64 + 13).half()
    x, bias = flat[1:769].view(2, 6, 8, 8), flat[769:775]
    call = GroupNormCall(device=CUDA, n=128, span=2, eps=1e-5, dtype=torch.float16, facts=HOPPER)
    y = GroupNormOnChipKernel(call).forward(x, None, bias)
    given = launches.tensors()
    assert [(tuple(tensor.shape), tensor.stride()) for tensor in given] == [
        ((6, 128), (128, 1)),
        ((3, 2), (2, 1)),
        ((6, 128), (128, 1)),
    ]
    assert all(tensor.data_ptr() % 16 == 0 for tensor in given)
    assert torch.equal(given[0], x.reshape(6, 128))
    assert torch.equal(given[1], bias.reshape(3, 2))
    assert given[2].data_ptr() == y.data_ptr()


@pytest.mark.parametrize("freed", ["x", "weight", "bias"])
def test_freed_storage_of_a_group_is_an_error(freed: str) -> None:
    """A tensor with elements and no memory is refused by its name before its address is used."""
    tensors = {"x": torch.ones(3, 4, 8), "weight": torch.ones(4), "bias": torch.ones(4)}
    tensors[freed].untyped_storage().resize_(0)
    call = GroupNormCall(device=torch.device("cpu"), n=16, span=2, eps=1e-5, dtype=torch.float32)
    with pytest.raises(StorageError, match=rf"^GroupNormCPUKernel for .*: {freed} has elements and no storage"):
        group_norm_kernels().entry(call)(**tensors)


WHOLE = r"\*\(uint4\*\)\({name} \+ |tileops_(read_once|write_result)\(.*\(&\({name}\["
"""How CUDA text reads or writes 16 bytes of a parameter."""


@needs_nvcc
@pytest.mark.parametrize(
    ("kernel_type", "n"),
    [
        (AddRMSNormOnChipKernel, 16384),
        (AddLayerNormStreamingKernel, 262144),
        (AddLayerNormKernel, 4095),
        (AdaNormZeroOnChipKernel, 16384),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_row_offsets_are_wide_and_accesses_whole(kernel_type: Any, n: int) -> None:
    """The programs compile for Hopper, compute row offsets in 64 bits, and move 16 bytes at a time where rows allow."""
    (program,) = kernel_type(rows(n)).programs()
    text = cuda.cross_compile(program, arch=90)
    rowwise = ["X", "Y", "R", "S"] if dict(program.arguments).get("added") else ["X", "Y", "W", "B", "G"]
    for name in rowwise:
        assert re.search(rf"\b{name}(\[| \+ ).*\(int64_t\)blockIdx\.x\).*\* \(int64_t\){n}\)", text), name
        assert n % 8 or re.search(WHOLE.format(name=name), text), name


@needs_nvcc
@pytest.mark.parametrize(("n", "span", "whole"), [(4096, 4, True), (7200, 8, False)], ids=["on_chip", "general"])
def test_offsets_of_groups_are_wide(n: int, span: int, whole: bool) -> None:
    """Groups are found with 64-bit offsets, and the group of a row by the number of groups that a launch has."""
    call = GroupNormCall(device=CUDA, n=n, span=span, eps=1e-5, dtype=torch.float16, facts=HOPPER)
    kernel_type = GroupNormOnChipKernel if whole else GroupNormKernel
    text = cuda.cross_compile(kernel_type(call).program(True, True), arch=90)
    for name in ("X", "Y"):
        assert re.search(rf"\b{name}(\[| \+ ).*\(int64_t\)blockIdx\.x\).*\* \(int64_t\){n}\)", text), name
        assert not whole or re.search(WHOLE.format(name=name), text), name
    for name in ("W", "B"):
        assert re.search(rf"\b{name}\[.*\(int64_t\)blockIdx\.x\) % groups\) \* \(int64_t\){span}\)", text), name
