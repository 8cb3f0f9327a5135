"""Kernel types of RMSNorm, one for each way of being wrong; what they get right is from the example of a backend."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from plain_torch import RMSNormShortRowsKernel
from tileops_kernels.errors import NoImplementationError
from tileops_kernels.kernel import Kernel
from tileops_kernels.norm import LayerNormCall, RMSNormFwdInterface
from tileops_testing.cases import Case
from tileops_testing.catalog import op_class
from tileops_testing.workload_cases import cases_of

right = RMSNormShortRowsKernel.forward


class WrongValues(RMSNormShortRowsKernel):
    """Off by a factor."""

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return right(self, x, weight) * 1.25


class WrongDtype(RMSNormShortRowsKernel):
    """Returns what it accumulates in."""

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return right(self, x, weight).float()


class WrongStrides(RMSNormShortRowsKernel):
    """Returns its columns one after the other."""

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        y = right(self, x, weight)
        return y.new_empty(y.shape[::-1]).permute(*range(y.dim() - 1, -1, -1)).copy_(y)


class ReturnsInput(RMSNormShortRowsKernel):
    """Returns what it was given."""

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return x


class WritesInput(RMSNormShortRowsKernel):
    """Scales its input in place."""

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        y = right(self, x, weight)
        x.mul_(2)
        return y


class RefusesLate(RMSNormShortRowsKernel):
    """Refuses a call that it said it serves."""

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        raise NoImplementationError("no rows today")


class ClaimsLongRows(RMSNormShortRowsKernel):
    """Says that it serves rows of any length, and normalises the first elements of each."""

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        return None

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        rows = x.reshape(-1, self.call.n)
        root = torch.rsqrt(rows[:, :200].float().square().mean(dim=-1, keepdim=True) + self.call.eps)
        scale = 1.0 if weight is None else weight.reshape(-1).float()
        return (rows.float() * root * scale).to(x.dtype).reshape(x.shape)


class IgnoresOffset(RMSNormShortRowsKernel):
    """Reads from where the storage of its input begins."""

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return right(self, x.as_strided(x.shape, x.stride(), 0), weight)


class KeepsFirstInput(RMSNormShortRowsKernel):
    """Computes from the first input it met ever after."""

    kept: Tensor | None = None

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        if self.kept is None or self.kept.shape != x.shape:
            self.kept = x.clone()
        return right(self, self.kept, weight)


class ReusesOutput(RMSNormShortRowsKernel):
    """Returns one buffer from every call."""

    buffer: Tensor | None = None

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        if self.buffer is None or self.buffer.shape != x.shape:
            self.buffer = torch.empty_like(x)
        return self.buffer.copy_(right(self, x, weight))


class LengthLeftOut(RMSNormShortRowsKernel):
    """Its entries hold the length of rows, which its identity does not."""

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> tuple[Hashable, Callable[[], Kernel[LayerNormCall]]]:
        return (call.eps, call.dtype), partial(cls, call)

    forward = right


class EpsLeftOut(RMSNormShortRowsKernel):
    """Its entries hold what is added to the mean square, which its identity does not."""

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> tuple[Hashable, Callable[[], Kernel[LayerNormCall]]]:
        return (call.n, call.dtype), partial(cls, call)


class DtypeLeftOut(RMSNormShortRowsKernel):
    """Its entries round to the dtype that they were built for, and its identity leaves the dtype out."""

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return right(self, x, weight).to(self.call.dtype)


class UnhashableIdentity(RMSNormShortRowsKernel):
    """Gives a list for an identity."""

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> tuple[Hashable, Callable[[], Kernel[LayerNormCall]]]:
        return [call.n], partial(cls, call)  # type: ignore[return-value]

    forward = right


class UnequalIdentity(RMSNormShortRowsKernel):
    """Has a new identity on every request."""

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> tuple[Hashable, Callable[[], Kernel[LayerNormCall]]]:
        return object(), partial(cls, call)

    forward = right


class SpeaksInNumbers(RMSNormShortRowsKernel):
    """Refuses with a number."""

    @classmethod
    def refusal(cls, call: LayerNormCall) -> Any:
        return 0

    forward = right


class RefusesAll(RMSNormShortRowsKernel):
    """Serves nothing."""

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        return "serves nothing yet"

    forward = right


class Crashes(RMSNormShortRowsKernel):
    """Raises when it runs."""

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        raise ZeroDivisionError("no threads")


class WrongArguments(Kernel[LayerNormCall], RMSNormFwdInterface):
    """Takes other arguments than the interface."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x


def few_cases(op: str = "RMSNormFwdOp") -> tuple[Case, ...]:
    """Two small cases of an op: short rows and longer ones."""
    return labelled(op, "odd-rows-float16", "two-axes-bfloat16")


def cases_of_two_dtypes() -> tuple[Case, ...]:
    """Rows of one length in two dtypes, and shorter ones."""
    return labelled("RMSNormFwdOp", "odd-rows-float16", "qk-norm-float16", "qk-norm-bfloat16")


def cases_of_two_eps() -> tuple[Case, ...]:
    """Rows of one length and dtype, to which a little is added and much."""
    return labelled("RMSNormFwdOp", "no-batch-axis-float16", "large-eps-float16")


def labelled(op: str, *labels: str) -> tuple[Case, ...]:
    """The small cases of an op that have these labels."""
    found = {case.label: case for case in cases_of(op_class(op), small=True)}
    return tuple(found[label] for label in labels)
