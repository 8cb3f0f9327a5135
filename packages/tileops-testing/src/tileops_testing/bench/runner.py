"""`Runner`: checks the implementations of one case against the reference, then times them side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from tileops_testing.bench.report import COPY_NAME, OWN_NAME, BenchResult, Measurement
from tileops_testing.bench.timing import Timer, Timing, timer_for
from tileops_testing.cases import Case, Inputs
from tileops_testing.errors import CheckFailedError
from tileops_testing.numerics import NumericsError, compare, tolerance
from tileops_testing.references import Expected
from tileops_testing.subject import SubjectOp, outputs_of

__all__ = ["OWN_NAME", "BenchOp", "Implementation", "Runner", "host_load"]

Implementation = Callable[..., object]
_PEER_ROUNDINGS = 2
"""A peer may round this often more than the op, and values as large as any in the result.

Most round before they multiply by a weight or add a bias, and what a bias almost cancels keeps the rounding's error.
"""


_FLOPS_PER_BYTE = 16
"""An op that does more for each byte than this may be bound by arithmetic: its roofline is a product's rate too."""
_PRODUCT_NAME = "torch's product of large matrices"
_SIDE = {"cuda": 8192, "cpu": 1024}
"""The extents of those matrices, large enough that nothing but arithmetic counts."""


class Finding(NamedTuple):
    """How an implementation compares with the reference: in words, and whether it agrees."""

    words: str
    agrees: bool


class Work(Protocol):
    """What `BenchOp.eval_roofline` gives."""

    @property
    def flops(self) -> float:
        """The floating-point operations that the last call had to do."""

    @property
    def bytes(self) -> float:
        """The bytes that the last call had to move."""


class BenchOp(SubjectOp, Protocol):
    """An op that knows the work of its last call."""

    def eval_roofline(self) -> Work:
        """Return the work of the last call."""


class Runner:
    """Compares an op with its peers on one case."""

    def __init__(
        self, op: BenchOp, case: Case, *, device: torch.device | None = None, timer: Timer | None = None
    ) -> None:
        self._op, self._case = op, case
        self._device = torch.device("cpu") if device is None else device
        self._timer = timer_for(self._device) if timer is None else timer

    def compare(self, implementations: Mapping[str, Implementation]) -> BenchResult:
        """Check the op and ``implementations``, which take the case's inputs, and time them in one run.

        An implementation that disagrees with the reference is timed all the same, marked, and not counted as a peer.
        Copies of as many bytes as the op must move are timed with them, and the fastest stands as the copy. Beside an
        op that does much arithmetic for each byte, torch's product of large matrices is timed too.

        Raises:
            CheckFailedError: The op disagrees with the reference; nothing is timed then.
        """
        inputs = self._case.tensors(self._device)
        everything: dict[str, Implementation] = {OWN_NAME: self._op, **implementations}
        findings = self._check(everything, inputs)
        work = self._work(inputs)
        moved, flops = int(work.bytes), int(work.flops)
        functions: dict[str, Callable[[], object]] = {
            name: _bound(implementation, inputs) for name, implementation in everything.items()
        }
        copies = _copies(moved, self._device)
        products = _products(inputs, self._device) if flops > _FLOPS_PER_BYTE * moved else {}
        timings = self._timer.time({**functions, **copies, **products})
        fastest = min((timings[name] for name in copies), key=lambda timing: timing.seconds)
        shown = {name: timings[name] for name in functions} | {COPY_NAME: fastest}
        rate = 2 * _SIDE[self._device.type] ** 3 / timings[_PRODUCT_NAME].seconds if products else 0.0
        return replace(self._result(shown, findings, moved), flops=flops, product_rate=rate)

    def _work(self, inputs: Inputs) -> Work:
        """The least work of a call, read while its tensors are there: the contents of ids may decide it."""
        given = self._case.copies(inputs)
        self._op(*given)
        return self._op.eval_roofline()

    def _check(self, implementations: Mapping[str, Implementation], inputs: Inputs) -> dict[str, Finding]:
        copies = self._case.copies(inputs)
        expected = self._case.expected(copies)
        found: dict[str, Finding] = {}
        for name, implementation in implementations.items():
            given = self._case.copies(inputs)
            result = outputs_of(implementation(*given))  # type: ignore[arg-type]
            try:
                found[name] = Finding(self._described(name, result, (given, copies), expected), agrees=True)
            except CheckFailedError as error:
                if name == OWN_NAME:
                    raise
                found[name] = Finding(str(error).removeprefix(f"{self._case.id}: {name}: "), agrees=False)
        return found

    def _described(
        self, name: str, result: Sequence[Tensor | None], written: tuple[Inputs, Inputs], expected: Expected
    ) -> str:
        """How outputs compare with the reference, in words, and inputs that were written with those that it wrote."""
        extra = 0 if name == OWN_NAME else _PEER_ROUNDINGS
        words = [
            self._compare(f"{name}: output {position}", output, value, terms, extra)
            for position, (output, value, terms) in enumerate(zip(result, expected.values, expected.terms, strict=True))
            if output is not None and value is not None
        ]
        for given, tensor, copy in zip(self._case.names(), *written, strict=True):
            if given in expected.written and tensor is not None and copy is not None:
                what = f"{name}: written input {given}"
                words.append(self._compare(what, tensor, copy, expected.written[given], extra + 1))
        return "; ".join(words)

    def _compare(self, what: str, output: Tensor, value: Tensor, terms: Tensor | None, extra: int) -> str:
        roundings = self._case.reference.roundings + extra
        allowed = tolerance(output.dtype, summed=self._case.summed, roundings=roundings)
        if extra and output.is_floating_point():
            allowed = replace(allowed, absolute=allowed.absolute + extra * _rounding_of_largest(output, value))
        try:
            comparison = compare(output, value, allowed, terms)
        except NumericsError as error:
            raise CheckFailedError(f"{self._case.id}: {what}: {error}") from None
        if not comparison.passed:
            raise CheckFailedError(f"{self._case.id}: {what}: {comparison.describe()}")
        return comparison.describe()

    def _result(self, timings: Mapping[str, Timing], findings: Mapping[str, Finding], moved: int) -> BenchResult:
        copy = timings[COPY_NAME].seconds
        peers = [timings[name].seconds for name, finding in findings.items() if finding.agrees and name != OWN_NAME]
        measurements = [
            Measurement(
                name=name,
                seconds=timing.seconds,
                spread=timing.spread,
                bytes_per_second=moved / timing.seconds,
                share_of_copy=copy / timing.seconds,
                ratio_to_best_peer=timing.seconds / min(peers) if name == OWN_NAME and peers else None,
                worst_error=findings[name].words if name in findings else "",
                agrees=name not in findings or findings[name].agrees,
            )
            for name, timing in timings.items()
        ]
        return BenchResult(
            op=self._case.op_name,
            case=self._case.label,
            device=str(self._device),
            threads=torch.get_num_threads(),
            traffic_bytes=moved,
            load=host_load(),
            measurements=tuple(measurements),
        )


def _rounding_of_largest(output: Tensor, expected: Tensor) -> float:
    """What one rounding to the output's dtype may change the largest finite element that is expected by."""
    finite = expected.double().nan_to_num(0.0, 0.0, 0.0).abs()
    return torch.finfo(output.dtype).eps / 2 * float(finite.max()) if finite.numel() else 0.0


def host_load() -> float:
    """Return the processes that ran or waited in the last minute, per processor of the host."""
    return os.getloadavg()[0] / (os.cpu_count() or 1)


def _bound(implementation: Implementation, inputs: Inputs) -> Callable[[], object]:
    def call() -> object:
        return implementation(*inputs)

    return call


def _products(inputs: Inputs, device: torch.device) -> dict[str, Callable[[], object]]:
    """Return torch's product of square matrices in the dtype of the first floating-point input."""
    floating = (tensor.dtype for tensor in inputs if tensor is not None and tensor.is_floating_point())
    dtype = next(floating, torch.float32)
    left, right = (torch.randn(2 * [_SIDE[device.type]], device=device).to(dtype) for _ in range(2))
    return {_PRODUCT_NAME: lambda: torch.matmul(left, right)}


def _copies(moved: int, device: torch.device) -> dict[str, Callable[[], object]]:
    """Return ways to read one half of ``moved`` bytes and write the other: the driver's copy and a kernel.

    Neither is the faster one at every size.
    """
    half = max(1, moved // 2)
    source = torch.randn(-(-half // 2), dtype=torch.float16, device=device)
    target = torch.empty_like(source)
    read, written = source.view(torch.uint8)[:half], target.view(torch.uint8)[:half]
    return {
        "copy by copy_": lambda: written.copy_(read),
        "copy by a kernel": lambda: torch.mul(source, 2, out=target),
    }
