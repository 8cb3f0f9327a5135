"""Kernel types of the grouped product: which serves what, their settings, and what an entry builds on a CPU."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import asdict, replace

import pytest
import torch
from torch import Tensor

from tests.kernels.moe_calls import ACTIVATIONS, ADA, AMPERE, CUDA_TYPES, HOPPER, LAYOUTS, cpu_call, grouped_call
from tileops_kernels.build import cpu
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.errors import NoImplementationError, StorageError
from tileops_kernels.moe import GROUPED_GEMM_KERNELS, GroupedGemmCall, grouped_gemm_kernels
from tileops_kernels.moe.grouped_gemm import (
    GroupedGemmAsyncKernel,
    GroupedGemmCPUKernel,
    GroupedGemmKernel,
    GroupedGemmSettings,
    GroupedGemmTMAKernel,
    async_settings,
    general_settings,
    tma_settings,
)
from tileops_kernels.moe.interfaces import Activation, RowLayout, tile_rows_of


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (grouped_call(), "grouped_gemm_tma"),
        (grouped_call(n=255), "grouped_gemm_tma"),
        (grouped_call(k=511), "grouped_gemm"),
        (grouped_call(1 << 16, 1 << 16), "grouped_gemm_tma"),
        (grouped_call(facts=ADA), "grouped_gemm_async"),
        (grouped_call(facts=AMPERE), "grouped_gemm_async"),
        (grouped_call(n=255, facts=AMPERE), "grouped_gemm_async"),
        (grouped_call(k=508, facts=AMPERE), "grouped_gemm"),
        (grouped_call((1 << 15) - 8, 1 << 15, facts=AMPERE), "grouped_gemm_async"),
        (grouped_call(1 << 15, 1 << 15, facts=AMPERE), "grouped_gemm"),
    ],
)
def test_selection_on_cuda(call: GroupedGemmCall, expected: str) -> None:
    """Rows of whole accesses are fetched by Hopper's accelerator or by asynchronous copies, all else one by one."""
    for layout in LAYOUTS:
        for activation in ACTIVATIONS:
            for out_dtype in (torch.float16, torch.float32):
                asked = replace(call, layout=layout, activation=activation, out_dtype=out_dtype)
                assert grouped_gemm_kernels().key_for(asked) == expected


def test_selection_on_cpu() -> None:
    """One kernel type serves every layout, activation and extent on a CPU."""
    for layout in LAYOUTS:
        for activation in ACTIVATIONS:
            call = cpu_call(layout, activation)
            assert grouped_gemm_kernels().key_for(call) == "grouped_gemm_cpu"
            assert grouped_gemm_kernels().key_for(replace(call, n=1, k=3, vectors=False)) == "grouped_gemm_cpu"


@pytest.mark.parametrize(
    ("dtype", "out_dtype", "reason"),
    [
        (torch.float32, torch.float32, "serves float16, bfloat16, not float32"),
        (torch.float16, torch.bfloat16, "gives float16 or float32 for float16, not bfloat16"),
        (torch.bfloat16, torch.float64, "gives bfloat16 or float32 for bfloat16, not float64"),
    ],
)
def test_other_dtypes_are_refused(dtype: torch.dtype, out_dtype: torch.dtype, reason: str) -> None:
    """Operands and results of dtypes that no kernel type serves are an error that gives the reason."""
    for call in (grouped_call(), cpu_call()):
        with pytest.raises(NoImplementationError, match=f"grouped_gemm.*: {reason}"):
            grouped_gemm_kernels().key_for(replace(call, dtype=dtype, out_dtype=out_dtype))


def test_reasons_name_the_extents() -> None:
    """Each refusal says what the kernel type needs and what the call has."""
    for kernel_type in (GroupedGemmTMAKernel, GroupedGemmAsyncKernel):
        assert kernel_type.refusal(grouped_call(k=511)) == (
            "rows are read 16 bytes at a time, and those of some tensor are no whole number of accesses; n=256, k=511"
        )
    assert GroupedGemmAsyncKernel.refusal(grouped_call(1 << 15, 1 << 15)) == (
        "elements of b are counted in 32 bits where n and k are compiled in; 2147483648 are beyond"
    )


def test_every_kernel_type_is_registered() -> None:
    """The registered keys and kernel types, as ops and users name them."""
    assert dict(GROUPED_GEMM_KERNELS) == {
        "grouped_gemm": GroupedGemmKernel,
        "grouped_gemm_async": GroupedGemmAsyncKernel,
        "grouped_gemm_tma": GroupedGemmTMAKernel,
        "grouped_gemm_cpu": GroupedGemmCPUKernel,
    }


@pytest.mark.parametrize("layout", LAYOUTS)
def test_settings_are_those_that_measured_best(layout: RowLayout) -> None:
    """A change of Hopper's tiles needs a measurement; they are early, and may stay, where there is a schedule."""
    early = layout != "masked"
    many = grouped_call(layout=layout)
    assert tma_settings(many) == GroupedGemmSettings(128, 256, 64, 4, 256, early=early, persistent=early)
    wider = replace(many, out_dtype=torch.float32)
    assert tma_settings(wider) == GroupedGemmSettings(128, 256, 64, 4, 256, early=early)
    for activation in ("silu_and_mul", "gelu_and_mul"):
        expected = GroupedGemmSettings(128, 128, 64, 4, 256, stacked=True, early=early)
        assert tma_settings(replace(many, activation=activation)) == expected
    for rows in (16, 32, 64):
        few = grouped_call(tile_rows=rows, layout=layout)
        assert tma_settings(few) == GroupedGemmSettings(rows, 128, 128, 2, 256, turned=True, blocks=2, early=early)
        gated = replace(few, activation="gelu_and_mul")
        assert tma_settings(gated) == GroupedGemmSettings(rows, 64, 128, 2, 128, turned=True, blocks=2, early=early)


def test_only_tiles_with_a_schedule_on_hopper_are_launched_early() -> None:
    """Slabs have nothing to wait for, and older architectures no way to."""
    for kernel_type in CUDA_TYPES:
        for layout in LAYOUTS:
            early = kernel_type(grouped_call(layout=layout)).settings.early
            assert early == (kernel_type is GroupedGemmTMAKernel and layout != "masked")
    assert GroupedGemmTMAKernel.supported_archs == frozenset({90})


@pytest.mark.parametrize(
    ("rows", "of_a_slab", "of_others"),
    [(0, 16, 16), (1, 16, 16), (8, 16, 16), (9, 16, 32), (16, 16, 32), (17, 32, 64), (33, 64, 64), (64, 64, 64)],
)
def test_tiles_hold_the_rows_of_an_expert(rows: int, of_a_slab: int, of_others: int) -> None:
    """A slab's rows fill a tile; where rows are an average, an expert with twice as many has one tile."""
    assert tile_rows_of(rows, "masked") == of_a_slab
    assert tile_rows_of(rows, "ends") == tile_rows_of(rows, "per_row") == of_others


def test_many_rows_take_the_largest_tiles() -> None:
    """Beyond few rows a tile is as large as the tensor cores like it."""
    assert {tile_rows_of(rows, layout) for rows in (65, 128, 1 << 20) for layout in LAYOUTS} == {128}


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize("tile_rows", [16, 32, 64, 128])
def test_settings_fit_the_chip(tile_rows: int, activation: Activation) -> None:
    """The tiles under way of all blocks fit the shared memory of a multiprocessor, and so does the result's tile.

    An activation adds a second tile of weights; a block takes a kilobyte beside its tiles.
    """
    few_rows = tile_rows < 128
    call = grouped_call(tile_rows=tile_rows, activation=activation)
    tiles = 1 if activation == "none" else 2
    for settings, budget in (
        (tma_settings(call), HOPPER.smem_budget),
        (async_settings(call), ADA.smem_budget),
        (general_settings(call), ADA.smem_budget),
    ):
        fetched = (settings.rows + tiles * settings.columns) * settings.depth * settings.stages * 2
        kept = settings.rows * (settings.columns * (2 if settings.stacked else 1) + 8) * 4
        assert (max(fetched, kept) + 1024) * settings.blocks <= budget
        assert settings.rows <= 64 or not few_rows


def test_config_is_the_settings() -> None:
    """An entry shows the settings that its programs are built with; rows in slabs need no schedule."""
    for kernel_type in CUDA_TYPES:
        kernel = kernel_type(grouped_call(tile_rows=64))
        assert dict(kernel.config()) == asdict(kernel.settings)
        schedule, tiles = kernel.programs()
        assert kernel.settings.of_program().items() <= dict(tiles.arguments).items()
        assert dict(schedule.arguments) == {
            "layout": "ends",
            "alignment": 1,
            "rows": kernel.settings.rows,
            "early": kernel.settings.early,
        }
        slabs = kernel_type(grouped_call(tile_rows=64, layout="masked"))
        (alone,) = slabs.programs()
        assert slabs.settings.of_program().items() <= dict(alone.arguments).items()


@pytest.mark.parametrize("kernel_type", [GroupedGemmTMAKernel, GroupedGemmKernel])
def test_extents_share_an_entry(kernel_type: type[GroupedGemmTMAKernel | GroupedGemmKernel]) -> None:
    """An entry and its programs serve all extents; everything else in a call makes others."""
    call = grouped_call()
    identity = kernel_type.entry_for(call)[0]
    assert kernel_type.entry_for(grouped_call(8, 64))[0] == identity
    assert kernel_type(grouped_call(8, 64)).programs() == kernel_type(call).programs()
    others = [
        replace(call, layout="masked"),
        replace(call, alignment=128),
        replace(call, activation="silu_and_mul"),
        replace(call, few_rows=True),
        replace(call, dtype=torch.bfloat16),
        replace(call, out_dtype=torch.float32),
        replace(call, device=torch.device("cuda", 1)),
    ]
    assert len({identity, *(kernel_type.entry_for(other)[0] for other in others)}) == 1 + len(others)


def test_rows_of_a_tile_make_an_entry_on_hopper_alone() -> None:
    """Other kernel types do not look at how many rows a tile should have."""
    for kernel_type in CUDA_TYPES:
        identities = {kernel_type.entry_for(grouped_call(tile_rows=rows))[0] for rows in (16, 32, 64)}
        assert len(identities) == (3 if kernel_type is GroupedGemmTMAKernel else 1)


def test_asynchronous_copies_compile_columns_and_terms_in() -> None:
    """Columns and terms make an entry and a program of tiles of their own, and share the schedule."""
    calls = [grouped_call(), grouped_call(n=264), grouped_call(k=520)]
    schedules, tiles = zip(*(GroupedGemmAsyncKernel(call).programs() for call in calls), strict=True)
    assert len(set(schedules)) == 1
    assert [(dict(each.arguments)["n"], dict(each.arguments)["k"]) for each in tiles] == [
        (256, 512),
        (264, 512),
        (256, 520),
    ]
    assert len({GroupedGemmAsyncKernel.entry_for(call)[0] for call in calls}) == 3


def test_no_program_knows_rows_or_experts() -> None:
    """No program knows how many rows or experts there are."""
    kernels = [*(kernel_type(grouped_call()) for kernel_type in CUDA_TYPES), GroupedGemmCPUKernel(cpu_call())]
    for kernel in kernels:
        for program in kernel.programs():
            assert {name for name, _ in program.arguments}.isdisjoint({"m", "experts", "slab", "weights"})


def test_cpu_entries_do_not_depend_on_threads_and_extents() -> None:
    """A CPU entry serves every extent, whatever number of threads torch has."""
    call = replace(cpu_call(), facts=DeviceFacts(arch=0, sm_count=2, smem_budget=0))
    identity = GroupedGemmCPUKernel.entry_for(call)[0]
    other = replace(call, n=7, k=3, few_rows=True, vectors=False, facts=DeviceFacts(0, 64, 0))
    assert GroupedGemmCPUKernel.entry_for(other)[0] == identity
    for changed in (replace(call, activation="gelu_and_mul"), replace(call, out_dtype=torch.float32)):
        assert GroupedGemmCPUKernel.entry_for(changed)[0] != identity


def by_hand(call: GroupedGemmCall, a: Tensor, b: Tensor, metadata: Sequence[int], output: Tensor) -> Tensor:
    """The output with each expert's rows computed in float64, others as they are."""
    expected = output.clone().view(-1, output.shape[-1])
    flat, last = a.view(-1, a.shape[-1]), 0
    for expert in range(b.shape[0]):
        if call.layout == "masked":
            rows = slice(expert * a.shape[1], expert * a.shape[1] + metadata[expert])
        elif call.layout == "ends":
            rows = slice(-(-last // call.alignment) * call.alignment, metadata[expert])
            last = metadata[expert]
        else:
            rows = slice(bisect_left(metadata, expert), bisect_right(metadata, expert))
        product = flat[rows].double() @ b[expert].double().t()
        if call.activation != "none":
            gate, factor = product.chunk(2, -1)
            activate = torch.nn.functional.silu if call.activation == "silu_and_mul" else torch.nn.functional.gelu
            product = activate(gate) * factor
        expected[rows] = product.to(output.dtype)
    return expected.view(output.shape)


ROWS: tuple[tuple[RowLayout, int, tuple[int, ...], list[int]], ...] = (
    ("ends", 1, (9,), [0, 9, 9]),
    ("ends", 1, (70,), [1, 5, 70]),
    ("ends", 4, (12,), [3, 3, 10]),
    ("ends", 1, (5,), [0, 0, 0]),
    ("per_row", 1, (6,), [1, 1, 1, 1, 1, 1]),
    ("per_row", 1, (6,), [0, 0, 1, 2, 2, 2]),
    ("per_row", 1, (6,), [0, 0, 2, 3, 3, 3]),
    ("ends", 1, (6,), [1, 1, 4]),
    ("masked", 1, (3, 4), [4, 0, 1]),
    ("masked", 1, (3, 4), [0, 0, 0]),
)
"""Layouts of three experts: alignment, the leading extents of rows, metadata. Some experts have no row, or all."""


@pytest.mark.parametrize("activation", ACTIVATIONS)
@pytest.mark.parametrize(("layout", "alignment", "extents", "metadata"), ROWS)
def test_cpu_entry_writes_experts_rows_alone(
    layout: RowLayout, alignment: int, extents: tuple[int, ...], metadata: list[int], activation: Activation
) -> None:
    """Each expert's rows are its product, rounded once; rows that are no expert's keep their NaN."""
    call = cpu_call(layout, activation, alignment)
    random = torch.Generator().manual_seed(0)
    a = torch.randn(*extents, 40, generator=random).half()
    b = torch.randn(3, 10, 40, generator=random).half()
    columns = 10 if activation == "none" else 5
    output = torch.full((*extents, columns), torch.nan, dtype=torch.float16)
    expected = by_hand(call, a, b, metadata, output)

    result = grouped_gemm_kernels().entry(call)(a, b, torch.tensor(metadata, dtype=torch.int32), output)

    assert result is output
    assert torch.equal(output.isnan(), expected.isnan())
    written = ~expected.isnan()
    assert torch.allclose(output[written].double(), expected[written].double(), rtol=2**-10, atol=2**-10)


def test_cpu_builds_two_programs_for_all_extents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is built where no expert has a row; then one program for tall results and one for wide."""
    built: list[Program] = []
    original = cpu.load

    def load(program: Program, *, owner: str) -> CPUFunction:
        built.append(program)
        assert owner.startswith("GroupedGemmCPUKernel for GroupedGemmCall(")
        return original(program, owner=owner)

    monkeypatch.setattr(cpu, "load", load)
    entry = grouped_gemm_kernels().entry(cpu_call())
    for rows, ends in ((0, [0, 0]), (3, [0, 0]), (3, [1, 3]), (9, [9, 9]), (200, [1, 200])):
        a, b = torch.ones(rows, 8).half(), torch.ones(2, 4, 8).half()
        output = torch.zeros(rows, 4).half()
        entry(a, b, torch.tensor(ends, dtype=torch.int32), output)
        assert output.eq(8).sum() == 4 * ends[-1]
        if ends[-1] == 0:
            assert built == []
    assert [dict(program.arguments)["split"] for program in built] == ["columns", "rows"]
    assert set(built) == set(GroupedGemmCPUKernel(cpu_call()).programs())


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_product(threads: int) -> None:
    """Splitting among threads loses and repeats nothing, whichever extent is split."""
    before = torch.get_num_threads()
    random = torch.Generator().manual_seed(0)
    try:
        torch.set_num_threads(threads)
        for rows, n in ((200, 40), (40, 200)):
            a = torch.randint(-3, 4, (rows, 300), generator=random).half()
            b = torch.randint(-3, 4, (2, n, 300), generator=random).half()
            output = torch.zeros(rows, n).half()
            grouped_gemm_kernels().entry(cpu_call())(a, b, torch.tensor([3, rows], dtype=torch.int32), output)
            assert torch.equal(output, by_hand(cpu_call(), a, b, [3, rows], output))
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("freed", ["a", "b", "layout_metadata", "output"])
def test_freed_storage_is_an_error_on_cpu(freed: str) -> None:
    """A tensor with elements and no memory is refused before its address is used."""
    tensors = {
        "a": torch.ones(3, 8).half(),
        "b": torch.ones(2, 4, 8).half(),
        "layout_metadata": torch.tensor([1, 3], dtype=torch.int32),
        "output": torch.empty(3, 4).half(),
    }
    tensors[freed].untyped_storage().resize_(0)
    with pytest.raises(StorageError) as caught:
        GroupedGemmCPUKernel(cpu_call())(**tensors)
    assert str(caught.value) == (
        f"GroupedGemmCPUKernel for {cpu_call()}: {freed} has elements and no storage; expected memory that holds "
        "them, received address 0; restore its storage before the call"
    )
