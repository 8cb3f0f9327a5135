"""The generated checks on fake tensors: sizes stay symbolic, and no guard is added but equality of shared indices."""

from __future__ import annotations

from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from tests.manifest.rms_norm import PLAN, constructed

DYNAMIC, STATIC = DimDynamic.DYNAMIC, DimDynamic.STATIC


def fake(environment: ShapeEnv, tensor: torch.Tensor, *sizes: DimDynamic) -> torch.Tensor:
    """Return a fake of the tensor whose sizes are symbolic where asked."""
    mode = FakeTensorMode(shape_env=environment)
    context: Any = StatelessSymbolicContext(dynamic_sizes=list(sizes))
    return mode.from_tensor(tensor, symbolic_context=context)


def test_a_batch_axis_stays_symbolic() -> None:
    """Checking a call with a symbolic batch adds no guard, and the output carries the symbol."""
    environment = ShapeEnv()
    call = PLAN.check_call(constructed(), fake(environment, torch.empty(5, 8), DYNAMIC, STATIC), None)
    (rows, columns) = call.outputs[0].shape
    assert (isinstance(rows, torch.SymInt), columns) == (True, 8)
    assert environment.guards == []
