"""Norms of half-precision activations whose weight and bias are float32: values, selection, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tileops.errors import DTypeError
from tileops.norm import (
    FusedAddLayerNormFwdOp,
    FusedAddRMSNormFwdOp,
    GroupNormFwdOp,
    InstanceNormFwdOp,
    LayerNormFwdOp,
    RMSNormFwdOp,
)
from tileops.op.base import Op
from tileops_kernels.devices import DeviceFacts
from tileops_kernels.norm import LAYER_NORM_KERNELS, RMS_NORM_KERNELS, GroupNormCall, LayerNormCall, rms_norm_kernels
from tileops_kernels.norm.ada_layer_norm import ADA_LAYER_NORM_KERNELS
from tileops_kernels.norm.group_norm import GROUP_NORM_KERNELS
from tileops_testing.inputs import TensorInput
from tileops_testing.numerics import assert_close
from tileops_testing.references.norm import REFERENCES

HALVES = (torch.float16, torch.bfloat16)
HOPPER = DeviceFacts(arch=90, sm_count=132, smem_budget=232448)


def rows_and(*weights: int) -> Callable[[int], tuple[tuple[int, ...], ...]]:
    """The shapes of a call on rows: as many rows as the first count, then weights."""
    return lambda n: (*[(3, n)] * weights[0], *[(n,)] * weights[1])


CASES: tuple[tuple[Callable[[int], Op], Callable[[int], tuple[tuple[int, ...], ...]]], ...] = (
    (lambda n: RMSNormFwdOp((n,), 1e-6), rows_and(1, 1)),
    (lambda n: LayerNormFwdOp((n,)), rows_and(1, 2)),
    (lambda n: FusedAddRMSNormFwdOp(), rows_and(2, 1)),
    (lambda n: FusedAddLayerNormFwdOp(), rows_and(2, 2)),
    (lambda n: GroupNormFwdOp(2), lambda n: ((2, 6, n), (6,), (6,))),
    (lambda n: InstanceNormFwdOp(), lambda n: ((2, 6, n), (6,), (6,))),
)


def tensors(shapes: tuple[tuple[int, ...], ...], dtype: torch.dtype, device: torch.device) -> list[Tensor]:
    """Activations of `dtype`, those of the first shape's rank, and weights in float32."""
    rank = len(shapes[0])
    return [
        TensorInput(shape=shape, dtype=dtype if len(shape) == rank else torch.float32).make(seed, device)
        for seed, shape in enumerate(shapes)
    ]


@pytest.mark.parametrize("n", [7, 4096, 40000])
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize(("make", "shapes"), CASES)
def test_agrees_with_the_reference(
    make: Callable[[int], Op],
    shapes: Callable[[int], tuple[tuple[int, ...], ...]],
    dtype: torch.dtype,
    n: int,
    tileops_device: torch.device,
) -> None:
    """Results are of the activations' dtype and rounded once: the weights' digits are not lost before."""
    op: Any = make(n)
    given = tensors(shapes(n), dtype, tileops_device)
    inputs = (given[0], None, None, *given[1:]) if isinstance(op, InstanceNormFwdOp) else tuple(given)
    results = op(*inputs)
    parameters = dict(op._construction.values.parameters)
    expected = REFERENCES[type(op).__name__].expected(inputs, parameters)
    found = results if isinstance(results, tuple) else (results,)
    for result, value, terms in zip(found, expected.values, expected.terms, strict=True):
        assert value is not None
        assert result.dtype == dtype
        assert_close(result, value, dtype=dtype, summed=n, terms=terms)


@pytest.mark.parametrize(
    ("activations", "weights", "row"),
    [
        (torch.float32, torch.float16, "x=float32, weight=float16"),
        (torch.float16, torch.bfloat16, "x=float16, weight=bfloat16"),
        (torch.bfloat16, torch.float16, "x=bfloat16, weight=float16"),
    ],
)
def test_other_dtypes_are_refused_with_both_named(activations: torch.dtype, weights: torch.dtype, row: str) -> None:
    """Weights are of the activations' dtype or float32."""
    text = rf"RMSNormFwdOp: dtypes: expected .*x=float16, weight=float32.*, received \({row}\)"
    with pytest.raises(DTypeError, match=text):
        RMSNormFwdOp((8,))(torch.ones(2, 8, dtype=activations), torch.ones(8, dtype=weights))


def test_one_instance_serves_both(tileops_device: torch.device) -> None:
    """A call with weights of another dtype builds an entry of its own, and each is used again."""
    op = RMSNormFwdOp((64,), 1e-6)
    x = TensorInput(shape=(3, 64), dtype=torch.bfloat16).make(0, tileops_device)
    weight = TensorInput(shape=(64,), dtype=torch.float32).make(1, tileops_device)
    for _ in range(2):
        for given in (weight, weight.bfloat16(), None):
            op(x, given)
    assert len(list(op.iter_kernels())) == 2


def call(n: int, dtype: torch.dtype, weight_dtype: torch.dtype | None) -> LayerNormCall:
    device = torch.device("cuda", 0)
    return LayerNormCall(device=device, n=n, eps=1e-6, dtype=dtype, weight_dtype=weight_dtype, facts=HOPPER)


def test_rows_on_chip_are_half_as_long() -> None:
    """Float32 weights take twice the registers: where the row with its own weights still fits, theirs is streamed."""
    table = rms_norm_kernels()
    for n, expected in ((16384, "rms_norm_on_chip"), (32768, "rms_norm_streaming")):
        assert table.key_for(call(n, torch.float16, None)) == "rms_norm_on_chip"
        assert table.key_for(call(n, torch.float16, torch.float32)) == expected
        assert table.key_for(call(16384, torch.float32, torch.float32)) == "rms_norm_on_chip"


def test_kernel_types_say_which_weights_they_take() -> None:
    """Also where a call spec comes from elsewhere than from an op."""
    wrong = call(64, torch.float16, torch.bfloat16)
    for types in (RMS_NORM_KERNELS, LAYER_NORM_KERNELS):
        for kernel_type in types.values():
            assert kernel_type.refusal(wrong) == "takes weights in float32 or float16 for float16, not bfloat16"
    groups = GroupNormCall(
        device=torch.device("cpu"), n=64, span=2, eps=1e-6, dtype=torch.bfloat16, weight_dtype=torch.float16
    )
    refusal = GROUP_NORM_KERNELS["group_norm_cpu"].refusal(groups)
    assert refusal == "takes weights in float32 or bfloat16 for bfloat16, not float16"
    modulated = ADA_LAYER_NORM_KERNELS["ada_layer_norm_cpu"].refusal(call(64, torch.float16, torch.float32))
    assert modulated == "takes scales and shifts in float16 for float16, not float32"
