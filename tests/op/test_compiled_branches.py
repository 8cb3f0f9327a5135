"""Every effect branch of every op: one node, PyTorch's own checks, and a graph that no target changes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tileops.backend import BackendRegistry, Discovery
from tileops.op import Op
from tileops_testing import reference_target
from tileops_testing.catalog import family_of, implemented_ops
from tileops_testing.graphs import RecordingBackend
from tileops_testing.suites.suite import cloned

from .branch_calls import BranchCall, branch_calls, each_branch

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
