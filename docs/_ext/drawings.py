"""Sphinx extension: a drawing of docs/drawings within the page, so that its colours are those of the page's theme."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from sphinx.util.docutils import SphinxDirective

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata


class Drawing(SphinxDirective):
    """An SVG file of docs/drawings: `{drawing} call.svg`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Put the file's content into the page, in a box that scrolls where the window is narrow."""
        file = Path(self.env.srcdir) / "drawings" / self.arguments[0]
        self.env.note_dependency(str(file))
        return [nodes.raw("", f'<div class="drawing-box">\n{file.read_text()}</div>', format="html")]


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directive."""
    app.add_directive("drawing", Drawing)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
