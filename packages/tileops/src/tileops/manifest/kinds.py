"""Kinds: what an index, a parameter or an expression can be, and how a declaration writes it."""

from __future__ import annotations

import ast
import difflib
import functools
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from tileops.errors import ExpressionError
from tileops.manifest.nesting import nested_deeper

DTYPE_NAMES: Final = frozenset(
    {
        "bool",
        "uint8",
        "int8",
        "int16",
        "int32",
        "int64",
        "float16",
        "bfloat16",
        "float32",
        "float64",
        "complex64",
        "complex128",
        "float8_e4m3fn",
        "float8_e5m2",
        "float8_e4m3fnuz",
        "float8_e5m2fnuz",
    }
)
"""Every dtype that a signature may name, by its name in torch."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Base of all kinds."""


@dataclass(frozen=True, slots=True)
class IntKind(Kind):
    """A whole number."""

    def __str__(self) -> str:
        return "int"


@dataclass(frozen=True, slots=True)
class DimKind(Kind):
    """The length of an axis: a whole number that is not negative."""

    def __str__(self) -> str:
        return "Dim"


@dataclass(frozen=True, slots=True)
class BoolKind(Kind):
    """True or False."""

    def __str__(self) -> str:
        return "bool"


@dataclass(frozen=True, slots=True)
class FloatKind(Kind):
    """A real number; a whole number is accepted for it."""

    def __str__(self) -> str:
        return "float"


@dataclass(frozen=True, slots=True)
class StrKind(Kind):
    """Any text."""

    def __str__(self) -> str:
        return "str"


@dataclass(frozen=True, slots=True)
class NoneKind(Kind):
    """None."""

    def __str__(self) -> str:
        return "None"


@dataclass(frozen=True, slots=True)
class DeviceKind(Kind):
    """A device, as torch.device, a string or an index."""

    def __str__(self) -> str:
        return "device"


@dataclass(frozen=True, slots=True)
class AnyKind(Kind):
    """Whatever a function takes without looking at its kind."""

    def __str__(self) -> str:
        return "any value"


@dataclass(frozen=True, slots=True)
class UnknownKind(Kind):
    """What a wrong declaration or expression would be: it fits everywhere, so that one mistake is one problem."""

    def __str__(self) -> str:
        return "unknown"


@dataclass(frozen=True, slots=True)
class TensorKind(Kind):
    """The contents of a metadata tensor; only predicates and generators see them."""

    def __str__(self) -> str:
        return "tensor"


@dataclass(frozen=True, slots=True)
class LiteralKind(Kind):
    """One of a few words."""

    values: tuple[str, ...]

    def __str__(self) -> str:
        return " | ".join(repr(value) for value in self.values)


@dataclass(frozen=True, slots=True)
class DTypeKind(Kind):
    """One of a few dtypes."""

    values: tuple[str, ...]

    def __str__(self) -> str:
        return " | ".join(self.values) or "a dtype"


@dataclass(frozen=True, slots=True)
class ShapeKind(Kind):
    """A tuple of axis lengths, spliced into a shape."""

    def __str__(self) -> str:
        return "Shape"


@dataclass(frozen=True, slots=True)
class SequenceKind(Kind):
    """A list or tuple, of any length or of one known length."""

    element: Kind
    length: int | None = None
    spelling: str = field(default="tuple", compare=False)

    def __str__(self) -> str:
        if self.spelling != "tuple":
            return f"{self.spelling}[{self.element}]"
        if self.length is None:
            return f"tuple[{self.element}, ...]"
        return f"tuple[{', '.join([str(self.element)] * self.length)}]"


@dataclass(frozen=True, slots=True)
class SumKind(Kind):
    """A sum type of `types.yaml` or of the signature's own `types`."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class UnionKind(Kind):
    """Any of several kinds; with None among them it is what a nullable parameter has."""

    members: tuple[Kind, ...]

    def __str__(self) -> str:
        return " | ".join(str(member) for member in self.members)

    @property
    def nullable(self) -> bool:
        """Whether None is one of the members."""
        return any(isinstance(member, NoneKind) for member in self.members)

    def without_none(self) -> Kind:
        """Return the kind that is left where the value is known to be present."""
        return union(tuple(member for member in self.members if not isinstance(member, NoneKind)))


_ATOMS: Final[dict[str, Kind]] = {
    "int": IntKind(),
    "Int": IntKind(),
    "Dim": DimKind(),
    "float": FloatKind(),
    "str": StrKind(),
    "device": DeviceKind(),
    "Shape": ShapeKind(),
}
_LONGEST_DECLARATION: Final = 400
_DEEPEST_NESTING: Final = 40


def union(members: tuple[Kind, ...]) -> Kind:
    """Return the union of kinds, with words and dtypes merged and a single member unwrapped."""
    flat: list[Kind] = []
    for member in members:
        flat.extend(member.members if isinstance(member, UnionKind) else (member,))
    words = tuple(value for member in flat if isinstance(member, LiteralKind) for value in member.values)
    dtypes = tuple(value for member in flat if isinstance(member, DTypeKind) for value in member.values)
    merged: list[Kind] = []
    for member in flat:
        settled: Kind = member
        if isinstance(member, LiteralKind):
            settled = LiteralKind(tuple(dict.fromkeys(words)))
        elif isinstance(member, DTypeKind):
            settled = DTypeKind(tuple(dict.fromkeys(dtypes)))
        if settled not in merged:
            merged.append(settled)
    return merged[0] if len(merged) == 1 else UnionKind(tuple(merged))


@functools.lru_cache(maxsize=1024)
def parse_kind(text: str) -> Kind:
    """Return the kind that a declaration writes, such as `Dim`, `DType[float16 | float32]` or `int | None`.

    Raises:
        ExpressionError: the text is not a kind.
    """
    if len(text) > _LONGEST_DECLARATION:
        raise ExpressionError(f"a type of {len(text)} characters is too long; at most {_LONGEST_DECLARATION}")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExpressionError(f"{text!r} is not a type") from error
    if not text.isascii() or nested_deeper(tree, _DEEPEST_NESTING):
        raise ExpressionError(f"{text!a} is nested too deeply for a type, or holds a character that is not ASCII")
    return _kind(tree, text)


def _kind(node: ast.expr, text: str) -> Kind:  # noqa: PLR0911 - one case for each construct
    match node:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            first, second = _kind(left, text), _kind(right, text)
            if set(_alternatives(first)) & set(_alternatives(second)):
                raise ExpressionError(f"{second} stands twice in {text!r}; remove one of them")
            return union((first, second))
        case ast.Constant(value=None):
            return NoneKind()
        case ast.Constant(value=str(word)):
            return LiteralKind((word,))
        case ast.Subscript(value=ast.Name(id=name), slice=argument):
            return _applied(name, argument, text)
        case ast.Name(id="bool"):
            return BoolKind()
        case ast.Name(id="Bool"):
            return BoolKind()
        case ast.Name(id=name) if name in _ATOMS:
            return _ATOMS[name]
        case ast.Name(id=name) if name in DTYPE_NAMES:
            return DTypeKind((name,))
        case ast.Name(id=name) if name[:1].isupper():
            return SumKind(name)
    word = ast.unparse(node)
    raise ExpressionError(f"{word!r} in {text!r} is not a type{meant(word, (*_ATOMS, *DTYPE_NAMES, 'bool', 'None'))}")


_OTHER_NAMES: Final = {"half": "float16", "float": "float32", "double": "float64", "int": "int32", "long": "int64"}
"""Other names that torch has for dtypes."""


def meant(word: str, known: Iterable[str]) -> str:
    """Return a mend that names the known word nearest to one that is not, empty where none is near."""
    names = sorted(known)
    near = [_OTHER_NAMES[word]] if word in _OTHER_NAMES else difflib.get_close_matches(word, names, n=1)
    return f"; did you mean {near[0]!r}?" if near and near[0] in names else ""


def _alternatives(kind: Kind) -> list[object]:
    """Return what a kind lists: its members, words and dtypes one by one."""
    members = kind.members if isinstance(kind, UnionKind) else (kind,)
    return [
        alternative
        for member in members
        for alternative in (member.values if isinstance(member, LiteralKind | DTypeKind) else (member,))
    ]


def _applied(name: str, argument: ast.expr, text: str) -> Kind:
    if name == "DType":
        return DTypeKind(_dtype_names(argument, text))
    if name in {"Seq", "list"}:
        return SequenceKind(_kind(argument, text), None, name)
    if name == "Maybe":
        return union((_kind(argument, text), NoneKind()))
    if name == "tuple" and isinstance(argument, ast.Tuple) and argument.elts:
        first, *rest = argument.elts
        element = _kind(first, text)
        if len(rest) == 1 and isinstance(rest[0], ast.Constant) and rest[0].value is Ellipsis:
            return SequenceKind(element)
        if all(_kind(other, text) == element for other in rest):
            return SequenceKind(element, len(argument.elts))
    raise ExpressionError(f"{name}[{ast.unparse(argument)}] in {text!r} is not a type")


def _dtype_names(node: ast.expr, text: str) -> tuple[str, ...]:
    match node:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            names = (*_dtype_names(left, text), *_dtype_names(right, text))
            if len(set(names)) < len(names):
                raise ExpressionError(f"{names[-1]} stands twice in {text!r}; remove one of them")
            return names
        case ast.Name(id=name) if name in DTYPE_NAMES:
            return (name,)
    word = ast.unparse(node)
    raise ExpressionError(f"{word!r} in {text!r} is not a dtype{meant(word, DTYPE_NAMES)}")


def fits(kind: Kind, wanted: Kind) -> bool:  # noqa: PLR0911
    """Whether every value of one kind is of the wanted kind."""
    if kind == wanted or isinstance(wanted, AnyKind | UnknownKind) or isinstance(kind, UnknownKind):
        return True
    if isinstance(kind, UnionKind):
        return all(fits(member, wanted) for member in kind.members)
    if isinstance(wanted, UnionKind):
        return any(fits(kind, member) for member in wanted.members)
    match kind, wanted:
        case (DimKind(), IntKind() | FloatKind()) | (IntKind(), FloatKind()) | (LiteralKind(), StrKind()):
            return True
        case (LiteralKind(some), LiteralKind(allowed)) | (DTypeKind(some), DTypeKind(allowed)):
            return set(some) <= set(allowed) or not allowed
        case (ShapeKind(), SequenceKind(element, None)):
            return fits(DimKind(), element)
        case (SequenceKind(element), ShapeKind()):
            return fits(element, IntKind())
        case (SequenceKind(element, size), SequenceKind(wanted_element, wanted_size)):
            return (size == 0 or fits(element, wanted_element)) and wanted_size in {None, size}
    return False


def is_nullable(kind: Kind) -> bool:
    """Whether a value of this kind may be None."""
    return isinstance(kind, NoneKind) or (isinstance(kind, UnionKind) and kind.nullable)
