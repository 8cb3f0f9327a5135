"""Op pages say an entry's rules in words: every rule of an implemented op, and each form of rule."""

from __future__ import annotations

import pytest
from op_rules import Rules, is_plain
from op_signature import signature_of

from tests.manifest.test_toys import toy
from tileops.manifest import registry
from tileops.manifest.expressions import parse_expression
from tileops.manifest.model import OpEntry
from tileops.moe import MoEPostPermuteFwdOp
from tileops.reduction import VectorNormFwdOp

SIGNATURE = """\
forall: {N: Dim, S: Shape, T: "DType[float16 | float32]"}
params:
  n: {type: int, default: 2}
  m: {type: int, default: 2}
  flag: {type: bool, default: true}
  part: {type: int | None, default: null}
  sizes: {type: "list[int]", default: [1]}
inputs:
  x: {dtype: T, shape: "[N, *S]"}
  b: {dtype: T, shape: "[N]", optional: true}
outputs:
  y: {dtype: T, shape: "[N]"}"""
IMPLEMENTED = [
    entry
    for family in registry.families()
    for entry in registry.default().family(family)
    if entry.status == "implemented"
]


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        ("n >= 1", "`n` is at least 1."),
        ("n > -1", "`n` is more than -1."),
        ("n != 1", "`n` is not 1."),
        ("0 <= n < m", "`n` is at least 0 and less than `m`."),
        ("n >= 1 and m >= 1", "`n` and `m` are at least 1."),
        ("n >= 2 and n % 2 == 0", "`n` is at least 2, and a multiple of 2."),
        ("n == 1 or n == 2 or n == 4", "`n` is 1, 2 or 4."),
        ("n <= m or m >= 2", "`n` is at most `m`, or `m` is at least 2."),
        ("n in (1, 2)", "`n` is 1 or 2."),
        ("n not in (1, 2)", "`n` is neither 1 nor 2."),
        ("N % n == 0", "`N` is a multiple of `n`."),
        ("prod(S) != 1", "`prod(S)` is not 1."),
        ("len(S) >= 1", "`S` has at least 1 axis."),
        ("len(sizes) == 2", "`sizes` has 2 elements."),
        ("all(size > 0 for size in sizes)", "Each element of `sizes` is more than 0."),
        ("-inf < n < inf", "`n` is finite."),
        ("representable(n, float16)", "`n` is a number that float16 holds."),
        ("category(T) == 'float'", "`T` is of floating point."),
        ("not flag or n >= 1", "Where `flag` is `True`, `n` is at least 1."),
        ("flag or present(b)", "Where `flag` is `False`, `b` is passed."),
        ("not present(part) or part.value >= 1", "Where `part` is passed, `part` is at least 1."),
        ("(n == 1) == (m == 1)", "`n` is 1 exactly where `m` is 1."),
        (
            "valid_axes(n, len(S))",
            "Each axis that `n` names is in `S`, counted from the front or the back (0 or -1 where it has none).",
        ),
        ("unique_axes(sizes, len(S))", "`sizes` names no axis twice."),
        ("nonempty_axes(n, S)", "Each axis of `S` that `n` names has elements (every axis, where it names none)."),
    ],
)
def test_each_form_of_rule_has_words(rule: str, words: str) -> None:
    """Bounds, choices, multiples, lengths and conditions are sentences about the names of the signature."""
    assert Rules(toy(SIGNATURE).entry.signature).sentence(parse_expression(rule)) == words


def test_a_form_without_words_has_none() -> None:
    """What there are no words for is left to the caller, also as a part of something."""
    rules = Rules(toy(SIGNATURE).entry.signature)
    assert rules.sentence(parse_expression("n >= 1 or (flag if flag else flag)")) is None
    assert rules.contents(parse_expression("sums_to(n)")) is None


@pytest.mark.parametrize("entry", IMPLEMENTED, ids=lambda entry: entry.name)
def test_every_rule_of_an_implemented_op_has_words(entry: OpEntry) -> None:
    """No rule, condition or invariant of an op that has a page is shown as an expression alone."""
    signature, rules = entry.signature, Rules(entry.signature)
    conditions = [*signature.shape_rules]
    conditions += [tensor.optional for tensor in signature.inputs if not isinstance(tensor.optional, bool)]
    made = [one for found in signature.sums.values() for one in found.constructors]
    conditions += [one.invariant for one in made if one.invariant is not None]
    assert [found.text for found in conditions if rules.sentence(found.tree) is None] == []
    contents = [rule for tensor in signature.inputs for rule in tensor.requires]
    assert [found.text for found in contents if rules.contents(found.tree) is None] == []


def test_the_expression_stands_behind_words_that_simplify_it() -> None:
    """A comparison of names needs no expression beside its words; anything else has it."""
    assert is_plain(parse_expression("C % num_groups == 0"))
    assert not is_plain(parse_expression("not flag or n >= 1"))
    shown = "\n".join(signature_of(registry.default().entry("VectorNormFwdOp"), VectorNormFwdOp))
    assert "- `dim` names no axis twice. {expression}`unique_axes(dim, len(S))`\n" in shown
    assert "- `ord` is 1, 2 or `inf`. {expression}`ord == 1 or ord == 2 or ord == inf`\n" in shown


def test_constructors_of_a_parameter_that_may_be_left_out_are_listed() -> None:
    """The fields of a sum type are told where None is allowed as well, and what holds of them."""
    shown = "\n".join(signature_of(registry.default().entry("MoEPostPermuteFwdOp"), MoEPostPermuteFwdOp))
    assert "- `epilogue` is `RoutingEpilogue(scale: float, weighting: 'weighted' | 'unweighted')` (kind " in shown
    assert "- Of a `RoutingEpilogue`, `scale` is a number that float32 holds, and finite. {expression}`" in shown
    assert "less than `P` where `layout` is a `ContiguousLayout`, else `E * layout.max_m`; no call checks" in shown


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("MaxPool2dFwdOp", "`s_h` is `stride` for the first of two axes, `k_h` where that is `None`. {expression}"),
        ("MaxPool2dFwdOp", "`H_out` is what pooling leaves of `H`. {expression}`pool.out("),
        ("RoPENeoxPositionIdsFwdOp", "`rotated` is `rotary_dim` where `rotary_dim` is passed, else `D`. {expression}"),
        ("MoEPermuteAlignFwdOp", "`P` is `M * K + (num_experts + 1) * (block_size - 1)`.\n"),
        ("MoEPrePermuteFwdOp", "`P` is the number of rows that `layout` takes for `M * K` routed rows. {expression}"),
    ],
)
def test_quantities_that_others_determine_are_defined_in_words(name: str, words: str) -> None:
    """A value for one axis, what pooling leaves and a choice are words; arithmetic is a formula."""
    entry = registry.default().entry(name)
    rules = "\n".join(signature_of(entry, MoEPostPermuteFwdOp))
    assert f"- {words}" in rules
