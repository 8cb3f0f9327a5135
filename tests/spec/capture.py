"""A compiler backend that keeps the graphs that it is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


class Capture:
    """Runs each graph as it is, and keeps it."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, graph: torch.fx.GraphModule, _: object) -> Callable[..., Any]:
        self.graphs.append(graph)
        return graph.forward

    def operators(self) -> list[str]:
        """The operators of this library that the graphs call, in order."""
        nodes = [node for graph in self.graphs for node in graph.graph.nodes if node.op == "call_function"]
        return [str(node.target) for node in nodes if str(node.target).startswith("tileops.")]


def noting(seen: list[Any], note: object, real: Callable[..., Any]) -> Callable[..., Any]:
    """`real`, with `note` appended to `seen` before each call of it."""

    def noted(*args: Any, **kwargs: Any) -> Any:
        seen.append(note)
        return real(*args, **kwargs)

    return noted
