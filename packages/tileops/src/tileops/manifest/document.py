"""YAML text to plain values: the core schema of YAML 1.2, no repeated keys, every position kept."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import yaml

from tileops.manifest.model import Path, Problem

if TYPE_CHECKING:
    from collections.abc import Iterator

Plain: TypeAlias = "bool | int | float | str | list[Plain] | dict[str, Plain] | Unread | None"


class Unread:
    """Stands for a value that was reported and not read."""

    def __repr__(self) -> str:
        return "UNREAD"


UNREAD: Final = Unread()


V = TypeVar("V")


class Partial(dict[str, V]):
    """A mapping of which some keys were reported and not read."""


_BASE: type[yaml.Loader] = getattr(yaml, "CLoader", yaml.Loader)


class _CoreLoader(_BASE):  # type: ignore[misc, valid-type]
    """Resolves plain scalars as YAML 1.2 does: `on` is a word, `1e-5` a number."""

    yaml_implicit_resolvers: Final[dict[str, list[tuple[str, re.Pattern[str]]]]] = {}


LONGEST_NUMBER: Final = 400
"""The digits that a number may have."""
DEEPEST_NESTING: Final = 50
"""The levels of mappings and lists that one text may have."""
MOST_NODES: Final = 100_000
"""The values that one text may hold, each alias counted as what it stands for."""
_TAG: Final = "tag:yaml.org,2002:"
for _name, _pattern, _first in (
    ("null", r"^(?:null|Null|NULL|~|)$", ["n", "N", "~", ""]),
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", list("tTfF")),
    ("int", r"^(?:[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+)$", list("-+0123456789")),
    (
        "float",
        r"^(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$",
        list("-+.0123456789"),
    ),
):
    _CoreLoader.add_implicit_resolver(_TAG + _name, re.compile(_pattern), _first)


class Document:
    """Plain values of one YAML text, the position of each, and the problems met while reading it."""

    def __init__(self, text: str, file: str) -> None:
        self.file = file
        self.positions: dict[Path, tuple[int, int]] = {}
        self.problems: list[Problem] = []
        self.value: Plain = None
        self._nodes = 0
        self._open: set[int] = set()
        self._partial: set[Path] = set()
        try:
            node = yaml.compose(text, Loader=_CoreLoader)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark
            line, column = (1, 1) if mark is None else (mark.line + 1, mark.column + 1)
            self._report(line, column, "yaml", error.problem or "the text is not YAML")
        except (yaml.YAMLError, UnicodeError, RecursionError) as error:
            self._report(1, 1, "yaml", " ".join(str(error).split()))
        else:
            if node is not None:
                self.value = self._convert(node, ())

    def _report(self, line: int, column: int, rule: str, message: str, mend: str = "") -> None:
        self.problems.append(Problem(file=self.file, line=line, column=column, rule=rule, message=message, mend=mend))

    def _convert(self, node: yaml.Node, path: Path) -> Plain:
        line, column = node.start_mark.line + 1, node.start_mark.column + 1
        self.positions[path] = (line, column)
        self._nodes += 1
        if id(node) in self._open or self._nodes > MOST_NODES:
            if self._nodes <= MOST_NODES + 1:
                self._report(line, column, "alias", "an alias stands for what encloses it, or for too much")
            return UNREAD
        if len(path) > DEEPEST_NESTING:
            self._report(line, column, "nesting", f"this is nested more than {DEEPEST_NESTING} levels deep")
            return UNREAD
        if not isinstance(node, yaml.ScalarNode) and node.tag not in {_TAG + "map", _TAG + "seq"}:
            self._report(line, column, "tag", f"the tag {node.tag!r} is not used here", "remove the tag")
            return UNREAD
        if isinstance(node, yaml.ScalarNode):
            return self._scalar(node, path)
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                pairs = list(self._pairs(node, path))
                return Partial(pairs) if path in self._partial else dict(pairs)
            return [self._convert(item, (*path, index)) for index, item in enumerate(node.value)]
        finally:
            self._open.discard(id(node))

    def _pairs(self, node: yaml.MappingNode, path: Path) -> Iterator[tuple[str, Plain]]:
        seen: set[str] = set()
        for key_node, value_node in node.value:
            line, column = key_node.start_mark.line + 1, key_node.start_mark.column + 1
            if not isinstance(key_node, yaml.ScalarNode):
                self._report(line, column, "key", "a key is not a word", "write a plain word before the colon")
                self._partial.add(path)
                continue
            key = str(key_node.value)
            if key == "<<":
                mend = "alias the parts that are shared: forall, params, let, inputs, rows"
                self._report(line, column, "merge-key", "the core schema has no merge key", mend)
                self._partial.add(path)
                continue
            if key in seen:
                self._report(line, column, "repeated-key", f"{key!r} stands twice in one mapping", "remove one of them")
                continue
            seen.add(key)
            value = self._convert(value_node, (*path, key))
            self.positions[(*path, key)] = (line, column)
            yield key, value

    def _scalar(self, node: yaml.Node, path: Path) -> Plain:
        text = str(node.value)
        match node.tag.removeprefix(_TAG):
            case "null":
                return None
            case "bool":
                return text.lower() == "true"
            case "int" if len(text) <= LONGEST_NUMBER:
                return int(text, 0) if text[:2] in {"0x", "0o"} else int(text)
            case "float":
                number = float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
                if not math.isinf(number) or "inf" in text.lower():
                    return number
                message, mend = f"the number {text} is too large for a float", "write .inf, or a smaller number"
            case "str":
                return text
            case "int":
                message, mend = f"a number of {len(text)} digits is too long", "write a shorter one"
            case _:
                message, mend = f"the tag {node.tag!r} is not used here", "remove the tag"
        self._report(*self.positions[path], "tag" if "tag" in message else "number", message, mend)
        return UNREAD
