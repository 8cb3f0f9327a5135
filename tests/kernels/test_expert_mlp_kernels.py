"""Kernel types of shared and of indexed experts' MLPs: which serve what, what they build, and what they launch."""

from __future__ import annotations

from dataclasses import asdict, replace

import pytest
import torch
from torch import Tensor

from tests.kernels.launches import load_instead
from tests.kernels.moe_calls import ADA, AMPERE, CPU, GPU, HOPPER
from tests.kernels.placing import misplaced
from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.errors import NoImplementationError, StorageError
from tileops_kernels.moe import (
    INDEXED_EXPERT_MLP_KERNELS,
    SHARED_EXPERT_MLP_KERNELS,
    IndexedExpertMLPCall,
    SharedExpertMLPCall,
    indexed_expert_mlp_kernels,
    shared_expert_mlp_kernels,
)
from tileops_kernels.moe.indexed_expert_mlp import IndexedExpertMLPCPUKernel, IndexedExpertMLPKernel
from tileops_kernels.moe.shared_expert_mlp import (
    SharedExpertMLPAsyncKernel,
    SharedExpertMLPCPUKernel,
    SharedExpertMLPCUDAKernel,
    SharedExpertMLPDotsKernel,
    SharedExpertMLPKernel,
    SharedExpertMLPTMAKernel,
    async_settings,
    general_settings,
    tma_settings,
)
from tileops_kernels.products import DotSettings

SHARED_CUDA = SharedExpertMLPTMAKernel, SharedExpertMLPAsyncKernel, SharedExpertMLPKernel


def shared_call(
    n: int = 256,
    k: int = 512,
    *,
    few_rows: bool = False,
    handful: bool = False,
    facts: DeviceFacts | None = HOPPER,
) -> SharedExpertMLPCall:
    return SharedExpertMLPCall(
        device=GPU,
        n=n,
        k=k,
        few_rows=few_rows,
        handful=handful,
        vectors=n % 8 == 0 and k % 8 == 0,
        dtype=torch.bfloat16,
        facts=facts,
    )


def indexed_call(*, vectors: bool = True, dtype: torch.dtype = torch.bfloat16) -> IndexedExpertMLPCall:
    return IndexedExpertMLPCall(device=GPU, vectors=vectors, dtype=dtype, facts=HOPPER)


def on_cpu(call: SharedExpertMLPCall) -> SharedExpertMLPCall:
    return replace(call, device=CPU, facts=None)


INDEXED_CPU = IndexedExpertMLPCall(device=CPU, vectors=True, dtype=torch.bfloat16)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (shared_call(), "shared_expert_mlp_tma"),
        (shared_call(few_rows=True), "shared_expert_mlp_tma"),
        (shared_call(n=255), "shared_expert_mlp"),
        (shared_call(k=511), "shared_expert_mlp"),
        (shared_call(facts=AMPERE), "shared_expert_mlp_async"),
        (shared_call(facts=ADA), "shared_expert_mlp_async"),
        (shared_call(n=1 << 15, k=1 << 15, facts=AMPERE), "shared_expert_mlp"),
        (shared_call(few_rows=True, handful=True), "shared_expert_mlp_dots"),
        (shared_call(n=255, few_rows=True, handful=True, facts=AMPERE), "shared_expert_mlp_dots"),
        (on_cpu(shared_call()), "shared_expert_mlp_cpu"),
        (on_cpu(shared_call(few_rows=True, handful=True)), "shared_expert_mlp_cpu"),
        (on_cpu(shared_call(n=255)), "shared_expert_mlp_cpu"),
    ],
)
def test_selection_of_the_shared_expert(call: SharedExpertMLPCall, expected: str) -> None:
    """Rows of whole accesses are fetched by Hopper's accelerator or by asynchronous copies, all else one by one."""
    assert shared_expert_mlp_kernels().key_for(call) == expected


def test_selection_of_indexed_experts() -> None:
    """One kernel type serves every architecture, and one a CPU."""
    for facts in (AMPERE, ADA, HOPPER):
        for vectors in (False, True):
            call = replace(indexed_call(vectors=vectors), facts=facts)
            assert indexed_expert_mlp_kernels().key_for(call) == "indexed_expert_mlp"
    assert indexed_expert_mlp_kernels().key_for(INDEXED_CPU) == "indexed_expert_mlp_cpu"


def test_other_dtypes_are_refused() -> None:
    """Tensors of a dtype that no kernel type serves are an error that gives the reason."""
    for call in (indexed_call(), INDEXED_CPU):
        with pytest.raises(NoImplementationError, match="serves float16, bfloat16, not float32"):
            indexed_expert_mlp_kernels().key_for(replace(call, dtype=torch.float32))
    for shared in (shared_call(), on_cpu(shared_call())):
        with pytest.raises(NoImplementationError, match="serves float16, bfloat16, not float32"):
            shared_expert_mlp_kernels().key_for(replace(shared, dtype=torch.float32))


def test_every_kernel_type_is_registered() -> None:
    """The registered keys and kernel types, as ops and users name them."""
    assert dict(SHARED_EXPERT_MLP_KERNELS) == {
        "shared_expert_mlp": SharedExpertMLPKernel,
        "shared_expert_mlp_async": SharedExpertMLPAsyncKernel,
        "shared_expert_mlp_tma": SharedExpertMLPTMAKernel,
        "shared_expert_mlp_dots": SharedExpertMLPDotsKernel,
        "shared_expert_mlp_cpu": SharedExpertMLPCPUKernel,
    }
    assert dict(INDEXED_EXPERT_MLP_KERNELS) == {
        "indexed_expert_mlp": IndexedExpertMLPKernel,
        "indexed_expert_mlp_cpu": IndexedExpertMLPCPUKernel,
    }


@pytest.mark.parametrize("few_rows", [False, True])
def test_tiles_fit_the_chip(few_rows: bool) -> None:
    """The tiles under way, two of weights to one of rows, fit the shared memory of a block."""
    call = shared_call(few_rows=few_rows)
    for settings, budget in (
        (tma_settings(call), HOPPER.smem_budget),
        (async_settings(call), ADA.smem_budget),
        (general_settings(call), ADA.smem_budget),
    ):
        assert (settings.rows + 2 * settings.columns) * settings.depth * settings.stages * 2 <= budget


def test_vectors_are_16_bytes_or_an_element() -> None:
    """Rows of whole accesses are read 16 bytes at a time, others an element at a time; eight or 32 are under way."""
    for vectors, vector, under_way in ((True, 8, 8), (False, 1, 32)):
        indexed = IndexedExpertMLPKernel(indexed_call(vectors=vectors))
        assert indexed.settings == DotSettings(vector=vector, unroll=under_way // 4, group=4, threads=256)
        shared = SharedExpertMLPDotsKernel(shared_call(n=256 if vectors else 255, handful=True))
        assert shared.settings == DotSettings(vector=vector, unroll=under_way // 2, group=8, threads=256)
        for kernel in (indexed, shared):
            assert dict(kernel.config()) == asdict(kernel.settings)
            gated, plain, *_ = (dict(program.arguments) for program in kernel.programs())
            assert plain["columns"] == 2 * int(gated["columns"])
            assert kernel.config().items() <= gated.items()


def test_a_handful_of_rows_is_what_dots_serve() -> None:
    """More rows than share a reading are another kernel type's."""
    assert SharedExpertMLPDotsKernel.refusal(shared_call()) == "serves up to 8 rows, and there are more"
    assert SharedExpertMLPDotsKernel.refusal(shared_call(handful=True)) is None


def test_the_second_product_exchanges_columns_and_terms() -> None:
    """Both products are one builder's; extents are compiled in for asynchronous copies alone."""
    for kernel_type in SHARED_CUDA:
        kernel = kernel_type(shared_call())
        assert dict(kernel.config()) == asdict(kernel.settings)
        gate_up, down = (dict(program.arguments) for program in kernel.programs())
        compiled_in = (256, 512) if kernel_type is SharedExpertMLPAsyncKernel else (0, 0)
        assert (gate_up["n"], gate_up["k"]) == compiled_in
        assert (down["k"], down["n"]) == compiled_in
        assert (gate_up["activation"], down["activation"]) == ("silu_and_mul", "none")
        rest = {"n", "k", "activation"}
        assert {**gate_up, **dict.fromkeys(rest)} == {**down, **dict.fromkeys(rest)}


def test_entries_serve_every_number_of_rows_and_experts() -> None:
    """What changes from call to call makes no entry; the dtype, and what decides the programs, do."""
    identity = IndexedExpertMLPKernel.entry_for(indexed_call())[0]
    assert IndexedExpertMLPKernel.entry_for(indexed_call(vectors=False))[0] != identity
    assert IndexedExpertMLPKernel.entry_for(indexed_call(dtype=torch.float16))[0] != identity
    threads = replace(INDEXED_CPU, vectors=False, facts=DeviceFacts(0, 64, 0))
    assert IndexedExpertMLPCPUKernel.entry_for(threads)[0] == IndexedExpertMLPCPUKernel.entry_for(INDEXED_CPU)[0]
    for kernel_type in (SharedExpertMLPTMAKernel, SharedExpertMLPKernel, SharedExpertMLPDotsKernel):
        assert kernel_type.entry_for(shared_call(8, 16))[0] == kernel_type.entry_for(shared_call())[0]
    assert (
        SharedExpertMLPAsyncKernel.entry_for(shared_call(8, 16))[0]
        != (SharedExpertMLPAsyncKernel.entry_for(shared_call())[0])
    )


class Launches:
    """Stands for loaded CUDA programs: keeps what each launch was given, and fills its last matrix with ones."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs: list[Program] = []
        self.given: list[tuple[Tensor | int | float, ...]] = []
        load_instead(monkeypatch, self.load)

    def load(self, program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert arch == 90
        assert "ExpertMLPCall(" in owner
        self.programs.append(program)
        return self.run

    def run(self, *given: Tensor | float) -> None:
        self.given.append(given)
        tensors = [each for each in given if isinstance(each, Tensor)]
        for tensor in tensors:
            assert tensor.data_ptr() % 16 == 0
            assert tensor.stride() == ((tensor.shape[1], 1) if tensor.ndim == 2 else (1,))
        tensors[-1].fill_(1)


@pytest.mark.parametrize("kernel_type", [*SHARED_CUDA, SharedExpertMLPDotsKernel])
def test_the_shared_expert_is_two_launches(
    kernel_type: type[SharedExpertMLPCUDAKernel | SharedExpertMLPDotsKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the offsets, two programs get aligned matrices, the second what the first one made."""
    launches = Launches(monkeypatch)
    kernel: SharedExpertMLPCUDAKernel | SharedExpertMLPDotsKernel = kernel_type(shared_call(6, 16))
    w_gate_up, w_down = torch.randn(12, 16).bfloat16(), torch.randn(16, 6).bfloat16()
    for m in (1, 3, 70):
        x = torch.randn(m, 16).bfloat16()
        for given in ((x, w_gate_up, w_down), tuple(misplaced(each) for each in (x, w_gate_up, w_down))):
            output = kernel.forward(*given)
            assert output.eq(1).all()
            (left, gates, hidden), (again, columns, target) = launches.given[-2:]
            assert isinstance(left, Tensor)
            assert isinstance(gates, Tensor)
            assert isinstance(columns, Tensor)
            assert isinstance(target, Tensor)
            assert torch.equal(left, x)
            assert torch.equal(gates, w_gate_up)
            assert again is hidden
            assert torch.equal(columns, w_down)
            assert target.shape == output.shape == (m, 16)
    assert launches.programs == list(kernel.programs())


def test_indexed_experts_are_three_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the offsets, products of pairs and their weighted sums get aligned tensors; the buffer is written."""
    launches = Launches(monkeypatch)
    kernel = IndexedExpertMLPKernel(indexed_call())
    x, w_gate_up, w_down = (torch.randn(*shape).bfloat16() for shape in ((3, 16), (4, 12, 16), (4, 16, 6)))
    weights, ids = torch.rand(3, 2), torch.tensor([[0, 3], [-1, 2], [1, 1]], dtype=torch.int32)
    for placed in (False, True):
        tensors = [torch.empty(3, 16).bfloat16(), x, w_gate_up, w_down, weights, ids]
        output, x, gates, columns, shares, experts = [misplaced(each) for each in tensors] if placed else tensors
        kernel.forward(output, x, gates, columns, shares, experts, 2.5)
        assert output.eq(1).all()
        gate_up, down, sums = launches.given[-3:]
        shapes = [[tuple(each.shape) if isinstance(each, Tensor) else each for each in one] for one in launches.given]
        assert shapes[-3] == [(3, 16), (48, 16), (6,), (6, 6), 4, 2]
        assert shapes[-2] == [(6, 6), (64, 6), (6,), (6, 16), 4, 1]
        assert shapes[-1] == [(6, 16), (6,), (6,), (3, 16), 4, 2, 2.5]
        assert down[0] is gate_up[3]
        assert sums[0] is down[3]
        assert isinstance(sums[2], Tensor)
        assert torch.equal(sums[2], ids.view(-1))
    assert launches.programs == list(kernel.programs())


def test_nothing_to_add_up_launches_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without tokens, choices, experts or hidden columns no program is built, and the buffer is zeros."""
    launches = Launches(monkeypatch)
    for m, top_k, experts, f in ((0, 2, 4, 6), (3, 0, 4, 6), (3, 2, 0, 6), (3, 2, 4, 0)):
        output = torch.full((m, 16), torch.nan).bfloat16()
        x, ids = torch.ones(m, 16).bfloat16(), torch.zeros(m, top_k, dtype=torch.int32)
        given = x, x.new_ones(experts, 2 * f, 16), x.new_ones(experts, 16, f), ids.float(), ids
        for kernel in (IndexedExpertMLPKernel(indexed_call()), IndexedExpertMLPCPUKernel(INDEXED_CPU)):
            kernel.forward(output.fill_(torch.nan), *given, 1.0)
            assert output.eq(0).all()
    for m, n in ((0, 6), (3, 0)):
        for shared in (SharedExpertMLPTMAKernel(shared_call()), SharedExpertMLPCPUKernel(on_cpu(shared_call()))):
            x = torch.ones(m, 16).bfloat16()
            assert torch.equal(shared.forward(x, x.new_ones(2 * n, 16), x.new_ones(16, n)), torch.zeros_like(x))
    assert launches.programs == []


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_sums(threads: int) -> None:
    """Splitting columns and tokens among threads loses and repeats nothing, the last columns included."""
    before, random = torch.get_num_threads(), torch.Generator().manual_seed(0)
    ids = torch.tensor([[1, 0], [2, 2], [-5, 1]], dtype=torch.int32)
    x = torch.randint(0, 2, (3, 270), generator=random).bfloat16()
    w_gate_up = torch.zeros(3, 2 * 203, 270).bfloat16()
    w_gate_up[:, :203, 0] = 64  # where a token has a one there the gate is 64, and silu(64) is 64
    w_gate_up[:, 203:, 1] = torch.arange(203).remainder(3).bfloat16()
    x[:, 0], x[1, 1] = 1, 0.5
    w_down = torch.randint(-1, 2, (3, 270, 203), generator=random).bfloat16()
    weights = torch.tensor([[1.0, 0.5], [0.25, 2.0], [torch.nan, 1.0]])
    hidden = 64.0 * torch.arange(203).remainder(3) * x[:, 1:2].float()
    results = [(w_down[expert].float() @ hidden.T).T for expert in range(3)]
    expected = torch.stack(
        [results[1][0] + 0.5 * results[0][0], 2.25 * results[2][1], results[1][2]],
    )
    output = torch.full((3, 270), torch.nan).bfloat16()
    try:
        torch.set_num_threads(threads)
        entry = indexed_expert_mlp_kernels().entry(INDEXED_CPU)
        entry(output, x, w_gate_up, w_down, weights, ids, 0.5)
    finally:
        torch.set_num_threads(before)
    assert torch.equal(output, (0.5 * expected).bfloat16())


def test_cpu_builds_each_program_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new number of rows, experts or columns builds nothing but the split that it is the first to need."""
    built: list[Program] = []
    original = cpu.load

    def load(program: Program, *, owner: str) -> CPUFunction:
        built.append(program)
        assert "ExpertMLPCall(" in owner
        return original(program, owner=owner)

    monkeypatch.setattr(cpu, "load", load)
    indexed, shared = IndexedExpertMLPCPUKernel(INDEXED_CPU), SharedExpertMLPCPUKernel(on_cpu(shared_call()))
    for m, h, n in ((1, 16, 8), (2, 24, 5), (40, 9, 16)):
        x, w_gate_up, w_down = (torch.ones(*shape).bfloat16() for shape in ((m, h), (2, 2 * n, h), (2, h, n)))
        ids = torch.zeros(m, 1, dtype=torch.int32)
        indexed.forward(torch.empty_like(x), x, w_gate_up, w_down, ids.float(), ids, 1.0)
        shared.forward(x, w_gate_up[0], w_down[0])
    assert len(built) == len(set(built)) == 7
    assert set(built) == {*indexed.programs(), *shared.programs()}


@pytest.mark.parametrize("freed", ["output", "hidden_states", "w_gate_up", "w_down", "topk_weights", "topk_ids"])
def test_freed_storage_is_an_error_on_cpu(freed: str) -> None:
    """A tensor with elements and no memory is refused before its address is used."""
    x = torch.ones(2, 8).bfloat16()
    tensors = {
        "output": torch.empty_like(x),
        "hidden_states": x,
        "w_gate_up": x.new_ones(3, 8, 8),
        "w_down": x.new_ones(3, 8, 4),
        "topk_weights": torch.ones(2, 1),
        "topk_ids": torch.zeros(2, 1, dtype=torch.int32),
    }
    tensors[freed].untyped_storage().resize_(0)
    with pytest.raises(StorageError, match=f"{freed} has elements and no storage; expected memory that holds"):
        IndexedExpertMLPCPUKernel(INDEXED_CPU).forward(**tensors, scale=1.0)


@pytest.mark.parametrize("freed", ["hidden_states", "w_gate_up", "w_down"])
def test_freed_storage_of_the_shared_expert_is_an_error_on_cpu(freed: str) -> None:
    """A tensor with elements and no memory is refused before its address is used."""
    x = torch.ones(2, 8).bfloat16()
    tensors = {"hidden_states": x, "w_gate_up": x.new_ones(8, 8), "w_down": x.new_ones(8, 4)}
    tensors[freed].untyped_storage().resize_(0)
    with pytest.raises(StorageError, match=f"{freed} has elements and no storage; expected memory that holds"):
        SharedExpertMLPCPUKernel(on_cpu(shared_call())).forward(**tensors)
