"""The search of Chinese pages splits a text and what is asked of it alike, without a dictionary of words."""

from __future__ import annotations

import re

import pytest
from chinese_search import RUN, SPLITTER, SearchChinese


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("算子", ["算", "子", "算子"]),
        ("编译器, 张量", ["编", "译", "器", "编译", "译器", "张", "量", "张量"]),
        ("用 torch.compile 编译", ["用", "torch", "compile", "编", "译", "编译"]),
        ("recompile_limit", ["recompile_limit"]),
    ],
)
def test_a_text_is_split_into_what_can_be_asked_for(text: str, words: list[str]) -> None:
    """Each character is found, each two that stand together, and each Latin word."""
    assert SearchChinese({}).split(text) == words


def test_the_stemmer_of_the_script_is_one_that_is_there() -> None:
    """The script names the stemmer by the language's name, so that name is that of the stemmer which is written."""
    search = SearchChinese({})
    assert f"{search.language_name.lower()}-stemmer.js" == search.js_stemmer_rawcode
    assert "splitQuery" in search.js_splitter_code


def test_the_script_splits_by_the_same_pattern() -> None:
    """What stands together in a text stands together in what is asked."""
    pattern = re.search(r"match\(/(.*?)/g\)", SPLITTER)
    assert pattern is not None
    assert pattern[1] == RUN.pattern
