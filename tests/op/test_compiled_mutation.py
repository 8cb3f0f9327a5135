"""Ops that write what they are given: eager, compiled and replayed calls leave the same bits, in the same order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tileops.elementwise import ReluFwdOp
from tileops.moe import ContiguousLayout, ContiguousMetadata, MoEExpertMLPFwdOp, MoEGroupedGemmFwdOp
from tileops.norm import BatchNormFwdOp
from tileops_testing.graphs import CudaGraphRecorder, copy_into
from tileops_testing.inputs import TensorInput

from .comparing import assert_same


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    """Each test compiles cold."""
    torch.compiler.reset()


def made(device: torch.device, *shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Seeded tensors of these shapes."""
    return [TensorInput(shape=shape, dtype=dtype).make(seed, device) for seed, shape in enumerate(shapes)]


@dataclass(frozen=True)
class Program:
    """A function of tensors that calls ops, some of which write; `tensors` makes what it is called with."""

    function: Callable[..., Any]
    tensors: Callable[[torch.device], list[Tensor]]


def view_read_before_and_after() -> Program:
    """In place on a view, by a function that also reads the whole input before and after."""
    op = ReluFwdOp(inplace=True)

    def function(x: Tensor) -> tuple[Tensor, ...]:
        before = x + 1
        y = op(x[1:5, ::2])
        return before, y * 2, x + 1

    return Program(function, lambda device: made(device, (6, 10)))


def two_views_of_one_tensor() -> Program:
    """In place on overlapping views in turn, negated between: the second sees what the first wrote."""
    op = ReluFwdOp(inplace=True)

    def function(x: Tensor) -> tuple[Tensor, ...]:
        op(x[:4])
        x.neg_()
        op(x.t()[2:])
        return x - 1, x.clone()

    return Program(function, lambda device: made(device, (6, 10)))


def result_that_nobody_uses() -> Program:
    """In place, the result dropped, the tensor not read again."""
    op = ReluFwdOp(inplace=True)

    def function(x: Tensor, y: Tensor) -> Tensor:
        op(x)
        return y + 1

    return Program(function, lambda device: made(device, (6, 10), (3,)))


def temporary() -> Program:
    """In place on a tensor that the function made."""
    op = ReluFwdOp(inplace=True)
    return Program(lambda x: op(x * 2) + x, lambda device: made(device, (6, 10)))


def running_statistics() -> Program:
    """Two training steps that move running statistics, which the function reads between them."""
    op = BatchNormFwdOp(training=True, momentum=0.25)

    def function(x: Tensor, mean: Tensor, var: Tensor) -> tuple[Tensor, ...]:
        first = op(x, mean, var)
        between = mean + var
        return first, between, op(x * 2, mean, var), mean * 1

    return Program(function, lambda device: [*made(device, (5, 6, 7), (6,)), torch.ones(6, device=device)])


def statistics_alone() -> Program:
    """A training step whose output nobody uses still moves the statistics."""
    op = BatchNormFwdOp(training=True)

    def function(x: Tensor, mean: Tensor, var: Tensor) -> Tensor:
        op(x, mean, var)
        return x + 1

    return Program(function, lambda device: [*made(device, (5, 6, 7), (6,)), torch.ones(6, device=device)])


ENDS = ContiguousLayout(metadata_kind=ContiguousMetadata.PHYSICAL_PSUM)


def experts(device: torch.device) -> list[Tensor]:
    """Eleven rows for three experts, of whom one has none, the experts' two weights, and where their rows end."""
    tensors = made(device, (11, 24), (3, 32, 24), (3, 24, 16), dtype=torch.bfloat16)
    return [*tensors, torch.tensor([4, 4, 11], dtype=torch.int32, device=device)]


def buffer_of_the_caller() -> Program:
    """`out=`, read before and after, and the same buffer written a second time."""
    op = MoEGroupedGemmFwdOp(ENDS)

    def function(x: Tensor, w: Tensor, ends: Tensor, out: Tensor) -> tuple[Tensor, ...]:
        before = out + 1
        first = op(x, w, ends, out=out) * 2
        op(x * 2, w, ends, out=out)
        return before, first, out + 1

    def tensors(device: torch.device) -> list[Tensor]:
        x, w, _, ends = experts(device)
        return [x, w, ends, torch.zeros(11, 32, dtype=torch.bfloat16, device=device)]

    return Program(function, tensors)


def buffer_of_a_composite() -> Program:
    """`out=` of a composite, whose last stage writes it."""
    op = MoEExpertMLPFwdOp(ENDS)

    def function(x: Tensor, gate_up: Tensor, down: Tensor, ends: Tensor, out: Tensor) -> tuple[Tensor, ...]:
        before = out + 1
        op(x, gate_up, down, ends, out=out)
        return before, out + 1

    return Program(
        function, lambda device: [*experts(device), torch.zeros(11, 24, dtype=torch.bfloat16, device=device)]
    )


PROGRAMS = [
    pytest.param(view_read_before_and_after, marks=pytest.mark.op("ReluFwdOp")),
    pytest.param(two_views_of_one_tensor, marks=pytest.mark.op("ReluFwdOp")),
    pytest.param(result_that_nobody_uses, marks=pytest.mark.op("ReluFwdOp")),
    pytest.param(temporary, marks=pytest.mark.op("ReluFwdOp")),
    pytest.param(running_statistics, marks=pytest.mark.op("BatchNormFwdOp")),
    pytest.param(statistics_alone, marks=pytest.mark.op("BatchNormFwdOp")),
    pytest.param(buffer_of_the_caller, marks=pytest.mark.op("MoEGroupedGemmFwdOp")),
    pytest.param(buffer_of_a_composite, marks=pytest.mark.op("MoEExpertMLPFwdOp")),
]


@pytest.mark.parametrize("make", PROGRAMS)
def test_a_program_writes_at_all(make: Callable[[], Program], tileops_device: torch.device) -> None:
    """Eagerly, each program but the one with a temporary changes a tensor that it is called with."""
    program = make()
    tensors, before = program.tensors(tileops_device), program.tensors(tileops_device)
    program.function(*tensors)

    changed = [not torch.equal(left, right) for left, right in zip(tensors, before, strict=True)]
    assert any(changed) == (make is not temporary)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("make", PROGRAMS)
def test_compiled_equals_eager(make: Callable[[], Program], dynamic: bool, tileops_device: torch.device) -> None:
    """Results and written tensors of two compiled calls in a row are those of two eager ones, bit for bit."""
    program = make()
    compiled = torch.compile(program.function, fullgraph=True, dynamic=dynamic)
    tensors, others = program.tensors(tileops_device), program.tensors(tileops_device)
    for _ in range(2):
        expected = program.function(*tensors)
        assert_same(compiled(*others), expected)
        assert_same(tuple(others), tuple(tensors))


@pytest.mark.parametrize("make", PROGRAMS)
def test_a_replay_equals_eager(make: Callable[[], Program], tileops_device: torch.device) -> None:
    """A program captured into a CUDA graph leaves, replayed on new data, the bits of an eager call on that data."""
    if tileops_device.type != "cuda":
        pytest.skip(f"CUDA graphs need a CUDA device, the device is {tileops_device}")
    program, recorder = make(), CudaGraphRecorder()
    storage = program.tensors(tileops_device)
    program.function(*storage)
    results = recorder.capture(lambda: program.function(*storage))
    for factor in (1.0, -0.5):
        fresh = [item * factor if item.is_floating_point() else item for item in program.tensors(tileops_device)]
        copy_into(storage, fresh)
        recorder.replay()
        expected = program.function(*fresh)
        assert_same(results, expected)
        assert_same(tuple(storage), tuple(fresh))


@pytest.mark.parametrize("make", PROGRAMS)
def test_reduce_overhead_equals_eager(make: Callable[[], Program], tileops_device: torch.device) -> None:
    """Under mode="reduce-overhead", where torch captures CUDA graphs itself, four calls are those of eager."""
    if tileops_device.type != "cuda":
        pytest.skip(f"CUDA graphs need a CUDA device, the device is {tileops_device}")
    program = make()
    compiled = torch.compile(program.function, fullgraph=True, mode="reduce-overhead")
    tensors, others = program.tensors(tileops_device), program.tensors(tileops_device)
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        expected = program.function(*tensors)
        assert_same(compiled(*others), expected)
        assert_same(tuple(others), tuple(tensors))
