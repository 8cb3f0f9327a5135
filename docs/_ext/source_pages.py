"""The sources that op pages link to, as pages of the site: each file with its lines numbered."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from docutils import nodes
from op_class import class_of
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.util.docutils import SphinxRole

from tileops.manifest import registry
from tileops_testing.references import reference_for

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sphinx.application import Sphinx

    from tileops.manifest.model import OpEntry

ROOT = Path(__file__).resolve().parents[2]
FOLDER = "sources"
LANGUAGES = {".py": "python", ".yaml": "yaml"}


@dataclass(frozen=True)
class Source:
    """A place in a file of this repository: what stands there, the file from the repository's root, the line."""

    what: str
    file: str
    line: int


def sources_of(entry: OpEntry) -> Iterator[Source]:
    """Yield where an op is written: its entry, its class, its kernel types and its reference."""
    op = class_of(entry)
    line, _ = entry.source.positions.get((), (1, 1))
    yield Source("manifest entry", entry.source.file, line)
    yield _place("op class", op)
    for kernel_type in sorted(op.kernel_types.values(), key=lambda found: found.__name__):
        yield _place(f"kernel type `{kernel_type.__name__}`", kernel_type)
    yield _place("reference", reference_for(entry.name, entry.family).function)


def _place(what: str, written: type | Callable[..., object]) -> Source:
    module = written.__module__
    package = module.partition(".")[0].replace("_", "-")
    file = f"packages/{package}/src/{module.replace('.', '/')}.py"
    return Source(what, file, inspect.getsourcelines(written)[1])


def link_to(source: Source) -> str:
    """Return the Markdown of a link to a source."""
    return f"{{source}}`{source.file}:{source.line}`"


def shown(file: str) -> str:
    """Return a file as a link names it: within a package by the package's import name, which is short."""
    return file.partition("/src/")[2] or file


class SourceLink(SphinxRole):
    """A link to a line of a file on its page: {source}`manifests/norm/rms_norm.yaml:1`."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        """Make the link relative to the page it stands on."""
        file, _, line = self.text.rpartition(":")
        up = "../" * self.env.docname.count("/")
        target = f"{up}{FOLDER}/{file}.html#L-{line}"
        return [nodes.reference("", "", nodes.literal("", shown(file)), internal=True, refuri=target)], []


def pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield a page for each file that an op page links to."""
    if not isinstance(app.builder, StandaloneHTMLBuilder):
        return
    entries = [
        entry
        for family in registry.families()
        for entry in registry.default().family(family)
        if entry.status == "implemented"
    ]
    for file in sorted({source.file for entry in entries for source in sources_of(entry)}):
        code = app.builder.highlighter.highlight_block(
            (ROOT / file).read_text(),
            LANGUAGES[Path(file).suffix],
            linenos="inline",
            anchorlinenos=True,
            lineanchors="L",
        )
        title = file.rpartition("/")[2]
        body = f"<h1>{title}</h1>\n<p><code>{file}</code></p>\n{code}"
        yield f"{FOLDER}/{file}", {"title": title, "body": body, "toc": "", "furo_hide_toc": True}, "page.html"
