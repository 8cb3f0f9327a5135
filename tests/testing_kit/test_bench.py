"""The benchmark runner: nothing is timed before it is right, and the numbers follow from the times."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from tileops.elementwise import ReluFwdOp
from tileops_testing.bench import BenchResult, HostTimer, Runner, Timing, measure_overhead
from tileops_testing.bench.__main__ import main
from tileops_testing.bench.overhead import operator_call
from tileops_testing.bench.timing import DeviceActivity, palindrome, seconds_per_call
from tileops_testing.cases import Case
from tileops_testing.errors import CheckFailedError
from tileops_testing.workload_cases import workload_cases

from . import toys

CPU = torch.device("cpu")


class Costed(toys.Doubling):
    """A right toy that knows its traffic."""

    def eval_roofline(self) -> Any:
        return SimpleNamespace(bytes=120, flops=15)


class CostedWrong(Costed, toys.WrongKernel):
    """A wrong one."""


@dataclass
class FixedTimer:
    """A timer whose answers are given."""

    seconds: Mapping[str, float]
    asked: int = 0

    def time(self, functions: Mapping[str, Callable[[], object]]) -> dict[str, Timing]:
        self.asked += 1
        return {name: Timing(self.seconds[name], (self.seconds[name],) * 2) for name in functions}


COPIES = {"copy by copy_": Timing(1e-6, (1e-6,)), "copy by a kernel": Timing(2e-6, (2e-6,))}


def double(x: Tensor) -> Tensor:
    return x * 2


def triple(x: Tensor) -> Tensor:
    return x * 3


def test_numbers_follow_from_the_times() -> None:
    """Rate, share of the fastest copy's rate and ratio to the fastest peer are computed within one run."""
    timer = FixedTimer({"tileops": 2e-6, "slow": 4e-6, "fast": 1e-6, "copy by copy_": 3e-6, "copy by a kernel": 1e-6})
    runner = Runner(Costed(), toys.doubling_case(Costed), device=CPU, timer=timer)
    result = runner.compare({"slow": double, "fast": double})
    own = result["tileops"]
    assert (own.bytes_per_second, own.share_of_copy, own.ratio_to_best_peer) == pytest.approx((60e6, 0.5, 2.0))
    assert result["slow"].ratio_to_best_peer is None
    assert own.worst_error == "15 elements agree"
    assert result.traffic_bytes == 120


class Busy(Costed):
    """A right toy that claims much arithmetic for each byte."""

    def eval_roofline(self) -> Any:
        return SimpleNamespace(bytes=120, flops=4 * 2**30)


def test_an_op_bound_by_arithmetic_is_held_to_a_product_s_rate() -> None:
    """Beside such an op torch's product is timed, and the roofline is the slower of copy and arithmetic at its rate."""
    seconds = {"tileops": 4.0, "copy by copy_": 3e-6, "copy by a kernel": 1e-6}
    timer = FixedTimer({**seconds, "torch's product of large matrices": 1.0})
    result = Runner(Busy(), toys.doubling_case(Busy), device=CPU, timer=timer).compare({})
    assert result.product_rate == 2 * 1024**3
    assert (result.least_seconds, result.share_of_roofline("tileops")) == (2.0, 0.5)
    assert "TFLOP/s" in result.render()
    assert "of roofline" in result.render()


def test_an_op_bound_by_memory_is_held_to_the_copy() -> None:
    """Where an op does little arithmetic for each byte no product is timed, and the copy is the roofline."""
    timer = FixedTimer({"tileops": 2e-6, "copy by copy_": 3e-6, "copy by a kernel": 1e-6})
    result = Runner(Costed(), toys.doubling_case(Costed), device=CPU, timer=timer).compare({})
    assert (result.flops, result.product_rate, result.least_seconds) == (15, 0.0, 1e-6)
    assert result.share_of_roofline("tileops") == result["tileops"].share_of_copy == 0.5


def test_results_without_arithmetic_are_read() -> None:
    """Results that were written before arithmetic was kept have none."""
    found = compared({"tileops": Timing(2e-6, (2e-6,)), **COPIES}).to_dict()
    del found["flops"], found["product_rate"]
    assert BenchResult.from_dict(found).flops == 0


def test_a_wrong_op_is_not_timed() -> None:
    """An op that disagrees with the reference ends the comparison before anything is timed."""
    timer, message = FixedTimer({}), "CostedWrong-toy: tileops: output 0: 1 of 15 elements disagree"
    with pytest.raises(CheckFailedError, match=message):
        Runner(CostedWrong(), toys.doubling_case(CostedWrong), device=CPU, timer=timer).compare({"right": double})
    assert timer.asked == 0


def test_a_wrong_peer_is_timed_and_counts_as_none() -> None:
    """A peer that disagrees with the reference keeps its time, is marked, and is no measure of the op."""
    timer = FixedTimer({"tileops": 2e-6, "wrong": 1e-6, "right": 4e-6, "copy by copy_": 3e-6, "copy by a kernel": 1e-6})
    result = Runner(Costed(), toys.doubling_case(Costed), device=CPU, timer=timer).compare(
        {"wrong": triple, "right": double}
    )
    assert result["tileops"].ratio_to_best_peer == 0.5
    assert (result["wrong"].seconds, result["wrong"].agrees) == (1e-6, False)
    assert result["wrong"].worst_error.startswith("output 0: 15 of 15 elements disagree")
    assert result.best_peer() == result["right"]
    assert BenchResult.from_dict(result.to_dict()) == result


def test_where_every_peer_is_wrong_there_is_none() -> None:
    """An op whose only peer disagrees has no ratio."""
    timer = FixedTimer({"tileops": 2e-6, "wrong": 1e-6, "copy by copy_": 3e-6, "copy by a kernel": 1e-6})
    result = Runner(Costed(), toys.doubling_case(Costed), device=CPU, timer=timer).compare({"wrong": triple})
    assert (result["tileops"].ratio_to_best_peer, result.best_peer()) == (None, None)


def test_order_is_a_palindrome() -> None:
    """Functions are timed forwards and then backwards."""
    order: list[str] = []
    functions = {name: (lambda name=name: order.append(name)) for name in "abc"}
    HostTimer(sample_seconds=0.0, samples=1).time(functions)
    assert order[-6:] == list("abccba")
    assert palindrome(["a", "b", "c"]) == list("abccba")


def test_spread_is_between_the_two_passes() -> None:
    """The spread compares the first pass with the second."""
    assert Timing(2.0, (2.0, 2.0, 3.0, 3.0)).spread == pytest.approx(0.5)
    assert Timing(2.0, (2.0, 2.0)).spread == 0.0


@pytest.mark.parametrize(("second", "marked"), [(2.0e-6, False), (2.6e-6, True)])
def test_ratio_within_the_spread_is_marked_as_noise(second: float, marked: bool) -> None:
    """A ratio to the best peer that differs from one by less than the spread of either is called noise."""
    own, peer = Timing(2e-6, (2e-6, second)), Timing(2.4e-6, (2.4e-6, 2.4e-6))
    result = compared({"tileops": own, "peer": peer, **COPIES})
    assert ("0.83 (noise)" in result.render()) == marked


@pytest.mark.parametrize(("load", "marked"), [(0.4, False), (3.0, True)])
def test_host_times_of_a_busy_machine_are_no_measurement(
    load: float, marked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The load is kept with the result, and a table of host times on a busy machine says what it is worth."""
    monkeypatch.setattr("tileops_testing.bench.runner.host_load", lambda: load)
    result = compared({"tileops": Timing(2e-6, (2e-6,)), **COPIES})
    assert result.load == load
    assert ("NOT A MEASUREMENT: 3.0 processes waited for each processor" in result.render()) == marked


def compared(timings: dict[str, Timing]) -> BenchResult:
    class Given:
        def time(self, functions: Mapping[str, Callable[[], object]]) -> dict[str, Timing]:
            return timings

    peers = {name: double for name in timings if name not in {"tileops", *COPIES}}
    return Runner(Costed(), toys.doubling_case(Costed), device=CPU, timer=Given()).compare(peers)


def test_device_time_is_what_runs_between_flushes() -> None:
    """Kernels between one flush and the next are one call; flush kernels are left out by name, copies count."""
    flush = DeviceActivity("fill", 0, 9.0)
    ran = [DeviceActivity("early", 0, 5.0), flush, DeviceActivity("a", 1, 1.0), DeviceActivity("Memcpy DtoD", 2, 2.0)]
    ran += [flush, DeviceActivity("a", 4, 4.0), flush]
    assert seconds_per_call(ran, frozenset({"fill"})) == [3.0, 4.0, 0.0]


def test_result_survives_json() -> None:
    """A result read back from JSON is the result that was written."""
    timer = FixedTimer({"tileops": 2e-6, "copy by copy_": 1e-6, "copy by a kernel": 1e-6})
    result = Runner(Costed(), toys.doubling_case(Costed), device=CPU, timer=timer).compare({})
    assert BenchResult.from_dict(json.loads(json.dumps(result.to_dict()))) == result
    assert "of copy" in result.render()


def test_overhead_names_every_part() -> None:
    """Each function gets its own host time; the operator behind the op can be called alone."""
    op, case = toys.Doubling(), toys.doubling_case(toys.Doubling)
    (x,) = case.tensors(CPU)
    operator = operator_call(op, (x,))
    assert x is not None
    assert torch.equal(operator(), 2 * x)  # type: ignore[arg-type]
    found = measure_overhead(case, {"op": lambda: op(x), "operator": operator}, CPU, calls=2, rounds=2)
    assert found.microseconds.keys() == {"op", "operator"}
    assert min(found.microseconds.values()) > 0


@pytest.mark.op("RMSNormFwdOp")
@pytest.mark.parametrize("mode", [[], ["--overhead"]], ids=["device-time", "overhead"])
def test_command(
    mode: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command measures the chosen case, prints its table, and writes JSON that names device and versions."""
    monkeypatch.setattr("tileops_testing.matrix._commit", lambda root: "a commit")
    arguments = ["RMSNormFwdOp", "--device", "cpu", "--case", "llama-8b-decode-float32", "--output", str(tmp_path)]
    assert main([*arguments, *mode]) == 0
    (file,) = tmp_path.iterdir()
    found = json.loads(file.read_text())
    assert (found["device"], found["versions"]["torch"]) == ("cpu", torch.__version__)
    (result,) = found["results"]
    assert result["case"] == "llama-8b-decode-float32"
    names = result["microseconds"] if mode else [measurement["name"] for measurement in result["measurements"]]
    assert {"tileops", "torch", "inductor"} <= set(names)
    assert "llama-8b-decode-float32 on cpu" in capsys.readouterr().out
    assert main([*arguments, *mode, "--resume"]) == 0
    assert "us" not in capsys.readouterr().out
    monkeypatch.setattr("tileops_testing.matrix.sources_digest", lambda: "after an edit")
    assert main([*arguments, *mode, "--resume"]) == 0
    assert "llama-8b-decode-float32 on cpu" in capsys.readouterr().out
    assert json.loads(file.read_text())["sources"] == "after an edit"


WRITABLE = "expected a folder to write to, received"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RMSNorm"], "op: expected one of the manifest, received RMSNorm; did you mean RMSNormFwdOp, "),
        (
            ["GQAPagedFwdOp"],
            "op: expected an implemented one, received GQAPagedFwdOp, which the manifest only specifies",
        ),
        (["--family", "nrom"], "family: expected one of the manifest, received nrom; did you mean norm, "),
        (["--device", "gpu"], "--device: expected a device as torch names them, received gpu; write one such as cpu "),
        (["--device", "cuda:99"], "--device: expected a CUDA device of this machine, on which torch finds "),
        (["--device", "meta"], "--device: expected a device whose tensors hold values, received meta; write one such"),
        (["--target", "rival"], "bench: target: expected one of ['builtin', 'reference'], received 'rival'; install "),
        (["ReluFwdOp", "--output", __file__], f"--output: {WRITABLE} {__file__}: File exists; name another"),
        (
            ["ReluFwdOp", "--output", f"{__file__}/a"],
            f"--output: {WRITABLE} {__file__}/a: Not a directory; name another",
        ),
    ],
)
def test_command_refuses_what_it_cannot_measure(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """What does not exist ends the command with status 2 before anything is measured, in a line with the mend."""
    assert main(arguments) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--ahead", "x"], "argument --ahead: expected a number of processes, received x; pass one such as 4"),
        (["--ahead=-1"], "argument --ahead: expected a number of processes, received -1; pass one such as 4"),
        (["--builds", "--overhead"], "argument --overhead: not allowed with argument --builds"),
        (
            ["compare", "a", "b", "--threshold", "x"],
            "argument --threshold: expected a finite share of at least 0, received x; pass one such as 0.03",
        ),
    ],
)
def test_command_refuses_words_that_are_no_value(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A word that is no value of its option ends the command with the usage and what is expected."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_each_row_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """`--first-dtype` measures a row in the first of its dtype cases alone."""
    arguments = ["RMSNormFwdOp", "--device", "cpu", "--first-dtype", "--case", "qk-norm", "--output", str(tmp_path)]

    assert main(arguments) == 0
    (path,) = tmp_path.iterdir()
    assert [result["case"] for result in json.loads(path.read_text())["results"]] == ["qk-norm-float16"]
    capsys.readouterr()


def test_a_case_that_no_label_contains_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing to measure is a mistake in the command, which lists the labels."""
    assert main(["SoftmaxFwdOp", "--device", "cpu", "--case", "decode"]) == 2
    error = capsys.readouterr().err
    assert error.startswith(
        "--case: expected a part of a label, received decode, which none contains; take one of attention-4096-"
    )
    assert "lm-head" in error


class Tripled:
    """An op whose results are three times what they should be."""

    def __init__(self, op: Any) -> None:
        self._op = op

    def __call__(self, *inputs: Tensor) -> Tensor:
        result: Tensor = 3 * self._op(*inputs)
        return result

    def eval_roofline(self) -> Any:
        return self._op.eval_roofline()


def test_a_case_that_is_wrong_ends_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is said at the end, the others are measured, and the command fails."""
    case_of = Case.construct

    def construct(case: Case, target: str | None) -> Any:
        op = case_of(case, target)
        return Tripled(op) if "bfloat16" in case.label else op

    monkeypatch.setattr(Case, "construct", construct)
    arguments = ["RMSNormFwdOp", "--device", "cpu", "--case", "8b-decode", "--output", str(tmp_path)]

    assert main(arguments) == 1
    (path,) = tmp_path.iterdir()
    assert [result["case"] for result in json.loads(path.read_text())["results"]] == [
        "llama-8b-decode-float16",
        "llama-8b-decode-float32",
    ]
    assert "not measured: RMSNormFwdOp-llama-8b-decode-bfloat16: tileops: output 0: " in capsys.readouterr().err


def test_compiling_ahead_says_what_went_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every case is named once, in whatever order, and one that could not run with its error; measuring goes on."""
    arguments = ["ReluFwdOp", "--device", "cpu", "--ahead", "1", "--first-dtype", "--output", str(tmp_path)]

    assert main(arguments) == 0
    lines = capsys.readouterr().err.splitlines()
    count = len({case.row for case in workload_cases(ReluFwdOp)})
    compiled, measured = lines[:count], lines[count:]
    assert [line.partition(": ")[0] for line in compiled] == [
        f"compiled ahead {n + 1} of {count}" for n in range(count)
    ]
    assert [line.partition(": ")[0] for line in measured] == [f"measuring {n + 1} of {count}" for n in range(count)]
    assert all(line.partition(": ")[2].startswith("ReluFwdOp-") for line in lines)


def test_cold_builds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """First calls are timed with an empty cache folder; one whose program stands, for other rows, builds nothing."""
    arguments = ["RMSNormFwdOp", "--device", "cpu", "--builds", "--case", "llama-8b", "--output", str(tmp_path)]

    assert main(arguments) == 0
    (path,) = tmp_path.iterdir()
    (result,) = json.loads(path.read_text())["results"]
    assert list(result["seconds"]) == [
        "llama-8b-prefill-float16",
        "llama-8b-prefill-bfloat16",
        "llama-8b-prefill-bfloat16-float32",
        "llama-8b-decode-float32",
    ]
    assert all(0.02 < seconds < 60 for seconds in result["seconds"].values())
    assert "cold builds of RMSNormFwdOp on cpu" in capsys.readouterr().out
