"""Every effect branch of every op: one node, PyTorch's own checks, and a graph that no target changes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tileops.backend import BackendRegistry, Discovery
from tileops.errors import SignatureError
from tileops.op import Op
from tileops_testing import reference_target
from tileops_testing.cases import Case, Sizes
from tileops_testing.catalog import family_of, implemented_ops
from tileops_testing.fakes import assert_facts, fake_outputs
from tileops_testing.graphs import RecordingBackend
from tileops_testing.subject import outputs_of
from tileops_testing.suites.suite import cloned

from .branch_calls import CPU, BranchCall, branch_calls, each_branch
from .comparing import assert_same

UNPACKING = "_operator.getitem"


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    """Each test compiles cold."""
    torch.compiler.reset()


def test_every_branch_is_called() -> None:
    """The calls reach each operator of each op once."""
    expected = [name for op in implemented_ops() for name in op.compile_op_names]

    assert [call.operator for call in branch_calls()] == expected


@each_branch()
def test_opcheck_accepts_the_operator(call: BranchCall, tileops_device: torch.device) -> None:
    """PyTorch's checks of schema, autograd, fake and ahead-of-time dispatch, static and dynamic, pass."""
    op = call.construct()
    inputs, buffers = call.arguments(tileops_device)

    results = torch.library.opcheck(call.overload, (*inputs, *buffers.values(), op._instance_key))
    assert results == dict.fromkeys(
        (
            "test_schema",
            "test_autograd_registration",
            "test_faketensor",
            "test_aot_dispatch_dynamic",
        ),
        "SUCCESS",
    )


@each_branch()
@pytest.mark.parametrize("rows", [0, 1])
def test_sizes_that_torch_compiles_apart(call: BranchCall, rows: int, tileops_device: torch.device) -> None:
    """A call without elements, or with one row, gives compiled what it gives eagerly: new tensors, unless it writes."""
    sizes = _with_rows(call.case, rows)
    if sizes is None:
        pytest.skip(f"{call.case.id} has no free size that may be {rows}")
    small = BranchCall(replace(call.case, sizes=sizes), call.operator, call.buffered)
    op = small.construct()
    inputs, buffers = small.arguments(tileops_device)
    copies, other_buffers = cloned(inputs), {name: tensor.clone() for name, tensor in buffers.items()}
    expected = op(*copies, **other_buffers)
    compiled: Any = torch.compile(op, fullgraph=True, dynamic=True, backend="aot_eager")
    received = compiled(*inputs, **buffers)

    assert_same(received, expected)
    assert_same((*inputs, *buffers.values()), (*copies, *other_buffers.values()))
    found, right = outputs_of(received), outputs_of(expected)
    assert [None if item is None else item.stride() for item in found] == [
        None if item is None else item.stride() for item in right
    ]
    returns_an_argument = any(item is tensor for item in found for tensor in (*inputs, *buffers.values()))
    assert returns_an_argument == ("_writes_input" in call.operator or call.buffered)


def _with_rows(case: Case, rows: int) -> Sizes | None:
    """The free sizes with the first axis that may be so set to `rows`; None where there is none."""
    if rows == 0:
        empty = case.emptied()
        return None if empty is None else empty.sizes
    for name, size in case.sizes.items():
        sizes = {**case.sizes, name: rows if isinstance(size, int) else (*size[:-1], rows)}
        if size != () and _accepted(replace(case, sizes=sizes)):
            return sizes
    return None


def _accepted(case: Case) -> bool:
    """Whether the signature accepts the case."""
    op: Any = case.construct()
    try:
        op(*[None if item is None else item.to("meta") for item in case.tensors(CPU)])
    except SignatureError:
        return False
    return True


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(call, id=call.operator, marks=pytest.mark.op(call.case.op_name))
        for call in branch_calls()
        if any(spec is not None and len(spec.shape) in (4, 5) for spec in call.case.inputs(call.case.sizes).values())
    ],
)
def test_channels_last_is_not_passed_on(call: BranchCall, tileops_device: torch.device) -> None:
    """For inputs with the channels last in memory, fake, eager and compiled results are contiguous and equal."""
    inputs, buffers = call.arguments(tileops_device)
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    laid_out = tuple(
        item if item is None or item.ndim not in formats else item.to(memory_format=formats[item.ndim])
        for item in inputs
    )
    op = call.construct()
    promised = fake_outputs(op, laid_out)
    compiled: Any = torch.compile(op, fullgraph=True, backend="aot_eager")
    results = (op(*laid_out), compiled(*laid_out))

    assert buffers == {}
    assert not all(item is None or item.is_contiguous() for item in laid_out)
    for result in results:
        outputs = [output for output in outputs_of(result) if output is not None]
        assert all(output.is_contiguous() for output in outputs)
        assert_facts(promised, outputs)
        assert_same(result, op(*inputs))


@pytest.fixture
def acme(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Installs a backend whose target `acme` serves every op; gives the names of the ops that it has built for."""
    built: list[str] = []
    registry = BackendRegistry()

    def build(name: str, *specs: Any, **parameters: Any) -> Callable[..., Any]:
        built.append(name)
        return reference_target.build_kernel(name, family_of(name), *specs, **parameters)

    reference_target.register(registry)
    for op in implemented_ops():
        registry.register_kernel_builder(op.__name__, "acme", functools.partial(build, op.__name__))
    monkeypatch.setattr(Op, "_backends", Discovery(registry, find=lambda: ()))
    return built


@each_branch()
def test_no_target_changes_the_graph(call: BranchCall, tileops_device: torch.device, acme: list[str]) -> None:
    """The graph's text is the same for in-tree kernels, the reference and a third party's, up to the instance's key."""
    texts = []
    for target in (None, "reference", "acme"):
        op, backend = call.construct(target), RecordingBackend("eager")
        inputs, buffers = call.arguments(tileops_device)
        compiled: Any = torch.compile(op, fullgraph=True, dynamic=False, backend=backend)
        compiled(*cloned(inputs), **buffers)
        (graph,) = backend.graphs
        assert [name for name in graph.names if name != UNPACKING] == [call.operator]
        assert op.serving_target == (target or "builtin")
        assert op._instance_key in graph.code
        texts.append(graph.code.replace(op._instance_key, "KEY"))

    assert acme == [call.case.op_name]
    assert texts[0] == texts[1] == texts[2]
