"""Kernel types of RMSNorm in plain PyTorch: a right one, and one for each way of being wrong."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

from tileops_kernels.kernel import Kernel
from tileops_kernels.norm import LayerNormCall, RMSNormFwdInterface
from tileops_testing.cases import Case
from tileops_testing.catalog import op_class
from tileops_testing.workload_cases import cases_of


def rms_norm(x: Tensor, weight: Tensor | None, n: int, eps: float) -> Tensor:
    """The norm of rows of `n` elements, in float64, rounded once."""
    rows = x.reshape(-1, n).double()
    scaled = rows * torch.rsqrt(rows.square().mean(dim=-1, keepdim=True) + eps)
    if weight is not None:
        scaled = scaled * weight.reshape(-1).double()
    return scaled.to(x.dtype).reshape(x.shape)


class PlainRMSNorm(Kernel[LayerNormCall], RMSNormFwdInterface):
    """Right."""

    devices = frozenset({"cpu"})

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> tuple[Hashable, Callable[[], Kernel[LayerNormCall]]]:
        return (call.n, call.eps, call.dtype), lambda: cls(call)

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return rms_norm(x, weight, self.call.n, self.call.eps)


class ShortRMSNorm(PlainRMSNorm):
    """Serves rows of at most 200 elements."""

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        return f"n is {call.n}, it serves at most 200" if call.n > 200 else super().refusal(call)

    forward = PlainRMSNorm.forward


class ForgetsEps(PlainRMSNorm):
    """Wrong values on rows of small elements."""

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return rms_norm(x, weight, self.call.n, self.call.eps + 0.01)


class NarrowIdentity(PlainRMSNorm):
    """Shares an entry among dtypes, though it compiles the dtype in."""

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> tuple[Hashable, Callable[[], Kernel[LayerNormCall]]]:
        return [call.n], lambda: cls(call)  # type: ignore[return-value]

    forward = PlainRMSNorm.forward


class UnequalIdentity(PlainRMSNorm):
    """Has a new identity on every request."""

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> tuple[Hashable, Callable[[], Kernel[LayerNormCall]]]:
        return object(), lambda: cls(call)

    forward = PlainRMSNorm.forward


class WritesInput(PlainRMSNorm):
    """Scales its input in place."""

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        y = rms_norm(x, weight, self.call.n, self.call.eps)
        x.mul_(2)
        return y


class SpeaksInNumbers(PlainRMSNorm):
    """Refuses with a number."""

    @classmethod
    def refusal(cls, call: LayerNormCall) -> Any:
        return None if call.facts is None or call.dtype is torch.float64 else 0

    forward = PlainRMSNorm.forward


class RefusesAll(PlainRMSNorm):
    """Serves nothing."""

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        return "serves nothing yet"

    forward = PlainRMSNorm.forward


class Crashes(PlainRMSNorm):
    """Raises when it runs."""

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        raise ZeroDivisionError("no threads")


class WrongArguments(Kernel[LayerNormCall], RMSNormFwdInterface):
    """Takes other arguments than the interface."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return x


def few_cases(op: str = "RMSNormFwdOp") -> tuple[Case, ...]:
    """Two small cases of an op: short rows and longer ones."""
    found = {case.label: case for case in cases_of(op_class(op), small=True)}
    return found["odd-rows-float16"], found["two-axes-bfloat16"]
