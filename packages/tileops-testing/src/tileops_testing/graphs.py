"""Capturing graphs: what dynamo captured of a compiled function, and calls recorded into a CUDA graph."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket
from torch.fx import GraphModule, Node

__all__ = ["CapturedGraph", "CudaGraphRecorder", "GraphRecorder", "OperatorCall", "RecordingBackend", "node_name"]

R = TypeVar("R")


def node_name(node: Node) -> str:
    """Return what a call node calls: ``namespace::operator``, ``Tensor.method``, or the dotted name of a function."""
    target = node.target
    if isinstance(target, OpOverloadPacket):
        target = getattr(target, target.overloads()[0])
    if isinstance(target, OpOverload):
        return str(target.name()).partition(".")[0]
    if isinstance(target, str):
        return f"Tensor.{target}" if node.op == "call_method" else target
    return f"{target.__module__}.{target.__name__}"


@dataclass(frozen=True)
class OperatorCall:
    """A call of a registered operator in a captured graph, ready to be repeated outside it."""

    operator: OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass
class CapturedGraph:
    """One graph that dynamo captured, and the arguments of its last run."""

    module: GraphModule
    names: tuple[str, ...]
    """What its call nodes call, in order."""
    received: tuple[Any, ...] = ()

    @property
    def code(self) -> str:
        """The graph as Python text, each call with its arguments."""
        return self.module.code.strip()

    def operator_calls(self, name: str) -> tuple[OperatorCall, ...]:
        """Return the calls of operator ``name``, with the arguments of the graph's last run in place.

        Only nodes that take graph inputs and constants can be repeated; others are left out.
        """
        placeholders = [node for node in self.module.graph.nodes if node.op == "placeholder"]
        values = dict(zip(placeholders, self.received, strict=True))
        calls = []
        for node in self.module.graph.nodes:
            if node.op != "call_function" or node_name(node) != name:
                continue
            if any(source not in values for source in node.all_input_nodes):
                continue
            target = node.target.default if isinstance(node.target, OpOverloadPacket) else node.target
            args = torch.fx.map_arg(node.args, values.__getitem__)
            kwargs = torch.fx.map_arg(node.kwargs, values.__getitem__)
            calls.append(OperatorCall(target, args, kwargs))
        return tuple(calls)


@dataclass
class RecordingBackend:
    """A backend for `torch.compile` that keeps every graph it is given and hands it on to another backend."""

    inner: str = "inductor"
    graphs: list[CapturedGraph] = field(default_factory=list)

    def __call__(self, module: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
        """Keep a copy of the graph and compile it with ``inner``."""
        names = tuple(node_name(node) for node in module.graph.nodes if node.op.startswith("call_"))
        kept = GraphModule(module, torch.fx.Graph())
        kept.graph.output(kept.graph.graph_copy(module.graph, {}))
        kept.recompile()
        graph = CapturedGraph(kept, names)
        self.graphs.append(graph)
        from torch._dynamo.backends.registry import lookup_backend  # noqa: PLC0415 - takes seconds that a help text has not

        compiled = lookup_backend(self.inner)(module, list(example_inputs))

        def run(*args: Any) -> Any:
            graph.received = args
            return compiled(*args)

        return run

    def names(self) -> tuple[str, ...]:
        """What the call nodes of all captured graphs call, in order."""
        return tuple(name for graph in self.graphs for name in graph.names)


class GraphRecorder(Protocol):
    """Records what a function launches, to be run again on the same storage."""

    def capture(self, function: Callable[[], R]) -> R:
        """Call ``function`` once, recording; the tensors it returns are where `replay` writes."""

    def replay(self) -> None:
        """Run what was recorded again."""


class CudaGraphRecorder:
    """A `GraphRecorder` over a CUDA graph of its own."""

    def __init__(self) -> None:
        self._graph = torch.cuda.CUDAGraph()

    def capture(self, function: Callable[[], R]) -> R:
        """Capture ``function`` on a side stream; whatever synchronises or is unsafe in any thread fails it.

        Memory that does not come from torch's allocator is such a thing.
        """
        with warnings.catch_warnings():
            # A function that raises leaves an empty graph, and torch warns of it while the error is on its way.
            warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
            with torch.cuda.graph(self._graph, capture_error_mode="global"):
                return function()

    def replay(self) -> None:
        """Replay on the current stream."""
        self._graph.replay()


def copy_into(storage: Sequence[Tensor | None], values: Sequence[Tensor | None]) -> None:
    """Write ``values`` into the tensors of ``storage``, which keep their addresses."""
    for target, value in zip(storage, values, strict=True):
        if target is not None and value is not None:
            target.copy_(value)
