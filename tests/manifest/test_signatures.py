"""Each construct of the language on the entry that stands for it: what is accepted, and what the record says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.manifest.ops import call, construct, half, plan_of, whole
from tileops.errors import DTypeError, ResultError
from tileops.manifest import roofline
from tileops.manifest.plan import EffectBranch
from tileops.manifest.record import SignatureCall, Traffic
from tileops.moe.layouts import ContiguousLayout, ContiguousPacking, MaskedLayout

FULL = torch.empty
ALIGNED = ContiguousLayout(packing=ContiguousPacking.ALIGNED, alignment=4)
SLAB = MaskedLayout(max_m=4)
OFFSETS = torch.tensor([0, 3, 5], dtype=torch.int32)
PACKED = (half(5, 4, 8), half(5, 2, 8), half(5, 2, 8), OFFSETS, OFFSETS)
MOE = (half(4, 8), FULL(4, 6), half(6, 20, 8), half(6, 8, 10), None)


def outputs(record: SignatureCall) -> list[tuple[tuple[int, ...], torch.dtype]]:
    """Return the type of each output."""
    return [(output.shape, output.dtype) for output in record.outputs]


@pytest.mark.parametrize(
    ("record", "shape", "dtype"),
    [
        pytest.param(lambda: call("GemmFwdOp", half(3, 5), half(7, 5)), (3, 7), torch.float16, id="family"),
        pytest.param(
            lambda: call("GemmFwdOp", half(5, 3), half(5, 7), trans_a=True, trans_b=False),
            (3, 7),
            torch.float16,
            id="family-transposed",
        ),
        pytest.param(lambda: call("ClampTensorFwdOp", FULL(3, 5), FULL(5)), (3, 5), torch.float32, id="presence"),
        pytest.param(
            lambda: call("ClampTensorFwdOp", FULL(3, 1), FULL(5), FULL(2, 1, 1)), (2, 3, 5), torch.float32, id="both"
        ),
        pytest.param(lambda: call("SumFwdOp", half(3, 5, 2), dim=[0, -1]), (5,), torch.float16, id="dim-list"),
        pytest.param(
            lambda: call("SumFwdOp", half(3, 5), keepdim=True, dtype=torch.float32), (1, 1), torch.float32, id="dtype"
        ),
        pytest.param(lambda: call("ProdFwdOp", FULL(3, 5), dim=-1), (3,), torch.float32, id="dim"),
        pytest.param(lambda: call("ArgmaxFwdOp", FULL(0, 3), dim=1), (0,), torch.int64, id="constant-dtype"),
        pytest.param(lambda: call("ReciprocalFwdOp", whole(3)), (3,), torch.float32, id="promotion"),
        pytest.param(
            lambda: call("MaxPool2dFwdOp", FULL(2, 3, 11, 12), kernel_size=3, stride=(2, 1), padding=1),
            (2, 3, 6, 12),
            torch.float32,
            id="let",
        ),
        pytest.param(
            lambda: call("MeanPoolingFwdOp", FULL(1, 100, 2, 8), chunk_size=32, accum_dtype=torch.float32),
            (1, 4, 2, 8),
            torch.float32,
            id="absent-metadata",
        ),
        pytest.param(
            lambda: call("MeanPoolingFwdOp", FULL(1, 100, 2, 8), OFFSETS, whole(7, 2), chunk_size=32),
            (1, 7, 2, 8),
            torch.float32,
            id="present-metadata",
        ),
        pytest.param(lambda: call("AlibiFwdOp", seq_len=4, num_heads=2), (2, 4, 4), torch.float32, id="no-input"),
        pytest.param(lambda: call("AddFwdOp", FULL(4, 1), FULL(5), alpha=2), (4, 5), torch.float32, id="broadcast"),
        pytest.param(
            lambda: call("MoEGroupedGemmFwdOp", half(2, 4, 8), half(2, 6, 8), whole(2), layout=SLAB),
            (2, 4, 6),
            torch.float16,
            id="sum-type-slab",
        ),
        pytest.param(
            lambda: call("MoEGroupedGemmFwdOp", half(8, 8), half(2, 6, 8), whole(8), layout=ALIGNED),
            (8, 6),
            torch.float16,
            id="sum-type-rows",
        ),
    ],
)
def test_a_call_is_accepted(record: Callable[[], SignatureCall], shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """A call that fits gives the output's shape and dtype."""
    assert outputs(record()) == [(shape, dtype)]


def test_dtypes_go_together_in_rows() -> None:
    """Dtypes that are each allowed and are no row of dtype_combos are refused with both named."""
    pages = torch.empty(5, 2, 2, 8, dtype=torch.bfloat16)
    with pytest.raises(DTypeError) as caught:
        call("GQAPagedFwdOp", half(3, 4, 8), pages, pages, whole(2, 3), whole(2), whole(3))
    assert str(caught.value).startswith("GQAPagedFwdOp: dtypes: expected (q=float16, k_pages=float16), ")
    assert str(caught.value).endswith("received (q=float16, k_pages=bfloat16); convert the inputs to one of these rows")


def test_a_written_input_is_read_and_written() -> None:
    """In place, the input is written, the output is that input, and its bytes are counted once each way."""
    record = call("ReluFwdOp", FULL(3, 5), inplace=True)
    assert record.written == ("input",)
    assert record.traffic == {"input": Traffic(60, 60)}
    plan = plan_of("ReluFwdOp")
    assert plan.branches == (
        EffectBranch("", (), ("output",), has_out=False),
        EffectBranch("_writes_input", ("input",), (), has_out=False),
    )
    assert plan.select_branch(construct("ReluFwdOp", inplace=True), FULL(3)) == 1
    plan.check_result(record, FULL(5, 3).t())


def test_a_presence_and_a_parameter_decide_what_is_written() -> None:
    """Running statistics are written in training, where they are passed."""
    stats = (FULL(3), FULL(3))
    assert call("BatchNormFwdOp", half(4, 3, 5), *stats).written == ()
    assert call("BatchNormFwdOp", half(4, 3, 5), training=True).written == ()
    assert call("BatchNormFwdOp", half(4, 3, 5), *stats, training=True).written == ("running_mean", "running_var")


def test_a_caller_s_buffer() -> None:
    """A buffer that fits has a branch of its own, and nothing is allocated there."""
    arguments = (half(8, 8), half(2, 6, 8), whole(8))
    record = call("MoEGroupedGemmFwdOp", *arguments, out=half(8, 6), layout=ALIGNED)
    plan = plan_of("MoEGroupedGemmFwdOp")
    assert record.has_out
    assert [(branch.suffix, branch.allocates) for branch in plan.branches] == [("", ("output",)), ("_out", ())]
    assert plan.select_branch(construct("MoEGroupedGemmFwdOp", layout=ALIGNED), *arguments, out=half(8, 6)) == 1
    keys = {plan.metadata_key(*arguments), plan.metadata_key(*arguments, out=half(8, 6))}
    assert len(keys) == 2


def test_a_nullable_output() -> None:
    """An output that its discriminant excludes is not among the outputs, and None stands in its place."""
    plan = plan_of("FusedMoESharedExpertFwdOp")
    without = call("FusedMoESharedExpertFwdOp", *MOE, top_k=2)
    both = call("FusedMoESharedExpertFwdOp", *MOE, half(6, 8), half(8, 3), top_k=2)
    assert [output.name for output in without.outputs] == ["routed_output"]
    assert [output.name for output in both.outputs] == ["shared_output", "routed_output"]
    assert [branch.suffix for branch in plan.branches] == ["", "_without_shared_output"]
    plan.check_result(without, (None, half(4, 8)))
    with pytest.raises(ResultError) as caught:
        plan.check_result(without, (half(4, 8), half(4, 8)))
    assert str(caught.value) == (
        "FusedMoESharedExpertFwdOp: result: expected one Tensor (routed_output), received tuple of 2; "
        "the implementation has to return that"
    )
    with pytest.raises(ResultError, match=r"expected 2 values \(shared_output, routed_output\), received Tensor"):
        plan.check_result(both, half(4, 8))


def test_a_construction_time_tensor() -> None:
    """A tensor passed at construction gives its indices there, and its device where the call has none."""
    settled = construct("LongRoPEFwdOp", rescale_factors=FULL(4))
    assert settled.indices == {"P": 4, "R": torch.float32}
    assert settled.device == torch.device("cpu")
    record = call("LongRoPEFwdOp", half(6, 8), rescale_factors=FULL(4))
    assert record.indices == {"P": 4, "R": torch.float32, "T": torch.float16, "S": 6, "D": 8}
    assert construct("LongRoPEFwdOp").indices == {}


def test_the_device_of_a_call_without_tensors() -> None:
    """Without tensors the device parameter is the call's device; without that, the accelerator's, or none."""
    settled: dict[str, Any] = {"seq_len": 4, "num_heads": 2}
    assert call("AlibiFwdOp", **settled, device="cpu").device == torch.device("cpu")
    assert call("AlibiFwdOp", **settled, device=torch.device("meta")).device == torch.device("meta")
    expected = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    found = call("AlibiFwdOp", **settled).device
    assert (None if found is None else found.type) == (None if expected is None else expected.type)
    assert plan_of("AlibiFwdOp").metadata_key() == ()


def test_metadata_is_held_weakly() -> None:
    """A record reads the contents of metadata tensors when asked, and keeps none of them alive."""
    offsets = OFFSETS.clone()
    record = call("GQAVarlenFwdOp", *PACKED[:3], offsets, offsets)
    assert sorted(record.metadata) == ["cu_seqlens_kv", "cu_seqlens_q"]
    assert record.metadata["cu_seqlens_q"] is offsets
    assert roofline.flops(record) == 4 * (6 + 3) * 4 * 8
    assert plan_of("GQAVarlenFwdOp").metadata_inputs == ("cu_seqlens_q", "cu_seqlens_kv")
    del offsets
    with pytest.raises(KeyError, match="the tensor of the recorded call no longer exists"):
        record.metadata["cu_seqlens_q"]


@pytest.mark.parametrize(
    ("parameters", "pairs"),
    [
        ({}, (1 + 2 + 3) + (1 + 2)),
        ({"is_causal": False}, 9 + 4),
        ({"window_size_left": 1}, (1 + 2 + 2) + (1 + 2)),
        ({"is_causal": False, "window_size_left": 0, "window_size_right": 1}, (2 + 2 + 1) + (2 + 1)),
    ],
)
def test_the_cost_of_a_packed_call_counts_visible_pairs(parameters: dict[str, Any], pairs: int) -> None:
    """Attention costs four operations for each visible pair, head and channel; windows and causality hide pairs."""
    record = call("GQAVarlenFwdOp", *PACKED, **parameters)
    assert roofline.flops(record) == 4 * pairs * 4 * 8


def test_the_cost_of_a_paged_call_follows_from_its_lengths() -> None:
    """Of the pages, only the keys that the requests have are counted."""
    pages = half(10, 4, 2, 8)
    lengths = torch.tensor([7, 9], dtype=torch.int32)
    record = call("GQAPagedFwdOp", half(5, 4, 8), pages, pages, whole(2, 3), lengths, OFFSETS)
    assert roofline.flops(record) == 4 * (5 + 6 + 7 + 8 + 9) * 4 * 8
    rest = 2 * 5 * 4 * 8 * 2 + 2 * 3 * 4 + 2 * 4 + 3 * 4
    assert roofline.bytes_moved(record) == rest + 2 * (7 + 9) * 2 * 8 * 2


def test_the_cost_of_experts_found_by_id_follows_from_the_ids() -> None:
    """Pairs whose expert is here are counted, and each of those experts' weights once."""
    ids = torch.tensor([[1, 3], [3, -1], [4, 1]], dtype=torch.int32)
    tensors = half(3, 8), half(3, 8), half(4, 12, 8), half(4, 8, 6), FULL(3, 2), ids
    record = call("IndexedExpertMLPFwdOp", *tensors)
    assert roofline.flops(record) == 4 * 6 * 8 * 6
    assert roofline.bytes_moved(record) == 2 * 3 * 8 * 2 + 2 * 3 * 2 * 4 + 2 * 3 * 8 * 6 * 2
