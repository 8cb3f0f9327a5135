"""Small pieces of Markdown: tables, code, lists in words."""

from __future__ import annotations

from collections.abc import Sequence


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, name: str = "") -> str:
    """Return a table with a header row and `name` as its style; a column that is empty in every row is left out."""
    kept = [column for column, _ in enumerate(headings) if any(row[column] for row in rows)]
    lines = ["```{list-table}", ":header-rows: 1", *([f":class: {name}"] if name else []), ""]
    for row in [headings, *rows]:
        lines += [f"{'* - ' if column == kept[0] else '  - '}{row[column]}" for column in kept]
    return "\n".join([*lines, "```"])


def code(text: str) -> str:
    """Return text in code style, empty text as it is."""
    return f"`{text}`" if text else ""


def in_words(items: Sequence[str], conjunction: str) -> str:
    """Return `a, b and c`."""
    return " ".join([", ".join(items[:-1]), conjunction, items[-1]]) if len(items) > 1 else "".join(items)
