"""The expression language: what parses, what is refused and how, and that nothing reaches Python."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tileops.errors import ExpressionError
from tileops.manifest.checking import infer
from tileops.manifest.expressions import (
    Attribute,
    Binary,
    Call,
    Comparison,
    Comprehension,
    Conditional,
    Expression,
    Literal,
    Logical,
    Name,
    Negative,
    Not,
    Slice,
    Spread,
    Subscript,
    Tuple,
    parse_expression,
    parse_shape,
)
from tileops.manifest.facts import Scope
from tileops.manifest.kinds import BoolKind, DimKind, FloatKind, IntKind, ShapeKind, UnionKind
from tileops.manifest.kinds import NoneKind as NothingKind
from tileops.manifest.source import evaluate
from tileops.manifest.spelling import spell

A, B = Name("a"), Name("b")
SCOPE = Scope(
    {
        "a": DimKind(),
        "b": IntKind(),
        "s": ShapeKind(),
        "f": FloatKind(),
        "t": BoolKind(),
        "m": UnionKind((IntKind(), NothingKind())),
    },
    tensors=frozenset({"x"}),
    optional=frozenset({"x"}),
)
VALUES = {"a": 3, "b": -2, "s": (2, 3), "f": 0.5, "t": True, "m": None}


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("1", Literal(1)),
        ("1e-5", Literal(1e-5)),
        ("'word'", Literal("word")),
        ("None", Literal(None)),
        ("-a", Negative(A)),
        ("a + b * 2", Binary("+", A, Binary("*", B, Literal(2)))),
        ("a // b % 2", Binary("%", Binary("//", A, B), Literal(2))),
        ("0 <= a < b", Comparison(Literal(0), ("<=", "<"), (A, B))),
        ("a in (1, 2)", Comparison(A, ("in",), (Tuple((Literal(1), Literal(2))),))),
        ("a not in (1,)", Comparison(A, ("not in",), (Tuple((Literal(1),)),))),
        ("not a and b or a", Logical("or", (Logical("and", (Not(A), B)), A))),
        ("a if b else 1", Conditional(B, A, Literal(1))),
        ("f(a, key=b)", Call("f", (A,), (("key", B),))),
        ("pool.out(a)", Call("pool.out", (A,))),
        ("a.value", Attribute(A, "value")),
        ("a[0]", Subscript(A, Literal(0))),
        ("a[1:]", Slice(A, Literal(1), None)),
        ("(*a, 1)", Tuple((Spread(A), Literal(1)))),
        ("all(n > 0 for n in a)", Call("all", (Comprehension(Comparison(Name("n"), (">",), (Literal(0),)), "n", A),))),
    ],
)
def test_each_construct_parses(text: str, tree: Expression) -> None:
    """Each construct of the language parses to its node, and its spelling parses to the same tree."""
    assert parse_expression(text) == tree
    assert parse_expression(spell(tree)) == tree


@pytest.mark.parametrize(
    ("text", "mend"),
    [
        ("a / b", "write // or ceil_div(a, b)"),
        ("a ** b", "there is no power; write a product"),
        ("lambda: a", "there is no lambda"),
        ("f'{a}'", "there are no f-strings"),
        ("[a]", "a list stands only as a shape; write a tuple (a, b)"),
        ("[n for n in a]", "write all(...), sum(...), max(...) or min(...) over one name"),
        ("(n for n in a)", "a comprehension stands only as the argument of all, sum, max or min"),
        ("len(n for n in a)", "a comprehension stands only as the argument of all, sum, max or min"),
        ("all(n for n in a if n)", "a comprehension has one plain name and no 'if'"),
        ("all(n for m in a for n in m)", "a comprehension has one 'for'"),
        ("all(n for n, m in a)", "a comprehension has one plain name and no 'if'"),
        ("a is None", "write present(name) or not present(name)"),
        ("a is not None", "write present(name) or not present(name)"),
        ("a & b", "it is not part of the language"),
        ("~a", "it is not part of the language"),
        ("+a", "it is not part of the language"),
        ("a @ b", "it is not part of the language"),
        ("a << b", "it is not part of the language"),
        ("{a: b}", "it is not part of the language"),
        ("{a}", "it is not part of the language"),
        ("await a", "it is not part of the language"),
        ("a[::2]", "it is not part of the language"),
        ("a[1, 2]", "it is not part of the language"),
        ("(a := 1)", "it is not part of the language"),
        ("f(**a)", "'**' in 'f(**a)' is not part of the language"),
        ("f()()", "cannot be called"),
        ("a.b.c()", "cannot be called"),
        ("'a'.join(s)", "cannot be called"),
        ("1j", "is not a finite number, a word, True, False or None"),
        ("b'a'", "is not a finite number, a word, True, False or None"),
        ("1e999", "is not a finite number, a word, True, False or None"),
        ("...", "is not a finite number, a word, True, False or None"),
        ("__import__('os')", "'__import__' is not a name"),
        ("().__class__", "'__class__' is not a name"),
        ("_a", "'_a' is not a name"),
        ("é", "'\\xe9' holds a character that is not ASCII"),
        ("\ufb01 + 1", "holds a character that is not ASCII"),
        ("f(a=1, a=2)", "a= stands twice in 'f(a=1, a=2)'; remove one of them"),
        ("a" + ".b" * 950 + "()", "has too many parts or is nested too deeply; split it with let"),
        ("~" * 1900 + "1", "has too many parts or is nested too deeply; split it with let"),
        ("lambda:" * 280 + "1", "has too many parts or is nested too deeply; split it with let"),
        ("a +", "is not an expression"),
        ("a; b", "is not an expression"),
        ("a = 1", "is not an expression"),
        ("1if a else 2", "put a space between a number and a word"),
        ("a # note", "holds a comment, a backslash or a null character"),
        ("a \\ b", "holds a comment, a backslash or a null character"),
        ("", "is not an expression"),
        ("a" * 2001, "2001 characters are too many; at most 2000; split it with let"),
        (" + ".join("a" * 300), "has too many parts or is nested too deeply; split it with let"),
        ("(" * 300 + "a" + ")" * 300, "is not an expression"),
        ("not " * 60 + "a", "has too many parts or is nested too deeply; split it with let"),
        ("(" + "a," * 500 + ")", "has too many parts or is nested too deeply; split it with let"),
    ],
)
def test_all_else_is_refused(text: str, mend: str) -> None:
    """What is not of the language raises its own error, with what to write instead where there is something."""
    with pytest.raises(ExpressionError) as caught:
        parse_expression(text)
    assert mend in str(caught.value)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[]", ()),
        ("[a, 2 * b]", (A, Binary("*", Literal(2), B))),
        ("[*a, 1]", (Spread(A), Literal(1))),
        ("[*broadcast(a, b)]", (Spread(Call("broadcast", (A, B))),)),
        ("Mat[a, b]", Call("Mat", (A, B))),
        ("Mat[a]", Call("Mat", (A,))),
        ("Mat[*a, b]", Call("Mat", (Spread(A), B))),
    ],
)
def test_shapes_parse(text: str, expected: object) -> None:
    """A shape is a bracketed list of axes and splices, or a type family applied."""
    assert parse_shape(text) == expected


@pytest.mark.parametrize("text", ["a, b", "(a, b)", "a", "a.b[c]", "[a for a in b]", "Mat()"])
def test_other_shapes_are_refused(text: str) -> None:
    """Anything else is no shape."""
    with pytest.raises(ExpressionError, match="is not a shape; write axes in brackets"):
        parse_shape(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a + b * 2", -1),
        ("(a - b) // 2", 2),
        ("b % a", 1),
        ("-a", -3),
        ("0 < a <= 3", True),
        ("b < 0 < a", True),
        ("a in (1, 3) and not t", False),
        ("t or a // 0 > 1", True),
        ("1 if t else a // 0", 1),
        ("s[0] + s[-1]", 5),
        ("s[1:]", (3,)),
        ("(*s, a)", (2, 3, 3)),
        ("s + (a,)", (2, 3, 3)),
        ("sum(n * 2 for n in s)", 10),
        ("all(n > a for n in s)", False),
        ("max((a, b), default=0)", 3),
        ("max(s[2:], default=7)", 7),
        ("present(m)", False),
        ("present(x)", True),
        ("m.value if present(m) else a", 3),
        ("f < inf", True),
        ("float16 == float16", True),
    ],
)
def test_values_are_python_s(text: str, expected: object) -> None:
    """An expression has the value that Python's precedence and short-circuiting give."""
    tree = parse_expression(text)
    infer(tree, SCOPE)
    assert evaluate(tree, VALUES, {"x": True}) == expected


@pytest.mark.parametrize("text", ["a // 0", "a % 0", "s[7]", "ceil_div(a, 0)", "broadcast(s, (4, 4))", "max(s[2:])"])
def test_a_failing_value_is_the_language_s_error(text: str) -> None:
    """An expression without a value for these arguments raises ExpressionError and nothing else."""
    tree = parse_expression(text)
    infer(tree, SCOPE)
    with pytest.raises(ExpressionError):
        evaluate(tree, VALUES, {})


LEAVES: st.SearchStrategy[Expression] = st.sampled_from(
    [*map(Name, SCOPE.names), *map(Literal, (0, 1, -3, 0.5, True, None, "w"))]
)


def composed(inner: st.SearchStrategy[Expression]) -> st.SearchStrategy[Expression]:
    """Return trees that are made of inner ones, well-kinded or not."""
    pairs = st.tuples(inner, inner)
    comparisons = ("==", "!=", "<", "<=", ">", ">=", "in", "not in")
    functions = ("len", "prod", "sum", "max", "ceil_div", "broadcast", "present", "nothing")
    return st.one_of(
        inner.map(Negative),
        inner.map(Not),
        st.builds(Binary, st.sampled_from(["+", "-", "*", "//", "%"]), inner, inner),
        st.builds(lambda op, pair: Comparison(pair[0], (op,), (pair[1],)), st.sampled_from(comparisons), pairs),
        st.builds(Logical, st.sampled_from(("and", "or")), pairs),
        st.builds(Conditional, inner, inner, inner),
        st.builds(Call, st.sampled_from(functions), pairs),
        st.builds(lambda name, one: Call(name, (one,)), st.sampled_from(functions), inner),
        st.builds(Attribute, inner, st.sampled_from(("value", "kind", "real", "shape"))),
        st.builds(Subscript, inner, LEAVES),
        st.builds(Slice, inner, st.none() | inner, st.none() | inner),
        st.lists(inner, max_size=3).map(lambda items: Tuple(tuple(items))),
        st.builds(lambda b, s: Call("sum", (Comprehension(b, "n", s),)), inner | st.just(Name("n")), inner),
    )


TREES: st.SearchStrategy[Expression] = st.recursive(LEAVES, composed, max_leaves=12)


@settings(deadline=None, max_examples=300)
@given(TREES)
@example(Call("sum", (Comprehension(A, "n", Conditional(A, A, B)),)))
@example(Binary("-", A, Binary("-", A, Binary("*", Binary("+", A, B), B))))
def test_spelling_parses_back(tree: Expression) -> None:
    """Any tree's spelling parses, and its spelling is stable."""
    text = spell(tree)
    assert spell(parse_expression(text)) == text


@settings(deadline=None, max_examples=500)
@given(TREES)
def test_well_kinded_trees_have_values_or_the_language_s_error(tree: Expression) -> None:
    """A tree that passes the kind check has a value, or raises ExpressionError; one that does not raises it at once."""
    try:
        kind = infer(tree, SCOPE)
        value = evaluate(tree, VALUES, {"x": True})
    except ExpressionError:
        return
    if isinstance(kind, BoolKind):
        assert value in {True, False}
    if isinstance(kind, IntKind | DimKind):
        assert isinstance(value, int)
    if isinstance(kind, DimKind):
        assert isinstance(value, int)
        assert value >= 0


WORDS = (
    "a b s m x 1 2.5 'w' None True ( ) [ ] , : . + - * / // % ** == != < in not and or if else for is lambda present",
    "len sum all value __class__ inf float16 { } = := @ & | ~ ; \\ # é 0x1f 1e9 f'{a}' b'' yield await",
)
TOKENS = st.lists(st.sampled_from(" ".join(WORDS).split()), max_size=14).map(" ".join)


@settings(deadline=None, max_examples=800)
@given(TOKENS | st.text(max_size=30))
@example("a" * 3000)
@example("(" * 1000)
@example("-" * 1500 + "a")
@example("9" * 1999)
@example("\x00")
@example("\ud800")
def test_any_text_is_an_expression_or_the_language_s_error(text: str) -> None:
    """Whatever the text, parsing, checking and evaluating raise nothing but ExpressionError."""
    try:
        tree = parse_expression(text)
        infer(tree, SCOPE)
        evaluate(tree, VALUES, {"x": True})
    except ExpressionError:
        return


@settings(deadline=None, max_examples=300)
@given(TOKENS | st.text(max_size=30))
def test_any_text_is_a_shape_or_the_language_s_error(text: str) -> None:
    """Whatever the text, reading it as a shape raises nothing but ExpressionError."""
    try:
        parse_shape(text)
    except ExpressionError:
        return
