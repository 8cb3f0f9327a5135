"""The code of README and guides runs as it stands and prints what they say; their links to files lead somewhere."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from tests.docs.pages import ROOT, Block, blocks_of, links_of
from tileops.moe import FusedMoEFwdOp
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


APART = {"adding-a-kernel.md": "register_kernel_type", "mixture-of-experts.md": "init_process_group"}
"""Guides with a block of Python that stands apart from the others, since it changes the process; and a name in it."""


def apart(page: str) -> tuple[str, Block]:
    """Return the program of a guide's Python blocks, and the block that stands apart from it."""
    blocks = blocks_of(ROOT / "docs" / "guides" / page)
    (found,) = (block for block in blocks if not block.language)
    return "".join(block.text for block in blocks if block.language == "python"), found


def test_every_block_of_a_guide_is_tested() -> None:
    """A block of no language is one of those that tests of their own run."""
    guides = sorted((ROOT / "docs" / "guides").glob("*.md"))
    unnamed = {page.name: block.text for page in guides for block in blocks_of(page) if not block.language}
    assert unnamed.keys() == APART.keys()
    assert [page for page, text in unnamed.items() if APART[page] not in text] == []


def test_a_registered_kernel_type_serves() -> None:
    """The guide's registration makes its kernel type serve the calls of ops that are constructed behind it."""
    program, block = apart("adding-a-kernel.md")
    behind = "print(*(type(kernel).__name__ for kernel in op.iter_kernels()))"
    served = f"op = RMSNormFwdOp((64,))\nop(torch.ones(2, 64))\n{behind}\n"
    command = [sys.executable, "-c", f"{program}\n{block.text}\n{served}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "ShortRowsKernel"


def test_experts_of_a_process_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The guide's experts of several ranks give, for a group of one, what experts of one process give."""
    _, block = apart("mixture-of-experts.md")
    begin = distributed.init_process_group

    def begin_here(backend: str) -> None:
        assert backend == "nccl"
        begin("gloo", init_method=f"file://{tmp_path / 'group'}", rank=0, world_size=1)

    monkeypatch.setattr(distributed, "init_process_group", begin_here)
    shapes = {"x": (5, 64), "w_gate_up": (256, 64, 64), "w_down": (256, 64, 32)}
    given: dict[str, Any] = {name: torch.randn(shape).mul(0.1).bfloat16() for name, shape in shapes.items()}
    names = {"logits": torch.randn(5, 256), **given}
    try:
        exec(compile("\n" * block.line + block.text, "mixture-of-experts.md", "exec"), names)
        expected = FusedMoEFwdOp(top_k=8)(given["x"], names["logits"], given["w_gate_up"], given["w_down"])
        torch.testing.assert_close(names["y"], expected, rtol=2e-2, atol=1e-4)
    finally:
        distributed.destroy_process_group()


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
