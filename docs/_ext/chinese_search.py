"""Sphinx extension: the search of Chinese pages, which finds each character and each two that stand together.

Sphinx's own needs a dictionary of words to find any, and the script that it writes names a stemmer that is not there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from sphinx.search.en import SearchEnglish

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.util.typing import ExtensionMetadata

RUN = re.compile(r"[\u4e00-\u9fff]+|[A-Za-z0-9_]+")
"""Chinese characters, or those of a Latin word, that stand together."""
SPLITTER = r"""
var splitQuery = (query) =>
  (query.match(/[\u4e00-\u9fff]+|[A-Za-z0-9_]+/g) ?? []).flatMap((run) =>
    /^[\u4e00-\u9fff]{3,}$/.test(run) ? [...run].slice(1).map((second, place) => run[place] + second) : [run],
  );
"""
"""The same for what is asked: a run of characters is found where every two of it are."""


class SearchChinese(SearchEnglish):
    """Chinese by its characters, and Latin words among them as in English."""

    lang = "zh"
    js_splitter_code = SPLITTER

    def split(self, input: str) -> list[str]:  # noqa: A002 - Sphinx's name
        """Return the Latin words of a text, and of its Chinese each character and each two that stand together."""
        found: list[str] = []
        for run in RUN.findall(input):
            if run.isascii():
                found.append(run)
            else:
                found += [*run, *(run[place : place + 2] for place in range(len(run) - 1))]
        return found


def setup(app: Sphinx) -> ExtensionMetadata:
    """Search Chinese by this."""
    app.add_search_language(SearchChinese)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
