"""The generated checks on fake tensors: sizes stay symbolic, and no guard is added but equality of shared indices."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from tests.manifest.ops import construct, plan_of
from tests.manifest.rms_norm import PLAN, constructed
from tileops.manifest.primitives import broadcast, pooled

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


def test_a_shared_index_is_one_guard() -> None:
    """Two tensors that share an index give one equality, and no other guard."""
    environment = ShapeEnv(duck_shape=False)
    a = fake(environment, torch.empty(5, 7, dtype=torch.float16), DYNAMIC, DYNAMIC)
    b = fake(environment, torch.empty(9, 7, dtype=torch.float16), DYNAMIC, DYNAMIC)
    record = plan_of("GemmFwdOp").check_call(construct("GemmFwdOp"), a, b)
    assert all(isinstance(extent, torch.SymInt) for extent in record.outputs[0].shape)
    assert [guard.expr.__class__.__name__ for guard in environment.guards] == ["Equality"]


def test_broadcasting_keeps_sizes_symbolic() -> None:
    """Broadcasting guards equality only, and its output carries the symbols."""
    environment = ShapeEnv(duck_shape=False)
    x = fake(environment, torch.empty(5, 7), DYNAMIC, DYNAMIC)
    y = fake(environment, torch.empty(7), DYNAMIC)
    record = plan_of("AddFwdOp").check_call(construct("AddFwdOp"), x, y)
    assert all(isinstance(extent, torch.SymInt) for extent in record.outputs[0].shape)
    assert [guard.expr.__class__.__name__ for guard in environment.guards] == ["Equality"]


def test_an_affine_axis_is_solved_without_a_guard() -> None:
    """Solving B + 1 for B adds no guard, since sizes that stay symbols are at least 2."""
    environment = ShapeEnv()
    offsets = fake(environment, torch.empty(6, dtype=torch.int32), DYNAMIC)
    x = fake(environment, torch.empty(1, 64, 2, 8), STATIC, DYNAMIC, STATIC, STATIC)
    indices = fake(environment, torch.empty(7, 2, dtype=torch.int32), DYNAMIC, STATIC)
    settled = construct("MeanPoolingFwdOp", chunk_size=32)
    record = plan_of("MeanPoolingFwdOp").check_call(settled, x, offsets, indices)
    assert isinstance(record.indices["NS"], torch.SymInt)
    assert environment.guards == []


@pytest.mark.parametrize("ceil_mode", [False, True])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"), [(3, 2, 1, 1), (2, 2, 0, 1), (4, 3, 2, 1), (3, 2, 0, 2), (5, 1, 2, 2)]
)
def test_a_pooled_extent_asks_nothing(kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> None:
    """The extent that pooling leaves of a symbol is an expression of it, in both modes, and adds no guard."""
    environment = ShapeEnv()
    length = fake(environment, torch.empty(33), DYNAMIC).shape[0]
    extent: Any = pooled(length, kernel, stride, padding, dilation, ceil_mode)
    assert environment.guards == []
    expected = torch.nn.functional.max_pool1d(torch.empty(1, 33), kernel, stride, padding, dilation, ceil_mode)
    assert extent.node.hint == expected.shape[-1]


def test_broadcasting_asks_nothing_of_unbacked_sizes() -> None:
    """Sizes of which nothing is known broadcast with themselves and with 1, and nothing is asked about them."""
    environment = ShapeEnv()
    size: Any = environment.create_unbacked_symint()
    assert broadcast((size, 8), (size, 1), (8,), ()) == (size, 8)
    assert environment.guards == []
