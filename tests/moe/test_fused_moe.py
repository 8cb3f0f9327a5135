"""FusedMoEFwdOp and FusedMoESharedExpertFwdOp: routing, experts and the shared expert as one composite."""

from __future__ import annotations

import copy
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tileops.errors import DelegateError, ParameterError, ParameterTypeError, RuleError, ShapeError
from tileops.moe import (
    Dispatch,
    FusedMoEExpertsFwdOp,
    FusedMoEFwdOp,
    FusedMoESharedExpertFwdOp,
    IndexedExpertMLPFwdOp,
    LocalPrepareFinalize,
)
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import TensorInput
from tileops_testing.numerics import assert_identical
from tileops_testing.references.moe import fused_topk_fwd

pytestmark = pytest.mark.op("FusedMoEFwdOp", "FusedMoESharedExpertFwdOp")

Arguments = tuple[Tensor, Tensor, Tensor, Tensor]


def arguments(
    m: int, device: torch.device, experts: int = 6, h: int = 64, f: int = 32, dtype: torch.dtype = torch.bfloat16
) -> Arguments:
    """Activations, logits, and experts' weights of unit results."""
    x, logits, gate_up, down = (
        TensorInput(shape=shape, dtype=torch.float32).make(seed, device)
        for seed, shape in enumerate(((m, h), (m, experts), (experts, 2 * f, h), (experts, h, f)))
    )
    return x.to(dtype), logits, (gate_up / h**0.5).to(dtype), (down / f**0.5).to(dtype)


def shared_weights(h: int, s: int, device: torch.device, dtype: torch.dtype = torch.bfloat16) -> tuple[Tensor, Tensor]:
    gate_up, down = (
        TensorInput(shape=shape, dtype=torch.float32).make(seed, device)
        for seed, shape in enumerate(((2 * s, h), (h, s)), 7)
    )
    return (gate_up / h**0.5).to(dtype), (down / s**0.5).to(dtype)


def mlp(x: Tensor, gate_up: Tensor, down: Tensor) -> Tensor:
    """One expert in float32."""
    gate, up = (x.float() @ gate_up.float().T).chunk(2, -1)
    return (functional.silu(gate) * up) @ down.float().T


def naive(given: Arguments, scale: float = 1.0, **routing: Any) -> Tensor:
    """A loop over experts in float32."""
    x, logits, gate_up, down = given
    weights, ids = fused_topk_fwd(logits, None, **routing)
    total = torch.zeros_like(x, dtype=torch.float32)
    for expert in range(gate_up.shape[0]):
        tokens, places = (ids == expert).nonzero(as_tuple=True)
        part = weights[tokens, places, None].float() * mlp(x[tokens], gate_up[expert], down[expert])
        total.index_add_(0, tokens, part)
    return scale * total


def assert_near(result: Tensor, expected: Tensor) -> None:
    """Within three roundings of unit results to the dtype."""
    precision = torch.finfo(result.dtype).eps
    torch.testing.assert_close(result.float(), expected, rtol=4 * precision, atol=4 * precision)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("m", [0, 1, 3, 32, 512, 4096])
def test_agrees_with_a_loop_over_experts(m: int, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """From no token to a prompt's; two stages are filed, and the experts' own below them."""
    op = FusedMoEFwdOp(2, renormalize=True, routed_scaling_factor=1.5)
    given = arguments(m, tileops_device, dtype=dtype)
    assert_near(op(*given), naive(given, 1.5, top_k=2, renormalize=True))
    stages = op.last_call.stages
    assert {stage: len(calls) for stage, calls in stages.items()} == ({} if m == 0 else {"topk": 1, "experts": 1})
    if m:
        assert set(stages["experts"][0].stages) == {"pre_permute", "expert_mlp", "post_permute"}


@pytest.mark.parametrize("top_k", [1, 6])
def test_one_expert_and_all_experts(top_k: int, tileops_device: torch.device) -> None:
    """A token may have any number of them."""
    given = arguments(5, tileops_device)
    assert_near(FusedMoEFwdOp(top_k)(*given), naive(given, top_k=top_k))


def test_a_bias_chooses_and_does_not_weigh(tileops_device: torch.device) -> None:
    """All tokens go to the experts that the bias favours, with their sigmoid scores as weights."""
    given = arguments(9, tileops_device)
    bias = torch.tensor([0.0, 9.0, 0.0, 9.0, 0.0, 0.0], device=tileops_device)
    op = FusedMoEFwdOp(2, "sigmoid")
    x, logits, gate_up, down = given
    scores = logits.sigmoid()
    expected = sum(scores[:, expert, None] * mlp(x, gate_up[expert], down[expert]) for expert in (1, 3))
    assert isinstance(expected, Tensor)
    assert_near(op(*given, bias), expected)


@pytest.mark.parametrize("m", [3, 40])
def test_the_shared_expert_is_beside_the_routed_ones(m: int, tileops_device: torch.device) -> None:
    """Both results are returned apart; without shared weights the first is None, and its stage does not run."""
    op = FusedMoESharedExpertFwdOp(2)
    given = arguments(m, tileops_device)
    weights = shared_weights(64, 48, tileops_device)
    shared, routed = op(*given, None, *weights)
    assert shared is not None
    assert_near(shared, mlp(given[0], *weights))
    assert_identical(routed, FusedMoEFwdOp(2)(*given))
    assert set(op.last_call.stages) == {"topk", "experts", "shared"}
    nothing, again = op(*given)
    assert nothing is None
    assert_identical(again, routed)
    assert set(op.last_call.stages) == {"topk", "experts"}


@pytest.mark.parametrize("size", [1, 2, 4])
def test_ranks_hold_parts_of_the_shared_expert(size: int, tileops_device: torch.device) -> None:
    """Their partial sums add up to the whole, and a rank's own part of the weights gives the same bits."""
    given = arguments(9, tileops_device)
    gate_up, down = shared_weights(64, 48, tileops_device)
    parts = []
    for rank in range(size):
        part, _ = FusedMoESharedExpertFwdOp(2, tp_size=size, tp_rank=rank)(*given, None, gate_up, down)
        assert part is not None
        rows = gate_up.view(2, size, -1, 64)[:, rank].reshape(-1, 64)
        own, _ = FusedMoESharedExpertFwdOp(2)(*given, None, rows, down.view(64, size, -1)[:, rank].contiguous())
        assert own is not None
        assert_identical(part, own)
        parts.append(part.float())
    torch.testing.assert_close(sum(parts), mlp(given[0], gate_up, down), rtol=2e-2, atol=4e-2)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: FusedMoESharedExpertFwdOp(2, tp_size=2, tp_rank=2),
            "FusedMoESharedExpertFwdOp: tp_rank: expected 0 to 1 for tp_size=2, received 2; pass tp_rank of 0 to 1",
        ),
        (lambda: FusedMoEFwdOp(0), "FusedMoEFwdOp: top_k: expected at least 1, received 0; pass top_k of at least 1"),
        (lambda: FusedMoESharedExpertFwdOp(-1), "FusedMoESharedExpertFwdOp: top_k: expected at least 1, received -1"),
        (
            lambda: FusedMoEFwdOp(5, num_experts=4),
            ("FusedMoEFwdOp: top_k: expected at most 4, the experts of num_experts, received 5; pass top_k of 1 to 4"),
        ),
        (
            lambda: FusedMoEFwdOp(5, prepare_finalize=LocalPrepareFinalize(num_experts=4)),
            "FusedMoEFwdOp: top_k: expected at most 4, the experts of prepare_finalize, received 5; ",
        ),
        (lambda: FusedMoEFwdOp(2, ep_size=0), "ep_size: expected 1, which prepare_finalize decides, received 0"),
        (
            lambda: FusedMoEFwdOp(2, ep_size=2),
            (
                "FusedMoEFwdOp: ep_size: expected 1, which prepare_finalize decides, received 2; "
                "leave it out, or give prepare_finalize the same"
            ),
        ),
        (
            lambda: FusedMoEFwdOp(2, routed_scaling_factor=2.0, experts=FusedMoEExpertsFwdOp(3.0)),
            "FusedMoEFwdOp: routed_scaling_factor: expected 3.0, which experts decides, received 2.0; ",
        ),
        (
            lambda: FusedMoEFwdOp(2, num_experts=0),
            "FusedMoEFwdOp: num_experts: expected a positive multiple of 1, received 0; pass the number of experts",
        ),
        (
            lambda: FusedMoEFwdOp(2, activation="gelu_and_mul", experts=FusedMoEExpertsFwdOp()),
            "activation: expected 'silu_and_mul', which experts decides, received 'gelu_and_mul'",
        ),
    ],
)
def test_parameters_that_cannot_hold_are_refused(make: Callable[[], object], message: str) -> None:
    """At construction, with what decides them."""
    with pytest.raises((ParameterError, RuleError), match=message):
        make()


def test_wrong_calls_are_refused_before_any_stage_runs(tileops_device: torch.device) -> None:
    """By the composite's own signature."""
    x, logits, gate_up, down = arguments(5, tileops_device)
    op = FusedMoESharedExpertFwdOp(2)
    with pytest.raises(ShapeError, match="FusedMoESharedExpertFwdOp: w_down"):
        op(x, logits, gate_up, down[:5])
    with pytest.raises(RuleError, match=r"FusedMoESharedExpertFwdOp: .*scoring_func"):
        op(x, logits, gate_up, down, torch.zeros(6, device=tileops_device))
    with pytest.raises(RuleError, match=r"FusedMoESharedExpertFwdOp: .*activation"):
        FusedMoESharedExpertFwdOp(2, activation="gelu_and_mul")(
            x, logits, gate_up, down, None, *shared_weights(64, 48, tileops_device)
        )
    with pytest.raises(RuleError, match=r"top_k: expected at most 6 for E=6 \(axis 1 of gating_output\), received 7"):
        FusedMoEFwdOp(7)(x, logits, gate_up, down)
    assert list(op.iter_kernels()) == []
    assert op.serving_target is None


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"num_experts": "8"}, "FusedMoEFwdOp: num_experts: expected an int or None, received '8'; pass the number"),
        ({"num_experts": True}, "FusedMoEFwdOp: num_experts: expected an int or None, received True"),
        (
            {"experts": 3},
            "FusedMoEFwdOp: experts: expected what has the members of Experts, received 3; see tileops.moe.Experts",
        ),
        (
            {"prepare_finalize": 0},
            "prepare_finalize: expected what has the members of PrepareFinalize, received 0; see",
        ),
        ({"prepare_finalize": LocalPrepareFinalize}, "prepare_finalize: expected what has the members of"),
    ],
)
def test_parts_that_cannot_be_used_are_refused(parts: dict[str, Any], message: str) -> None:
    """At construction, with what is missing."""
    with pytest.raises(ParameterTypeError, match=re.escape(message)):
        FusedMoEFwdOp(2, **parts)


def test_another_number_of_experts_is_refused(tileops_device: torch.device) -> None:
    """The number that construction was told holds for every call."""
    given = arguments(5, tileops_device)
    with pytest.raises(ShapeError) as failure:
        FusedMoEFwdOp(2, num_experts=8)(*given)
    assert str(failure.value) == (
        "FusedMoEFwdOp: gating_output: expected 8 columns, the experts of num_experts, received 6; "
        "construct the op for the experts that there are"
    )


def test_injected_parts_compute_under_every_target(tileops_device: torch.device) -> None:
    """A target's builder is not told of them, so that the composition runs, and its own sub-ops take the target."""
    doubled: Any = Doubled()
    op = FusedMoEFwdOp(2, experts=doubled, target="reference")
    given = arguments(5, tileops_device)
    assert torch.equal(op(*given), 2 * given[0])
    assert [sub_op.serving_target for sub_op in op.held_delegates()] == ["reference"]

    class Negated(LocalPrepareFinalize):
        def finalize(self, expert_output: Tensor, dispatch: Dispatch) -> Tensor:
            return -super().finalize(expert_output, dispatch)

    assert_near(-FusedMoEFwdOp(2, prepare_finalize=Negated(), target="reference")(*given), naive(given, top_k=2))
    whole = FusedMoEFwdOp(2, target="reference")
    assert_near(whole(*given), naive(given, top_k=2))
    assert not whole.last_call.stages


class Doubled:
    """Experts that are no op: twice the first expert, whatever was chosen."""

    activation = "gelu_and_mul"

    def __call__(self, output: Tensor, hidden_states: Tensor, *rest: Tensor) -> None:
        """Write twice the tokens."""
        output.copy_(2 * hidden_states)


def test_injected_experts_compute_and_decide_their_parameters(tileops_device: torch.device) -> None:
    """An op is held under its stage; an object is called, and no stage is filed for it."""
    given = arguments(5, tileops_device)
    experts = FusedMoEExpertsFwdOp(3.0, "gelu_and_mul")
    op = FusedMoEFwdOp(2, experts=experts)
    assert (op.activation, op.routed_scaling_factor) == ("gelu_and_mul", 3.0)
    assert_identical(op(*given), FusedMoEFwdOp(2, routed_scaling_factor=3.0, activation="gelu_and_mul")(*given))
    assert op.last_call.stages["experts"] == (experts.last_call,)

    doubled: Any = Doubled()
    other = FusedMoEFwdOp(2, experts=doubled)
    assert other.activation == "gelu_and_mul"
    assert torch.equal(other(*given), 2 * given[0])
    assert set(other.last_call.stages) == {"topk"}


def test_injected_experts_keep_their_target(tileops_device: torch.device) -> None:
    """Sub-ops that the composite builds take its own."""
    experts = FusedMoEExpertsFwdOp(target="reference")
    op = FusedMoEFwdOp(2, experts=experts)
    given = arguments(5, tileops_device)
    assert_near(op(*given), naive(given, top_k=2))
    topk, held = op.held_delegates()
    assert held is experts
    assert (held.serving_target, topk.serving_target) == ("reference", "builtin")
    own = FusedMoEFwdOp(2, target="builtin")
    assert {sub_op._construction.target for sub_op in own.held_delegates()} == {"builtin"}


def test_an_op_that_is_no_stage_may_not_compute_below(tileops_device: torch.device) -> None:
    """Its completed call is reported to the composite, which does not hold it."""
    stranger = IndexedExpertMLPFwdOp()

    class Strange(Doubled):
        activation = "silu_and_mul"

        def __call__(self, output: Tensor, *rest: Tensor) -> None:
            stranger(output, *rest)

    strange: Any = Strange()
    with pytest.raises(DelegateError, match="expected calls of held sub-ops alone, received one of IndexedExpertMLP"):
        FusedMoEFwdOp(2, experts=strange)(*arguments(5, tileops_device))


def test_a_failing_stage_undoes_the_whole(tileops_device: torch.device) -> None:
    """What the call selected and built is dropped, down to the stages of the stages; the next call succeeds."""

    class Failing(LocalPrepareFinalize):
        fails = True

        def finalize(self, expert_output: Tensor, dispatch: Dispatch) -> Tensor:
            if Failing.fails:
                raise RuntimeError("the way back is closed")
            return super().finalize(expert_output, dispatch)

    op = FusedMoEFwdOp(2, prepare_finalize=Failing())
    given = arguments(5, tileops_device)
    with pytest.raises(RuntimeError, match="the way back is closed"):
        op(*given)
    topk, experts = op.held_delegates()
    below = experts.held_delegates()
    assert {sub_op.serving_target for sub_op in (op, topk, experts, *below)} == {None}
    assert list(op.iter_kernels()) == []
    Failing.fails = False
    assert_near(op(*given), naive(given, top_k=2))


@pytest.mark.parametrize("m", [3, 40])
def test_a_mixture_is_one_graph(m: int, tileops_device: torch.device) -> None:
    """Where every sub-op is held at construction a cold call compiles, with the router's product around it."""
    op = FusedMoESharedExpertFwdOp(2, renormalize=True, num_experts=6)
    x, _, gate_up, down = arguments(m, tileops_device, h=128, f=256)
    weights = shared_weights(128, 48, tileops_device)
    router = TensorInput(shape=(6, 128), dtype=torch.bfloat16).make(5, tileops_device)

    def block(x: Tensor) -> Tensor:
        shared, routed = op(x, (x @ router.T).float(), gate_up, down, None, *weights)
        assert shared is not None
        return x + shared + routed

    recording = RecordingBackend("aot_eager")
    compiled = torch.compile(block, fullgraph=True, backend=recording)(x)
    assert len(recording.graphs) == 1
    experts = {
        3: ["tileops::moe_indexed_expert_mlp_fwd_writes_output"],
        40: [
            "tileops::moe_pre_permute_fwd",
            "tileops::moe_grouped_gemm_fwd",
            "tileops::moe_grouped_gemm_fwd",
            "tileops::moe_post_permute_fwd_out",
        ],
    }
    operators = [name for name in recording.names() if name.startswith("tileops")]
    assert operators == ["tileops::moe_shared_expert_mlp_fwd", "tileops::moe_fused_topk_fwd", *experts[m]]
    assert_identical(compiled, block(x))


def test_copies_hold_what_was_injected(tileops_device: torch.device) -> None:
    """A pickled and a deep copy give the same bits with sub-ops of their own."""
    op = FusedMoEFwdOp(2, experts=FusedMoEExpertsFwdOp(2.0))
    given = arguments(5, tileops_device)
    expected = op(*given)
    for other in (pickle.loads(pickle.dumps(op)), copy.deepcopy(op)):  # noqa: S301 - what this test has pickled
        assert_identical(other(*given), expected)
        assert other.routed_scaling_factor == 2.0
        assert not set(map(id, op.held_delegates())) & set(map(id, other.held_delegates()))
