"""Reading YAML: the core schema of YAML 1.2, positions, repeated keys, aliases."""

from __future__ import annotations

import pytest

from tileops.manifest.document import Document


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-5", 1e-5),
        ("1.5", 1.5),
        (".5", 0.5),
        ("12", 12),
        ("-3", -3),
        ("0x1f", 31),
        ("0o17", 15),
        ("017", 17),
        (".inf", float("inf")),
        ("true", True),
        ("False", False),
        ("null", None),
        ("~", None),
        ("on", "on"),
        ("yes", "yes"),
        ("1d", "1d"),
        ("12:30", "12:30"),
        ("2026-01-01", "2026-01-01"),
        ("1_000", "1_000"),
        ("'1'", "1"),
        ("[1, a]", [1, "a"]),
        ("{a: {b: 1}}", {"a": {"b": 1}}),
    ],
)
def test_scalars_follow_the_core_schema(text: str, value: object) -> None:
    """A plain scalar is a number, a truth value or null only where YAML 1.2 says so."""
    document = Document(text, "f.yaml")
    assert (document.value, document.problems) == (value, [])
    assert type(document.value) is type(value)


def test_positions_are_kept() -> None:
    """Each value has the line and column of its key, or its own in a list; lines and columns count from 1."""
    document = Document("a:\n  b: [1,\n   2]\n", "f.yaml")
    assert document.positions[("a", "b")] == (2, 3)
    assert document.positions[("a", "b", 1)] == (3, 4)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: 1\na: 2\n", "f.yaml:2:1: repeated-key: 'a' stands twice in one mapping; remove one of them"),
        ("a: [", "f.yaml:2:1: yaml: did not find expected node content"),
        ("a: !x 1\n", "f.yaml:1:4: tag: the tag '!x' is not used here; remove the tag"),
        ("[1]: 1\n", "f.yaml:1:1: key: a key is not a word; write a plain word before the colon"),
        ("a: &a [*a]\n", "f.yaml:1:4: alias: an alias stands for what encloses it, or for too much"),
        ("a: \x07\n", "f.yaml:1:1: yaml: "),
    ],
)
def test_what_is_not_read_is_reported(text: str, problem: str) -> None:
    """Text that is not read is a problem with its place, not an exception."""
    found = [str(found) for found in Document(text, "f.yaml").problems]
    assert len(found) == 1
    assert found[0].startswith(problem)


def test_aliases_cannot_explode() -> None:
    """A few lines of aliases that stand for a billion values are refused early."""
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    problems = Document("\n".join(lines), "f.yaml").problems
    assert [problem.rule for problem in problems] == ["alias"]


def test_deep_values_are_refused() -> None:
    """A value that is nested very deeply is one problem, and what encloses it is read."""
    document = Document("a: 1\nb: " + "[" * 900 + "]" * 900, "f.yaml")
    assert isinstance(document.value, dict)
    assert document.value["a"] == 1
    assert [str(found) for found in document.problems] == [
        "f.yaml:2:54: nesting: this is nested more than 50 levels deep"
    ]
