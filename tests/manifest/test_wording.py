"""What errors say of a refinement that does not hold: words for the common forms, else the refinement itself."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from tests.manifest.test_toys import called, toy
from tileops.errors import ParameterError, RuleError

SIGNATURE = """\
forall: {{N: Dim, M: Dim, S: Shape}}
params:
  n: {{type: int, default: 2}}
  f: {{type: float, default: 1.0}}
  word: {{type: "'a' | 'b' | 'c'", default: a}}
  sizes: {{type: "list[int]", default: [1]}}
let:
  twice: 2 * n
  half: N // 2
inputs:
  x: {{dtype: float32, shape: '[N, M]'}}
  s: {{dtype: float32, shape: '[*S, 3]'}}
  b: {{dtype: float32, shape: '[M]', optional: true}}
outputs:
  y: {{dtype: float32, shape: '[N]'}}
shape_rules:
  - {rule}"""


def said(rule: str, *shapes: Sequence[int], **parameters: object) -> str:
    """Return what the error of one rule says after the op's name, for tensors of these shapes."""
    given = {"n": 2, "f": 1.0, "word": "a", "sizes": [1], **parameters}
    tensors = [torch.empty(shape) for shape in ((4, 6), (5, 3))]
    for place, shape in enumerate(shapes):
        tensors[place : place + 1] = [torch.empty(shape)]
    with pytest.raises((ParameterError, RuleError)) as failure:
        called(toy(SIGNATURE.format(rule=rule)), *tensors, *[None] * (3 - len(tensors)), **given)
    return str(failure.value).removeprefix("ToyFwdOp: ")


@pytest.mark.parametrize(
    ("rule", "parameters", "message"),
    [
        ("n >= 3", {}, "n: expected at least 3, received 2; pass n of at least 3"),
        ("3 <= n", {}, "n: expected at least 3, received 2; pass n of at least 3"),
        ("n > 2", {}, "n: expected more than 2, received 2; pass n of more than 2"),
        ("n <= 1", {}, "n: expected at most 1, received 2; pass n of at most 1"),
        ("n < 2", {}, "n: expected less than 2, received 2; pass n of less than 2"),
        ("3 <= n < 9", {}, "n: expected 3 to 8, received 2; pass n of 3 to 8"),
        ("9 > n > 2", {}, "n: expected 3 to 8, received 2; pass n of 3 to 8"),
        ("0.5 < f < 1", {}, "f: expected more than 0.5 and less than 1, received 1.0; pass f of more than 0.5 and"),
        ("n >= 1 and f > 1", {}, "f: expected more than 1, received 1.0; pass f of more than 1"),
        (
            "len(sizes) >= 2",
            {},
            "sizes: expected at least 2 elements, received (1,); pass sizes of at least 2 elements",
        ),
        ("len(sizes) >= 1", {"sizes": []}, "sizes: expected at least 1 element, received (); pass sizes of at least"),
        ("n == 3 or n == 4", {}, "n: expected 3 or 4, received 2; pass one of these"),
        ("word == 'b'", {}, "word: expected 'b', received 'a'; pass 'b'"),
        ("n % 4 == 0", {}, "n: expected a multiple of 4, received 2; pass a multiple of 4"),
        ("-inf < f < inf", {"f": float("nan")}, "f: expected a finite number, received nan; pass a finite number"),
        (
            "representable(f, float16)",
            {"f": 1e6},
            "f: expected a number that float16 holds, received 1000000.0; pass a number that float16 holds",
        ),
    ],
)
def test_refinements_of_parameters(rule: str, parameters: dict[str, object], message: str) -> None:
    """Ranges, lengths, choices and multiples are said in words; of several refinements the one that is broken."""
    assert said(rule, **parameters).startswith(message)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("n > N", "n: expected more than 4 for N=4 (axis 0 of x), received 2; pass n of more than 4"),
        ("N <= n <= M", "n: expected 4 to 6 for M=6 (axis 1 of x), N=4 (axis 0 of x), received 2; pass n of 4 to 6"),
        ("(N + 1) % n == 0", "n: expected a divisor of 5 for N=4 (axis 0 of x), received 2; pass a divisor of 5"),
        ("N % 3 == 0", "x: expected a multiple of 3 as axis 0, received 4; pass x whose axis 0 is a multiple of 3"),
    ],
)
def test_refinements_of_calls(rule: str, message: str) -> None:
    """What an index is of which tensor is said beside its value."""
    assert said(rule) == message


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("twice > 4", "n: expected more than 4 as twice for n=2, received 4; pass another n"),
        ("half > 4", "x: expected more than 4 as half for N=4 (axis 0 of x), received 2; pass x of other extents"),
        ("prod(S) == 0", "s: expected 0 as prod(S) for S=[5] (axes of s), received 5; pass s of other extents"),
        (
            "M <= n <= N",
            (
                "n: expected at least 6 and at most 4 for M=6 (axis 1 of x), N=4 (axis 0 of x), received 2; "
                "pass x of another size"
            ),
        ),
    ],
)
def test_refinements_of_what_follows_from_arguments(rule: str, message: str) -> None:
    """A quantity is named as the entry names it, with the arguments behind it; so are bounds that leave nothing."""
    assert said(rule) == message


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("n != 2", "n: expected another value than 2, received 2; pass another n"),
        ("not n == 2", "n: expected another value than 2, received 2; pass another n"),
        ("present(b)", "b: expected a Tensor, received None; pass b"),
        ("n == 3 or f == 2", "n: expected 3 for f=1.0, received 2; pass 3, or pass f=2"),
        ("n == 3 or f > 2", "f: expected more than 2 for n=2, received 1.0; pass f of more than 2, or pass n=3"),
        ("not (n == 2 and f == 1)", "n: expected another value than 2 for f=1.0, received 2; pass another n, or pass"),
        ("(n == 3) == (word == 'a')", "n: expected 3 for word='a', received 2; pass 3"),
        ("(n == 2) == (word == 'b')", "n: expected another value than 2 for word='a', received 2; pass another n"),
        (
            "all(k > 1 for k in sizes)",
            "sizes: expected elements to be more than 1, received (1,); pass sizes whose elements are more than 1",
        ),
        ("len(S) == 2", "s: expected 2 as len(S) for S=[5] (axes of s), received 1; pass s of other extents"),
    ],
)
def test_alternatives_and_negations(rule: str, message: str) -> None:
    """The alternative that says most of its argument is what was expected; the others stand behind its mend."""
    assert said(rule).startswith(message)


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("n in (3, 4)", "n: expected n in (3, 4), received n=2; pass n for which it holds"),
        ("min(sizes) > 1", "sizes: expected more than 1 as min(sizes) for sizes=(1,), received 1; pass another sizes"),
    ],
)
def test_other_refinements_stand_as_they_are_written(rule: str, message: str) -> None:
    """With every value that they read, and the parameter behind a quantity that follows from it."""
    assert said(rule).startswith(message)


def test_a_refinement_of_an_optional_input_names_it() -> None:
    """What holds only with a tensor says so, and that the tensor may stay away."""
    rule = "not present(b) or word == 'b'"
    plan = toy(SIGNATURE.format(rule=rule))
    given = {"n": 2, "f": 1.0, "word": "a", "sizes": [1]}
    called(plan, torch.empty(4, 6), torch.empty(3), None, **given)
    with pytest.raises(RuleError) as failure:
        called(plan, torch.empty(4, 6), torch.empty(3), torch.empty(6), **given)
    assert str(failure.value) == "ToyFwdOp: word: expected 'b' with b, received 'a'; pass 'b', or leave b out"
