"""Comparing two files of results: what counts as slower, what is not compared, and the command's exit status."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.docs.pages import ROOT
from tileops_testing.bench import compare_files
from tileops_testing.bench.__main__ import main
from tileops_testing.errors import ResultsError

H200 = {"device": "cuda", "device_name": "NVIDIA H200", "versions": {"torch": "2.11.0"}, "commit": "0123"}


def result(seconds: float, *, spread: float = 0.0, copy: float = 1e-6, **changed: Any) -> dict[str, Any]:
    """Return one case's result as the benchmark writes it."""
    measured = {"bytes_per_second": 1.0, "share_of_copy": 1.0, "ratio_to_best_peer": None, "worst_error": ""}
    own = {"name": "tileops", "seconds": seconds, "spread": spread, **measured}
    of_copy = {"name": "copy", "seconds": copy, "spread": 0.0, **measured}
    told = {"op": "RMSNormFwdOp", "case": "a", "device": "cuda", "threads": 2, "traffic_bytes": 8, "load": 0.1}
    return {**told, "measurements": [own, of_copy], **changed}


def write(folder: Path, name: str, *results: dict[str, Any], **facts: Any) -> Path:
    """Write a file of results."""
    path = folder / name
    path.write_text(json.dumps({**H200, **facts, "results": list(results)}))
    return path


@pytest.mark.parametrize(
    ("before", "after", "spreads", "outcome"),
    [
        (10e-6, 10.2e-6, (0.0, 0.0), "same"),
        (10e-6, 10.4e-6, (0.0, 0.0), "slower"),
        (10e-6, 10.4e-6, (0.02, 0.0), "same"),
        (10e-6, 10.4e-6, (0.0, 0.02), "same"),
        (10e-6, 10.6e-6, (0.01, 0.01), "slower"),
        (10e-6, 9.0e-6, (0.0, 0.0), "faster"),
        (10e-6, 9.8e-6, (0.0, 0.0), "same"),
    ],
)
def test_slower_means_beyond_the_spread_and_the_threshold(
    before: float, after: float, spreads: tuple[float, float], outcome: str, tmp_path: Path
) -> None:
    """A case is slower when its ratio exceeds one by more than both spreads and the threshold of 3 %."""
    first = write(tmp_path, "a.json", result(before, spread=spreads[0]))
    second = write(tmp_path, "b.json", result(after, spread=spreads[1]))
    found = compare_files(first, second)
    (change,) = found.changes
    assert change.outcome(found.threshold) == outcome
    assert (len(found.regressions) == 1) == (outcome == "slower")
    assert change.ratio == pytest.approx(after / before)


def test_the_slowest_stands_first_and_the_copy_beside(tmp_path: Path) -> None:
    """Cases are ordered by how much slower they became; the copy's own ratio tells of the machine."""
    first = write(tmp_path, "a.json", result(1e-6, case="a"), result(1e-6, case="b", copy=2e-6))
    second = write(tmp_path, "b.json", result(1e-6, case="a"), result(2e-6, case="b", copy=3e-6))
    found = compare_files(first, second)
    assert [change.case for change in found.changes] == ["RMSNormFwdOp-b", "RMSNormFwdOp-a"]
    assert found.changes[0].copy == pytest.approx(1.5)


def test_what_cannot_be_compared_is_said(tmp_path: Path) -> None:
    """Cases of one file alone, of a busy host and of other threads are listed with the reason."""
    host = {"device": "cpu", "device_name": "x86_64"}
    first = write(
        tmp_path,
        "a.json",
        *(result(1e-6, case=case, device="cpu") for case in ("gone", "busy", "threads", "fit")),
        **host,
    )
    second = write(
        tmp_path,
        "b.json",
        result(9e-6, case="busy", device="cpu", load=3.0),
        result(9e-6, case="threads", device="cpu", threads=4),
        result(1e-6, case="fit", device="cpu"),
        result(1e-6, case="added", device="cpu"),
        **host,
    )
    found = compare_files(first, second)
    assert [change.case for change in found.changes] == ["RMSNormFwdOp-fit"]
    assert found.notes == (
        f"RMSNormFwdOp-gone: only in {first}",
        f"RMSNormFwdOp-added: only in {second}",
        "RMSNormFwdOp-busy: not compared: the machine was busy: 3.0 processes waited for each processor",
        "RMSNormFwdOp-threads: not compared: measured with 2 and with 4 threads",
    )


def test_devices_have_to_agree(tmp_path: Path) -> None:
    """Results of two devices say nothing of each other."""
    first = write(tmp_path, "a.json", result(1e-6))
    second = write(tmp_path, "b.json", result(1e-6), device_name="NVIDIA A100")
    message = (
        r"^compare: expected results of one device, received NVIDIA H200 \(cuda\) and NVIDIA A100 \(cuda\); "
        r"measure both on the same one$"
    )
    with pytest.raises(ResultsError, match=message):
        compare_files(first, second)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "expected a file of results, received FileNotFoundError"),
        ("{", "expected a file of results, received JSONDecodeError"),
        ("[" * 100_000, "expected a file of results, received RecursionError"),
        ("\udcff", "expected a file of results, received UnicodeDecodeError"),
        ("[]", r"expected an object with results, received \[\]; name one that the benchmark wrote"),
        ("{}", "expected times of calls, received none; name a file that the benchmark wrote without --overhead"),
        ('{"results": [{"op": "A", "microseconds": {}}]}', "expected times of calls, received none"),
    ],
)
def test_a_file_without_times_is_refused(text: str | None, message: str, tmp_path: Path) -> None:
    """A file that is missing, damaged or of another kind is named with what is expected."""
    path = tmp_path / "a.json"
    if text is not None:
        path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(ResultsError, match=rf"^compare: {re.escape(str(path))}: {message}") as failure:
        compare_files(path, path)
    assert "\n" not in str(failure.value)


SECONDS = "a finite number above 0"
AMOUNT = "a finite number of at least 0"


@pytest.mark.parametrize("value", [math.nan, math.inf, -1e-6, 0.0, 10**400, "1e-6", True, None, [1]], ids=repr)
@pytest.mark.parametrize("place", [0, 1], ids=["tileops", "copy"])
def test_times_that_no_clock_gives_are_refused(place: int, value: object, tmp_path: Path) -> None:
    """A time of the op or of the copy that is not a finite number above 0 is named with its place."""
    damaged = result(1e-6, case="b")
    damaged["measurements"][place]["seconds"] = value
    path = write(tmp_path, "a.json", result(1e-6), damaged)
    with pytest.raises(ResultsError) as failure:
        compare_files(write(tmp_path, "whole.json", result(1e-6)), path)
    shown = json.dumps(value) if value != 10**400 else f"1{'0' * 59}..."
    assert str(failure.value) == (
        f"compare: {path}: results[1].measurements[{place}].seconds: expected {SECONDS}, received {shown}; "
        "measure again, or take the result out of the file"
    )


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda file: file.update(results={}), "results: expected a list, received {}"),
        (lambda file: file["results"].append(3), "results[1]: expected an object, received 3"),
        (
            lambda file: file["results"].append(result(1e-6)),
            "results[1]: expected one result of each case, received a ",
        ),
        (lambda file: file.pop("device_name"), "device_name: expected a name, received nothing"),
        (lambda file: file.update(device=3), "device: expected a name, received 3"),
        (lambda file: file["results"][0].pop("op"), "results[0].op: expected a name, received nothing"),
        (lambda file: file["results"][0].update(case="a\nb"), 'results[0].case: expected a name, received "a\\nb"'),
        (lambda file: file["results"][0].update(load=math.nan), f"results[0].load: expected {AMOUNT}, received NaN"),
        (
            lambda file: file["results"][0].update(threads=0),
            "results[0].threads: expected an integer of at least 1, received 0",
        ),
        (
            lambda file: file["results"][0].update(flops=1.5),
            "results[0].flops: expected an integer of at least 0, received 1.5",
        ),
        (
            lambda file: file["results"].append({"op": "A", "microseconds": {}}),
            "results[1].case: expected a name, received nothing",
        ),
        (
            lambda file: file["results"][0].update(measurements=None),
            "results[0].measurements: expected a list, received null",
        ),
        (
            lambda file: file["results"][0]["measurements"].pop(),
            "results[0].measurements: expected tileops and copy, each name once, received tileops;",
        ),
        (
            lambda file: file["results"][0]["measurements"][1].update(name="tileops"),
            "results[0].measurements: expected tileops and copy, each name once, received tileops, tileops;",
        ),
        (
            lambda file: file["results"][0]["measurements"][0].update(spread=-0.1),
            f"results[0].measurements[0].spread: expected {AMOUNT}, received -0.1",
        ),
        (
            lambda file: file["results"][0]["measurements"][1].update(ratio_to_best_peer=math.inf),
            "results[0].measurements[1].ratio_to_best_peer: expected null or a finite number above 0, received ",
        ),
    ],
)
def test_damage_is_named_with_its_place(
    change: Callable[[dict[str, Any]], object], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whatever of a file is missing or wrong gives one line with the place and the mend, and status 2."""
    whole = write(tmp_path, "whole.json", result(1e-6))
    damaged = json.loads(whole.read_text())
    change(damaged)
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(damaged))
    assert main(["compare", str(whole), str(path)]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"compare: {path}: {message}")
    mend = (
        "measure again, or take the result out of the file" if "[" in message else "name one that the benchmark wrote"
    )
    assert line.endswith(f"; {mend}")


@pytest.mark.parametrize("threshold", [math.nan, math.inf, -0.01])
def test_a_threshold_is_a_share(threshold: float, tmp_path: Path) -> None:
    """A threshold that is negative or not finite would call every case the same, or none."""
    path = write(tmp_path, "a.json", result(1e-6))
    with pytest.raises(ResultsError) as failure:
        compare_files(path, path, threshold)
    assert str(failure.value) == (
        f"compare: threshold: expected a finite share of at least 0, received {threshold}; pass one such as 0.03"
    )


def test_times_far_apart_are_compared(tmp_path: Path) -> None:
    """Two times whose ratio no float holds are still slower and faster than each other."""
    short, long = (write(tmp_path, f"{seconds}.json", result(seconds)) for seconds in (1e-300, 1e300))
    (slower,), (faster,) = (compare_files(*pair).changes for pair in ((short, long), (long, short)))
    assert (slower.outcome(0.0), faster.outcome(0.0)) == ("slower", "faster")


@pytest.mark.parametrize("text", ["{", "[]", '{"results": 3}', '{"results": [3]}', '{"results": [{}]}'])
def test_resuming_from_a_damaged_file_is_refused(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What `--resume` would keep is not thrown away because it cannot be read: one line, and status 2."""
    path = tmp_path / "RMSNormFwdOp-cpu.json"
    path.write_text(text)
    monkeypatch.setattr("tileops_testing.bench.__main__.circumstances", lambda *_: {})
    named = ["RMSNormFwdOp", "--device", "cpu", "--case", "llama-8b-decode-float32", "--output", str(tmp_path)]
    assert main([*named, "--resume"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"bench --resume: {path}: expected ")
    assert path.read_text() == text


def test_the_command_fails_on_a_regression(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints a line per case and a summary, and returns 1 when one became slower, else 0."""
    first = str(write(tmp_path, "a.json", result(10e-6, case="a"), result(10e-6, case="b")))
    second = str(write(tmp_path, "b.json", result(12e-6, case="a", spread=0.01), result(10e-6, case="b")))
    assert main(["compare", first, second]) == 1
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "case            before, us  after, us  ratio  spread  copy  outcome",
        "RMSNormFwdOp-a        10.0       12.0   1.20    1.0%  1.00  slower",
        "RMSNormFwdOp-b        10.0       10.0   1.00    0.0%  1.00  same",
        "1 slower, 1 same, 0 faster; slower means by more than 3.0% beyond the spread of both runs",
    ]
    assert main(["compare", first, second, "--threshold", "0.25"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("0 slower, 2 same, 0 faster")


def test_the_command_fails_where_nothing_is_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files that share no case give status 2: nothing was found to be as fast as before."""
    first, second = (str(write(tmp_path, f"{name}.json", result(10e-6, case=name))) for name in ("a", "b"))
    assert main(["compare", first, second]) == 2
    assert capsys.readouterr().out.splitlines()[-1].startswith("0 slower, 0 same, 0 faster")


def test_the_command_refuses_what_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Files that cannot be compared give status 2 and one line."""
    missing = str(tmp_path / "a.json")
    assert main(["compare", missing, missing]) == 2
    assert capsys.readouterr().err.startswith(f"compare: {missing}: expected a file of results")


@pytest.mark.parametrize("name", ["RMSNormFwdOp-cuda.json", "reduction-cpu.json"])
def test_committed_results_are_the_same_as_themselves(name: str) -> None:
    """Every case of a committed file can be compared, and stays what it is."""
    path = ROOT / "docs" / "data" / name
    found = compare_files(path, path)
    cases = len(json.loads(path.read_text())["results"])
    assert (len(found.changes), found.regressions, found.notes) == (cases, (), ())
