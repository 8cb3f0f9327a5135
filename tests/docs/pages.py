"""Reading Markdown pages: their code blocks and their links."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its text, the line it starts on."""

    language: str
    text: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    tokens = MarkdownIt().parse(page.read_text())
    return [Block(t.info.strip(), t.content, (t.map or [0])[0] + 1) for t in tokens if t.type == "fence"]


def links_of(page: Path) -> list[str]:
    """Return the targets of a page's links, in order."""
    inline = [token for token in MarkdownIt().parse(page.read_text()) if token.type == "inline"]
    children = [child for token in inline for child in token.children or []]
    return [str(child.attrs["href"]) for child in children if child.type == "link_open"]
