"""The check of the built site finds links that lead nowhere, and no others."""

from __future__ import annotations

from pathlib import Path

import pytest
from site_links import broken_links


def site(folder: Path, **pages: str) -> Path:
    """Write pages, by name, into a folder."""
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text)
    return folder


@pytest.mark.parametrize(
    "link",
    [
        "other.html",
        "other.html#place",
        "#here",
        "#",
        "other.html?q=1#place",
        "https://example.com/none",
        "mailto:a@b.c",
        "../outside.html",
        "zh_CN/page.html",
    ],
)
def test_a_link_that_leads_somewhere_is_sound(link: str, tmp_path: Path) -> None:
    """Pages, places in them, what is outside the site, and a language that is not built are no breach."""
    built = site(tmp_path, page=f'<p id="here"><a href="{link}">x</a></p>', other='<p id="place">y</p>')
    assert list(broken_links(built, ["zh_CN"])) == []


@pytest.mark.parametrize("link", ["gone.html", "other.html#gone", "#gone", "zh_CN/gone.html", "folder/"])
def test_a_link_that_leads_nowhere_is_found(link: str, tmp_path: Path) -> None:
    """A missing page or place, also of a language that is built, is named with the page that links to it."""
    (tmp_path / "zh_CN").mkdir()
    built = site(tmp_path, page=f'<p id="here"><a href="{link}">x</a></p>', other='<p id="place">y</p>')
    assert list(broken_links(built, ["zh_CN"])) == [("page.html", link)]


def test_a_missing_image_is_found(tmp_path: Path) -> None:
    """What a page shows must be there as well."""
    built = site(tmp_path, page='<img src="picture.svg">')
    assert list(broken_links(built)) == [("page.html", "picture.svg")]
