"""Calls on fake and meta tensors, for every branch of every op: they build nothing, and refuse as real calls do."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tileops.errors import SignatureError

from .branch_calls import CPU, BranchCall, branch_calls, each_branch

EVERY_BRANCH = """
import json, sys
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from tests.op.branch_calls import CPU, branch_calls

rows = {}
for call in branch_calls():
    op = call.construct()
    inputs, buffers = call.arguments(CPU)
    with FakeTensorMode() as mode:
        fake = lambda tensor: None if tensor is None else mode.from_tensor(tensor)
        op(*map(fake, inputs), **{name: fake(tensor) for name, tensor in buffers.items()})
    recorded = op._running.last_call is not None
    meta = lambda tensor: None if tensor is None else tensor.to("meta")
    op(*map(meta, inputs), **{name: meta(tensor) for name, tensor in buffers.items()})
    loaded = sorted({name.partition(".")[0] for name in sys.modules} & {"tilelang", "tvm", "tvm_ffi"})
    rows[call.operator] = [recorded, len(list(op.iter_kernels())), op.serving_target, loaded]
print(json.dumps(rows))
"""


@pytest.fixture(scope="module")
def answered() -> dict[str, list[Any]]:
    """What a fresh process found after a fake and a meta call of every branch."""
    root = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-c", EVERY_BRANCH], cwd=root, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    rows: dict[str, list[Any]] = json.loads(done.stdout.splitlines()[-1])
    return rows


@each_branch()
def test_fake_and_meta_calls_build_nothing(call: BranchCall, answered: dict[str, list[Any]]) -> None:
    """No record of a fake call, no kernel, no target and no TileLang, in a process that made no other call."""
    assert answered[call.operator] == [False, 0, None, []]


Arguments = tuple[tuple[Tensor | None, ...], dict[str, Tensor]]


def wrong_shapes(call: BranchCall) -> Iterator[Arguments]:
    """The call's arguments with one of them an element longer or shorter along an axis, or of another rank."""
    inputs, buffers = call.arguments(CPU)
    for place, tensor in enumerate(inputs):
        if tensor is not None and not buffers:
            for other in other_shapes(tensor):
                yield (*inputs[:place], other, *inputs[place + 1 :]), {}
    for name, tensor in buffers.items():
        for other in other_shapes(tensor):
            yield inputs, {name: other}


def other_shapes(tensor: Tensor) -> Iterator[Tensor]:
    """Contiguous tensors like `tensor`, in other shapes."""
    yield tensor.flatten()[0]
    yield tensor.flatten()
    yield tensor[None]
    for axis in range(tensor.ndim):
        yield torch.cat([tensor, tensor.narrow(axis, 0, 1)], axis)
        yield tensor.narrow(axis, 1, tensor.shape[axis] - 1).contiguous()


def refusal(op: Any, arguments: Arguments) -> tuple[type[Exception], str] | None:
    """The error that a call raises, or None for a call that the signature accepts."""
    inputs, buffers = arguments
    try:
        op(*inputs, **buffers)
    except SignatureError as error:
        return type(error), str(error)
    return None


def through(convert: Callable[[Tensor], Tensor], arguments: Arguments) -> Arguments:
    """The arguments with each tensor converted."""
    inputs, buffers = arguments
    converted = tuple(None if tensor is None else convert(tensor) for tensor in inputs)
    return converted, {name: convert(tensor) for name, tensor in buffers.items()}


ANY_SHAPE = {
    *("ReluFwdOp", "SoftmaxFwdOp", "LogSoftmaxFwdOp"),
    *(
        "SumFwdOp",
        "MeanFwdOp",
        "AmaxFwdOp",
        "AminFwdOp",
        "AllFwdOp",
        "AnyFwdOp",
        "CountNonzeroFwdOp",
        "VectorNormFwdOp",
    ),
}
"""The ops whose smallest case takes a tensor of any shape."""


@each_branch()
def test_a_wrong_shape_has_one_text(call: BranchCall) -> None:
    """What a real call refuses, a meta call and a fake call refuse with the same type and text."""
    op, refused = call.construct(), []
    for arguments in wrong_shapes(call):
        expected = refusal(op, through(lambda tensor: tensor.to("meta"), arguments))
        if expected is None:
            continue
        refused.append(expected)
        assert refusal(op, arguments) == expected
        with FakeTensorMode() as mode:
            assert refusal(op, through(mode.from_tensor, arguments)) == expected

    assert list(op.iter_kernels()) == []
    assert bool(refused) == (call.case.op_name not in ANY_SHAPE)
    assert all(text.startswith(f"{call.case.op_name}: ") and "\n" not in text for _, text in refused)


@pytest.mark.parametrize("call", [next(call for call in branch_calls() if call.case.op_name == "RMSNormFwdOp")])
def test_a_traced_call_contains_the_text(call: BranchCall) -> None:
    """Dynamo wraps the refusal of a traced call, whose text stands in its own."""
    op = call.construct()
    wrong = next(arguments for arguments in wrong_shapes(call) if refusal(op, arguments) is not None)
    _, text = refusal(op, wrong) or (None, "")
    torch.compiler.reset()

    compiled: Any = torch.compile(op, fullgraph=True, backend="eager")
    with pytest.raises(torch._dynamo.exc.TorchRuntimeError) as traced:
        compiled(*wrong[0])
    assert text in str(traced.value)
