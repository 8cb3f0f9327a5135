"""ExpertParallelPrepareFinalize: experts shared among processes give what one process gives."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch

from tileops.errors import ArgumentError, ParameterError, ParameterTypeError
from tileops.moe import Dispatch, ExpertParallelPrepareFinalize, FusedMoEFwdOp
from tileops_testing.numerics import assert_identical
from tileops_testing.references.moe import fused_topk_fwd

from . import ranks

pytestmark = [pytest.mark.op("FusedMoEFwdOp"), pytest.mark.xdist_group("ranks")]


def skip_without_devices(size: int, device: torch.device) -> None:
    """Each rank needs a device of its own."""
    if device.type == "cuda" and torch.cuda.device_count() < size:
        pytest.skip(f"{size} ranks need as many CUDA devices, there are {torch.cuda.device_count()}")


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_give_what_one_process_gives(size: int, tileops_device: torch.device, tmp_path: Path) -> None:
    """A rank without tokens takes part; tokens whose experts are all on one rank have the same bits.

    Neither does any rank need a token, and what does not fit the group is refused before anything is sent.
    """
    skip_without_devices(size, tileops_device)
    gate_up, down = (tensor.to(tileops_device) for tensor in ranks.weights())
    op = FusedMoEFwdOp(ranks.TOP_K, renormalize=True, routed_scaling_factor=1.5)
    for rank, found in enumerate(ranks.run_ranks(ranks.mixture, size, tileops_device.type, tmp_path)):
        x, logits = (tensor.to(tileops_device) for tensor in ranks.tokens_of(rank))
        expected = op(x, logits, gate_up, down).cpu()
        first, second = found["results"]
        assert_identical(first, second)
        torch.testing.assert_close(first, expected, rtol=2e-2, atol=2e-2)
        _, ids = fused_topk_fwd(logits.cpu(), None, top_k=ranks.TOP_K)
        owners = ids // (ranks.EXPERTS // size)
        together = (owners == owners[:, :1]).all(1)
        assert_identical(first[together], expected[together])
        assert (found["ep_size"], found["stages"], found["nothing"].shape) == (size, ["topk", "experts"], (0, 64))
        assert_refusals(size, *found["refused"][:4])
        first = int(rank == 0)
        assert found["refused"][4] == (
            "ExpertParallelPrepareFinalize: prepare: expected every rank to pass 8 experts, "
            f"rows of {64 - rank} bfloat16, top_k=3, received 8 experts, rows of {64 - first} bfloat16, "
            f"top_k=3 from rank {first}; "
            "construct the op and call it alike on every rank"
        )


def assert_refusals(size: int, number: str, columns: str, experts: str, compiled: str) -> None:
    """Each names what was expected: the ranks' number of experts, logits for all, a rank's weights, an eager call."""
    assert number == (
        f"ExpertParallelPrepareFinalize: num_experts: expected a multiple of the group's {size} ranks, received 9; "
        "give each rank as many experts"
    )
    assert columns == (
        "FusedMoEFwdOp: gating_output: expected 8 columns, the experts of prepare_finalize, received 4; "
        "construct the op for the experts that there are"
    )
    assert f"FusedMoEFwdOp: w_gate_up: expected shape [{8 // size}, 2 * F, 64] for E=8, ep_size={size}" in experts
    assert (
        "ExpertParallelPrepareFinalize: prepare: expected an eager call, received one under torch.compile, which "
        "cannot wait for the ranks' counts; compile the code around the op"
    ) in compiled


def test_the_others_raise_where_a_rank_dies(
    tileops_device: torch.device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They meet torch's error, within the group's timeout."""
    skip_without_devices(2, tileops_device)
    monkeypatch.setenv("TILEOPS_TEST_RANKS", str(tmp_path))
    found = ranks.run_ranks(ranks.one_rank_dies, 2, tileops_device.type, tmp_path)
    assert found[1] == "gone"
    assert found[0] in {"RuntimeError", "DistBackendError", "DistNetworkError"}


def test_a_group_is_needed() -> None:
    """Its absence is said at construction, with what to call."""
    with pytest.raises(ParameterError) as failure:
        ExpertParallelPrepareFinalize(8)
    assert str(failure.value) == (
        "ExpertParallelPrepareFinalize: group: expected an initialised process group, received none; "
        "call torch.distributed.init_process_group first"
    )


def test_copies_other_groups_and_another_form_s_dispatch(tmp_path: Path) -> None:
    """A deep copy is the object itself, a pickled one takes the default group; what belongs elsewhere is refused."""
    store = f"file://{tmp_path / 'store'}"
    torch.distributed.init_process_group("gloo", init_method=store, rank=0, world_size=1)
    try:
        strange: Any = torch.distributed.GroupMember.NON_GROUP_MEMBER
        untyped: Any = "8"
        with pytest.raises(
            ParameterTypeError, match=r"num_experts: expected an int, received '8'; pass the number of all"
        ):
            ExpertParallelPrepareFinalize(untyped)
        with pytest.raises(ParameterError, match=r"group: expected a group that this process belongs to, received"):
            ExpertParallelPrepareFinalize(8, strange)
        form = ExpertParallelPrepareFinalize(8)
        assert copy.deepcopy(form) is form
        assert pickle.loads(pickle.dumps(form)).num_experts == 8  # noqa: S301 - what this test has pickled
        x, ids = torch.ones(2, 4), torch.zeros(2, 1, dtype=torch.int32)
        with pytest.raises(
            ArgumentError, match=r"dispatch: expected what prepare of this class returned, received route="
        ):
            form.finalize(x, Dispatch(hidden_states=x, topk_weights=torch.ones(2, 1), topk_ids=ids))
    finally:
        torch.distributed.destroy_process_group()
