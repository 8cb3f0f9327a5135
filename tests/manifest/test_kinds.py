"""Kinds and kind checking: what declarations mean, what expressions are, and what conditions make known."""

from __future__ import annotations

import pytest

from tileops.errors import ExpressionError
from tileops.manifest.checking import infer
from tileops.manifest.expressions import parse_expression
from tileops.manifest.facts import Scope
from tileops.manifest.kinds import (
    BoolKind,
    DimKind,
    DTypeKind,
    FloatKind,
    IntKind,
    Kind,
    LiteralKind,
    NoneKind,
    SequenceKind,
    ShapeKind,
    StrKind,
    SumKind,
    UnionKind,
    fits,
    parse_kind,
)
from tileops.manifest.model import Constructor, Field, SumType

INT, DIM, NONE = IntKind(), DimKind(), NoneKind()
LAYOUT = SumType(
    name="Layout",
    constructors=(
        Constructor(name="packed", python="x.Packed", fields=(Field(name="rows", kind=DIM),)),
        Constructor(name="slab", python="x.Slab", fields=(Field(name="most", kind=DIM), Field(name="rows", kind=INT))),
    ),
)
SCOPE = Scope(
    {
        "n": DIM,
        "i": INT,
        "s": ShapeKind(),
        "f": FloatKind(),
        "t": BoolKind(),
        "dtype": DTypeKind(("float16", "int32")),
        "word": LiteralKind(("a", "b")),
        "maybe": UnionKind((INT, NONE)),
        "maybe_word": UnionKind((LiteralKind(("a", "b")), NONE)),
        "dim": UnionKind((INT, SequenceKind(INT, None, "list"), NONE)),
        "layout": SumKind("Layout"),
    },
    tensors=frozenset({"x", "w"}),
    optional=frozenset({"w"}),
    sums={"Layout": LAYOUT},
)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Dim", DIM),
        ("Shape", ShapeKind()),
        ("Seq[Int]", SequenceKind(INT)),
        ("DType[float16 | int8]", DTypeKind(("float16", "int8"))),
        ("float16 | int8", DTypeKind(("float16", "int8"))),
        ("bool", BoolKind()),
        ("Bool", BoolKind()),
        ("int | None", UnionKind((INT, NONE))),
        ("Maybe[int]", UnionKind((INT, NONE))),
        ("str", StrKind()),
        ("'a' | 'b'", LiteralKind(("a", "b"))),
        ("'a' | None | 'b'", UnionKind((LiteralKind(("a", "b")), NONE))),
        ("list[int]", SequenceKind(INT, None, "list")),
        ("tuple[int, ...]", SequenceKind(INT)),
        ("tuple[int, int]", SequenceKind(INT, 2)),
        ("int | tuple[int, int]", UnionKind((INT, SequenceKind(INT, 2)))),
        ("MGroupedLayout", SumKind("MGroupedLayout")),
    ],
)
def test_declarations_parse(text: str, kind: Kind) -> None:
    """Each form of a declaration gives its kind, and the kind's spelling parses to the same kind."""
    assert parse_kind(text) == kind
    if not isinstance(kind, ShapeKind | DimKind | SumKind):
        assert parse_kind(str(kind)) == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        "integer",
        "DType[half]",
        "DType[]",
        "tuple[int]]",
        "tuple[int, str]",
        "int or None",
        "1",
        "list[]",
        "a.b",
        "dict[str, int]",
        "[int]",
    ],
)
@pytest.mark.parametrize("around", ["{}", "{} | int", "list[{}]"])
def test_other_declarations_are_refused(text: str, around: str) -> None:
    """A text that is no kind raises the language's error, alone or as part of another."""
    with pytest.raises(ExpressionError, match=r"is not a d?type"):
        parse_kind(around.format(text))


def test_long_declarations_are_refused() -> None:
    """The length of a declaration is limited."""
    with pytest.raises(ExpressionError, match="a type of 503 characters is too long; at most 400"):
        parse_kind(f"'a{'x' * 500}'")


@pytest.mark.parametrize(
    ("kind", "wanted"),
    [
        (DIM, INT),
        (DIM, FloatKind()),
        (INT, FloatKind()),
        (LiteralKind(("a",)), StrKind()),
        (LiteralKind(("a",)), LiteralKind(("a", "b"))),
        (SequenceKind(INT, 2), SequenceKind(INT)),
        (NONE, UnionKind((INT, NONE))),
        (UnionKind((DIM, NONE)), UnionKind((INT, NONE))),
    ],
)
def test_a_narrower_kind_fits(kind: Kind, wanted: Kind) -> None:
    """Every value of the narrower kind is of the wider one, and not the reverse."""
    assert fits(kind, wanted)
    assert not fits(wanted, kind)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("n + 1", DIM),
        ("n - 1", INT),
        ("n * n // 2 % 3", DIM),
        ("-n", INT),
        ("n * i", INT),
        ("n + f", FloatKind()),
        ("s[0]", DIM),
        ("prod(s)", DIM),
        ("sum(n * i for n2 in s)", INT),
        ("max((n, 1), default=0)", DIM),
        ("min((n, i), default=0)", INT),
        ("(n, *s)", SequenceKind(DIM)),
        ("n if t else i", INT),
        ("n if t else None", UnionKind((DIM, NONE))),
        ("maybe.value if present(maybe) else n", INT),
        ("promote_int_to_float(dtype)", DTypeKind(())),
        ("present(w)", BoolKind()),
        ("dtype == float16", BoolKind()),
        ("word in ('a', 'b')", BoolKind()),
        ("layout.kind", LiteralKind(("packed", "slab"))),
        ("layout.rows", UnionKind((DIM, INT))),
    ],
)
def test_expressions_have_kinds(text: str, kind: Kind) -> None:
    """The kind of an expression follows from its parts; what cannot be negative is known not to be."""
    assert infer(parse_expression(text), SCOPE) == kind


@pytest.mark.parametrize(
    "text",
    [
        "present(maybe) and maybe.value > 0",
        "not present(maybe) or maybe.value > 0",
        "maybe.value > 0 if present(maybe) else t",
        "t if not present(maybe) else maybe.value > 0",
        "maybe != None and maybe.value > 0",
        "maybe == None or maybe.value > 0",
        "maybe == 3 and maybe.value > 0",
        "maybe in (1, 2) and maybe.value > 0",
        "maybe_word in ('a',) and maybe_word.value == 'a'",
        "not (t and not present(maybe)) or not present(maybe) or maybe.value > 0",
        "layout.kind == 'slab' and layout.most > 0",
        "layout.kind != 'slab' or layout.most > 0",
        "layout.kind == 'packed' or layout.most > 0",
        "layout.kind in ('slab',) and layout.most > 0",
        "layout.most > 0 if layout.kind == 'slab' else t",
        "valid_axes(dim, len(s))",
    ],
)
def test_a_condition_makes_a_value_known(text: str) -> None:
    """Where a condition says that a value is there, or which constructor made it, its parts may be read."""
    assert infer(parse_expression(text), SCOPE) == BoolKind()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("maybe.value > 0", "maybe.value may be None here; stand it behind present(maybe)"),
        ("present(maybe) or maybe.value > 0", "maybe.value may be None here"),
        ("not present(maybe) and maybe.value > 0", "maybe.value may be None here"),
        ("maybe != 3 and maybe.value > 0", "maybe.value may be None here"),
        ("maybe in (1, None) and maybe.value > 0", "maybe.value may be None here"),
        ("maybe > 0", "it may be None here: write present(maybe) and maybe.value"),
        ("layout.most > 0", "layout.most is not a field of packed; match layout.kind first"),
        ("layout.kind != 'slab' and layout.most > 0", "layout.most is not a field of packed"),
        ("layout.kind == 'slob' and t", "'slob' is not among 'packed', 'slab'"),
        ("layout.none > 0", "layout.none is not a field of packed"),
        ("layout.value", "layout.value is not a field of packed"),
        ("n.value", "Dim has no attribute 'value'"),
        ("word == 'c'", "word == 'c': 'c' is not among 'a', 'b'"),
        ("word in ('a', 'c')", "'c' is not among 'a', 'b'"),
        ("n == 'a'", "n == 'a' compares Dim with 'a', which are never equal"),
        ("dtype == int64", "dtype == int64 compares float16 | int32 with int64, which are never equal"),
        ("t + 1", "t is bool, and int | float is needed"),
        ("not n", "n is Dim, and bool is needed"),
        ("n and t", "n is Dim, and bool is needed"),
        ("n if i else n", "i is int, and bool is needed"),
        ("n[0]", "n is Dim, and a sequence is needed"),
        ("s[f]", "f is float, and int is needed"),
        ("x", "'x' is a tensor; name the indices of its type in place of reading it"),
        ("x.shape[0]", "x.shape reads a tensor; name the indices of its type in the rule"),
        ("present(x)", "present(x) asks about what is always there"),
        ("present(n)", "present(n) asks about what is always there"),
        ("present(n + 1)", "write present(name)"),
        ("isinstance(n, i)", "kinds are checked before any rule"),
        ("nothing", "unknown name 'nothing'"),
        ("nothing(n)", "unknown function 'nothing'"),
        ("prod(n)", "n is Dim, and tuple[int, ...] is needed"),
        ("prod(*s)", "*s stands only in a shape or a tuple"),
        ("ceil_div(n)", "ceil_div takes 2 arguments, received 1"),
        ("ceil_div(n, 2, mode=1)", "ceil_div takes no mode="),
        ("sum(s for s in s)", "'s' already has a meaning here"),
        ("prefix_sum(s)", "unknown function 'prefix_sum'"),
    ],
)
def test_a_wrong_kind_is_refused(text: str, message: str) -> None:
    """A part that is not of the kind its place needs is refused, with what is needed or what to write."""
    with pytest.raises(ExpressionError) as caught:
        infer(parse_expression(text), SCOPE)
    assert message in str(caught.value)


@pytest.mark.parametrize("text", ["-" * 390 + "1", "~" * 390 + "1", "Dim | " * 60 + "Dim", "\ufb02oat"])
def test_deep_and_foreign_declarations_are_refused(text: str) -> None:
    """A declaration that is nested deeply, or not ASCII, raises the language's error."""
    with pytest.raises(ExpressionError, match="nested too deeply for a type, or holds a character that is not ASCII"):
        parse_kind(text)


@pytest.mark.parametrize("text", ["(1.5,) + (n,)", "(n,) + (1.5,)", "(t,) + (n,)"])
def test_both_sides_of_a_joined_sequence_are_numbers(text: str) -> None:
    """A sequence of anything but whole numbers is joined with no other, on either side."""
    with pytest.raises(ExpressionError, match=r"and tuple\[int, \.\.\.\] is needed"):
        infer(parse_expression(text), SCOPE)
