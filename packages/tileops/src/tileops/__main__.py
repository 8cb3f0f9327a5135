"""`python -m tileops`: look at this installation, and say what would serve a call."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.text import Text

from tileops.commands import doctor, explain
from tileops_kernels.errors import TileOPsError


class _Console(Console):
    """A console that leaves it to the command what follows when nobody reads on."""

    def on_broken_pipe(self) -> None:
        """Raise BrokenPipeError again."""
        raise BrokenPipeError


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status."""
    chosen = _parser().parse_args(arguments)
    try:
        status = _run(chosen, _Console(highlight=False))
        sys.stdout.flush()
    except TileOPsError as error:
        print(error, file=sys.stderr)
        return 1
    except BrokenPipeError:  # the reader has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    return status


def _run(chosen: argparse.Namespace, console: Console) -> int:
    if chosen.command == "doctor":
        found = doctor.examine()
        status, page = (1 if found.problems else 0), doctor.render(found)
    else:
        call = explain.read_call(chosen.op, chosen.statement)
        status, page = 0, explain.render(call, call.explain(chosen.target))
    for part in page:  # a line is never wrapped, so that it can be searched for; a table is as wide as the terminal
        console.print(part, soft_wrap=isinstance(part, Text))
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tileops", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("doctor", help="print versions, devices, compilers, backends and the cache, and what is wrong")
    asked = commands.add_parser(
        "explain",
        help="name the kernel type that would serve a call, and why each other would not; needs no GPU",
        epilog="example: python -m tileops explain RMSNormFwdOp x=2048x4096:float16@cuda:sm90 eps=1e-6",
    )
    asked.add_argument("op", help="the op class's name")
    asked.add_argument(
        "statement",
        nargs="*",
        default=[],  # else an error says that the first one is required
        metavar="NAME=VALUE",
        help="an input as SHAPE:DTYPE[@DEVICE], a parameter as a workload row of the manifest writes it",
    )
    asked.add_argument("--target", help="construct the op with this target")
    return parser


if __name__ == "__main__":
    sys.exit(main())
