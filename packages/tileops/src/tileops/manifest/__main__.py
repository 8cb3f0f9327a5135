"""`python -m tileops.manifest`: show an entry, validate the manifest, list cases, rewrite the type of op names."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tileops.manifest import registry, showing, workloads
from tileops.manifest.reading import counted
from tileops.manifest.validate import validate
from tileops_kernels.errors import TileOPsError

if TYPE_CHECKING:
    from tileops.manifest.model import Problem


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tileops.manifest", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    show = commands.add_parser("show", help="print an entry as its type, its operators, its workloads and their cost")
    show.add_argument("op", help="the op class's name")
    check = commands.add_parser("validate", help="check every entry, or those named, and report every problem")
    check.add_argument("ops", nargs="*", metavar="op", help="the op classes' names; all when none is given")
    check.add_argument("--op", action="append", default=[], help="check this op too; may be repeated")
    check.add_argument("--format", choices=("text", "json", "github"), default="text", help="how problems are printed")
    listed = commands.add_parser("cases", help="list the cases of the workload rows")
    listed.add_argument("op", nargs="*", help="the op classes' names; all when none is given")
    commands.add_parser("names", help="rewrite the Literal type of op names")
    chosen = parser.parse_args(arguments)
    try:
        status = _run(chosen)
        sys.stdout.flush()
    except TileOPsError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def _run(chosen: argparse.Namespace) -> int:
    match chosen.command:
        case "show":
            print(showing.describe(registry.default().entry(chosen.op)))
        case "cases":
            for name in chosen.op or registry.names():
                for case in workloads.cases(registry.default().entry(name)):
                    print(f"{name}-{case.id}")
        case "names":
            Path(showing.names_file()).write_text(showing.names_module(registry.names()), encoding="utf-8")
        case _:
            return _validate(chosen)
    return 0


def _validate(chosen: argparse.Namespace) -> int:
    wanted = list(dict.fromkeys([*chosen.ops, *chosen.op]))
    unknown = [name for name in wanted if name not in registry.names()]
    for name in unknown:
        near = difflib.get_close_matches(name, registry.names(), n=1)
        mend = f"did you mean {near[0]!r}?" if near else "`cases` lists every op"
        print(f"no op is named {name!r}; {mend}", file=sys.stderr)
    if unknown:
        return 1
    problems = validate(registry.default(), wanted)
    print(_formatted(problems, chosen.format, len(wanted) or len(registry.names())))
    return 1 if problems else 0


def _escaped(text: str, special: str = "") -> str:
    """Return the text as an annotation writes it: what would end it, or a property of it, as a percent code."""
    return "".join(f"%{ord(mark):02X}" if mark in f"%\r\n{special}" else mark for mark in text)


def _formatted(problems: Sequence[Problem], form: str, checked: int) -> str:
    if form == "json":
        fields = ("file", "line", "column", "rule", "message", "mend")
        return json.dumps([{field: getattr(problem, field) for field in fields} for problem in problems], indent=2)
    if form == "github":
        return "\n".join(
            f"::error file={_escaped(problem.file, ':,')},line={problem.line},col={problem.column},"
            f"title={_escaped(problem.rule, ':,')}::"
            + _escaped(f"{problem.message}{f'; {problem.mend}' if problem.mend else ''}")
            for problem in problems
        )
    if not problems:
        return f"{counted(checked, 'entry', 'entries')}, no problem"
    summary = f"{counted(len(problems), 'problem')} in {counted(checked, 'entry', 'entries')}"
    return "\n".join([*map(str, problems), summary])


if __name__ == "__main__":
    sys.exit(main())
