"""What the CUDA kernel types of the grouped product build and launch, whatever rows, experts and offsets come."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.kernels.launches import load_instead
from tests.kernels.moe_calls import CUDA_TYPES, LAYOUTS, grouped_call
from tests.kernels.placing import misplaced
from tileops_kernels.build import cuda
from tileops_kernels.build.program import Program
from tileops_kernels.moe.grouped_gemm import GroupedGemmCUDAKernel, GroupedGemmTMAKernel
from tileops_kernels.moe.interfaces import RowLayout


class Launches:
    """Stands for loaded CUDA programs: writes ones for tiles, and keeps what each launch was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs: list[Program] = []
        self.schedules: list[tuple[Tensor, Tensor, int]] = []
        self.tiles: list[tuple[Tensor, Tensor, Tensor, Tensor]] = []
        self.extents: list[tuple[int, ...]] = []
        load_instead(monkeypatch, self.load)

    def load(self, program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert arch == 90
        assert " for GroupedGemmCall(" in owner
        self.programs.append(program)
        return self.schedule if program.builder == "tile_schedule" else self.run

    def schedule(self, metadata: Tensor, tiles: Tensor, extent: int) -> None:
        self.schedules.append((metadata, tiles, extent))

    def run(self, a: Tensor, b: Tensor, tiles: Tensor, output: Tensor, *extents: int) -> None:
        self.tiles.append((a, b, tiles, output))
        self.extents.append(extents)
        output.fill_(1)


@pytest.mark.parametrize("kernel_type", CUDA_TYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_launches_get_aligned_matrices(
    kernel_type: type[GroupedGemmCUDAKernel], layout: RowLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the rows and offsets, programs get plain matrices at whole accesses; the output is written."""
    launches = Launches(monkeypatch)
    kernel = kernel_type(grouped_call(6, 16, layout=layout))
    b = torch.randn(3, 6, 16).half()
    for rows in (1, 2, 70, 300):
        extents = (3, rows) if layout == "masked" else (rows,)
        metadata = torch.zeros(rows if layout == "per_row" else 3, dtype=torch.int32)
        a, output = torch.randn(*extents, 16).half(), torch.zeros(*extents, 6).half()
        for given in ((a, b, metadata, output), tuple(misplaced(each) for each in (a, b, metadata, output))):
            assert kernel.forward(*given) is given[3]
            assert given[3].eq(1).all()
            left, weights, tiles, target = launches.tiles[-1]
            count = 3 * rows if layout == "masked" else rows
            assert [each.shape for each in (left, weights, target)] == [(count, 16), (18, 16), (count, 6)]
            assert torch.equal(left, given[0].view(count, 16))
            assert torch.equal(weights, given[1].view(18, 16))
            if layout == "masked":
                assert torch.equal(tiles, metadata)
                assert launches.extents[-1] == (1, rows)
            else:
                found, schedule, experts = launches.schedules[-1]
                assert (schedule is tiles, experts) == (True, 3)
                assert torch.equal(found, metadata)
                stays = kernel.settings.persistent
                assert launches.extents[-1] == ((1, kernel.call.sm_count) if stays else (1,))
            for tensor in (left, weights, target):
                assert (tensor.stride(), tensor.data_ptr() % 16) == ((tensor.shape[1], 1), 0)
    assert launches.programs == list(kernel.programs())
    assert bool(launches.schedules) == (layout != "masked")


@pytest.mark.parametrize("tile_rows", [16, 64, 128])
def test_schedules_have_room_for_every_tile(tile_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However rows fall to experts, the schedule has a place for each tile of each expert."""
    launches = Launches(monkeypatch)
    kernel = GroupedGemmTMAKernel(grouped_call(8, 16, tile_rows=tile_rows))
    rows = kernel.settings.rows
    b = torch.zeros(4, 8, 16).half()
    for counts in ([1, 1, 1, 1], [rows + 1] * 4, [0, 0, 0, 5 * rows], [rows, 1, rows - 1, 2 * rows + 1]):
        total = sum(counts)
        ends = torch.tensor(counts).cumsum(0).int()
        kernel.forward(torch.zeros(total, 16).half(), b, ends, torch.zeros(total, 8).half())
        assert launches.schedules[-1][1].shape[1] >= sum(-(-count // rows) for count in counts)


@pytest.mark.parametrize("n", [1, 128, 129, 300])
def test_launches_say_how_many_tiles_of_columns_there_are(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last tile of columns may be a part."""
    launches = Launches(monkeypatch)
    kernel = GroupedGemmTMAKernel(grouped_call(n, 16))
    ends = torch.tensor([1, 3], dtype=torch.int32)
    kernel.forward(torch.zeros(3, 16).half(), torch.zeros(2, n, 16).half(), ends, torch.zeros(3, n).half())
    wide, *_ = launches.extents[-1]
    assert (wide - 1) * kernel.settings.columns < n <= wide * kernel.settings.columns


@pytest.mark.parametrize("kernel_type", CUDA_TYPES)
def test_nothing_to_write_launches_nothing(
    kernel_type: type[GroupedGemmCUDAKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without experts, rows or columns no program is built, and the output stays as it is."""
    launches = Launches(monkeypatch)
    kernel = kernel_type(grouped_call())
    ends = torch.zeros(2, dtype=torch.int32)
    for a, b, output in (
        (torch.empty(3, 8), torch.empty(0, 4, 8), torch.full((3, 4), 7.0)),
        (torch.empty(0, 8), torch.empty(2, 4, 8), torch.empty(0, 4)),
        (torch.empty(3, 8), torch.empty(2, 0, 8), torch.empty(3, 0)),
    ):
        assert kernel.forward(a.half(), b.half(), ends[: b.shape[0]], output) is output
        assert output.eq(7).all()
    assert launches.programs == []


def test_no_terms_are_a_few_of_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product without terms launches on zeros, which TileLang's programs can take."""
    launches = Launches(monkeypatch)
    kernel = GroupedGemmTMAKernel(grouped_call(4, 0))
    ends = torch.tensor([1, 3], dtype=torch.int32)
    kernel.forward(torch.empty(3, 0).half(), torch.empty(2, 4, 0).half(), ends, torch.empty(3, 4).half())
    left, weights, _, _ = launches.tiles[-1]
    assert torch.equal(left, torch.zeros(3, 8).half())
    assert torch.equal(weights, torch.zeros(8, 8).half())


def test_blocks_that_stay_are_as_many_as_multiprocessors(monkeypatch: pytest.MonkeyPatch) -> None:
    """They get their number behind the tiles of columns; others get none."""
    launches = Launches(monkeypatch)
    call = grouped_call(600, 16)
    a, b, output = torch.ones(5, 16).half(), torch.ones(2, 600, 16).half(), torch.zeros(5, 600).half()
    ends = torch.tensor([2, 5], dtype=torch.int32)
    for persistent in (False, True):
        kernel = GroupedGemmTMAKernel(call)
        kernel.settings = replace(kernel.settings, persistent=persistent)
        kernel.forward(a, b, ends, output)
    assert launches.extents == [(3,), (3, call.sm_count)]
