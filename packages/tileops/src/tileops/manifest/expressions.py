"""The expression language: text to a closed tree, and a tree to Python source made of its own constructs."""

from __future__ import annotations

import ast
import functools
import keyword
import math
import re
from dataclasses import dataclass
from typing import Final, TypeAlias

from tileops.errors import ExpressionError
from tileops.manifest.nesting import nested_deeper

LONGEST_EXPRESSION: Final = 2_000
MOST_NODES: Final = 400
DEEPEST_NESTING: Final = 40
LONGEST_QUOTED: Final = 60
COMPREHENDING: Final = frozenset({"all", "sum", "max", "min"})

_NUMBER_AND_WORD: Final = re.compile(r"[0-9](?:and|or|in|if|else|for|is|not)\b")
"""What Python's own parser warns of and does not yet refuse."""
_BINARY: Final[dict[type[ast.operator], str]] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.FloorDiv: "//",
    ast.Mod: "%",
}
_COMPARISONS: Final[dict[type[ast.cmpop], str]] = {
    ast.Eq: "==",
    ast.NotEq: "!=",
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.In: "in",
    ast.NotIn: "not in",
}
_MENDS: Final[dict[type[ast.AST], str]] = {
    ast.Div: "write // or ceil_div(a, b)",
    ast.Pow: "there is no power; write a product",
    ast.Lambda: "there is no lambda",
    ast.JoinedStr: "there are no f-strings",
    ast.List: "write a tuple (a, b)",
    ast.Is: "write present(name) or not present(name)",
    ast.IsNot: "write present(name) or not present(name)",
    ast.ListComp: "write all(...), sum(...), max(...) or min(...) over one name",
    ast.GeneratorExp: "a comprehension stands only as the argument of all, sum, max or min",
}


@dataclass(frozen=True, slots=True)
class Literal:
    """A number, a word, True, False or None."""

    value: int | float | bool | str | None


@dataclass(frozen=True, slots=True)
class Name:
    """An index, a parameter, a let, a dtype or a free constant."""

    name: str


@dataclass(frozen=True, slots=True)
class Negative:
    """Unary minus."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Not:
    """Logical negation."""

    operand: Expression


@dataclass(frozen=True, slots=True)
class Binary:
    """One of + - * // %."""

    operator: str
    left: Expression
    right: Expression


@dataclass(frozen=True, slots=True)
class Comparison:
    """A chain of comparisons: a < b <= c."""

    first: Expression
    operators: tuple[str, ...]
    rest: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Logical:
    """A conjunction or a disjunction."""

    operator: str
    operands: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Conditional:
    """A value chosen by a condition."""

    condition: Expression
    then: Expression
    otherwise: Expression


@dataclass(frozen=True, slots=True)
class Call:
    """A primitive, a generator or a predicate applied to arguments."""

    function: str
    arguments: tuple[Expression | Spread, ...]
    keywords: tuple[tuple[str, Expression], ...] = ()


@dataclass(frozen=True, slots=True)
class Spread:
    """A sequence spread into a tuple or a shape."""

    value: Expression


@dataclass(frozen=True, slots=True)
class Attribute:
    """A field of a sum-type value, or the value of what is known to be present."""

    value: Expression
    field: str


@dataclass(frozen=True, slots=True)
class Subscript:
    """One element of a sequence."""

    value: Expression
    index: Expression


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of a sequence."""

    value: Expression
    start: Expression | None
    stop: Expression | None


@dataclass(frozen=True, slots=True)
class Tuple:
    """A sequence written out."""

    items: tuple[Expression | Spread, ...]


@dataclass(frozen=True, slots=True)
class Comprehension:
    """A body for each element of a sequence; the argument of all, sum, max or min."""

    body: Expression
    target: str
    sequence: Expression


@dataclass(frozen=True, slots=True)
class Unknown:
    """What could not be read or is of no kind: it has no value, fits everywhere, and may read these names."""

    names: frozenset[str] = frozenset()


Expression: TypeAlias = (
    Literal
    | Name
    | Negative
    | Not
    | Binary
    | Comparison
    | Logical
    | Conditional
    | Call
    | Attribute
    | Subscript
    | Slice
    | Tuple
    | Comprehension
    | Unknown
)
ShapeItem: TypeAlias = Expression | Spread


@functools.lru_cache(maxsize=4096)
def parse_expression(text: str) -> Expression:
    """Return the tree of an expression.

    Raises:
        ExpressionError: the text is too long, or holds anything that is not of the language.
    """
    node = _Reader(text).parse()
    if isinstance(node, ast.List):
        raise ExpressionError(f"{text!r}: a list stands only as a shape; write a tuple (a, b)")
    return _Reader(text).read(node)


@functools.lru_cache(maxsize=4096)
def parse_shape(text: str) -> tuple[ShapeItem, ...] | Call:
    """Return the axes of a bracketed shape, or the type family that is applied, as in `Mat[t, M, K]`.

    Raises:
        ExpressionError: the text is neither.
    """
    reader = _Reader(text)
    node = reader.parse()
    if isinstance(node, ast.List):
        return tuple(reader.item(element) for element in node.elts)
    if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
        arguments = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        return Call(reader.name(node.value.id), tuple(reader.item(argument) for argument in arguments))
    raise ExpressionError(f"{text!r} is not a shape; write axes in brackets, or a type family applied as Name[a, b]")


def check_name(name: str) -> str:
    """Return the name when the language allows it, else raise ExpressionError."""
    if not name.isidentifier() or not name.isascii() or keyword.iskeyword(name) or name.startswith("_"):
        raise ExpressionError(f"{name!r} is not a name; use letters, digits and underscores, not first an underscore")
    return name


def _cut(text: str) -> str:
    """Return a text as a message about its length quotes it: the beginning alone."""
    return text if len(text) <= LONGEST_QUOTED else f"{text[: LONGEST_QUOTED - 3]}..."


class _Reader:
    """Turns Python's own tree into the language's, refusing all that is not listed here."""

    def __init__(self, text: str) -> None:
        if len(text) > LONGEST_EXPRESSION:
            raise ExpressionError(
                f"{len(text)} characters are too many; at most {LONGEST_EXPRESSION}; split it with let"
            )
        self.text = text
        self.nodes = 0
        self.depth = 0

    def parse(self) -> ast.expr:
        if "\n" in self.text.strip():
            self.text = " ".join(self.text.split())
        if "#" in self.text or "\\" in self.text or "\0" in self.text:
            raise ExpressionError(f"{self.text!r} holds a comment, a backslash or a null character")
        if _NUMBER_AND_WORD.search(self.text):
            raise ExpressionError(f"{self.text!r}: put a space between a number and a word")
        if not self.text.isascii():
            raise ExpressionError(f"{self.text!a} holds a character that is not ASCII")
        try:
            tree = ast.parse(self.text.strip(), mode="eval").body
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            raise ExpressionError(f"{self.text!r} is not an expression") from error
        if nested_deeper(tree, 2 * DEEPEST_NESTING):
            raise self._too_large()
        return tree

    def _too_large(self) -> ExpressionError:
        return ExpressionError(f"{_cut(self.text)!r} has too many parts or is nested too deeply; split it with let")

    def name(self, name: str) -> str:
        return check_name(name)

    def item(self, node: ast.expr) -> Expression | Spread:
        if isinstance(node, ast.Starred):
            return Spread(self.read(node.value))
        return self.read(node)

    def read(self, node: ast.expr) -> Expression:
        self.nodes += 1
        self.depth += 1
        if self.nodes > MOST_NODES or self.depth > DEEPEST_NESTING:
            raise self._too_large()
        try:
            return self._read(node)
        finally:
            self.depth -= 1

    def _read(self, node: ast.expr) -> Expression:  # noqa: C901, PLR0911 - one case for each construct
        match node:
            case ast.Constant(value=value):
                return self._literal(value)
            case ast.Name(id=name):
                return Name(self.name(name))
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return Negative(self.read(operand))
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return Not(self.read(operand))
            case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _BINARY:
                return Binary(_BINARY[type(operator)], self.read(left), self.read(right))
            case ast.BoolOp(op=logical, values=values):
                word = "and" if isinstance(logical, ast.And) else "or"
                return Logical(word, tuple(self.read(value) for value in values))
            case ast.Compare(left=left, ops=operators, comparators=rest):
                return self._comparison(left, operators, rest)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return Conditional(self.read(test), self.read(body), self.read(orelse))
            case ast.Call(func=function, args=arguments, keywords=keywords):
                return self._call(function, arguments, keywords)
            case ast.Attribute(value=value, attr=field):
                return Attribute(self.read(value), self.name(field))
            case ast.Subscript(value=value, slice=ast.Slice(lower=lower, upper=upper, step=None)):
                start = None if lower is None else self.read(lower)
                return Slice(self.read(value), start, None if upper is None else self.read(upper))
            case ast.Subscript(value=value, slice=index) if not isinstance(index, ast.Slice | ast.Tuple):
                return Subscript(self.read(value), self.read(index))
            case ast.Tuple(elts=elements):
                return Tuple(tuple(self.item(element) for element in elements))
        raise self._refusal(node)

    def _refusal(self, node: ast.AST) -> ExpressionError:
        culprit: ast.AST = node.op if isinstance(node, ast.BinOp | ast.UnaryOp) else node
        mend = _MENDS.get(type(culprit), "it is not part of the language")
        what = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
        whole = "" if what == self.text else f" in {self.text!r}"
        return ExpressionError(f"{what!r}{whole}: {mend}")

    def _literal(self, value: object) -> Literal:
        if value is None or isinstance(value, bool | int | str):
            return Literal(value)
        if isinstance(value, float) and math.isfinite(value):
            return Literal(value)
        raise ExpressionError(f"{value!r} in {self.text!r} is not a finite number, a word, True, False or None")

    def _comparison(self, left: ast.expr, operators: list[ast.cmpop], rest: list[ast.expr]) -> Comparison:
        for operator in operators:
            if type(operator) not in _COMPARISONS:
                raise ExpressionError(f"'is' in {self.text!r}: {_MENDS[type(operator)]}")
        words = tuple(_COMPARISONS[type(operator)] for operator in operators)
        return Comparison(self.read(left), words, tuple(self.read(other) for other in rest))

    def _call(self, function: ast.expr, arguments: list[ast.expr], keywords: list[ast.keyword]) -> Call:
        match function:
            case ast.Name(id=name):
                called = self.name(name)
            case ast.Attribute(value=ast.Name(id=prefix), attr=name):
                called = f"{self.name(prefix)}.{self.name(name)}"
            case _:
                raise ExpressionError(f"{ast.unparse(function)!r} in {self.text!r} cannot be called")
        if len(arguments) == 1 and isinstance(arguments[0], ast.GeneratorExp) and called in COMPREHENDING:
            read: tuple[Expression | Spread, ...] = (self._comprehension(arguments[0]),)
        else:
            read = tuple(self.item(argument) for argument in arguments)
        named: list[tuple[str, Expression]] = []
        for keyword_argument in keywords:
            if keyword_argument.arg is None:
                raise ExpressionError(f"'**' in {self.text!r} is not part of the language")
            if any(key == keyword_argument.arg for key, _ in named):
                raise ExpressionError(f"{keyword_argument.arg}= stands twice in {self.text!r}; remove one of them")
            named.append((self.name(keyword_argument.arg), self.read(keyword_argument.value)))
        return Call(called, read, tuple(named))

    def _comprehension(self, node: ast.GeneratorExp) -> Comprehension:
        if len(node.generators) != 1:
            raise ExpressionError(f"{self.text!r}: a comprehension has one 'for'")
        generator = node.generators[0]
        if generator.ifs or generator.is_async or not isinstance(generator.target, ast.Name):
            raise ExpressionError(f"{self.text!r}: a comprehension has one plain name and no 'if'")
        return Comprehension(self.read(node.elt), self.name(generator.target.id), self.read(generator.iter))
