"""Sphinx extension: a page for each implemented op, and an index of them, from the manifest registry."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from docutils import nodes
from op_sections import index_of, page_of
from sphinx.util.docutils import SphinxDirective

from tileops.manifest import registry

if TYPE_CHECKING:
    from op_sections import Section
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

FOLDER = "ops"


class OpPage(SphinxDirective):
    """The body of one op's page: `{op} RMSNormFwdOp`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Render the op's entry; whatever it is made from is a dependency of the page."""
        data = Path(self.env.srcdir) / "data"
        page = page_of(self.arguments[0], data)
        for path in page.made_from:
            self.env.note_dependency(str(path))
        meaning = self.parse_text_to_nodes(page.meaning, allow_section_headings=False)
        return [*meaning, *(self._section(section) for section in page.sections)]

    def _section(self, section: Section) -> nodes.section:
        body = self.parse_text_to_nodes(section.text, allow_section_headings=False)
        node = nodes.section(
            "", nodes.title("", section.title), *body, names=[nodes.fully_normalize_name(section.title)]
        )
        self.state.document.note_implicit_target(node, node)
        return node


class OpIndex(SphinxDirective):
    """A table of the implemented ops of one family: `{op-index} norm`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Render the table."""
        return self.parse_text_to_nodes(index_of(self.arguments[0]), allow_section_headings=False)


def write_pages(app: Sphinx) -> None:
    """Write a page with the op directive for each implemented op, an index per family, and remove pages of ops gone."""
    folder = Path(app.srcdir) / FOLDER
    pages = {folder / "index.md": "# Ops\n\n" + _contents([f"{family}/index" for family in _families()])}
    for family in _families():
        names = _implemented(family)
        table = f"```{{op-index}} {family}\n```"
        pages[folder / family / "index.md"] = f"# {family}\n\n{table}\n\n" + _contents(names, hidden=True)
        pages |= {folder / family / f"{name}.md": f"# {name}\n\n```{{op}} {name}\n```\n" for name in names}
    for path in set(folder.rglob("*.md")) - pages.keys():
        path.unlink()
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _contents(entries: list[str], *, hidden: bool = False) -> str:
    listed = "\n".join(entries)
    options = ":hidden:\n" if hidden else ""
    return f"```{{toctree}}\n:maxdepth: 1\n{options}\n{listed}\n```\n"


def _families() -> list[str]:
    return [family for family in registry.families() if _implemented(family)]


def _implemented(family: str) -> list[str]:
    return sorted(entry.name for entry in registry.default().family(family) if entry.status == "implemented")


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directives, and the pages that use them."""
    app.add_directive("op", OpPage)
    app.add_directive("op-index", OpIndex)
    app.connect("builder-inited", write_pages)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
