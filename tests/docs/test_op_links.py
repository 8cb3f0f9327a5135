"""Ops that a page names in code style are links to their pages."""

from __future__ import annotations

from docutils import nodes
from docutils.utils import new_document
from op_links import named, pages_of_ops

PAGES = {"RMSNormFwdOp": "ops/norm/RMSNormFwdOp", "SumFwdOp": "ops/reduction/SumFwdOp"}


def code(name: str) -> nodes.paragraph:
    """Return a paragraph with a name in code style."""
    return nodes.paragraph("", "", nodes.literal("", name))


def linked(*content: nodes.Node, page: str = "guides/compiling") -> list[str]:
    """Return the pages that a section with this content gets links to."""
    document = new_document("page")
    document += nodes.section("", *content)
    return [target for _, target in named(document, page, PAGES)]


def test_the_first_name_in_a_section_is_linked() -> None:
    """A name that follows in the same section is not, and one of something else never is."""
    assert linked(code("RMSNormFwdOp"), code("SumFwdOp"), code("RMSNormFwdOp"), code("torch")) == list(PAGES.values())


def test_every_name_in_a_table_is_linked() -> None:
    """Rows of a table look alike."""
    rows = [nodes.row("", nodes.entry("", code("SumFwdOp"))) for _ in range(2)]
    table = nodes.table("", nodes.tgroup("", nodes.tbody("", *rows)))
    assert linked(code("SumFwdOp"), table) == [PAGES["SumFwdOp"]] * 3


def test_a_name_in_a_table_leaves_that_in_prose_linked() -> None:
    """A table may stand far above the sentence that speaks of the op."""
    table = nodes.table("", nodes.tgroup("", nodes.tbody("", nodes.row("", nodes.entry("", code("SumFwdOp"))))))
    assert linked(table, code("SumFwdOp"), code("SumFwdOp")) == [PAGES["SumFwdOp"]] * 2


def test_headings_links_and_an_op_s_own_page_stay_as_they_are() -> None:
    """A link within a link is none, and an op's page does not link to itself."""
    link = nodes.paragraph("", "", nodes.reference("", "", nodes.literal("", "SumFwdOp")))
    assert linked(nodes.title("", "", nodes.literal("", "SumFwdOp")), link) == []
    assert linked(code("SumFwdOp"), page=PAGES["SumFwdOp"]) == []


def test_every_implemented_op_has_its_page() -> None:
    """Ops of a specification alone have no page to link to."""
    pages = pages_of_ops()
    assert {name: pages[name] for name in PAGES} == PAGES
    assert all(page.endswith(f"/{name}") for name, page in pages.items())
