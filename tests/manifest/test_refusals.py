"""Each construct of the language on the entry that stands for it: what is refused, with the whole message."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from tests.manifest.ops import call, construct, half, whole
from tileops.errors import (
    ArgumentError,
    AxisError,
    DeviceError,
    DTypeError,
    LayoutError,
    ParameterError,
    ParameterTypeError,
    RepeatedAxisError,
    RuleError,
    ShapeError,
    SignatureError,
)
from tileops.moe.layouts import ContiguousLayout, ContiguousPacking

FULL = torch.empty
ALIGNED = ContiguousLayout(packing=ContiguousPacking.ALIGNED, alignment=4)
OFFSETS = torch.tensor([0, 3, 5], dtype=torch.int32)
PACKED = (half(5, 4, 8), half(5, 2, 8), half(5, 2, 8), OFFSETS, OFFSETS)
MOE = (half(4, 8), FULL(4, 6), half(6, 20, 8), half(6, 8, 10), None)

REFUSED: list[tuple[Callable[[], object], type[SignatureError], str]] = [
    (
        lambda: call("GemmFwdOp", half(3, 5), half(7, 6)),
        ShapeError,
        "GemmFwdOp: b: expected shape [N, 5] for K=5, received [7, 6]; pass b whose last axis is 5",
    ),
    (
        lambda: call("GemmFwdOp", half(3, 5), half(7, 5, 1)),
        ShapeError,
        "GemmFwdOp: b: expected shape [N, 5] for K=5, received [7, 5, 1]; pass b whose last axis is 5",
    ),
    (
        lambda: construct("GemmFwdOp", trans_a=1),
        ParameterTypeError,
        "GemmFwdOp: trans_a: expected bool, received 1; pass trans_a as bool",
    ),
    (
        lambda: call("ClampTensorFwdOp", FULL(3)),
        RuleError,
        ("ClampTensorFwdOp: min, max: expected a Tensor for one of them at least, received None; pass min or max"),
    ),
    (
        lambda: call("ClampTensorFwdOp", FULL(3), FULL(4)),
        RuleError,
        (
            "ClampTensorFwdOp: output: Clamped[S]: expected a value, received none: shapes [3], [4] do not broadcast "
            "together; pass arguments for which it has one"
        ),
    ),
    (
        lambda: call("SumFwdOp", FULL(3, 5), dim=2),
        AxisError,
        "SumFwdOp: dim: expected axes from -2 to 1, received 2; pass axes that the tensor has",
    ),
    (
        lambda: call("SumFwdOp", FULL(3, 5), dim=(0, -2)),
        RepeatedAxisError,
        "SumFwdOp: dim: expected each axis once, received (0, -2); remove what stands twice: 1 and -1 are one axis",
    ),
    (
        lambda: construct("SumFwdOp", dtype=torch.int8),
        ParameterTypeError,
        (
            "SumFwdOp: dtype: expected float16 | bfloat16 | float32 | int64 | None, received int8; "
            "pass dtype as float16 | bfloat16 | float32 | int64 | None"
        ),
    ),
    (
        lambda: construct("SumFwdOp", dtype="float16"),
        ParameterTypeError,
        (
            "SumFwdOp: dtype: expected float16 | bfloat16 | float32 | int64 | None, received 'float16'; "
            "pass torch.float16"
        ),
    ),
    (
        lambda: construct("SumFwdOp", dtype="half"),
        ParameterTypeError,
        (
            "SumFwdOp: dtype: expected float16 | bfloat16 | float32 | int64 | None, received 'half'; "
            "pass torch.float16, torch.bfloat16, torch.float32 or torch.int64"
        ),
    ),
    (
        lambda: call("ArgmaxFwdOp", FULL(3, 0), dim=1),
        RuleError,
        (
            "ArgmaxFwdOp: x: expected at least 1 element along dim=1, received shape [3, 0]; "
            "pass x with elements there, or another dim"
        ),
    ),
    (
        lambda: construct("MaxPool2dFwdOp", kernel_size=3, padding=2),
        ParameterError,
        ("MaxPool2dFwdOp: padding: expected 0 to 1 for kernel_size=3, received 2; pass padding of 0 to 1"),
    ),
    (
        lambda: construct("MaxPool2dFwdOp", kernel_size=(3, 3, 3)),
        ParameterTypeError,
        (
            "MaxPool2dFwdOp: kernel_size: expected int | tuple[int, int], received (3, 3, 3); "
            "pass kernel_size as int | tuple[int, int]"
        ),
    ),
    (
        lambda: call("MaxPool2dFwdOp", FULL(1, 1, 5, 5), kernel_size=9),
        RuleError,
        (
            "MaxPool2dFwdOp: output: expected at least 1 as axis 2 for H=5 (axis 2 of input), ceil_mode=False, "
            "dilation=1, kernel_size=9, padding=0, received 0; change one of these"
        ),
    ),
    (
        lambda: call("MeanPoolingFwdOp", FULL(1, 64, 2, 8), OFFSETS, chunk_size=32),
        ArgumentError,
        ("MeanPoolingFwdOp: indices: expected a Tensor with offsets, received None; pass indices"),
    ),
    (
        lambda: call("MeanPoolingFwdOp", FULL(1, 64, 2, 8), None, whole(7, 2), chunk_size=32),
        ArgumentError,
        ("MeanPoolingFwdOp: indices: expected None without offsets, received a Tensor; leave indices out"),
    ),
    (
        lambda: call("ReluFwdOp", FULL(1, 5).expand(3, 5), inplace=True),
        LayoutError,
        (
            "ReluFwdOp: input: expected memory of its own for each element, received strides [0, 1]; "
            "assign input = input.clone() before the call, which writes it"
        ),
    ),
    (
        lambda: construct("AlibiFwdOp", seq_len=-4, num_heads=2),
        ParameterError,
        "AlibiFwdOp: seq_len: expected at least 0, received -4; pass seq_len of at least 0",
    ),
    (
        lambda: construct("AlibiFwdOp", seq_len=4, num_heads=2, device="nowhere"),
        ParameterError,
        (
            "AlibiFwdOp: device: expected device | None, received 'nowhere'; "
            "pass a torch.device, or the name or index of one"
        ),
    ),
    (
        lambda: construct("AlibiFwdOp", seq_len=4, num_heads=2, out_dtype=torch.int8),
        ParameterError,
        "AlibiFwdOp: out_dtype: expected float16 | bfloat16 | float32, received int8; pass one of these dtypes",
    ),
    (
        lambda: construct("LongRoPEFwdOp", input_layout="3d"),
        ParameterError,
        "LongRoPEFwdOp: input_layout: expected '1d' | '2d', received '3d'; pass one of these words",
    ),
    (
        lambda: construct("LongRoPEFwdOp", rescale_factors=FULL(4, 1)),
        ShapeError,
        "LongRoPEFwdOp: rescale_factors: expected shape [P], received [4, 1]; pass rescale_factors of shape [P]",
    ),
    (
        lambda: construct("LongRoPEFwdOp", rescale_factors=FULL(4).double()),
        DTypeError,
        (
            "LongRoPEFwdOp: rescale_factors: expected dtype float32, float16 or bfloat16, received float64; "
            "convert rescale_factors with .to(torch.float32)"
        ),
    ),
    (
        lambda: construct("LongRoPEFwdOp", rescale_factors=[1.0]),
        ArgumentError,
        "LongRoPEFwdOp: rescale_factors: expected a Tensor, received list; pass a torch.Tensor",
    ),
    (
        lambda: call("LongRoPEFwdOp", FULL(4, 8), rescale_factors=FULL(3)),
        RuleError,
        (
            "LongRoPEFwdOp: x: expected 6 as axis 1 for P=3 (axis 0 of rescale_factors) with rescale_factors, "
            "received 8; pass x whose axis 1 is 6, or leave rescale_factors out"
        ),
    ),
    (
        lambda: call("AddFwdOp", whole(3), whole(3), alpha=0.5),
        RuleError,
        ("AddFwdOp: alpha: expected an int for T=int32 (the dtype of input), received 0.5; pass an int"),
    ),
    (
        lambda: call("AddFwdOp", half(3), half(3), alpha=1e9),
        RuleError,
        (
            "AddFwdOp: alpha: expected a number that float16 holds, received 1000000000.0; "
            "pass a number that float16 holds"
        ),
    ),
    (
        lambda: call("MoEGroupedGemmFwdOp", half(8, 8), half(2, 6, 8), whole(8), out=half(8, 7), layout=ALIGNED),
        ShapeError,
        "MoEGroupedGemmFwdOp: out: expected shape [8, 6] of output, received [8, 7]; pass out of shape [8, 6]",
    ),
    (
        lambda: call("MoEGroupedGemmFwdOp", half(8, 8), half(2, 6, 8), whole(8), out=FULL(8, 6), layout=ALIGNED),
        DTypeError,
        (
            "MoEGroupedGemmFwdOp: out: expected dtype float16, as out_dtype says, or else a has, received float32; "
            "allocate out = torch.empty_like(out, dtype=torch.float16) before the call, which writes it"
        ),
    ),
    (
        lambda: call("MoEGroupedGemmFwdOp", half(8, 8), half(2, 6, 8), whole(8), out=half(6, 8).t(), layout=ALIGNED),
        LayoutError,
        (
            "MoEGroupedGemmFwdOp: out: expected a contiguous tensor, received strides [1, 8]; allocate out = "
            "torch.empty_like(out, memory_format=torch.contiguous_format) before the call, which writes it"
        ),
    ),
    (
        lambda: call(
            "MoEGroupedGemmFwdOp", half(8, 8), half(2, 6, 8), whole(8), out=half(8, 6).to("meta"), layout=ALIGNED
        ),
        DeviceError,
        "MoEGroupedGemmFwdOp: out: expected device cpu, received device meta; make out on cpu",
    ),
    (
        lambda: call(
            "MoEGroupedGemmFwdOp", half(8, 8), half(2, 5, 8), whole(8), layout=ALIGNED, activation="gelu_and_mul"
        ),
        ShapeError,
        (
            "MoEGroupedGemmFwdOp: b: expected shape [E, 2 * N, 8] for K=8, received [2, 5, 8]; "
            "pass b of shape [E, 2 * N, 8]"
        ),
    ),
    (
        lambda: construct("MoEGroupedGemmFwdOp", layout=3),
        ParameterTypeError,
        "MoEGroupedGemmFwdOp: layout: expected MGroupedLayout, received 3; pass layout as MGroupedLayout",
    ),
    (
        lambda: construct("MoEGroupedGemmFwdOp", layout=ContiguousLayout(alignment=4)),
        ParameterError,
        "MoEGroupedGemmFwdOp: layout: expected alignment to be 1 for packing='tight', received 4; pass 1 as alignment",
    ),
    (
        lambda: call("BatchNormFwdOp", half(4, 3, 5)),
        RuleError,
        (
            "BatchNormFwdOp: running_mean: expected a Tensor for training=False, received None; "
            "pass running_mean, or pass training=True"
        ),
    ),
    (
        lambda: call("BatchNormFwdOp", half(1, 3, 1), training=True),
        RuleError,
        (
            "BatchNormFwdOp: x: expected another value than 1 as B * prod(L) for B=1 (axis 0 of x), L=[1] (axes of x), "
            "training=True, received 1; pass x of other extents, or pass training=False"
        ),
    ),
    (
        lambda: call("FusedMoESharedExpertFwdOp", *MOE, half(7, 8), half(8, 3), top_k=2),
        ShapeError,
        (
            "FusedMoESharedExpertFwdOp: shared_w_gate_up: expected shape [2 * S, 8] for H=8, received [7, 8]; "
            "pass shared_w_gate_up of shape [2 * S, 8]"
        ),
    ),
    (
        lambda: call("GQAVarlenFwdOp", *PACKED[:3], OFFSETS.to("meta"), OFFSETS),
        DeviceError,
        ("GQAVarlenFwdOp: cu_seqlens_q: expected device cpu, as q has, received device meta; make cu_seqlens_q on cpu"),
    ),
    (
        lambda: call("GQAVarlenFwdOp", *PACKED, pos_encoding_mode="rope"),
        ArgumentError,
        ("GQAVarlenFwdOp: rope_cos: expected a Tensor for pos_encoding_mode='rope', received None; pass rope_cos"),
    ),
    (
        lambda: call("GQAVarlenFwdOp", *PACKED[:3], OFFSETS.long(), OFFSETS),
        DTypeError,
        (
            "GQAVarlenFwdOp: cu_seqlens_q: expected dtype int32, received int64; "
            "convert cu_seqlens_q with .to(torch.int32)"
        ),
    ),
]


@pytest.mark.parametrize(("act", "error", "message"), REFUSED)
def test_a_mistake_is_refused(act: Callable[[], object], error: type[SignatureError], message: str) -> None:
    """A construction or a call that does not fit raises one typed error of one line."""
    with pytest.raises(error) as caught:
        act()
    assert str(caught.value) == message
