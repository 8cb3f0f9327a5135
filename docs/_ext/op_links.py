"""Sphinx extension: an op that a page names in code style is a link to the op's page."""

from __future__ import annotations

from typing import TYPE_CHECKING

from docutils import nodes

from tileops.manifest import registry

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

UNLINKED = (nodes.title, nodes.reference)
"""Where code stays what it is: in headings, and within other links."""


def pages_of_ops() -> dict[str, str]:
    """Return the page of each implemented op."""
    entries = [entry for family in registry.families() for entry in registry.default().family(family)]
    return {entry.name: f"ops/{entry.family}/{entry.name}" for entry in entries if entry.status == "implemented"}


def named(document: nodes.document, page: str, pages: Mapping[str, str]) -> Iterator[tuple[nodes.literal, str]]:
    """Yield the code that names an op of another page, and that page: all in tables, the first in a section's prose."""
    seen: set[tuple[int, str]] = set()
    for literal in document.findall(nodes.literal):
        target = pages.get(literal.astext())
        if target is None or target == page or _within(literal, *UNLINKED):
            continue
        place = (id(_within(literal, nodes.section)), target)
        tabled = _within(literal, nodes.table)
        if tabled or place not in seen:
            yield literal, target
        if not tabled:
            seen.add(place)


def _within(node: nodes.Node, *kinds: type[nodes.Element]) -> nodes.Node | None:
    """Return what of these kinds a node lies in, none where it lies in none."""
    parent = node.parent
    while parent is not None and not isinstance(parent, kinds):
        parent = parent.parent
    return parent


def add_links(app: Sphinx, document: nodes.document, page: str) -> None:
    """Put each name of an op into a link."""
    if app.builder.format != "html":
        return
    for literal, target in list(named(document, page, pages_of_ops())):
        link = nodes.reference("", "", internal=True, refuri=app.builder.get_relative_uri(page, target))
        literal.replace_self(link)
        link += literal


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the links when a page is written."""
    app.connect("doctree-resolved", add_links)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
