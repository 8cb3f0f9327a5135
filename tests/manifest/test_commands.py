"""`python -m tileops.manifest`: what its commands print and return."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tileops.manifest import registry, workloads
from tileops.manifest.__main__ import main
from tileops.manifest.model import Problem


def test_show_prints_the_type(capsys: pytest.CaptureFixture[str]) -> None:
    """`show` prints the signature, the branches, and each case with its cost."""
    assert main(["show", "RMSNormFwdOp"]) == 0
    printed = capsys.readouterr().out
    assert "op(normalized_shape: tuple[int, ...], eps: float | None = None)" in printed
    assert "weight: Tensor[W, [*normalized_shape]] (optional) ->" in printed
    assert "decided by present(weight)" in printed
    assert "llama-8b-prefill-float16: x float16 [2048, 4096], weight float16 [4096]: 0.034 GFLOP, 33.563 MB" in printed


def test_show_prints_what_a_composite_may_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    """Constructor arguments beyond the entry stand with type, default and the docstring's words."""
    assert main(["show", "FusedMoEFwdOp"]) == 0
    assert (
        "  may be given prepare_finalize: PrepareFinalize | None = None, how tokens reach the experts\n"
        "  may be given experts: Experts | None = None, what computes the experts in place of `FusedMoEExpertsFwdOp`\n"
        "  may be given num_experts: int | None = None, E, where it is known\n"
    ) in capsys.readouterr().out
    assert main(["show", "FusedMoESharedExpertFwdOp"]) == 0
    assert (
        "  may be given num_experts: int | None = None, the number of all experts, where it is known\n"
    ) in capsys.readouterr().out
    assert main(["show", "RMSNormFwdOp"]) == 0
    assert "may be given" not in capsys.readouterr().out


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


def test_validate_takes_names(capsys: pytest.CaptureFixture[str]) -> None:
    """`validate` checks the ops that are named, each once, with or without `--op` before them."""
    assert main(["validate", "RMSNormFwdOp"]) == 0
    assert capsys.readouterr().out == "1 entry, no problem\n"
    assert main(["validate", "RMSNormFwdOp", "SumFwdOp", "--op", "RMSNormFwdOp"]) == 0
    assert capsys.readouterr().out == "2 entries, no problem\n"


@pytest.mark.parametrize("arguments", [["RMSNromFwdOp", "Nothing"], ["--op", "RMSNromFwdOp", "--op", "Nothing"]])
def test_validate_refuses_unknown_names(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """`validate` of names that no op has returns 1, names each, and suggests the nearest where one is near."""
    assert main(["validate", *arguments]) == 1
    assert capsys.readouterr().err == (
        "no op is named 'RMSNromFwdOp'; did you mean 'RMSNormFwdOp'?\n"
        "no op is named 'Nothing'; `cases` lists every op\n"
    )


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        ("text", "manifests/toy/a.yaml:2:3: shape: no shape; mend it\n1 problem in 1 entry\n"),
        ("github", "::error file=manifests/toy/a.yaml,line=2,col=3,title=shape::no shape; mend it\n"),
        (
            "json",
            (
                '[\n  {\n    "file": "manifests/toy/a.yaml",\n    "line": 2,\n    "column": 3,\n    "rule": "shape",\n'
                '    "message": "no shape",\n    "mend": "mend it"\n  }\n]\n'
            ),
        ),
    ],
)
def test_problems_are_printed(
    form: str, printed: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A problem is printed as text, as JSON, or as an annotation, and the status is 1."""
    problem = Problem(file="manifests/toy/a.yaml", line=2, column=3, rule="shape", message="no shape", mend="mend it")
    monkeypatch.setattr("tileops.manifest.__main__.validate", lambda *_: [problem])
    assert main(["validate", "--op", "RMSNormFwdOp", "--format", form]) == 1
    assert capsys.readouterr().out == printed


@pytest.mark.parametrize("name", registry.names())
def test_every_entry_can_be_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`show` prints every entry of the manifest, with a cost for each of its cases."""
    assert main(["show", name]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{name} (")
    assert printed.count(" MB") == len(workloads.cases(registry.default().entry(name)))


def test_cases_lists_ids(capsys: pytest.CaptureFixture[str]) -> None:
    """`cases` prints one line per case: the op and the case's id."""
    assert main(["cases", "RMSNormFwdOp"]) == 0
    assert "RMSNormFwdOp-qk-norm-float16" in capsys.readouterr().out.splitlines()


def test_an_annotation_escapes_its_marks(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """What would end an annotation or one of its properties is written as a percent code."""
    problem = Problem(file="a,b:c.yaml", line=1, column=1, rule="shape", message="100%\nof: a, b")
    monkeypatch.setattr("tileops.manifest.__main__.validate", lambda *_: [problem])
    assert main(["validate", "--format", "github"]) == 1
    assert capsys.readouterr().out == "::error file=a%2Cb%3Ac.yaml,line=1,col=1,title=shape::100%25%0Aof: a, b\n"


def test_a_reader_may_stop_reading() -> None:
    """A command whose output is read no further ends without a word."""
    command = [sys.executable, "-m", "tileops.manifest", "show", "RMSNormFwdOp"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        status = process.wait()
    assert (said, status) == (b"", 0)
