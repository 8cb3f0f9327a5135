"""Sphinx extension: a page for each implemented op, and for each family an index and what was measured of it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import source_pages
from docutils import nodes
from op_results import runs_of
from op_sections import index_of, page_of
from sphinx.util.docutils import SphinxDirective, SphinxRole
from tables import table

from tileops.manifest import registry

if TYPE_CHECKING:
    from typing import Any

    from op_sections import Section
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

FOLDER, DATA, TIMES = "ops", "data", "times"
INTRODUCTION = (
    "Every implemented op. The page of an op holds its meaning, a runnable example, its signature, the kernel types "
    "that serve it, where it was tested and what was measured."
)


class OpPage(SphinxDirective):
    """The body of one op's page: `{op} RMSNormFwdOp`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Render the op's entry; whatever it is made from is a dependency of the page."""
        page = page_of(self.arguments[0], data_of(self))
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


class Expression(SphinxRole):
    """What the entry itself writes, behind words that say it: {expression}`C % num_groups == 0`."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Make it code that the style sheet mutes."""
        return [nodes.literal("", self.text, classes=["expression"])], []


class OpIndex(SphinxDirective):
    """A table of the implemented ops of families: `{op-index} norm`, of all of them without an argument."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Render the table."""
        families = self.arguments or _families()
        return self.parse_text_to_nodes(index_of(families, data_of(self)), allow_section_headings=False)


def data_of(directive: SphinxDirective) -> Path:
    """Return the folder of committed results."""
    return Path(directive.env.srcdir) / DATA


class FamilyTimes(SphinxDirective):
    """What was measured of a family's ops: `{op-times} norm`."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Render a table for each device and commit; the committed results are dependencies of the page."""
        data = data_of(self)
        for path in data.glob("*.json"):
            self.env.note_dependency(str(path))
        runs = runs_of(_implemented(self.arguments[0]), data)
        text = "\n\n".join(f"{run.circumstances}\n\n{table(run.headings, run.rows, name='measures')}" for run in runs)
        return self.parse_text_to_nodes(text, allow_section_headings=False)


def write_pages(app: Sphinx) -> None:
    """Write a page for each implemented op, an index and a page of times per family, and remove pages of ops gone."""
    folder, data = Path(app.srcdir) / FOLDER, Path(app.srcdir) / DATA
    families = _contents([f"{family}/index" for family in _families()], hidden=True)
    pages = {folder / "index.md": f"# Ops\n\n{INTRODUCTION}\n\n```{{op-index}}\n```\n\n{families}"}
    for family in _families():
        names = _implemented(family)
        index = f"```{{op-index}} {family}\n```"
        pages |= _times(folder / family, family, data)
        measured = [TIMES] if folder / family / f"{TIMES}.md" in pages else []
        link = f"[What was measured]({TIMES}.md)\n\n" if measured else ""
        pages[folder / family / "index.md"] = f"# {family}\n\n{index}\n\n{link}" + _contents(
            [*names, *measured], hidden=True
        )
        pages |= {folder / family / f"{name}.md": f"# {name}\n\n```{{op}} {name}\n```\n" for name in names}
    for path in set(folder.rglob("*.md")) - pages.keys():
        path.unlink()
    for path, text in pages.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def _times(folder: Path, family: str, data: Path) -> dict[Path, str]:
    """Return the page of what was measured of a family, none where nothing is committed."""
    if not runs_of(_implemented(family), data):
        return {}
    words = (
        "Time per call, its rate against that of a copy of as many bytes in the same run, and the fastest peer, which "
        "was checked against the same reference. [Performance notes](../../performance/index.md) say how."
    )
    return {folder / f"{TIMES}.md": f"# {family}: what was measured\n\n{words}\n\n```{{op-times}} {family}\n```\n"}


def _contents(entries: list[str], *, hidden: bool = False) -> str:
    listed = "\n".join(entries)
    options = ":hidden:\n" if hidden else ""
    return f"```{{toctree}}\n:maxdepth: 1\n{options}\n{listed}\n```\n"


def _families() -> list[str]:
    return [family for family in registry.families() if _implemented(family)]


def _implemented(family: str) -> list[str]:
    return sorted(entry.name for entry in registry.default().family(family) if entry.status == "implemented")


def add_filters(app: Sphinx, page: str, _: str, __: dict[str, Any], ___: nodes.document | None) -> None:
    """Give the index of all ops the script that filters its table."""
    if page == f"{FOLDER}/index":
        app.add_js_file("ops.js", loading_method="defer")


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the directives, and the pages that use them."""
    app.add_directive("op", OpPage)
    app.add_directive("op-index", OpIndex)
    app.add_role("source", source_pages.SourceLink())
    app.add_role("expression", Expression())
    app.add_directive("op-times", FamilyTimes)
    app.connect("builder-inited", write_pages)
    app.connect("html-collect-pages", source_pages.pages)
    app.connect("html-page-context", add_filters)
    return {"version": "2", "parallel_read_safe": True, "parallel_write_safe": True}
