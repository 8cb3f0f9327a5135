"""`python -m tileops.manifest`: what its commands print and return."""

from __future__ import annotations

import json

import pytest

from tileops.manifest.__main__ import main


def test_show_prints_the_type(capsys: pytest.CaptureFixture[str]) -> None:
    """`show` prints the signature, the branches, and each case with its cost."""
    assert main(["show", "RMSNormFwdOp"]) == 0
    printed = capsys.readouterr().out
    assert "op(normalized_shape: tuple[int, ...], eps: float | None = None)" in printed
    assert "weight: Tensor[T, [*normalized_shape]] (optional) ->" in printed
    assert "decided by present(weight)" in printed
    assert "llama-8b-prefill-float16: x float16 [2048, 4096], weight float16 [4096]: 0.034 GFLOP, 33.563 MB" in printed


def test_show_refuses_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    """`show` of a misspelled name returns 1 and suggests the nearest."""
    assert main(["show", "RMSNromFwdOp"]) == 1
    assert capsys.readouterr().err == "no op is named 'RMSNromFwdOp'; did you mean 'RMSNormFwdOp'?\n"


def test_validate_finds_nothing_in_the_manifest(capsys: pytest.CaptureFixture[str]) -> None:
    """`validate` finds no problem in the manifests of this tree, and returns 0."""
    status = main(["validate"])
    printed = capsys.readouterr().out
    assert printed.endswith(" entries, no problem\n")
    assert status == 0


def test_validate_prints_json(capsys: pytest.CaptureFixture[str]) -> None:
    """`validate --format json` prints a list of problems."""
    assert main(["validate", "--op", "RMSNormFwdOp", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == []


def test_cases_lists_ids(capsys: pytest.CaptureFixture[str]) -> None:
    """`cases` prints one line per case: the op and the case's id."""
    assert main(["cases", "RMSNormFwdOp"]) == 0
    assert "RMSNormFwdOp-qk-norm-float16" in capsys.readouterr().out.splitlines()
