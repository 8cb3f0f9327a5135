"""Kernel types of the matrix product: which serves what, their settings, and what an entry builds and launches."""

from __future__ import annotations

import itertools
from dataclasses import asdict, replace

import pytest
import torch
from torch import Tensor

from tests.kernels.gemm_calls import ADA, AMPERE, CPU, GPU, HOPPER, cpu_call, gemm_call
from tests.kernels.launches import load_instead
from tests.kernels.placing import misplaced
from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.errors import NoImplementationError, StorageError
from tileops_kernels.gemm import GEMM_KERNELS, GemmCall, gemm_kernels
from tileops_kernels.gemm.gemm import (
    GemmAsyncKernel,
    GemmCPUKernel,
    GemmCUDAKernel,
    GemmDotsKernel,
    GemmKernel,
    GemmPartsKernel,
    GemmTMAKernel,
    async_settings,
    general_settings,
)

CUDA_TYPES = (GemmTMAKernel, GemmAsyncKernel, GemmKernel)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (gemm_call(), "gemm_tma"),
        (gemm_call(trans_a=True), "gemm_tma"),
        (gemm_call(n=257), "gemm"),
        (gemm_call(k=511), "gemm"),
        (gemm_call(1 << 20, 1 << 20), "gemm_tma"),
        (gemm_call(facts=ADA), "gemm_async"),
        (gemm_call(facts=AMPERE), "gemm_async"),
        (gemm_call(trans_a=True, facts=AMPERE), "gemm"),
        (gemm_call(n=252, facts=AMPERE), "gemm"),
        (gemm_call(1 << 15, (1 << 16) - 8, facts=AMPERE), "gemm_async"),
        (gemm_call(1 << 15, 1 << 16, facts=AMPERE), "gemm"),
    ],
)
def test_selection_on_cuda(call: GemmCall, expected: str) -> None:
    """Whole accesses are fetched by Hopper's accelerator or by asynchronous copies, all else an element at a time."""
    for few_rows in (False, True):
        for dtype in (torch.float16, torch.bfloat16):
            assert gemm_kernels().key_for(replace(call, few_rows=few_rows, dtype=dtype)) == expected


def test_selection_on_cpu() -> None:
    """One kernel type serves every extent and orientation on a CPU."""
    for call in (cpu_call(), cpu_call(trans_a=True), replace(cpu_call(), n=1, k=3, vectors=False)):
        assert gemm_kernels().key_for(call) == "gemm_cpu"


@pytest.mark.parametrize("device", [CPU, GPU], ids=str)
def test_other_dtypes_are_refused(device: torch.device) -> None:
    """A dtype that no kernel type serves is an error that gives the reason."""
    call = gemm_call(dtype=torch.float32, facts=HOPPER if device is GPU else None, device=device)
    with pytest.raises(NoImplementationError, match=r"gemm.*: serves float16, bfloat16, not float32"):
        gemm_kernels().key_for(call)


def test_reasons_name_the_extents() -> None:
    """Each refusal says what the kernel type needs and what the call has."""
    for kernel_type in (GemmTMAKernel, GemmAsyncKernel):
        assert kernel_type.refusal(gemm_call(n=257)) == (
            "rows are read 16 bytes at a time, and those of some tensor are no whole number of accesses; n=257, k=512"
        )
    assert GemmAsyncKernel.refusal(gemm_call(trans_a=True)) == (
        "the extent along which a is stored is compiled in, and under trans_a it is the number of rows"
    )
    assert GemmAsyncKernel.refusal(gemm_call(1 << 16, 1 << 15)) == (
        "elements of b are counted in 32 bits where n and k are compiled in; 2147483648 are beyond"
    )


def test_every_kernel_type_is_registered() -> None:
    """The registered keys and kernel types, as ops and users name them."""
    assert dict(GEMM_KERNELS) == {
        "gemm": GemmKernel,
        "gemm_async": GemmAsyncKernel,
        "gemm_tma": GemmTMAKernel,
        "gemm_parts": GemmPartsKernel,
        "gemm_dots": GemmDotsKernel,
        "gemm_cpu": GemmCPUKernel,
    }


@pytest.mark.parametrize(
    ("m", "n", "k", "trans_a", "trans_b", "few_rows", "vectors"),
    [
        (64, 16, 8, False, True, True, True),
        (65, 16, 8, False, True, False, True),
        (9, 16, 8, False, True, True, True),
        (9, 16, 8, True, True, True, False),
        (16, 9, 8, False, False, True, False),
        (16, 9, 8, False, True, True, False),
        (16, 16, 9, True, False, True, True),
        (16, 16, 9, False, False, True, False),
    ],
)
def test_calls_say_what_operands_are(
    m: int, n: int, k: int, trans_a: bool, trans_b: bool, few_rows: bool, vectors: bool
) -> None:
    """Accesses are whole where the extents along which all three are stored are; 64 rows are few."""
    a = torch.empty((k, m) if trans_a else (m, k), dtype=torch.float16)
    b = torch.empty((n, k) if trans_b else (k, n), dtype=torch.float16)
    call = GemmCall.of(a, b, trans_a=trans_a, trans_b=trans_b)
    assert (call.n, call.k, call.few_rows, call.vectors, call.dtype) == (n, k, few_rows, vectors, torch.float16)


@pytest.mark.parametrize("few_rows", [False, True])
def test_settings_fit_the_chip(few_rows: bool) -> None:
    """The tiles under way fit the shared memory of a block, and few rows need no more rows than 64."""
    call = gemm_call(few_rows=few_rows)
    for settings in (async_settings(call), general_settings(call)):
        assert (settings.rows + settings.columns) * settings.depth * settings.stages * 2 <= ADA.smem_budget // 2
        assert settings.rows == 64 or not few_rows


def test_config_is_the_settings() -> None:
    """An entry shows the settings that its program is built with."""
    for kernel_type in CUDA_TYPES:
        kernel = kernel_type(gemm_call(few_rows=True))
        assert dict(kernel.config()) == asdict(kernel.settings)
        assert kernel.config().items() <= dict(kernel.program().arguments).items()


@pytest.mark.parametrize("kernel_type", [GemmTMAKernel, GemmPartsKernel, GemmKernel])
def test_extents_share_an_entry(kernel_type: type[GemmTMAKernel | GemmPartsKernel | GemmKernel]) -> None:
    """An entry and its program serve all extents of like tiles; orientation, dtype and the device make others."""
    call = gemm_call(4096, 512)
    identity = kernel_type.entry_for(call)[0]
    assert kernel_type.entry_for(gemm_call(4088, 1024))[0] == identity
    assert kernel_type(gemm_call(4088, 1024)).programs() == kernel_type(call).programs()
    others = [
        replace(call, trans_a=True),
        replace(call, trans_b=False),
        replace(call, dtype=torch.bfloat16),
        replace(call, few_rows=True, most_rows=64),
        replace(call, device=torch.device("cuda", 1)),
    ]
    assert len({identity, *(kernel_type.entry_for(other)[0] for other in others)}) == 1 + len(others)


def test_asynchronous_copies_compile_columns_and_terms_in() -> None:
    """Columns and terms make an entry and a program of their own."""
    programs = [GemmAsyncKernel(call).program() for call in (gemm_call(), gemm_call(n=264), gemm_call(k=520))]
    assert [(dict(each.arguments)["n"], dict(each.arguments)["k"]) for each in programs] == [
        (256, 512),
        (264, 512),
        (256, 520),
    ]
    assert len({GemmAsyncKernel.entry_for(call)[0] for call in (gemm_call(), gemm_call(n=264), gemm_call(k=520))}) == 3


def test_programs_stream_as_their_types_say() -> None:
    """Each kernel type names its stream and the accesses that the stream makes."""
    found = [dict(kernel_type(gemm_call()).program().arguments) for kernel_type in CUDA_TYPES]
    assert [each.get("stream") for each in found] == [None, "async", "plain"]
    assert [each["vector"] for each in found] == [8, 8, 1]


def test_no_program_knows_the_rows() -> None:
    """Calls of any number of rows differ by powers of two up to 8192, and no program knows the number."""
    b = torch.empty(16, 8, dtype=torch.float16)
    calls = [
        GemmCall.of(b.new_empty(m, 8), b, trans_a=False, trans_b=True) for m in (1, 8, 9, 33, 64, 65, 4097, 1 << 20)
    ]
    assert calls[:2] == [replace(calls[0], most_rows=8)] * 2
    few = replace(calls[0], handful=False)
    assert calls[2:5] == [*(replace(few, most_rows=rows) for rows in (16, 64, 64))]
    many = replace(few, few_rows=False)
    assert calls[5:] == [*(replace(many, most_rows=rows) for rows in (128, 8192, 8192))]
    cuda_types = *CUDA_TYPES, GemmPartsKernel, GemmDotsKernel
    kernels = [*(kernel_type(gemm_call()) for kernel_type in cuda_types), GemmCPUKernel(cpu_call())]
    for kernel in kernels:
        names = {name for program in kernel.programs() for name, _ in program.arguments}
        assert "m" not in names


def test_cpu_entries_do_not_depend_on_threads_and_extents() -> None:
    """A CPU entry serves every extent, whatever number of threads torch has."""
    call = replace(cpu_call(), facts=DeviceFacts(arch=0, sm_count=2, smem_budget=0))
    identity = GemmCPUKernel.entry_for(call)[0]
    other = replace(
        call, n=7, k=3, few_rows=True, handful=True, most_rows=8, vectors=False, facts=DeviceFacts(0, 64, 0)
    )
    assert GemmCPUKernel.entry_for(other)[0] == identity
    assert GemmCPUKernel.entry_for(cpu_call(torch.bfloat16))[0] != identity
    assert GemmCPUKernel.entry_for(cpu_call(trans_b=False))[0] != identity
    assert GemmCPUKernel.entry_for(cpu_call(trans_a=True))[0] != identity


def test_cpu_builds_two_programs_for_all_extents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is built for an empty result or without terms; then one program for tall results and one for wide."""
    built: list[Program] = []
    original = cpu.load

    def load(program: Program, *, owner: str) -> CPUFunction:
        built.append(program)
        assert owner.startswith("GemmCPUKernel for GemmCall(")
        return original(program, owner=owner)

    monkeypatch.setattr(cpu, "load", load)
    table = gemm_kernels()
    b = torch.ones(4, 3, dtype=torch.float16)
    for m in (0, 1, 4, 5, 64, 65, 129):
        a = b.new_ones(m, 3)
        d = table.entry(GemmCall.of(a, b, trans_a=False, trans_b=True))(a, b)
        assert torch.equal(d, torch.full((m, 4), 3.0, dtype=torch.float16))
    entry = table.entry(cpu_call())
    assert entry(b[:, :0], b[:, :0].contiguous()).eq(0).all()
    assert [dict(program.arguments)["split"] for program in built] == ["columns", "rows"]
    assert set(built) == set(GemmCPUKernel(cpu_call()).programs())


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_product(threads: int) -> None:
    """Splitting among threads loses and repeats nothing, whichever extent is split and however operands are stored."""
    before = torch.get_num_threads()
    random = torch.Generator().manual_seed(0)
    try:
        torch.set_num_threads(threads)
        for m, n in ((150, 70), (70, 150)):
            a = torch.randint(-3, 4, (m, 300), generator=random)
            b = torch.randint(-3, 4, (n, 300), generator=random)
            for trans_a, trans_b in ((False, True), (True, False)):
                left = (a.t() if trans_a else a).to(torch.float16).contiguous()
                right = (b if trans_b else b.t()).to(torch.float16).contiguous()
                entry = gemm_kernels().entry(cpu_call(trans_a=trans_a, trans_b=trans_b))
                assert torch.equal(entry(left, right).long(), a @ b.t())
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize("freed", ["a", "b"])
def test_freed_storage_is_an_error_on_cpu(freed: str) -> None:
    """A tensor with elements and no memory is refused before its address is used."""
    tensors = {"a": torch.ones(3, 8).half(), "b": torch.ones(4, 8).half()}
    tensors[freed].untyped_storage().resize_(0)
    with pytest.raises(StorageError) as caught:
        GemmCPUKernel(cpu_call())(**tensors)
    assert str(caught.value) == (
        f"GemmCPUKernel for {cpu_call()}: {freed} has elements and no storage; expected memory that holds them, "
        "received address 0; restore its storage before the call"
    )


class Launches:
    """Stands for loaded CUDA programs: computes what a launch should, and keeps what it was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, call: GemmCall) -> None:
        self.call = call
        self.programs: list[Program] = []
        self.given: list[tuple[Tensor, Tensor, Tensor]] = []
        load_instead(monkeypatch, self.load)

    def load(self, program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert arch == 90
        assert " for GemmCall(" in owner
        self.programs.append(program)
        return self.run

    def run(self, a: Tensor, b: Tensor, d: Tensor, *blocks: int) -> None:
        assert all(0 < count <= HOPPER.sm_count for count in blocks)
        self.given.append((a, b, d))
        left = a.t() if self.call.trans_a else a
        d.copy_(left.double() @ (b.t() if self.call.trans_b else b).double())


@pytest.mark.parametrize(
    ("kernel_type", "trans_b"), [*itertools.product(CUDA_TYPES, (False, True)), (GemmDotsKernel, True)]
)
def test_launches_get_aligned_matrices(
    kernel_type: type[GemmCUDAKernel | GemmTMAKernel | GemmDotsKernel], trans_b: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the rows, strides of single rows and offsets, one program gets plain matrices at whole accesses."""
    call = gemm_call(24, 16, trans_b=trans_b)
    launches = Launches(monkeypatch, call)
    kernel: GemmCUDAKernel | GemmTMAKernel | GemmDotsKernel = kernel_type(call)
    b = torch.randint(-3, 4, (24, 16) if trans_b else (16, 24)).half()
    wide = torch.randint(-3, 4, (1, 64)).half()[:, :16]
    rows = [torch.randint(-3, 4, (m, 16)).half() for m in (1, 5, 70, 200)]
    for a in (*rows, misplaced(rows[1]), wide):
        for right in (b, misplaced(b)):
            d = kernel.forward(a, right)
            assert torch.equal(d, (a.double() @ (b.t() if trans_b else b).double()).half())
            assert d.data_ptr() == launches.given[-1][2].data_ptr()
            for tensor in launches.given[-1]:
                assert tensor.stride() == (tensor.shape[1], 1)
                assert tensor.data_ptr() % 16 == 0
    assert launches.programs == list(kernel.programs())


@pytest.mark.parametrize("kernel_type", CUDA_TYPES)
def test_no_elements_or_terms_launch_nothing(
    kernel_type: type[GemmCUDAKernel | GemmTMAKernel], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty result, and the zeros of a product without terms, need no program."""
    launches = Launches(monkeypatch, gemm_call())
    kernel = kernel_type(gemm_call())
    assert kernel.forward(torch.empty(0, 8).half(), torch.empty(4, 8).half()).shape == (0, 4)
    assert kernel.forward(torch.empty(3, 8).half(), torch.empty(0, 8).half()).shape == (3, 0)
    assert torch.equal(kernel.forward(torch.empty(3, 0).half(), torch.empty(4, 0).half()), torch.zeros(3, 4).half())
    assert launches.programs == []
