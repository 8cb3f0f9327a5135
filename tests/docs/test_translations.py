"""Translated pages: every message of the page is translated, none is left over, and code stays what it is."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest
from babel.messages.pofile import read_po
from languages import NAMES, TRANSLATED, path_to
from sphinx.application import Sphinx
from sphinx.util.docutils import docutils_namespace

from tests.docs.pages import ROOT, links_of

DOCS = ROOT / "docs"
LANGUAGES = sorted(set(NAMES) - {"en"})
CATALOGS = [(language, page) for language in LANGUAGES for page in TRANSLATED]


def read(file: Path) -> dict[str, str]:
    """Return the messages of a catalog with their translations; one that is marked fuzzy counts as not translated."""
    with file.open("rb") as text:
        return {str(m.id): "" if m.fuzzy else str(m.string) for m in read_po(text) if m.id}


def catalog_of(language: str, page: str) -> Path:
    """Return the file with a page's translations."""
    return DOCS / "locales" / language / "LC_MESSAGES" / f"{page}.po"


@pytest.fixture(scope="module", params=LANGUAGES)
def messages(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The messages of each translated page as Sphinx finds them, without translations."""
    folder = tmp_path_factory.mktemp("messages")
    with docutils_namespace():
        app = Sphinx(
            srcdir=DOCS,
            confdir=DOCS,
            outdir=folder / "messages",
            doctreedir=folder / "doctrees",
            buildername="gettext",
            tags=[request.param],
            status=None,
            warning=io.StringIO(),
        )
        app.build()
    return {page: read(folder / "messages" / f"{page}.pot") for page in TRANSLATED}


@pytest.mark.parametrize(("language", "page"), CATALOGS)
def test_every_message_is_translated_and_none_is_left_over(
    language: str, page: str, messages: dict[str, dict[str, str]]
) -> None:
    """The catalog holds the page's messages and no others, each with a translation that differs from it."""
    wanted, found = messages[page], read(catalog_of(language, page))
    assert len(wanted) > 10
    assert {message for message in wanted if found.get(message, "") in {"", message}} == set(), "not translated"
    assert found.keys() - wanted.keys() == set(), "no longer on the page"


@pytest.mark.parametrize(("language", "page"), CATALOGS)
def test_code_and_emphasis_are_the_same_in_a_translation(language: str, page: str) -> None:
    """Names in code style are not translated, and none is lost or added."""
    marked = re.compile(r"`[^`]+`")
    emphasised = re.compile(r"\*\*(?=\S)[^*]+?\*\*(?!\w)")
    for message, translation in read(catalog_of(language, page)).items():
        assert sorted(marked.findall(translation)) == sorted(marked.findall(message)), message
        assert len(emphasised.findall(translation)) == len(emphasised.findall(message)), message


@pytest.mark.parametrize("page", TRANSLATED)
def test_a_translated_page_links_to_no_page_that_its_build_lacks(page: str) -> None:
    """A build in another language holds the translated pages alone, so what they link to is outside or among them."""
    links = [link for link in links_of(DOCS / f"{page}.md") if "://" not in link and not link.startswith("#")]
    assert links == []


@pytest.mark.parametrize(
    ("language", "other", "path"),
    [
        ("en", "zh_CN", "../zh_CN/guides/compiling.html"),
        ("zh_CN", "en", "../../guides/compiling.html"),
        ("zh_CN", "de", "../../de/guides/compiling.html"),
    ],
)
def test_pages_lead_to_their_other_languages(language: str, other: str, path: str) -> None:
    """English is the site itself, and each other language a folder of it."""
    assert path_to("guides/compiling", language, other) == path
