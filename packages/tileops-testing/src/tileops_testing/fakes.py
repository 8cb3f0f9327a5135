"""Fake against real: the shape, dtype, device and strides that an op promises while tracing, and what it returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tileops_testing.errors import CheckFailedError
from tileops_testing.subject import SubjectOp, outputs_of

__all__ = ["TensorFacts", "assert_facts", "facts_of", "fake_outputs"]


@dataclass(frozen=True, slots=True)
class TensorFacts:
    """What a compiler knows of a tensor."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    device: torch.device
    strides: tuple[int, ...]


def facts_of(tensor: Tensor | None) -> TensorFacts | None:
    """Return the facts of a real or fake tensor; None for an output that is not there."""
    if tensor is None:
        return None
    return TensorFacts(tuple(tensor.shape), tensor.dtype, tensor.device, tuple(tensor.stride()))


def fake_outputs(op: SubjectOp, inputs: Sequence[Tensor | None]) -> tuple[TensorFacts | None, ...]:
    """Call ``op`` on fakes of ``inputs`` and return the facts of what it promises."""
    with FakeTensorMode() as mode:
        fakes = [None if tensor is None else mode.from_tensor(tensor) for tensor in inputs]
        return tuple(facts_of(output) for output in outputs_of(op(*fakes)))


def assert_facts(
    promised: Sequence[TensorFacts | None], outputs: Sequence[Tensor | None], *, situation: str = "call"
) -> None:
    """Raise `CheckFailedError` unless every output is exactly as promised, naming the first fact that differs."""
    if len(promised) != len(outputs):
        raise CheckFailedError(f"{situation}: the fake gives {len(promised)} outputs, the call {len(outputs)}")
    for position, (fake, output) in enumerate(zip(promised, outputs, strict=True)):
        real = facts_of(output)
        if fake is None or real is None:
            if fake is not real:
                raise CheckFailedError(
                    f"{situation}: output {position}: the fake promises {fake}, the call gave {real}"
                )
            continue
        for fact in ("shape", "dtype", "device", "strides"):
            expected, received = getattr(fake, fact), getattr(real, fact)
            if expected != received:
                raise CheckFailedError(
                    f"{situation}: output {position}: {fact}: the fake promises {expected}, the call gave {received}"
                )
