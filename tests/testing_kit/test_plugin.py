"""The pytest plugin: options, ids, the matrix, what was not run; alone and under xdist."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tileops_testing.catalog  # noqa: F401 - pytester forgets modules first imported within a test, torch does not
from tileops.norm import RMSNormFwdOp
from tileops_testing.matrix import MatrixRow, digest_of, matrix_path, write
from tileops_testing.workload_cases import cases_of

pytest_plugins = ["pytester"]

SUITE = """
import pytest
from tileops_testing.suites import {suite}

@pytest.mark.op_cases("{name}")
def test_suite(op_case, run_suite):
    assert run_suite({suite}(), op_case)

@pytest.mark.op("OtherFwdOp")
def test_of_another_op():
    assert True

def test_of_no_op():
    assert True
"""

BROKEN = """
import pytest
from tests.testing_kit import toys
from tileops_testing.suites import EagerSuite

def test_suite(run_suite):
    run_suite(EagerSuite(), toys.doubling_case(toys.{toy}))
"""


@pytest.fixture(autouse=True)
def root_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


def matrix(pytester: pytest.Pytester, suite: str) -> dict[str, list[dict[str, str]]]:
    found: dict[str, list[dict[str, str]]] = json.loads(
        (pytester.path / "build" / "matrix" / f"{suite}-cpu.json").read_text()
    )
    return found


def run(pytester: pytest.Pytester, text: str, *arguments: str) -> pytest.RunResult:
    pytester.makepyfile(test_it=text)
    return pytester.runpytest_subprocess("--tileops-device", "cpu", "-p", "no:cacheprovider", *arguments)


def test_suite_on_selected_op_under_xdist(pytester: pytest.Pytester) -> None:
    """With --op only that op's tests run, under ids of op, case and suite; workers' rows reach the matrix."""
    text = SUITE.format(suite="EagerSuite", name="eager")
    result = run(pytester, text, "-v", "--op", "RMSNormFwdOp", "-k", "(odd or two-axes) and not float32", "-n", "2")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(
        ["*test_suite?rms_norm-two-axes-bfloat16-eager?*", "eager on cpu*", "written to build*"]
    )
    rows = {row["case"]: row["outcome"] for row in matrix(pytester, "eager")["rows"]}
    assert rows == {"odd-rows-float16": "passed", "two-axes-bfloat16": "passed"}


def test_selection_leaves_out_tests_of_other_ops(pytester: pytest.Pytester) -> None:
    """With --family, tests about other ops and about none are deselected."""
    text = SUITE.format(suite="EagerSuite", name="eager")
    result = run(pytester, text, "--collect-only", "-q", "--family", "norm")
    result.stdout.no_fnmatch_line("*test_of_another_op*")
    result.stdout.no_fnmatch_line("*test_of_no_op*")


def test_cuda_graph_without_cuda_is_reported_as_not_run(pytester: pytest.Pytester) -> None:
    """Without CUDA every op of the graph suite is not run: in the table, in the list of reasons, in the last line."""
    result = run(pytester, SUITE.format(suite="CudaGraphSuite", name="cuda_graph"), "--op", "RMSNormFwdOp")
    assert result.parseoutcomes().keys() == {"skipped", "deselected"}
    result.stdout.fnmatch_lines(
        [
            "cuda_graph on cpu*",
            "*RMSNormFwdOp*all * cases*not run*CUDA graphs need a*",
            "* not run *",
            "* tests: CUDA graphs need a CUDA device, the device is cpu",
            "NOT RUN: cuda_graph: not run for RMSNormFwdOp (CUDA graphs need a CUDA device, the device is cpu)",
        ]
    )
    assert {row["outcome"] for row in matrix(pytester, "cuda_graph")["rows"]} == {"not run"}


def test_failure_is_a_row_with_its_report(pytester: pytest.Pytester) -> None:
    """A wrong op is a failed test and a failed row that holds the whole report."""
    result = run(pytester, BROKEN.format(toy="WrongKernel"))
    result.assert_outcomes(failed=1)
    (row,) = matrix(pytester, "eager")["rows"]
    assert (row["op"], row["case"], row["outcome"]) == ("WrongKernel", "toy", "failed")
    assert "output: output 0: 1 of 15 elements disagree" in row["reason"]


def test_a_compile_failure_is_readable(pytester: pytest.Pytester) -> None:
    """A broken op ends the run with a failure; the table has op, case and first difference, the report the graph."""
    text = BROKEN.replace("EagerSuite()", 'CompileContractSuite(backend="aot_eager")').replace("EagerSuite", "{suite}")
    result = run(pytester, text.format(suite="CompileContractSuite", toy="SecondNode"))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.stdout.fnmatch_lines(
        [
            "E *compile_contract: SecondNode-toy on cpu: 4 of 6 checks failed",
            "E *one node: one call node out of ?'tileops_toys::double'? expected, captured *",
            "E *captured graph:",
            "E *torch.ops.tileops_toys.double.default(*",
            "*SecondNode*toy*failed*2/6*one node: one call node*",
            "checked: cold, one node, equals eager, strides, dynamic, opcheck*",
        ]
    )


def test_parts_of_a_run_are_merged(pytester: pytest.Pytester) -> None:
    """A second run of the same code keeps the rows of the first and replaces those it ran itself."""
    text = SUITE.format(suite="EagerSuite", name="eager")
    others = len(cases_of(RMSNormFwdOp, small=True)) - 1 + 2  # and the two tests of the file that take no case
    for chosen in ("odd", "two-axes"):
        chosen_alone = f"{chosen} and not float32"
        run(pytester, text, "--op", "RMSNormFwdOp", "-k", chosen_alone).assert_outcomes(passed=1, deselected=others)
    assert [row["case"] for row in matrix(pytester, "eager")["rows"]] == ["odd-rows-float16", "two-axes-bfloat16"]


def test_rows_of_other_sources_are_dropped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of sources edited since, and of files that do not say of which they were, do not stay; those of equal do."""

    def cases_after(case: str, sources: str) -> list[str]:
        monkeypatch.setattr("tileops_testing.matrix.sources_digest", lambda: sources)
        path = write(tmp_path, "eager", "cpu", [MatrixRow("eager", "cpu", "SumFwdOp", case, "passed")])
        return [row["case"] for row in json.loads(path.read_text())["rows"]]

    assert cases_after("a", "before") == ["a"]
    assert cases_after("b", "before") == ["a", "b"]
    assert cases_after("c", "after") == ["c"]
    path = matrix_path(tmp_path, "eager", "cpu")
    found = json.loads(path.read_text())
    assert found.pop("sources") == "after"
    path.write_text(json.dumps(found))
    assert cases_after("d", "after") == ["d"]


def test_digest_of_sources(tmp_path: Path) -> None:
    """The digest follows names and contents of sources, through linked folders too, and nothing else."""
    (tmp_path / "package").mkdir()
    (tmp_path / "manifests").mkdir()
    (tmp_path / "package" / "linked").symlink_to(tmp_path / "manifests")
    digests = [digest_of(tmp_path / "package")]
    for name in ("package/a.py", "manifests/b.yaml", "package/c.h"):
        (tmp_path / name).write_text("one")
        digests.append(digest_of(tmp_path / "package"))
        (tmp_path / name).write_text("two")
        digests.append(digest_of(tmp_path / "package"))
    assert len(set(digests)) == 7
    (tmp_path / "package" / "a.pyc").write_text("compiled")
    assert digest_of(tmp_path / "package") == digests[-1]


def test_a_selection_of_nothing_says_what_there_is(pytester: pytest.Pytester) -> None:
    """A run that no test was left for says which options left none, and what they could have chosen."""
    text = SUITE.format(suite="EagerSuite", name="eager")
    result = run(pytester, text, "--op", "RMSNormFwdOp", "-k", "nosuch")
    assert result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    result.stdout.fnmatch_lines(
        [
            "NOTHING RUN: --op 'RMSNormFwdOp' -k 'nosuch' chose no test",
            "* could be chosen, by any part of their names:",
            "*test_suite?rms_norm-llama-8b-prefill-float16-eager?",
        ]
    )


def test_skips_of_any_test_are_listed_with_reasons(pytester: pytest.Pytester) -> None:
    """Every skipped test is listed under its reason."""
    result = run(pytester, "import pytest\n\n@pytest.mark.skip(reason='no moon')\ndef test_it():\n    pass\n")
    result.stdout.fnmatch_lines(["* not run *", "1 tests: no moon", "  test_it.py::test_it"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--op", "RMSNorm"), r"^op: expected one of the manifest, received RMSNorm; did you mean RMSNormFwdOp"),
        (
            ("--op", "GQAPagedFwdOp"),
            "^op: expected an implemented one, received GQAPagedFwdOp, which the manifest only specifies",
        ),
        (("--family", "nrom"), "^family: expected one of the manifest, received nrom; did you mean norm"),
        (
            ("--family", "attention"),
            "^family: expected one with an implemented op, received attention, which has none; choose among ",
        ),
        (
            ("--tileops-device", "cuda:99"),
            r"^--tileops-device: expected a CUDA device of this machine, on which torch finds \d+, received ",
        ),
        (
            ("--tileops-device", "nothing"),
            "^--tileops-device: expected a device as torch names them, received nothing; write one such as cpu ",
        ),
        (
            ("--tileops-device", "meta"),
            "^--tileops-device: expected a device whose tensors hold values, received meta; write one such as cpu ",
        ),
    ],
)
def test_wrong_options_are_usage_errors(pytester: pytest.Pytester, arguments: tuple[str, ...], message: str) -> None:
    """An op, family or device that does not exist ends the run before any test, with the mend."""
    with pytest.raises(pytest.UsageError, match=message):
        pytester.parseconfigure(*arguments)
