"""Reading the parts of an entry: kinds, expressions, shapes, tensors and parameters, unknown where they are wrong."""

from __future__ import annotations

import json
import keyword
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import msgspec

from tileops.manifest.document import UNREAD, Partial
from tileops.manifest.expressions import Spread, Unknown, parse_expression, parse_shape
from tileops.manifest.functions import PRIMITIVE_KINDS
from tileops.manifest.kinds import Kind, NoneKind, UnknownKind, parse_kind
from tileops.manifest.model import REQUIRED, Formula, Parameter, Path, Shape, Source, SumType, TensorType
from tileops.manifest.reading import Collector, ParameterFields, TensorFields, TensorParameterFields
from tileops.manifest.trees import ANYTHING

if TYPE_CHECKING:
    from tileops.manifest.reading import TensorFields as _Said

_NAME: Final = re.compile(r"[A-Za-z_]\w*", re.ASCII)
_QUOTED_OR_FIELD: Final = re.compile(r"'[^']*'|\"[^\"]*\"|\.\s*\w+")
_WORDS: Final = frozenset(keyword.kwlist) | PRIMITIVE_KINDS.keys() | {"present"}


class PartReader(Collector):
    """Reads the parts that signatures and types are made of."""

    def __init__(self, source: Source, name: str, sums: Mapping[str, SumType]) -> None:
        super().__init__(source)
        self.op = name
        self.shared_sums = sums

    def kind(self, value: object, path: Path) -> Kind:
        """Return the kind that a text declares, the unknown kind when it declares none."""
        text = self.converted(value, str, path)
        found = self.expression(parse_kind, text, path, "kind") if isinstance(text, str) else None
        return UnknownKind() if found is None else found

    def kinds(self, value: object, path: Path) -> dict[str, Kind]:
        """Return the kind of each name of a mapping."""
        return {
            self.name(name, (*path, name)): self.kind(text, (*path, name)) for name, text in self.mapping(value).items()
        }

    def formula(self, value: object, path: Path) -> Formula:
        """Return an expression with its text; what is no expression is unknown, and may read every name in it."""
        if value is UNREAD:
            return Formula("", Unknown(ANYTHING))
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        tree = self.expression(parse_expression, _respelled(value, text), path)
        return Formula(text, Unknown(names_in(text)) if tree is None else tree)

    def formulas(self, value: object, path: Path) -> tuple[Formula, ...]:
        """Return the expressions of a list."""
        if value is UNREAD:
            return (self.formula(value, path),)
        listed = value if isinstance(value, list | tuple) else ()
        return tuple(self.formula(text, (*path, place)) for place, text in enumerate(listed))

    def flag(self, value: object, path: Path) -> bool | Formula:
        """Return what is said of a tensor: always, never, or where a formula holds."""
        return value if isinstance(value, bool) else self.formula(value, path)

    def shape(self, value: object, path: Path) -> Shape:
        """Return a shape; what is no shape is one unknown splice, which may read every name in the text."""
        if not isinstance(value, str):
            return Shape("", (Spread(Unknown(ANYTHING)),))
        parsed = self.expression(parse_shape, value, path, "shape")
        if parsed is None:
            return Shape(value, (Spread(Unknown(names_in(value))),))
        return Shape(value, parsed) if isinstance(parsed, tuple) else Shape(value, family=parsed)

    def tensor(self, name: str, value: object, path: Path) -> TensorType:
        """Return the type of an input or an output."""
        self.name(name, path)
        fields = self.struct(TensorFields, value, path)
        return self._typed(name, _LOST_TENSOR if fields is None else fields, path)

    def _typed(self, name: str, said: _Said, path: Path) -> TensorType:
        def optional(value: object, field: str) -> Formula | None:
            return None if value is None else self.formula(value, (*path, field))

        return TensorType(
            name=name,
            dtype=self.formula(said.dtype, (*path, "dtype")),
            shape=self.shape(said.shape, (*path, "shape")),
            optional=self.flag(said.optional, (*path, "optional")),
            mutated=self.flag(said.mutated, (*path, "mutated")),
            write_only=said.write_only is True,
            contiguous=said.contiguous is True,
            device="cpu" if said.device == "cpu" else None,
            alias=said.alias if isinstance(said.alias, str) else None,
            buffer=None if said.buffer is None or (said.buffer is UNREAD and "outputs" not in path) else "out",
            nullable=optional(said.nullable, "nullable"),
            values=optional(said.values, "values"),
            requires=self.formulas(said.requires, (*path, "requires")),
        )

    def parameter(self, name: str, value: object, path: Path) -> Parameter:
        """Return a construction parameter: a value, or a tensor that is passed at construction."""
        self.name(name, path)
        if isinstance(value, dict) and ("shape" in value or "dtype" in value):
            return self._tensor_parameter(name, value, path)
        fields = self.struct(ParameterFields, value, path)
        if fields is None:
            return Parameter(name=name, kind=UnknownKind(), default=UNREAD)
        kind = self.kind(fields.type, (*path, "type"))
        default = REQUIRED if fields.default is msgspec.UNSET else frozen(fields.default)
        return Parameter(name=name, kind=kind, default=default, keyword_only=fields.keyword_only is True)

    def _tensor_parameter(self, name: str, value: object, path: Path) -> Parameter:
        fields = self.struct(TensorParameterFields, value, path)
        said = _LOST_TENSOR
        if fields is not None:
            said = TensorFields(
                dtype=fields.dtype,
                shape=fields.shape,
                optional=fields.optional,
                values=fields.values,
                requires=fields.requires,
            )
        tensor = self._typed(name, said, path)
        return Parameter(
            name=name,
            kind=NoneKind(),
            default=None if tensor.is_optional else REQUIRED,
            keyword_only=fields is not None and fields.keyword_only is True,
            tensor=tensor,
        )


_LOST_TENSOR: Final[TensorFields] = msgspec.structs.replace(
    TensorFields(dtype="", shape=""), **dict.fromkeys(("dtype", "shape", "optional", "mutated"), UNREAD)
)


def names_in(text: str) -> frozenset[str]:
    """Return the names that stand in a text, whatever else does."""
    return frozenset(_NAME.findall(_QUOTED_OR_FIELD.sub(" ", text))) - _WORDS


def frozen(value: object) -> object:
    """Return the value with its lists as tuples."""
    if isinstance(value, list):
        return tuple(frozen(item) for item in value)
    return value


def is_whole(value: object) -> bool:
    """Whether all that a value holds was read."""
    if isinstance(value, dict):
        return not isinstance(value, Partial) and all(is_whole(inner) for inner in value.values())
    if isinstance(value, list | tuple):
        return all(is_whole(item) for item in value)
    return value is not UNREAD


def _respelled(value: object, text: str) -> str:
    """Return the text with YAML's words as the language's, where the value was not a text."""
    return text if isinstance(value, str) else {"true": "True", "false": "False", "null": "None"}.get(text, text)
