"""Places of pairs: how launches share them, which programs there are, and what the CPU program writes."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tests.kernels.launches import load_instead
from tests.kernels.placing import misplaced
from tests.moe.by_hand import placed, wild_ids
from tileops_kernels.build import cuda
from tileops_kernels.build.program import Program
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.errors import StorageError
from tileops_kernels.moe.permute_align import PermuteAlignCPUKernel, PermuteAlignKernel
from tileops_kernels.moe.placement import CHUNK, MOST_CHUNKS, STEP, Placement, dealt, window
from tileops_kernels.moe.placement_interfaces import PermuteAlignCall, PrePermuteCall, RowMetadata
from tileops_kernels.moe.pre_permute import PrePermuteCPUKernel, PrePermuteKernel

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
CPU = torch.device("cpu")
ALIGN = PermuteAlignCall(device=torch.device("cuda", 0), facts=HOPPER, experts=8, block_size=16)


def call_of(
    experts: int = 8,
    *,
    alignment: int = 1,
    metadata: RowMetadata = "ends",
    vectors: bool = True,
    dtype: torch.dtype = torch.float16,
) -> PrePermuteCall:
    return PrePermuteCall(
        device=torch.device("cuda", 0),
        facts=HOPPER,
        experts=experts,
        alignment=alignment,
        metadata=metadata,
        vectors=vectors,
        dtype=dtype,
    )


@pytest.mark.parametrize("pairs", [1, STEP, STEP + 1, CHUNK, CHUNK + 1, 32768, 131072, 131073, 10**6, 2**31 - 1])
def test_every_pair_is_dealt_once(pairs: int) -> None:
    """Chunks cover all pairs, none is empty, and there are no more of them than blocks can add up."""
    chunks, steps = dealt(pairs)
    assert (chunks - 1) * steps * STEP < pairs <= chunks * steps * STEP
    assert 1 <= chunks <= MOST_CHUNKS
    assert steps <= 4 or chunks > MOST_CHUNKS // 2


def test_few_pairs_are_one_chunk() -> None:
    """Up to a chunk's worth of pairs needs no counts of others."""
    assert [dealt(pairs) for pairs in (1, STEP, STEP + 1, CHUNK)] == [(1, 1), (1, 1), (1, 2), (1, 4)]
    assert dealt(CHUNK + 1)[0] == 2


def test_experts_are_counted_as_many_as_fit() -> None:
    """A window holds all experts up to the widest one."""
    counts = [1, 256, 257, 512, 513, 1024, 1025, 5000]
    assert [window(count) for count in counts] == [256, 256, 512, 512, 1024, 1024, 1024, 1024]


def test_programs_do_not_know_pairs_or_experts() -> None:
    """Programs depend on the window, the form and the alignment alone."""
    count, place = Placement("ends", 200, 4).cuda_programs()
    assert dict(count.arguments) == {"window": 256}
    assert dict(place.arguments) == {"form": "ends", "window": 256, "alignment": 4}
    assert Placement("ends", 100, 4).cuda_programs() == (count, place)
    assert dict(Placement("blocks", 100, 4).cpu_program().arguments) == {"form": "blocks", "alignment": 4}


class Launches:
    """Stands for loaded CUDA programs, and keeps what each launch was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs: list[Program] = []
        self.given: list[tuple[str, tuple[object, ...]]] = []
        load_instead(monkeypatch, self.load)

    def load(self, program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert arch == 90
        assert owner.split(" for ")[1].startswith(("PrePermuteCall(", "PermuteAlignCall("))
        self.programs.append(program)
        return lambda *given: self.given.append((program.builder, given))


@pytest.mark.parametrize("vectors", [False, True])
@pytest.mark.parametrize("metadata", ["ends", "per_row"])
def test_pre_permute_launches(metadata: RowMetadata, vectors: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts come first where there are several chunks, then places, then rows; all begin at whole accesses."""
    launches = Launches(monkeypatch)
    kernel = PrePermuteKernel(call_of(300, metadata=metadata, vectors=vectors))
    vector = 8 if vectors else 1
    for tokens in (3, 600):
        launches.given.clear()
        x, ids = torch.randn(tokens, 16).half(), torch.zeros(tokens, 4, dtype=torch.int32)
        expert_input, entries, inverse = kernel.forward(misplaced(x), misplaced(ids), tokens * 4)
        builders = [builder for builder, _ in launches.given]
        chunks, steps = dealt(tokens * 4)
        assert builders == (["count_pairs"] if chunks > 1 else []) + ["place_pairs", "copy_rows"]
        pairs, counts, first, second, last = launches.given[-2][1]
        assert isinstance(pairs, Tensor)
        assert isinstance(counts, Tensor)
        assert torch.equal(pairs, ids.flatten())
        assert counts.shape == (chunks, 300)
        assert (first is entries, second is inverse, last) == (True, True, steps)
        source, places, target, top_k = launches.given[-1][1]
        assert isinstance(source, Tensor)
        assert isinstance(target, Tensor)
        assert (places is inverse, top_k) == (True, 4)
        assert source.shape == (tokens, 16 // vector, vector)
        assert torch.equal(source.flatten(), x.flatten())
        assert target.shape == (tokens * 4, 16 // vector, vector)
        assert target.data_ptr() == expert_input.data_ptr()
        assert source.data_ptr() % 16 == 0
    assert launches.programs == [*kernel.programs()]


def test_without_pairs_nothing_is_launched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there are no pairs, metadata says that no row is an expert's; without columns no rows are copied."""
    launches = Launches(monkeypatch)
    no_ids = torch.empty(0, 2, dtype=torch.int32)
    _, ends, inverse = PrePermuteKernel(call_of(alignment=4)).forward(torch.empty(0, 16).half(), no_ids, 24)
    assert (ends.tolist(), inverse.shape) == ([0] * 8, (0,))
    _, experts, _ = PrePermuteKernel(call_of(metadata="per_row")).forward(torch.empty(0, 16).half(), no_ids, 24)
    assert experts.tolist() == [8] * 24
    assert launches.programs == []
    PrePermuteKernel(call_of()).forward(torch.empty(2, 0).half(), torch.zeros(2, 2, dtype=torch.int32), 4)
    assert [builder for builder, _ in launches.given] == ["place_pairs"]


def test_permute_align_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts come first where there are several chunks, then places; results go to the program as they are returned."""
    launches = Launches(monkeypatch)
    kernel = PermuteAlignKernel(ALIGN)
    for tokens in (3, 600):
        launches.given.clear()
        ids = torch.zeros(tokens, 4, dtype=torch.int32)
        rows = tokens * 4 + 9 * 15
        results = kernel.forward(misplaced(ids), rows)
        assert [result.shape for result in results] == [(rows,), (-(-rows // 16),), (1,)]
        chunks, steps = dealt(tokens * 4)
        *counted, (builder, given) = launches.given
        assert (len(counted), builder) == (int(chunks > 1), "place_pairs")
        assert all(once is again for once, again in zip(given[2:5], results, strict=True))
        assert given[5] == steps
    assert launches.programs == [*kernel.programs()]


def test_permute_align_without_pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pairs every row is padding and no block is an expert's, and no program is needed."""
    launches = Launches(monkeypatch)
    for kernel in (PermuteAlignKernel(ALIGN), PermuteAlignCPUKernel(ALIGN)):
        pairs, experts, filled = kernel.forward(torch.empty(3, 0, dtype=torch.int32), 135)
        assert (pairs.tolist(), experts.tolist(), filled.tolist()) == ([0] * 135, [-1] * 9, [0])
    assert launches.programs == []


def test_permute_align_entries() -> None:
    """An entry depends on experts and block size, on a CPU on nothing else."""
    for kernel_type in (PermuteAlignKernel, PermuteAlignCPUKernel):
        identity = kernel_type.entry_for(ALIGN)[0]
        for other in (replace(ALIGN, experts=9), replace(ALIGN, block_size=8)):
            assert kernel_type.entry_for(other)[0] != identity
    assert (
        PermuteAlignCPUKernel.entry_for(replace(ALIGN, device=CPU, facts=None))[0]
        == (PermuteAlignCPUKernel.entry_for(ALIGN)[0])
    )


def test_refuses_other_dtypes() -> None:
    """Rows are of the floating-point dtypes that every kernel type here serves."""
    for kernel_type in (PrePermuteKernel, PrePermuteCPUKernel):
        assert kernel_type.refusal(call_of()) is None
        assert kernel_type.refusal(call_of(dtype=torch.float64)) == "serves float16, bfloat16, float32, not float64"


def test_a_cpu_entry_serves_every_width_and_thread() -> None:
    """A CPU entry depends on experts, alignment, metadata and dtype."""
    identity = PrePermuteCPUKernel.entry_for(call_of())[0]
    assert PrePermuteCPUKernel.entry_for(call_of(vectors=False))[0] == identity
    for other in (call_of(9), call_of(alignment=2), call_of(metadata="per_row"), call_of(dtype=torch.float32)):
        assert PrePermuteCPUKernel.entry_for(other)[0] != identity
    assert PrePermuteKernel(call_of()).config() == {"vector": 8, "threads": 128}


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_copies_the_same_rows(threads: int) -> None:
    """Sharing tokens among threads loses and repeats nothing."""
    before = torch.get_num_threads()
    x, ids = torch.randn(200, 300), wild_ids(200, 3, 8, CPU)
    places = placed(ids, 8, 1)
    try:
        torch.set_num_threads(threads)
        expert_input, ends, inverse = PrePermuteCPUKernel(call_of(dtype=torch.float32)).forward(x, ids, 600)
    finally:
        torch.set_num_threads(before)
    assert (ends.tolist(), inverse.tolist()) == (places.ends, places.rows)
    present = inverse >= 0
    assert torch.equal(expert_input[inverse[present].long()], x[torch.arange(600)[present] // 3])


@pytest.mark.parametrize("freed", ["hidden_states", "expert_ids"])
def test_freed_storage_is_an_error_on_cpu(freed: str) -> None:
    """A tensor with elements and no memory is refused before its address is used."""
    tensors = {"hidden_states": torch.ones(3, 8).half(), "expert_ids": torch.zeros(3, 2, dtype=torch.int32)}
    tensors[freed].untyped_storage().resize_(0)
    with pytest.raises(StorageError, match=f"PrePermuteCPUKernel for PrePermuteCall.*{freed} has elements and no"):
        PrePermuteCPUKernel(call_of()).forward(**tensors, rows=6)
