"""`Suite`, the protocol of a suite, and `Checks`, which collects what its checks found."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from tileops_testing.cases import Case, Inputs
from tileops_testing.errors import CheckFailedError
from tileops_testing.fakes import TensorFacts
from tileops_testing.numerics import NumericsError, assert_close
from tileops_testing.references import Expected
from tileops_testing.subject import SubjectOp

__all__ = ["Check", "Checks", "Suite", "assert_outputs", "assert_written", "cloned", "kernels_of", "written_by"]

Outcome = Literal["passed", "failed", "not applicable"]


@dataclass(frozen=True, slots=True)
class Check:
    """One named check of a suite: what it found, in words."""

    name: str
    outcome: Outcome
    detail: str = ""


class Suite(Protocol):
    """What every op must satisfy in one mode of use."""

    @property
    def name(self) -> str:
        """The suite's name, as in ``build/matrix/<name>-<device>.json``."""

    def unavailable(self, case: Case, device: torch.device) -> str | None:
        """Return why the suite cannot run the case on ``device``, or None when it can."""

    def run(self, case: Case, *, device: torch.device, target: str | None = None) -> tuple[Check, ...]:
        """Run every check and return them.

        Raises:
            CheckFailedError: At least one check failed; the message lists all.
        """


class Checks:
    """Collects the checks of one suite on one case; a failed check does not stop the others."""

    def __init__(self, suite: str, case: Case, device: torch.device) -> None:
        self._title = f"{suite}: {case.id} on {device}"
        self._checks: list[Check] = []

    @contextlib.contextmanager
    def check(self, name: str) -> Iterator[list[str]]:
        """Run the block as check ``name``: an assertion error fails the check, any other error ends the suite.

        What the block appends to the list that it is given becomes the detail of the passed check.
        """
        notes: list[str] = []
        try:
            yield notes
        except AssertionError as error:
            self._checks.append(Check(name, "failed", str(error)))
        else:
            self._checks.append(Check(name, "passed", "; ".join(notes)))

    @property
    def failed(self) -> bool:
        """Whether a check failed so far."""
        return any(check.outcome == "failed" for check in self._checks)

    def not_applicable(self, name: str, reason: str) -> None:
        """Note that check ``name`` means nothing for the case."""
        self._checks.append(Check(name, "not applicable", reason))

    def finish(self, shown: str = "") -> tuple[Check, ...]:
        """Return the checks, or raise `CheckFailedError` listing those that failed, and then ``shown``."""
        failed = [check for check in self._checks if check.outcome == "failed"]
        if failed:
            lines = "\n".join(f"  {check.name}: {check.detail}" for check in failed)
            title = f"{self._title}: {len(failed)} of {len(self._checks)} checks failed"
            raise CheckFailedError("\n".join([title, lines, *filter(None, [shown])]), self._checks)
        return tuple(self._checks)


def cloned(inputs: Inputs) -> Inputs:
    """Return copies of the inputs with equal elements, dense in memory."""
    return tuple(None if tensor is None else tensor.clone() for tensor in inputs)


def kernels_of(op: SubjectOp) -> tuple[object, ...]:
    """The kernels an instance holds. Two results compare by identity, so equal ones mean that nothing was built."""
    return tuple(op.iter_kernels())


def written_by(op: SubjectOp) -> frozenset[str]:
    """The names of the inputs that the last call wrote."""
    return frozenset(op.last_call.written)


def assert_outputs(
    case: Case,
    outputs: tuple[Tensor | None, ...],
    expected: Expected,
    promised: tuple[TensorFacts | None, ...],
) -> None:
    """Raise unless every output has the promised dtype and the reference's values."""
    values = expected.values
    if not len(outputs) == len(values) == len(promised):
        raise CheckFailedError(
            f"outputs: the reference gives {len(values)}, the signature {len(promised)}, the call {len(outputs)}"
        )
    for position, (output, value, facts) in enumerate(zip(outputs, values, promised, strict=True)):
        what = f"output {position}"
        if output is None or value is None or facts is None:
            if not (output is None and value is None and facts is None):
                raise NumericsError(f"{what}: None from one of reference, signature and call, not from all")
            continue
        assert_close(
            output,
            value,
            dtype=facts.dtype,
            summed=case.summed,
            roundings=case.reference.roundings,
            terms=expected.terms[position],
            what=what,
        )


def assert_written(case: Case, name: str, tensor: Tensor, copy: Tensor, before: Tensor, expected: Expected) -> None:
    """Raise unless the input `name` holds what the reference wrote into its copy, which is rounded once more.

    Where the reference says nothing of its terms, what it held before may cancel against what was added to it.
    """
    terms = before.double().abs() + copy.double().abs() if before.is_floating_point() else None
    assert_close(
        tensor,
        copy,
        dtype=before.dtype,
        summed=case.summed,
        roundings=case.reference.roundings + 1,
        terms=expected.written.get(name, terms),
        what=f"written input {name}",
    )
