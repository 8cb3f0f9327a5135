"""Several mistakes in one entry: each is reported in one run, once, at its place, and nothing that follows from it."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.manifest.seeded import MISTAKES, RIGHT, seeded
from tileops.manifest.model import Problem
from tileops.manifest.parse import parse_text
from tileops.manifest.registry import Registry
from tileops.manifest.validate import validate, validate_entry

Mistake = tuple[str, str]


def mistake(part: str) -> Mistake:
    """Return the mistake that puts this text into the entry."""
    (found,) = (found for found in MISTAKES if part in found[1])
    return found


JUDGED_BY: dict[Mistake, tuple[Mistake, ...]] = {
    mistake("u: {dtype: K"): (mistake("K: Dimm"),),
    mistake("K: true"): (mistake("K: Dimm"),),
    mistake("L: [1, 2]"): (mistake("L: [Seq, Int]"), mistake("values: running_sum(L)")),
    mistake("W: int8}"): (mistake("W: DType[float16 | half]"),),
    mistake("when: maybe"): (mistake("match: flap"),),
    mistake("size: 0"): (mistake("- size >= 'a'"),),
}
"""Mistakes that are none, or cannot be told, where another part is wrong: a value of an index whose kind is unknown."""


def independent(mistakes: list[Mistake]) -> list[Mistake]:
    """Return the mistakes without those that another one of them hides by right."""
    return [found for found in mistakes if not set(JUDGED_BY.get(found, ())) & set(mistakes)]


def problems(text: str) -> list[Problem]:
    """Return every problem of the text, in the order of places."""
    reading = parse_text(text, "toy.yaml")
    found = list(reading.problems)
    for entry in reading.drafts.values():
        found += validate_entry(entry)
    return sorted(found, key=str)


@functools.cache
def alone(found: Mistake) -> tuple[Problem, ...]:
    """Return the problems of the entry with this mistake alone."""
    return tuple(problems(seeded(found)))


IN_FILE = [found for found in MISTAKES if found[1] != "family: other"]
"""The mistakes that one entry shows without its folder."""


def test_the_entry_is_right() -> None:
    """The entry into which mistakes are seeded has no problem."""
    assert problems(RIGHT) == []


@pytest.mark.parametrize("found", IN_FILE, ids=lambda found: found[1].strip().partition("\n")[0])
def test_one_mistake_is_one_problem(found: Mistake) -> None:
    """Each mistake is exactly one problem, on the line that it changes or, for a row, at the row."""
    (problem,) = alone(found)
    line = RIGHT[: RIGHT.index(found[0]) + len(found[0]) - len(found[0].lstrip())].count("\n") + 1
    row = RIGHT[: RIGHT.index("- label: four")].count("\n") + 1
    assert problem.line in ({line, row} if line > row else {line})


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.lists(st.sampled_from(IN_FILE), min_size=2, max_size=9, unique=True))
def test_mistakes_together_are_the_mistakes_alone(mistakes: list[Mistake]) -> None:
    """However many mistakes are seeded, the problems are those of each alone: none hides another, none adds one."""
    chosen = independent(mistakes)
    expected = sorted((problem for found in chosen for problem in alone(found)), key=str)
    assert problems(seeded(*chosen)) == expected


WORDS = list(re.finditer(r"[A-Za-z_][\w.]*", RIGHT))
READ = [word for word in WORDS if any(word[0] == other[0] and other.start() < word.start() for other in WORDS)]
"""The words of the entry that stand further up too: what is declared or known, read here."""


@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(st.sampled_from(READ))
def test_a_misspelled_word_is_one_problem(word: re.Match[str]) -> None:
    """Wherever a word that is declared further up is misspelled, that is one problem, and nothing follows from it."""
    assert len(problems(f"{RIGHT[: word.start()]}{word[0]}q{RIGHT[word.end() :]}")) <= 1


def test_every_mistake_at_once(tmp_path: Path) -> None:
    """With all of them in one file, the validator lists each once, in the order of lines and columns."""
    chosen = independent(IN_FILE)
    (tmp_path / "toy").mkdir()
    (tmp_path / "toy" / "toy.yaml").write_text(seeded(("family: toy", "family: other"), *chosen))
    found = validate(Registry(tmp_path))
    expected = [(problem.line, problem.rule, problem.message) for one in chosen for problem in alone(one)]
    expected.append((2, "family", "family is 'other' in the folder 'toy'"))
    assert sorted((problem.line, problem.rule, problem.message) for problem in found) == sorted(expected)
    places = [(problem.line, problem.column) for problem in found]
    assert places == sorted(places)


ROW = "workload-row: row"
SHORT = """\
ToyFwdOp:
  family: toy
  status: spec-only
  signature:
    forall: {B: Dim, N: Dim, T: "DType[float16 | float32]"}
    inputs:
      x: {dtype: T, shape: "[B, N]"}
      w: {dtype: T, shape: "[N]", optional: true}
    outputs:
      y: {dtype: T, shape: "[B, N]"}
  workloads:
    - {label: with-weight, B: 2, N: 8, some: [w], dtype_cases: [{T: float16}]}
    - {label: plain, B: 2, N: 8, dtype_cases: [{T: float32}]}
  roofline: {flops: B * N}
"""


def lines(text: str) -> list[str]:
    """Return what is wrong with the text, each problem as line, rule and message, in the order of places."""
    found = sorted(problems(text), key=lambda problem: (problem.line, problem.column, problem.message))
    return [f"{problem.line}: {problem.rule}: {problem.message}" for problem in found]


def test_every_section_is_checked() -> None:
    """A broken cost, an unknown dtype, an unknown axis, a bad alias and a bad row are all reported."""
    text = SHORT.replace("B * N}", "B * }").replace("w: {dtype: T", "w: {dtype: U")
    text = text.replace('x: {dtype: T, shape: "[B, N]"}', 'x: {dtype: T, shape: "[B, NN]"}')
    text = text.replace('y: {dtype: T, shape: "[B, N]"}', 'y: {dtype: T, shape: "[B, N]", alias: z}')
    text = text.replace("label: plain, B: 2", "label: plain, B: -2")
    assert lines(text) == [
        "7: shape: unknown name 'NN'; did you mean 'N'?",
        "8: dtype: unknown name 'U'; use one of B, N, T",
        "10: alias: 'z' is no input",
        "13: workload-row: row plain: B is Dim, and the row gives -2",
        "14: expression: 'B *' is not an expression",
    ]


def test_every_index_is_checked() -> None:
    """Three wrong declarations of indices are three problems."""
    assert lines(SHORT.replace("B: Dim, N: Dim,", "B: 3, N: 4, M: 5,")) == [
        "5: structure: B: Expected `str`, got `int`",
        "5: structure: N: Expected `str`, got `int`",
        "5: unused-index: M stands in no type",
        "5: structure: M: Expected `str`, got `int`",
    ]


def test_every_mistake_of_a_row_is_reported() -> None:
    """A row with a wrong value, a word that is no index, an unknown tensor and an unknown dtype gives each."""
    row = "{label: plain, B: -2, N: 8, Q: 1, R: 2, some: [v], dtype_cases: [{T: int8, U: float16}]}"
    text = SHORT.replace("{label: plain, B: 2, N: 8, dtype_cases: [{T: float32}]}", row)
    assert lines(text) == [
        "13: workload-row: row plain: B is Dim, and the row gives -2",
        "13: workload-row: row plain: Q is neither a parameter nor an index",
        "13: workload-row: row plain: R is neither a parameter nor an index",
        "13: workload-row: row plain: some names v, which is no optional tensor of the signature",
        "13: workload-row: row plain: T is never int8; it is float16 | float32",
        "13: workload-row: row plain: U is no DType index",
    ]


def test_every_mistake_of_an_expression_is_reported() -> None:
    """Two unknown names and a wrong kind in one refinement are three problems, and what reads them is none."""
    rules = '    let: {a: BB * 2, b: a + 1}\n    shape_rules: ["QQ > 0 and T > 1 and ceildiv(RR, 2) > b"]\n  workloads'
    assert lines(SHORT.replace("  workloads", rules)) == [
        "11: let: unknown name 'BB'; did you mean 'B'?",
        "12: refinement: T is float16 | float32, and int | float is needed",
        "12: refinement: unknown function 'ceildiv'; did you mean 'ceil_div'?",
        "12: refinement: unknown name 'QQ'; use one of B, N, T, a, b",
        "12: refinement: unknown name 'RR'; use one of B, N, T, a, b",
    ]


@pytest.mark.parametrize(
    ("right", "wrong", "expected"),
    [
        ('x: {dtype: T, shape: "[B, N]"}', "x: 3", "7: structure: expected a mapping, received a number"),
        ('x: {dtype: T, shape: "[B, N]"}', 'x: {dtype: T, shap: "[B, N]"}', "7: unknown-field: unknown field 'shap'"),
        ('w: {dtype: T, shape: "[N]", optional: true}', "w: [T]", "8: structure: expected a mapping, received a list"),
        ("optional: true", "optonal: true", "8: unknown-field: unknown field 'optonal'"),
        ("optional: true", "optional: [w]", "8: structure: optional: Expected `bool | str`, got `array`"),
        ("    outputs:", "    output:", "9: unknown-field: unknown field 'output'"),
        ("    inputs:", "    input:", "6: unknown-field: unknown field 'input'"),
        ("  workloads:", "  workload:", "11: unknown-field: unknown field 'workload'"),
        ("  signature:", "  signatur:", "4: unknown-field: unknown field 'signatur'"),
        ("some: [w]", "some: w", "12: structure: some: Expected `array`, got `str`"),
        ("[{T: float32}]", "{T: float32}", "13: structure: dtype_cases: Expected `array`, got `object`"),
        ("[{T: float32}]", "[T]", "13: structure: expected a mapping, received a word"),
        ("B: 2, N: 8, some", "B: 2, NN: 8, some", f"12: {ROW} with-weight: NN is neither a parameter nor an index"),
        ("T: float32}]", "TT: float32}]", f"13: {ROW} plain: TT is no DType index"),
        ("{flops: B * N}", "3", "14: structure: roofline: Expected `object | null`, got `int`"),
    ],
)  # fmt: skip
def test_a_part_that_is_not_read_hides_nothing_else(right: str, wrong: str, expected: str) -> None:
    """A part of the wrong structure is one problem, and a mistake elsewhere is reported besides."""
    assert SHORT.count(right) == 1
    assert lines(SHORT.replace(right, wrong)) == [expected]
    both = lines(SHORT.replace(right, wrong).replace("family: toy", "family: To-y"))
    assert both == ["2: family: 'To-y' is no family", expected]
