"""Kernel types of max pooling: which serves what, their settings, and what an entry builds and launches."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.kernels.launches import load_instead
from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.errors import NoImplementationError, StorageError
from tileops_kernels.pool import MAX_POOL2D_KERNELS, MaxPool2dCall, max_pool2d_kernels
from tileops_kernels.pool.interfaces import Pair
from tileops_kernels.pool.max_pool import MaxPool2dCPUKernel, MaxPool2dKernel

HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)
AMPERE = DeviceFacts(arch=80, sm_count=108, smem_budget=166912)
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)
DTYPES = [torch.float16, torch.bfloat16, torch.float32]


def pool_call(
    kernel_size: Pair = (3, 2),
    stride: Pair = (2, 1),
    padding: Pair = (1, 0),
    dilation: Pair = (1, 1),
    *,
    wide: bool = False,
    dtype: torch.dtype = torch.float32,
    facts: DeviceFacts | None = None,
    device: torch.device = CPU,
) -> MaxPool2dCall:
    return MaxPool2dCall(
        device=device,
        kernel_size=kernel_size,
        stride=stride,
        padding=padding,
        dilation=dilation,
        wide=wide,
        dtype=dtype,
        facts=facts,
    )


def cuda_call(*, wide: bool = False, dtype: torch.dtype = torch.float16) -> MaxPool2dCall:
    return pool_call(wide=wide, dtype=dtype, facts=HOPPER, device=GPU)


@pytest.mark.parametrize("wide", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_selection(dtype: torch.dtype, wide: bool) -> None:
    """One kernel type serves every plane on each of CPU and CUDA."""
    assert max_pool2d_kernels().key_for(pool_call(dtype=dtype, wide=wide)) == "max_pool2d_cpu"
    for facts in (HOPPER, AMPERE):
        assert max_pool2d_kernels().key_for(replace(cuda_call(dtype=dtype, wide=wide), facts=facts)) == "max_pool2d"


@pytest.mark.parametrize("call", [pool_call(), cuda_call()], ids=["cpu", "cuda"])
def test_other_dtypes_are_refused(call: MaxPool2dCall) -> None:
    """A dtype that no kernel type serves is an error with the reason."""
    with pytest.raises(NoImplementationError, match=r"max_pool2d.*: serves float16, bfloat16, float32, not int32"):
        max_pool2d_kernels().key_for(replace(call, dtype=torch.int32))


@pytest.mark.parametrize(
    ("kernel", "stride", "dilation", "refused"),
    [
        (2, 1, 523_776, None),
        (2, 1, 523_777, 524_289),
        (1, 1_000_000, 1, None),
        (524_288, 1_000_000, 1, None),
        (524_289, 1_000_000, 1, 524_289),
    ],
)
def test_a_cpu_refuses_windows_that_fill_its_stack(
    kernel: int, stride: int, dilation: int, refused: int | None
) -> None:
    """A row under the windows that are made together lies on a thread's stack, so that its length has a limit."""
    call = pool_call((1, kernel), (1, stride), (0, 0), (1, dilation))
    reason = f"a window reaches over {refused} elements of a row; up to 524288 are held on the stack"
    assert MaxPool2dCPUKernel.refusal(call) == (reason if refused else None)
    assert MaxPool2dKernel.refusal(replace(call, device=GPU, facts=HOPPER)) is None


def test_every_kernel_type_is_registered() -> None:
    """The registered keys and kernel types, as ops and users name them."""
    assert dict(MAX_POOL2D_KERNELS) == {"max_pool2d": MaxPool2dKernel, "max_pool2d_cpu": MaxPool2dCPUKernel}


def test_config_is_the_settings() -> None:
    """An entry on CUDA shows the threads that its program is built with; one on a CPU has no settings."""
    kernel = MaxPool2dKernel(cuda_call())
    assert dict(kernel.config()) == {"threads": 256}
    assert dict(kernel.program().arguments)["threads"] == 256
    assert dict(MaxPool2dCPUKernel(pool_call()).config()) == {}


def test_programs_know_the_window_and_no_extent() -> None:
    """The window is compiled in; planes and their extents are not, but for the width of the integers that count."""
    window = {"kernel": "3,2", "stride": "2,1", "padding": "1,0", "dilation": "1,1"}
    narrow, wide = (dict(MaxPool2dKernel(cuda_call(wide=wide)).program().arguments) for wide in (False, True))
    assert narrow == {**window, "dtype": "float16", "index": "int32", "threads": 256}
    assert wide == {**narrow, "index": "int64"}
    assert dict(MaxPool2dCPUKernel(pool_call()).program().arguments) == {**window, "dtype": "float32", "span": 512}


@pytest.mark.parametrize(("stride", "span"), [(1, 512), (32, 512), (33, 496), (16384, 1), (100_000, 1)])
def test_a_cpu_makes_as_many_outputs_as_a_cached_row_gives(stride: int, span: int) -> None:
    """Outputs that are made together read at most 64 KiB of a row of float32, and there is at least one."""
    program = MaxPool2dCPUKernel(pool_call(stride=(1, stride))).program()
    assert dict(program.arguments)["span"] == span


def test_entries() -> None:
    """A CPU entry is one for all threads and extents; every part of a window and the dtype make another."""
    call = replace(pool_call(), facts=DeviceFacts(arch=0, sm_count=2, smem_budget=0))
    identity = MaxPool2dCPUKernel.entry_for(call)[0]
    same = replace(call, wide=True, facts=DeviceFacts(arch=0, sm_count=64, smem_budget=0))
    assert MaxPool2dCPUKernel.entry_for(same)[0] == identity
    changes = [
        replace(call, kernel_size=(2, 3)),
        replace(call, stride=(1, 2)),
        replace(call, padding=(0, 1)),
        replace(call, dilation=(2, 1)),
        replace(call, dtype=torch.float16),
    ]
    assert len({identity, *(MaxPool2dCPUKernel.entry_for(change)[0] for change in changes)}) == 1 + len(changes)

    placed = [replace(change, device=GPU, facts=HOPPER) for change in (call, *changes)]
    placed += [replace(placed[0], wide=True), replace(placed[0], device=torch.device("cuda", 1))]
    assert len({MaxPool2dKernel.entry_for(change)[0] for change in placed}) == len(placed)


def test_cpu_builds_one_program_for_all_extents(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is built for an empty output or for planes without elements; then one program for all that come."""
    built: list[Program] = []
    original = cpu.load

    def load(program: Program, *, owner: str) -> CPUFunction:
        built.append(program)
        assert owner.startswith("MaxPool2dCPUKernel for MaxPool2dCall(")
        return original(program, owner=owner)

    monkeypatch.setattr(cpu, "load", load)
    entry = max_pool2d_kernels().entry(pool_call((2, 2), (1, 1), (1, 1)))
    assert entry(torch.empty(0, 3, 4, 4), 5, 5).shape == (0, 3, 5, 5)
    assert torch.equal(entry(torch.empty(1, 1, 0, 4), 1, 5), torch.full((1, 1, 1, 5), -math.inf))
    assert built == []
    for shape in ((1, 1, 1, 1), (2, 3, 7, 5), (5, 1, 2, 1030)):
        planes = torch.randn(shape)
        expected = functional.max_pool2d(planes, 2, 1, 1)
        assert torch.equal(entry(planes, *expected.shape[2:]), expected)
    assert built == [MaxPool2dCPUKernel(pool_call((2, 2), (1, 1), (1, 1))).program()]


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_any_number_of_threads_gives_the_same_planes(threads: int) -> None:
    """Splitting among threads loses and repeats no plane."""
    before = torch.get_num_threads()
    planes = torch.randn(1, 7, 90, 110, generator=torch.Generator().manual_seed(0))
    try:
        torch.set_num_threads(threads)
        found = max_pool2d_kernels().entry(pool_call())(planes, 45, 109)
        assert torch.equal(found, functional.max_pool2d(planes, (3, 2), (2, 1), (1, 0)))
    finally:
        torch.set_num_threads(before)


def test_freed_storage_is_an_error_on_cpu() -> None:
    """Planes with elements and no memory are refused before their address is used."""
    planes = torch.ones(1, 1, 4, 4)
    planes.untyped_storage().resize_(0)
    with pytest.raises(StorageError) as caught:
        MaxPool2dCPUKernel(pool_call())(planes, 2, 3)
    assert str(caught.value) == (
        f"MaxPool2dCPUKernel for {pool_call()}: planes has elements and no storage; expected memory that holds them, "
        "received address 0; restore its storage before the call"
    )


class Launches:
    """Stands for loaded CUDA programs, and keeps what each launch was given."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.programs: list[Program] = []
        self.given: list[tuple[Tensor, Tensor]] = []
        load_instead(monkeypatch, self.load)

    def load(self, program: Program, *, arch: int, owner: str) -> cuda.CUDAFunction:
        assert (arch, owner.partition(" for ")[0]) == (90, "MaxPool2dKernel")
        self.programs.append(program)
        return self.run

    def run(self, planes: Tensor, output: Tensor) -> None:
        self.given.append((planes, output))
        output.copy_(functional.max_pool2d(planes[:, None].float(), (3, 2), (2, 1), (1, 0))[:, 0])


def test_launches_get_planes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the planes, the strides of single ones and the offset, one program gets planes of plain strides."""
    launches = Launches(monkeypatch)
    kernel = MaxPool2dKernel(cuda_call())
    flat = torch.randn(2 * 3 * 8 * 6 + 1).half()
    single = flat[:96].view(2, 48)[:1, :48].view(1, 1, 8, 6)
    for planes in (flat[:-1].view(2, 3, 8, 6), flat[1:].view(2, 3, 8, 6), flat[:40].view(1, 1, 8, 5), single):
        height, width = 4, planes.shape[3] - 1
        output = kernel.forward(planes, height, width)
        assert torch.equal(output, functional.max_pool2d(planes, (3, 2), (2, 1), (1, 0)))
        source, target = launches.given[-1]
        count = planes.shape[0] * planes.shape[1]
        assert (source.shape, source.data_ptr()) == ((count, *planes.shape[2:]), planes.data_ptr())
        assert (target.shape, target.data_ptr()) == ((count, height, width), output.data_ptr())
        for tensor in (source, target):
            assert tensor.stride() == (tensor.shape[1] * tensor.shape[2], tensor.shape[2], 1)
    assert launches.programs == [kernel.program()]


def test_no_elements_launch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty output, and the -inf of planes without elements, need no program."""
    launches = Launches(monkeypatch)
    kernel = MaxPool2dKernel(cuda_call())
    assert kernel.forward(torch.empty(0, 3, 4, 4).half(), 2, 3).shape == (0, 3, 2, 3)
    assert torch.equal(kernel.forward(torch.empty(2, 1, 0, 4).half(), 1, 3), torch.full((2, 1, 1, 3), -math.inf).half())
    assert launches.programs == []
