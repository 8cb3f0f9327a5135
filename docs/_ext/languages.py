"""Sphinx extension: pages that are translated link to each other, from English to Chinese and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from docutils import nodes

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

TRANSLATED: Final = ("guides/compiling",)
"""The pages that are in every language."""
NAMES: Final = {"en": "English", "zh_CN": "简体中文"}
ENGLISH_SITE: Final = "英文站点首页"


def path_to(page: str, language: str, other: str) -> str:
    """Return the way from a page in one language to the same page in another; English is the site itself."""
    up = "../" * (page.count("/") + (language != "en"))
    folder = "" if other == "en" else f"{other}/"
    return f"{up}{folder}{page}.html"


def add_links(app: Sphinx, doctree: nodes.document, page: str) -> None:
    """Put the links under the title of a translated page."""
    if page not in TRANSLATED or app.builder.format != "html":
        return
    language = app.config.language
    links: list[nodes.Node] = [
        nodes.reference("", name, refuri=path_to(page, language, other), internal=False)
        for other, name in NAMES.items()
        if other != language
    ]
    if language != "en":
        home = "../" * (page.count("/") + 1) + "index.html"
        links += [nodes.Text(" · "), nodes.reference("", ENGLISH_SITE, refuri=home, internal=False)]
    title = next(iter(doctree.findall(nodes.title)))
    title.parent.insert(title.parent.index(title) + 1, nodes.paragraph("", "", *links, classes=["languages"]))


def add_alternates(app: Sphinx, page: str, _: str, context: dict[str, Any], __: nodes.document | None) -> None:
    """Tell browsers and search engines of the page's other languages."""
    if page in TRANSLATED:
        language = app.config.language
        for other in NAMES.keys() - {language}:
            place = f'hreflang="{other.replace("_", "-")}" href="{path_to(page, language, other)}"'
            context["metatags"] = f'{context.get("metatags", "")}<link rel="alternate" {place}>'


def setup(app: Sphinx) -> ExtensionMetadata:
    """Add the links when a page is written."""
    app.connect("doctree-resolved", add_links)
    app.connect("html-page-context", add_alternates)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
