"""How deep a text is nested, asked of Python's own tree before anything walks it by recursion."""

from __future__ import annotations

import ast


def nested_deeper(tree: ast.AST, limit: int) -> bool:
    """Whether some part of the tree lies more than `limit` levels below it."""
    level: list[ast.AST] = [tree]
    for _ in range(limit + 1):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return False
    return True
