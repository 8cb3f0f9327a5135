"""Finding entries by op name; each file is read on the first request for one of its ops."""

from __future__ import annotations

import functools
import re
from importlib import resources
from typing import TYPE_CHECKING, Final

from tileops.errors import ManifestError, UnknownOpError
from tileops.manifest import workloads
from tileops.manifest.document import Document
from tileops.manifest.model import Problem
from tileops.manifest.parse import Reading, parse_document, parse_sums
from tileops.manifest.reading import suggestion
from tileops.manifest.reserved import is_op_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from importlib.resources.abc import Traversable

    from tileops.manifest.model import OpEntry, SumType
    from tileops.manifest.names import OpName
    from tileops.manifest.workloads import WorkloadCase

_TOP_LEVEL_KEY: Final = re.compile(r"^([A-Za-z_]\w*)[ ]*:", re.MULTILINE | re.ASCII)


def _read(path: Traversable, file: str) -> tuple[str, Problem | None]:
    """Return the text of a file, a byte order mark left out; or no text, and where it stops being UTF-8."""
    data = path.read_bytes()
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        message, mend = f"the byte 0x{data[error.start]:02x} is not UTF-8", "save the file as UTF-8"
        return "", Problem(file=file, line=line, column=column, rule="encoding", message=message, mend=mend)
    return text.replace("\r\n", "\n").replace("\r", "\n"), None


class ManifestFile:
    """One file of entries: its family, its text, and its entries once they are read."""

    def __init__(self, family: str, path: Traversable, registry: Registry) -> None:
        self.family = family
        self.name = f"{family}/{path.name}"
        self._path = path
        self._registry = registry

    @functools.cached_property
    def _content(self) -> tuple[str, Problem | None]:
        return _read(self._path, f"manifests/{self.name}")

    @property
    def text(self) -> str:
        """The YAML text; empty where the file is not UTF-8."""
        return self._content[0]

    @functools.cached_property
    def op_names(self) -> tuple[str, ...]:
        """The names of the ops that the text declares, found without parsing it."""
        return tuple(_TOP_LEVEL_KEY.findall(self.text))

    @functools.cached_property
    def _parsed(self) -> Reading:
        if self._content[1] is not None:
            return Reading({}, [self._content[1]], {})
        sums, _ = self._registry.sums
        document = Document(self.text, f"manifests/{self.name}")
        reading = parse_document(document, self.text, sums)
        declared = document.value if isinstance(document.value, dict) else {}
        for name in filter(is_op_name, declared.keys() - set(self.op_names)):
            line, column = document.positions[(name,)]
            message, mend = f"{name!r} is not where an op's name is looked for", "write it plainly at a line's start"
            reading.problems.append(
                Problem(file=document.file, line=line, column=column, rule="key", message=message, mend=mend)
            )
            reading.entries.pop(name, None)
        return reading

    @property
    def entries(self) -> Mapping[str, OpEntry]:
        """The entries that have no problem."""
        return self._parsed.entries

    @property
    def drafts(self) -> Mapping[str, OpEntry]:
        """Every entry; in one that has problems, what could not be read is unknown."""
        return self._parsed.drafts

    @property
    def problems(self) -> tuple[Problem, ...]:
        """Every problem of the text."""
        return tuple(self._parsed.problems)


def _yaml_files(folder: Traversable, path: str) -> Iterator[str]:
    """Yield the path of every file below a folder whose name says that it is YAML."""
    for inner in sorted(folder.iterdir(), key=lambda inner: inner.name):
        if inner.is_dir():
            yield from _yaml_files(inner, f"{path}/{inner.name}")
        elif inner.name.lower().endswith((".yaml", ".yml")):
            yield f"{path}/{inner.name}"


class Registry:
    """The entries under one folder of manifests."""

    def __init__(self, root: Traversable) -> None:
        self._root = root

    @functools.cached_property
    def files(self) -> tuple[ManifestFile, ...]:
        """Every manifest file, by family and name."""
        folders = sorted((folder for folder in self._root.iterdir() if folder.is_dir()), key=lambda folder: folder.name)
        return tuple(
            ManifestFile(folder.name, path, self)
            for folder in folders
            for path in sorted(folder.iterdir(), key=lambda path: path.name)
            if path.name.endswith(".yaml") and path.is_file()
        )

    @functools.cached_property
    def strays(self) -> tuple[Problem, ...]:
        """A problem for each YAML file that stands where no entry is looked for."""
        known = {f"manifests/{file.name}" for file in self.files} | {"manifests/types.yaml"}
        found = (file for file in _yaml_files(self._root, "manifests") if file not in known)
        message, mend = "no entry is read from this file", "name it family/name.yaml"
        return tuple(Problem(file=file, line=1, column=1, rule="file", message=message, mend=mend) for file in found)

    @functools.cached_property
    def sums(self) -> tuple[Mapping[str, SumType], tuple[Problem, ...]]:
        """The sum types that several entries share, and the problems of their file."""
        path = self._root / "types.yaml"
        if not path.is_file():
            return {}, ()
        text, wrong = _read(path, "manifests/types.yaml")
        if wrong is not None:
            return {}, (wrong,)
        found, problems = parse_sums(text, "manifests/types.yaml")
        return found, tuple(problems)

    @functools.cached_property
    def _by_name(self) -> dict[str, ManifestFile]:
        index: dict[str, ManifestFile] = {}
        for file in self.files:
            for name in file.op_names:
                index.setdefault(name, file)
        return index

    def names(self) -> tuple[str, ...]:
        """Return every op name, sorted."""
        return tuple(sorted(self._by_name))

    def families(self) -> tuple[str, ...]:
        """Return every family, sorted."""
        return tuple(sorted({file.family for file in self.files}))

    def family(self, family: str) -> tuple[OpEntry, ...]:
        """Return the entries of one family, in the order of their files."""
        return tuple(entry for file in self.files if file.family == family for entry in file.entries.values())

    def find(self, name: str) -> OpEntry | None:
        """Return the entry of that name, or None when the manifest has none.

        Raises:
            ManifestError: the file that declares the op has problems in this entry.
        """
        file = self._by_name.get(name)
        if file is None:
            return None
        entry = file.entries.get(name)
        if entry is None:
            raise ManifestError([*self.sums[1], *file.problems])
        return entry

    def entry(self, name: str) -> OpEntry:
        """Return the entry of that name.

        Raises:
            UnknownOpError: the manifest has none.
            ManifestError: the file that declares the op has problems in this entry.
        """
        found = self.find(name)
        if found is None:
            raise UnknownOpError(f"no op is named {name!r}; {suggestion(name, self.names())}")
        return found


@functools.cache
def default() -> Registry:
    """Return the registry of the manifests that this package carries."""
    return Registry(resources.files("tileops") / "_manifests")


def entry(name: OpName) -> OpEntry:
    """Return the entry of an op."""
    return default().entry(name)


def find(name: str) -> OpEntry | None:
    """Return the entry of that name, or None when the manifest has none."""
    return default().find(name)


def names() -> tuple[str, ...]:
    """Return every op name, sorted."""
    return default().names()


def families() -> tuple[str, ...]:
    """Return every family, sorted."""
    return default().families()


def cases(name: OpName) -> tuple[WorkloadCase, ...]:
    """Return the cases that an op's workload rows give."""
    return workloads.cases(entry(name))
