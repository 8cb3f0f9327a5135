"""The code of README and guides runs as it stands and prints what they say; their links to files lead somewhere."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, Block, blocks_of, links_of
from tileops_testing.quickstart import example_source

PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "guides").glob("*.md"),
        *(ROOT / "packages").glob("*/README.md"),
    ]
)
SHAPES_ONLY = {"architecture.md"}
"""Pages whose Python says how classes look, and is no program."""
WITH_CODE = [
    page
    for page in PAGES
    if page.name not in SHAPES_ONLY and any(block.language == "python" for block in blocks_of(page))
]
GENERATED = (ROOT / "docs" / "ops").as_posix()


def name_of(page: Path) -> str:
    """Return a page's path from the repository's root."""
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", WITH_CODE, ids=name_of)
def test_code_prints_what_the_page_says(page: Path) -> None:
    """Python blocks run in order, as one program; a text block after one is exactly what it printed."""
    namespace: dict[str, object] = {"__name__": "__main__"}
    blocks = blocks_of(page)
    for block, following in zip(blocks, [*blocks[1:], None], strict=True):
        if block.language != "python":
            continue
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile("\n" * block.line + block.text, page, "exec"), namespace)
        if following is not None and following.language == "text":
            assert printed.getvalue() == following.text, f"{name_of(page)}:{following.line}"
        else:
            assert printed.getvalue() == "", f"{name_of(page)}:{block.line} prints, and the page does not show it"


def test_the_readme_shows_the_example_that_quickstart_runs() -> None:
    """The README's first Python block is the example of `nox -s quickstart`, to the letter."""
    first = next(block for block in blocks_of(ROOT / "README.md") if block.language == "python")
    assert first.text == example_source()


def test_ci_runs_the_readme_s_test_command() -> None:
    """The README's last command for a shell is what .ci/run runs, and .ci/run runs nothing else."""
    commands = [block.text.strip() for block in blocks_of(ROOT / "README.md") if block.language == "sh"]
    script = (ROOT / ".ci" / "run").read_text().splitlines()
    preamble = ("#", "set -", "cd ")
    assert [line for line in script if line and not line.startswith(preamble)] == [commands[1]]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_to_files_lead_somewhere(page: Path) -> None:
    """A link within the repository names a file that is there, or a page that the site generates."""
    local = [
        link.partition("#")[0] for link in links_of(page) if "://" not in link and not link.startswith(("#", "mailto:"))
    ]
    targets = [(page.parent / link).resolve() for link in local if link]
    assert [str(t) for t in targets if not t.exists() and not t.as_posix().startswith(GENERATED)] == []


EXCERPTS = [
    (page, block)
    for page in PAGES
    for block in blocks_of(page)
    if block.language in {"py", "yaml"} or (block.language == "toml" and block.text.startswith("# "))
]


@pytest.mark.parametrize(("page", "block"), EXCERPTS, ids=lambda value: getattr(value, "stem", None))
def test_an_excerpt_is_what_its_file_says(page: Path, block: Block) -> None:
    """A block that shows part of a file names the file in its first line, and the rest stands there to the letter."""
    first, _, rest = block.text.partition("\n")
    file = ROOT / first.removeprefix("# ")
    assert file.is_file(), f"{name_of(page)}:{block.line}"
    assert rest in file.read_text(), f"{name_of(page)}:{block.line}"
