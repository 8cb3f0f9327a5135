"""One small call of every effect branch of every implemented op with a compile boundary."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from tileops.op import Op
from tileops_testing.cases import Case, Inputs
from tileops_testing.catalog import implemented_ops
from tileops_testing.workload_cases import cases_of

CPU = torch.device("cpu")


@dataclass(frozen=True)
class BranchCall:
    """A call that takes one effect branch of an op: a case of the op, with the caller's buffer or without."""

    case: Case
    operator: str
    buffered: bool

    def construct(self, target: str | None = None) -> Any:
        """A fresh instance of the op."""
        return self.case.construct(target)

    def arguments(self, device: torch.device, *, fresh: int = 0) -> tuple[Inputs, dict[str, Tensor]]:
        """The inputs in signature order, and the buffer by keyword, full of what no right result holds."""
        inputs = self.case.tensors(device, fresh=fresh)
        if not self.buffered:
            return inputs, {}
        with torch.device(device):
            promised = self.construct()(*[None if item is None else item.to("meta") for item in inputs])
            return inputs, {"out": torch.zeros(promised.shape, dtype=promised.dtype)}

    @property
    def overload(self) -> Any:
        """The operator of the branch, as torch registers it."""
        return getattr(torch.ops.tileops, self.operator.removeprefix("tileops::")).default


def each_branch() -> pytest.MarkDecorator:
    """Parametrize `call` with one call per branch of each op."""
    parameters = [
        pytest.param(call, id=call.operator.removeprefix("tileops::"), marks=pytest.mark.op(call.case.op_name))
        for call in branch_calls()
    ]
    return pytest.mark.parametrize("call", parameters)


@functools.cache
def branch_calls() -> tuple[BranchCall, ...]:
    """The calls, in the order of op names and operators."""
    return tuple(call for op in implemented_ops() if op.compile_op_names for call in _calls_of(op))


def _calls_of(op: type[Op]) -> Iterator[BranchCall]:
    smallest: dict[str, BranchCall] = {}
    cases = [case for case in cases_of(op, small=True) if _has_elements(case)]
    for case in sorted(cases, key=Case.largest_input):
        for operator, buffered in _operators_of(op, case).items():
            smallest.setdefault(operator, BranchCall(case, operator, buffered))
    return iter([smallest[operator] for operator in op.compile_op_names if operator in smallest])


def _has_elements(case: Case) -> bool:
    """Whether every axis of every input has two elements or more, none of which torch would specialise."""
    return all(min(spec.shape, default=0) > 1 for spec in case.inputs(case.sizes).values() if spec is not None)


def _operators_of(op: type[Op], case: Case) -> Mapping[str, bool]:
    """The operators that the case's inputs reach, each with whether the caller's buffer is passed."""
    instance: Any = case.construct()
    inputs = case.tensors(CPU)
    values, plan = instance._construction.values, op._plan
    found = {op.compile_op_names[plan.select_branch(values, *inputs)]: False}
    if any(branch.has_out for branch in plan.branches):
        found[op.compile_op_names[plan.select_branch(values, *inputs, out=torch.empty(1))]] = True
    return found
