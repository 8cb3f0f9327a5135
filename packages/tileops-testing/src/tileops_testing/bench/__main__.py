"""``python -m tileops_testing.bench RMSNormFwdOp``: measure ops against their peers and a copy, and write JSON.

``compare OLD NEW`` in place of op names compares two such files and fails where a case became slower.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import torch

from tileops.backend.process import PROCESS
from tileops.errors import UnknownTargetError
from tileops.op.base import Op
from tileops_testing.bench import comparing
from tileops_testing.bench.ahead import compile_ahead
from tileops_testing.bench.builds import measure_builds
from tileops_testing.bench.overhead import Overhead, measure_overhead, operator_call
from tileops_testing.bench.peers import NO_PEERS, Peers, peers_for
from tileops_testing.bench.reading import read_object
from tileops_testing.bench.report import BenchResult
from tileops_testing.bench.runner import OWN_NAME, BenchOp, Runner
from tileops_testing.cases import Case
from tileops_testing.catalog import family_of, implemented_ops
from tileops_testing.devices import named_device
from tileops_testing.errors import CheckFailedError, KitError, ResultsError, SelectionError
from tileops_testing.matrix import circumstances
from tileops_testing.workload_cases import cases_of, workload_cases

_HOST_BYTES = 1 << 30
"""On CPU, a case whose inputs are larger than this is left out, with a line that says so."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words[:1] == ["compare"]:
        return comparing.main(words[1:])
    try:
        return _run(_parser().parse_args(words))
    except (KitError, UnknownTargetError) as error:
        print(error, file=sys.stderr)
        return 2


def _run(options: argparse.Namespace) -> int:
    """Measure what the options choose."""
    device = named_device("--device", options.device)
    ops = implemented_ops(options.ops, options.family)
    if options.target is not None:
        PROCESS.load().require_target("bench", options.target)
    chosen = {op.__name__: _chosen(op, device, options) for op in ops}
    if options.case and not any(chosen.values()):
        labels = ", ".join(dict.fromkeys(case.label for op in ops for case in workload_cases(op)))
        raise SelectionError(
            f"--case: expected a part of a label, received {options.case}, which none contains; take one of {labels}"
        )
    _make(options.output)
    if options.builds:
        for name, cases in chosen.items():
            _keep_builds(name, cases, device, options)
        return 0
    if options.ahead:
        everything = [case for cases in chosen.values() for case in cases]
        compiled = compile_ahead(everything, device, options.target, options.ahead)
        for number, (done, problem) in enumerate(compiled, start=1):
            _say(f"compiled ahead {number} of {len(everything)}: {done}{problem and f': {problem}'}")
    failed = [problem for name, cases in chosen.items() for problem in _measure(name, cases, device, options)]
    for problem in failed:
        print(f"not measured: {problem}", file=sys.stderr)
    return 1 if failed else 0


def _make(folder: Path) -> None:
    """Make the folder of the results, before anything is measured for it."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ResultsError(
            f"--output: expected a folder to write to, received {folder}: {error.strerror}; name another"
        ) from None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tileops_testing.bench", description=__doc__)
    parser.add_argument("ops", nargs="*", metavar="OP", help="op classes; all implemented ones when none is named")
    parser.add_argument("--family", action="append", default=[], help="every op of a family (repeatable)")
    parser.add_argument("--device", help="cpu, cuda, cuda:1; cuda where there is one, else cpu")
    parser.add_argument("--case", default="", metavar="TEXT", help="only cases whose label contains TEXT")
    parser.add_argument("--first-dtype", action="store_true", help="each row in the first of its dtype cases only")
    parser.add_argument(
        "--ahead", type=_processes, default=0, metavar="N", help="compile everything in N processes before measuring"
    )
    parser.add_argument("--target", help="construct every op with this target")
    alone = parser.add_mutually_exclusive_group()
    alone.add_argument("--overhead", action="store_true", help="measure the host time per call only")
    alone.add_argument("--builds", action="store_true", help="measure cold builds only: first calls, with no cache")
    parser.add_argument("--extra", action="store_true", help="the kit's further shapes too, not workload rows alone")
    parser.add_argument(
        "--resume", action="store_true", help="keep results of the same sources and device, measure the rest"
    )
    parser.add_argument("--output", type=Path, default=Path("build/bench"), help="folder of the JSON files")
    return parser


def _processes(text: str) -> int:
    """The number of processes that a word of the command line is."""
    if not (text.isdecimal() and int(text)):
        raise argparse.ArgumentTypeError(f"expected a number of processes, received {text}; pass one such as 4")
    return int(text)


def _chosen(op: type[Op], device: torch.device, options: argparse.Namespace) -> list[Case]:
    """The cases to measure; one that is too large for a CPU is left out, and said to be."""
    found: dict[str, Case] = {}
    for case in cases_of(op, small=False) if options.extra else workload_cases(op):
        if options.case not in case.label:
            continue
        if device.type == "cpu" and _input_bytes(case) > _HOST_BYTES:
            print(f"{case.id}: not run: its inputs take more than {_HOST_BYTES >> 30} GiB")
            continue
        found.setdefault(case.row if options.first_dtype else case.label, case)
    return list(found.values())


def _measure(name: str, cases: Sequence[Case], device: torch.device, options: argparse.Namespace) -> list[str]:
    """Measure the cases of one op, keeping the results after each; return why cases have none."""
    peers = peers_for(name, family_of(name)) or NO_PEERS
    path = options.output / f"{name}-{'overhead-' if options.overhead else ''}{device}.json"
    facts = circumstances(str(device), Path.cwd())
    done = _earlier(path, facts) if options.resume else {}
    measure = _host_overhead if options.overhead else _compare
    failed: list[str] = []
    for number, case in enumerate(cases, start=1):
        if case.label in done:
            continue
        _say(f"measuring {number} of {len(cases)}: {case.id}")
        try:
            result = measure(case, peers, device, options.target)
        except (CheckFailedError, KitError) as error:
            failed.append(str(error))
            continue
        print(result.render())
        done[case.label] = result.to_dict()
        path.write_text(json.dumps({**facts, "results": list(done.values())}, indent=1) + "\n", encoding="utf-8")
    if done:
        print(f"written to {path}")
    return failed


def _keep_builds(name: str, cases: Sequence[Case], device: torch.device, options: argparse.Namespace) -> None:
    """Measure the cold builds of one op."""
    if not cases:
        return
    _say(f"building for {len(cases)} cases of {name} with an empty cache")
    result = measure_builds(cases, device, options.target)
    print(result.render())
    path = options.output / f"{name}-builds-{device}.json"
    facts = circumstances(str(device), Path.cwd())
    path.write_text(json.dumps({**facts, "results": [result.to_dict()]}, indent=1) + "\n", encoding="utf-8")
    print(f"written to {path}")


def _say(progress: str) -> None:
    """Say how far the command is, beside its results; nothing moves on the screen while something is timed."""
    print(progress, file=sys.stderr, flush=True)


def _compare(case: Case, peers: Peers, device: torch.device, target: str | None) -> BenchResult:
    op = cast("BenchOp", case.construct(target))
    return Runner(op, case, device=device).compare(peers.available(case, device))


def _host_overhead(case: Case, peers: Peers, device: torch.device, target: str | None) -> Overhead:
    op, inputs = case.construct(target), case.tensors(device)
    op(*inputs)
    functions = {OWN_NAME: lambda: op(*inputs), "operator alone": operator_call(op, inputs)}
    functions |= peers.parts(op, inputs)
    for name, implementation in peers.available(case, device).items():
        functions[name] = lambda implementation=implementation: implementation(*inputs)  # type: ignore[misc]
    return measure_overhead(case, functions, device)


def _earlier(path: Path, facts: dict[str, Any]) -> dict[str, dict[str, Any]]:
    if not path.is_file():
        return {}
    found = read_object(path, "bench --resume")
    if any(found.get(name) != value for name, value in facts.items()):
        return {}
    results = found.get("results")
    if not isinstance(results, list) or not all(isinstance(each, dict) and "case" in each for each in results):
        raise ResultsError(
            f"bench --resume: {path}: expected a list of results, each with its case, received something else; remove "
            "the file, or leave --resume out"
        )
    return {result["case"]: result for result in results}


def _input_bytes(case: Case) -> int:
    total = 0
    for spec in case.inputs(case.sizes).values():
        if spec is not None:
            elements = 1
            for axis in spec.shape:
                elements *= axis
            total += elements * spec.dtype.itemsize
    return total


if __name__ == "__main__":
    sys.exit(main())
