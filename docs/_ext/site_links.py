"""Sphinx extension: every link within the built site leads to a page and a place in it; checked without a network."""

from __future__ import annotations

import os
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from languages import NAMES
from sphinx.util import logging

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

LOGGER = logging.getLogger(__name__)
OUTSIDE = ("http:", "https:", "mailto:", "data:", "javascript:")


class Page(HTMLParser):
    """What a page names and what it links to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.links: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep the tag's name within the page, and where it leads."""
        del tag
        for attribute, value in attrs:
            if attribute in {"id", "name"} and value:
                self.names.add(value)
            elif attribute in {"href", "src"} and value:
                self.links.add(value)


def broken_links(site: Path, languages: Collection[str] = ()) -> Iterator[tuple[str, str]]:
    """Yield each page and link of it that leads nowhere within `site`.

    What lies outside the folder is another build's, and so is the folder of a language that is not built yet.
    """
    root = site.resolve()
    pages = {path: Page(path.read_text()) for path in sorted(root.rglob("*.html"))}
    missing = [root / language for language in languages if not (root / language).exists()]
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            target = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
            if link.startswith(OUTSIDE) or link == "#" or not target.is_relative_to(root):
                continue
            if any(target.is_relative_to(folder) for folder in missing):
                continue
            named = not parts.fragment or target not in pages or unquote(parts.fragment) in pages[target].names
            if not named or not target.is_file():
                yield path.relative_to(root).as_posix(), link


def check(app: Sphinx, exception: Exception | None) -> None:
    """Warn of each link that leads nowhere, once the site is written."""
    if exception is None and app.builder.format == "html":
        for page, link in broken_links(Path(app.outdir), list(NAMES)):
            LOGGER.warning("%s: the link %s leads nowhere", page, link, type="site_links")


def setup(app: Sphinx) -> ExtensionMetadata:
    """Check links when a build is finished."""
    app.connect("build-finished", check)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
