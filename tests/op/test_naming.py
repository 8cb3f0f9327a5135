"""Operator names: one rule, pinned for every op name that is known in this field."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tileops.op.naming import operator_name, snake

with Path(__file__).with_name("operator_names.tsv").open(encoding="utf-8") as table:
    NAMES = [(row["family"], row["op"], row["operator"]) for row in csv.DictReader(table, delimiter="\t")]


def test_every_known_op_is_pinned() -> None:
    """The table holds 205 ops, and no two share an operator."""
    assert len(NAMES) == 205
    assert len({operator for _, _, operator in NAMES}) == 205


@pytest.mark.parametrize(("family", "op", "operator"), NAMES, ids=[op for _, op, _ in NAMES])
def test_the_operator_of_an_op_keeps_its_name(family: str, op: str, operator: str) -> None:
    """A change of the rule may rename no operator: names are in compiled and exported graphs."""
    assert operator_name(family, op) == operator


@pytest.mark.parametrize(
    ("class_name", "expected"),
    [
        ("RMSNormFwdOp", "rms_norm_fwd"),
        ("MaxPool2dFwdOp", "max_pool2d_fwd"),
        ("MoEGroupedGemmFwdOp", "moe_grouped_gemm_fwd"),
        ("RoPELlama31FwdOp", "rope_llama31_fwd"),
        ("YaRNFwdOp", "yarn_fwd"),
        ("FFTC2CFwdOp", "fft_c2c_fwd"),
    ],
)
def test_words_are_split_and_acronyms_kept_whole(class_name: str, expected: str) -> None:
    """`Op` is dropped, words are split, acronyms and dimensions stay one word."""
    assert snake(class_name) == expected


def test_the_suffix_of_an_effect_branch_comes_last() -> None:
    """What a branch writes or leaves out is appended to the name."""
    assert operator_name("elementwise", "ReluFwdOp", "_writes_x") == "elementwise_relu_fwd_writes_x"
