"""FusedMoEExpertsFwdOp: which stages run, what they write, and what compiled code holds."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest
import torch
from torch import Tensor

from tileops.errors import LayoutError, ParameterError, ShapeError
from tileops.moe import FusedMoEExpertsFwdOp, FusedMoEFwdOp, FusedMoESharedExpertFwdOp, IndexedExpertMLPFwdOp
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import TensorInput
from tileops_testing.numerics import assert_close, assert_identical
from tileops_testing.references.moe import REFERENCES

pytestmark = pytest.mark.op("FusedMoEExpertsFwdOp")

PERMUTED = {"pre_permute": 1, "expert_mlp": 1, "post_permute": 1}
INDEXED = {"indexed": 1}
Activation = Literal["silu_and_mul", "gelu_and_mul"]
Arguments = tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]


def arguments(
    ids: Tensor, experts: int, h: int, f: int, device: torch.device, dtype: torch.dtype = torch.bfloat16
) -> Arguments:
    """A buffer of NaN, activations and weights of unit results, random weights of choices, and the ids."""
    m, k = ids.shape
    x, gate_up, down = (
        TensorInput(shape=shape, dtype=torch.float32).make(seed, device)
        for seed, shape in enumerate(((m, h), (experts, 2 * f, h), (experts, h, f)))
    )
    weights = torch.rand(m, k, generator=torch.Generator().manual_seed(3)).to(device)
    output = torch.full((m, h), torch.nan, dtype=dtype, device=device)
    return (
        output,
        x.to(dtype),
        (gate_up / h**0.5).to(dtype),
        (down / f**0.5).to(dtype),
        weights,
        ids.to(torch.int32).to(device),
    )


def random_ids(m: int, k: int, experts: int) -> Tensor:
    return torch.rand(m, experts, generator=torch.Generator().manual_seed(m)).argsort(1)[:, :k].int()


def assert_agrees(
    op: FusedMoEExpertsFwdOp, given: Arguments, scale: float = 1.0, activation: Activation = "silu_and_mul"
) -> None:
    """Call the op and compare what it wrote with the reference; nothing is returned."""
    copies = tuple(tensor.clone() for tensor in given)
    parameters = {"routed_scaling_factor": scale, "activation": activation}
    expected = REFERENCES["FusedMoEExpertsFwdOp"].expected(copies, parameters)
    result: object = op(*given)
    assert result is None
    terms = expected.written["output"]
    summed = max(given[2].shape[2], given[3].shape[2])
    assert_close(given[0], copies[0], dtype=given[0].dtype, summed=summed, terms=terms, roundings=3)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("m", [0, 1, 3, 32, 512, 4096])
def test_agrees_with_a_loop_over_experts(m: int, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """From no token to a prompt's, on either way through the stages."""
    op = FusedMoEExpertsFwdOp(2.5)
    given = arguments(random_ids(m, 3, 9), 9, 128, 256, tileops_device, dtype)
    assert_agrees(op, given, 2.5)
    stages = {stage: len(calls) for stage, calls in op.last_call.stages.items()}
    assert stages == ({} if m == 0 else INDEXED if 3 * m <= 18 else PERMUTED)


@pytest.mark.parametrize("m", [2, 40])
@pytest.mark.parametrize(
    ("ids", "experts"),
    [
        (lambda m: torch.full((m, 2), 4), 7),
        (lambda m: torch.arange(5).repeat(m, 1), 5),
        (lambda m: torch.tensor([[0, 6]]).repeat(m, 1), 7),
        (lambda m: torch.full((m, 3), -1), 7),
        (lambda m: torch.tensor([[2, 7, -(2**31)], [2**31 - 1, 0, 3]]).repeat(m // 2, 1), 7),
    ],
    ids=["one expert twice", "every expert", "experts without tokens", "no expert here", "some experts elsewhere"],
)
def test_any_choice_of_experts(ids: object, experts: int, m: int, tileops_device: torch.device) -> None:
    """An id that is not here contributes nothing, and a token without any other gets zeros."""
    assert callable(ids)
    given = arguments(ids(m), experts, 128, 256, tileops_device)
    assert_agrees(FusedMoEExpertsFwdOp(), given)


@pytest.mark.parametrize(
    ("m", "h", "f", "activation", "stages"),
    [
        (4, 128, 256, "silu_and_mul", INDEXED),
        (5, 128, 256, "silu_and_mul", PERMUTED),
        (4, 64, 256, "silu_and_mul", PERMUTED),
        (4, 128, 128, "silu_and_mul", PERMUTED),
        (4, 128, 256, "gelu_and_mul", PERMUTED),
    ],
)
def test_the_way_of_few_tokens_has_its_conditions(
    m: int, h: int, f: int, activation: Activation, stages: dict[str, int], tileops_device: torch.device
) -> None:
    """Two pairs for each expert at most, whole tiles of weights, and silu."""
    op = FusedMoEExpertsFwdOp(activation=activation)
    assert_agrees(op, arguments(random_ids(m, 2, 4), 4, h, f, tileops_device), activation=activation)
    assert {stage: len(calls) for stage, calls in op.last_call.stages.items()} == stages


def test_both_ways_agree(tileops_device: torch.device) -> None:
    """What is rounded on one way and not on the other stays within the results' precision."""
    few = arguments(random_ids(3, 2, 4), 4, 128, 256, tileops_device)
    many = tuple(torch.cat([tensor, tensor]) if place in (0, 1, 4, 5) else tensor for place, tensor in enumerate(few))
    op = FusedMoEExpertsFwdOp()
    op(*few)
    op(*many)
    torch.testing.assert_close(many[0][:3], few[0], rtol=2e-2, atol=2e-2)
    assert_identical(many[0][:3], many[0][3:])


@pytest.mark.parametrize(
    ("m", "stages"),
    [
        (3, ["tileops::moe_indexed_expert_mlp_fwd_writes_output"]),
        (
            40,
            [
                "tileops::moe_pre_permute_fwd",
                "tileops::moe_grouped_gemm_fwd",
                "tileops::moe_grouped_gemm_fwd",
                "tileops::moe_post_permute_fwd_out",
            ],
        ),
    ],
)
def test_compiles_cold_where_the_number_of_experts_is_given(
    m: int, stages: list[str], tileops_device: torch.device
) -> None:
    """Every sub-op is then held at construction, and the one graph holds the stages' operators."""
    op = FusedMoEExpertsFwdOp(num_experts=4)
    given = arguments(random_ids(m, 2, 4), 4, 128, 256, tileops_device)
    recording = RecordingBackend("aot_eager")
    torch.compile(op, fullgraph=True, backend=recording)(*given)
    assert len(recording.graphs) == 1
    assert [name for name in recording.names() if name != "_operator.getitem"] == stages
    again = (torch.full_like(given[0], torch.nan), *given[1:])
    FusedMoEExpertsFwdOp()(*again)
    assert_identical(given[0], again[0])


def test_a_call_of_few_tokens_prepares_compiled_ones_of_many(tileops_device: torch.device) -> None:
    """Any call holds what every number of tokens needs."""
    op = FusedMoEExpertsFwdOp()
    op(*arguments(random_ids(1, 2, 4), 4, 128, 256, tileops_device))
    assert set(op.last_call.stages) == {"indexed"}
    given = arguments(random_ids(40, 2, 4), 4, 128, 256, tileops_device)
    torch.compile(op, fullgraph=True, backend="eager")(*given)
    assert not given[0].isnan().any()


@pytest.mark.parametrize("m", [0, 3])
def test_without_experts_results_are_zeros(m: int, tileops_device: torch.device) -> None:
    """Every id stands for an expert that is elsewhere."""
    given = arguments(torch.zeros(m, 2), 0, 64, 32, tileops_device)
    FusedMoEExpertsFwdOp()(*given)
    assert torch.equal(given[0], torch.zeros_like(given[0]))


@pytest.mark.parametrize("m", [2, 40])
def test_the_output_shares_no_memory_with_inputs(m: int, tileops_device: torch.device) -> None:
    """Whichever way the call would take, the composite refuses it before anything is written."""
    _, x, gate_up, down, weights, ids = arguments(random_ids(m, 2, 4), 4, 128, 256, tileops_device)
    before = x.clone()
    op = FusedMoEExpertsFwdOp()
    with pytest.raises(
        LayoutError, match=r"FusedMoEExpertsFwdOp: output: expected memory of its own, received some of "
    ):
        op(x, x, gate_up, down, weights, ids)
    with pytest.raises(LayoutError, match=r"received some of w_down; pass another buffer"):
        op(down.flatten()[: m * 128].view(m, 128), x, gate_up, down, weights, ids)
    assert_identical(x, before)


def test_another_number_of_experts_is_refused(tileops_device: torch.device) -> None:
    """The number that construction was told holds for every call."""
    given = arguments(random_ids(5, 2, 4), 4, 64, 32, tileops_device)
    with pytest.raises(ShapeError) as failure:
        FusedMoEExpertsFwdOp(num_experts=6)(*given)
    assert str(failure.value) == (
        "FusedMoEExpertsFwdOp: w_down: expected the weights of 6 experts, as num_experts says, received those of 4; "
        "construct the op for the experts that there are"
    )


def test_compiling_before_the_sub_op_is_held_says_what_to_do(tileops_device: torch.device) -> None:
    """A call on meta tensors is enough, and builds nothing."""
    op = FusedMoEExpertsFwdOp()
    given = arguments(random_ids(40, 2, 4), 4, 128, 256, tileops_device)
    compiled = torch.compile(op, fullgraph=True, backend="eager")
    with pytest.raises(Exception, match=r"pre_permute: expected a sub-op held before tracing.*call the op once"):
        compiled(*given)
    torch.compiler.reset()
    op(*(tensor.to("meta") for tensor in given))
    assert list(op.iter_kernels()) == []
    compiled(*given)
    assert not given[0].isnan().any()


def test_a_copy_holds_copies_of_the_stages(tileops_device: torch.device) -> None:
    """A pickled instance gives the same, with sub-ops of its own."""
    op = FusedMoEExpertsFwdOp(0.5)
    given = arguments(random_ids(40, 2, 4), 4, 64, 32, tileops_device)
    op(*given)
    copy = pickle.loads(pickle.dumps(op))  # noqa: S301 - what this test has pickled
    again = (torch.full_like(given[0], torch.nan), *given[1:])
    copy(*again)
    assert_identical(given[0], again[0])
    assert not set(map(id, op.held_delegates())) & set(map(id, copy.held_delegates()))


def test_wrong_calls_are_refused_before_anything_is_written(tileops_device: torch.device) -> None:
    """The composite's own signature refuses them, and the buffer is as it was."""
    op = FusedMoEExpertsFwdOp()
    given = arguments(random_ids(3, 2, 4), 4, 64, 32, tileops_device)
    output, x, gate_up, down, weights, ids = given
    with pytest.raises(ShapeError, match="FusedMoEExpertsFwdOp: w_down: "):
        op(output, x, gate_up, down[:, :32], weights, ids)
    with pytest.raises(LayoutError, match="FusedMoEExpertsFwdOp: output: expected a contiguous tensor"):
        op(output.t().contiguous().t(), x, gate_up, down, weights, ids)
    assert output.isnan().all()
    assert op.serving_target is None


def test_the_number_of_experts_is_a_count() -> None:
    """What is none is refused at construction."""
    with pytest.raises(ParameterError, match="FusedMoEExpertsFwdOp: num_experts: expected a positive multiple of 1"):
        FusedMoEExpertsFwdOp(num_experts=-1)


@pytest.mark.parametrize("factor", [1e39, -1e39, math.inf, -math.inf, math.nan])
@pytest.mark.parametrize(
    "make",
    [
        partial(FusedMoEFwdOp, 2, "softmax", False),
        partial(FusedMoESharedExpertFwdOp, 2, "softmax", False),
        FusedMoEExpertsFwdOp,
        IndexedExpertMLPFwdOp,
    ],
)
def test_factors_without_float32_are_refused(make: Callable[[float], object], factor: float) -> None:
    """A token without experts is zero times the factor, which is NaN for one that is infinite in float32."""
    expected = "a number that float32 holds" if math.isfinite(factor) else "a finite number"
    with pytest.raises(ParameterError) as failure:
        make(factor)
    assert str(failure.value).partition(": ")[2] == (
        f"routed_scaling_factor: expected {expected}, received {factor}; pass {expected}"
    )
    make(3.4e38)
