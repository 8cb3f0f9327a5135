"""IndexedExpertMLPFwdOp: against a loop over tokens and experts, ids that are no expert's, and what it refuses."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from tileops.errors import DeviceError, DTypeError, LayoutError, ParameterTypeError, ShapeError
from tileops.moe import IndexedExpertMLPFwdOp
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, lay_out, poison, poisoned_allocations
from tileops_testing.numerics import assert_close, assert_identical

pytestmark = pytest.mark.op("IndexedExpertMLPFwdOp")

DTYPES = torch.float16, torch.bfloat16
LOWEST, HIGHEST = -(2**31), 2**31 - 1

Tensors = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]


def inputs(
    ids: list[list[int]], device: torch.device, *, h: int = 40, f: int = 24, experts: int = 5, dtype: torch.dtype
) -> Tensors:
    """Tokens, weights of experts small enough that hidden rows stay of the size of tokens, weights of pairs, ids."""
    m, top_k = len(ids), len(ids[0]) if ids else 2
    x = TensorInput(shape=(m, h), dtype=dtype).make(0, device)
    w_gate_up = TensorInput(shape=(experts, 2 * f, h), dtype=dtype).make(1, device) / math.sqrt(h)
    w_down = TensorInput(shape=(experts, h, f), dtype=dtype).make(2, device) / math.sqrt(f)
    weights = TensorInput(shape=(m, top_k), dtype=torch.float32, values="positive").make(3, device)
    return x, w_gate_up, w_down, weights, torch.tensor(ids, dtype=torch.int32, device=device).view(m, top_k)


def by_hand(tensors: Tensors, scale: float = 1.0) -> tuple[Tensor, Tensor]:
    """The weighted sums in float64, one token, expert and hidden row after the other, and what their terms add up to.

    Where a hidden element is rounded to its other neighbour, that weighs more than what float32 adds.
    """
    x, w_gate_up, w_down, weights, ids = tensors
    sums, terms = torch.zeros_like(x, dtype=torch.float64), torch.zeros_like(x, dtype=torch.float64)
    for token in range(ids.shape[0]):
        for place, expert in enumerate(ids[token].tolist()):
            if not 0 <= expert < w_down.shape[0]:
                continue
            gate, up = (w_gate_up[expert].double() @ x[token].double()).chunk(2)
            hidden = (gate / (1 + torch.exp(-gate)) * up).to(x.dtype).double()
            weight = scale * weights[token, place].double()
            sums[token] += weight * (w_down[expert].double() @ hidden)
            terms[token] += weight.abs() * (w_down[expert].double().abs() @ hidden.abs())
    return sums, terms * (torch.finfo(x.dtype).eps / torch.finfo(torch.float32).eps / 32)


def check(tensors: Tensors, scale: float = 1.0) -> Tensor:
    """Compare a call into a buffer of NaN with the loop, and return the buffer."""
    output = poison(torch.empty_like(tensors[0], memory_format=torch.contiguous_format))
    with poisoned_allocations():
        assert IndexedExpertMLPFwdOp(scale)(output, *tensors) is None
    sums, terms = by_hand(tensors, scale)
    assert_close(output, sums, dtype=output.dtype, summed=tensors[0].shape[1], terms=terms, roundings=2)
    return output


IDS: dict[str, list[list[int]]] = {
    "one-token": [[3, 1]],
    "three-tokens": [[3, 1], [0, 3], [4, 2]],
    "32-tokens": [[token % 5, (token + 1 + token // 5) % 5] for token in range(32)],
    "all-on-one-expert": [[2, 2]] * 9,
    "an-expert-twice": [[1, 1], [1, 0]],
    "every-expert": [[4, 2, 0, 1, 3], [0, 1, 2, 3, 4]],
    "none-is-here": [[-1, 5], [LOWEST, HIGHEST]],
    "some-are-here": [[-1, 3], [5, 0], [HIGHEST, LOWEST], [2, 4]],
    "one-choice": [[4], [4], [0]],
}
"""Ids of five experts."""


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("ids", IDS.values(), ids=IDS)
def test_agrees_with_a_loop(ids: list[list[int]], dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Every routing gives what a loop over tokens and their experts gives, whatever the buffer held."""
    check(inputs(ids, tileops_device, dtype=dtype))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("h", "f"), [(33, 17), (1, 1), (40, 3), (7, 16), (520, 264), (136, 1030)])
def test_any_extents(h: int, f: int, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Hidden sizes and expert widths need be no multiples of anything."""
    check(inputs(IDS["some-are-here"], tileops_device, h=h, f=f, dtype=dtype), scale=2.5)


def test_an_id_that_is_no_experts_is_worth_nothing(tileops_device: torch.device) -> None:
    """Its weight may be NaN or infinite; a token without any expert gives zeros."""
    tensors = inputs([[-1, 2], [5, LOWEST], [3, HIGHEST]], tileops_device, dtype=torch.bfloat16)
    tensors[3][0, 0], tensors[3][1], tensors[3][2, 1] = math.nan, math.inf, -math.inf
    output = check(tensors)
    assert output[1].eq(0).all()
    assert output[[0, 2]].ne(0).any(-1).all()


def test_other_experts_are_not_read(tileops_device: torch.device) -> None:
    """NaN in the weights of an expert that no token is routed to reaches no result."""
    tensors = inputs([[1, 3], [3, -1]], tileops_device, dtype=torch.float16)
    for weights in tensors[1:3]:
        weights[[0, 2, 4]] = math.nan
    assert check(tensors).isfinite().all()


def test_nan_stays_with_its_token(tileops_device: torch.device) -> None:
    """A token's NaN, an infinity and a weight's NaN spoil that token alone."""
    tensors = inputs([[1, 3], [3, 0], [1, 4], [3, 1]], tileops_device, dtype=torch.float16)
    clean = check(tensors)
    tensors[0][1, 5], tensors[0][2, 7], tensors[3][3, 1] = math.nan, math.inf, math.nan
    output = torch.empty_like(clean)
    IndexedExpertMLPFwdOp()(output, *tensors)
    assert output.isfinite().all(-1).tolist() == [True, False, False, False]
    assert_identical(output[0], clean[0])


@pytest.mark.parametrize(
    ("m", "top_k", "experts", "f"), [(0, 2, 5, 24), (3, 0, 5, 24), (3, 2, 0, 24), (3, 2, 5, 0), (0, 0, 0, 0)]
)
def test_without_pairs_experts_or_hidden_columns(
    m: int, top_k: int, experts: int, f: int, tileops_device: torch.device
) -> None:
    """Where nothing is summed the buffer is filled with zeros, and nothing is built."""
    x = torch.ones(m, 16, dtype=torch.bfloat16, device=tileops_device)
    ids = torch.zeros(m, top_k, dtype=torch.int32, device=tileops_device)
    output, op = torch.full_like(x, math.nan), IndexedExpertMLPFwdOp()
    op(output, x, x.new_ones(experts, 2 * f, 16), x.new_ones(experts, 16, f), ids.float(), ids)
    assert output.eq(0).all()


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != "contiguous"])
def test_inputs_in_any_layout(layout: Layout, tileops_device: torch.device) -> None:
    """Every input may lie otherwise in memory, and is not written."""
    dense = inputs(IDS["some-are-here"], tileops_device, dtype=torch.float16)
    x, w_gate_up, w_down, weights, ids = (lay_out(tensor, layout) for tensor in dense)
    given = x, w_gate_up, w_down, weights, ids
    copies = [tensor.clone() for tensor in given]
    output = torch.empty_like(dense[0])
    IndexedExpertMLPFwdOp()(output, *given)
    expected = torch.empty_like(output)
    IndexedExpertMLPFwdOp()(expected, *(tensor.clone(memory_format=torch.contiguous_format) for tensor in given))
    assert_identical(output, expected)
    for tensor, copy in zip(given, copies, strict=True):
        assert_identical(tensor, copy)


def test_a_buffer_between_accesses(tileops_device: torch.device) -> None:
    """A buffer that begins at any element is written as an aligned one is, and nothing beside it."""
    tensors = inputs(IDS["three-tokens"], tileops_device, dtype=torch.bfloat16)
    around = torch.full((3 * 40 + 2,), 7.0, dtype=torch.bfloat16, device=tileops_device)
    IndexedExpertMLPFwdOp()(around[1:-1].view(3, 40), *tensors)
    assert_identical(around[1:-1].view(3, 40), check(tensors))
    assert around[[0, -1]].eq(7).all()


def test_the_record_counts_experts_that_are_read(tileops_device: torch.device) -> None:
    """A call costs its pairs' products, and the weights of those experts that have a token, once."""
    tensors = inputs([[1, 3], [3, -1]], tileops_device, dtype=torch.bfloat16)
    output = torch.empty_like(tensors[0])
    op = IndexedExpertMLPFwdOp()
    op(output, *tensors)
    assert op.last_call.written == ("output",)
    cost = op.eval_roofline()
    assert cost.flops == 3 * 6 * 40 * 24
    assert cost.bytes == 2 * (2 * 40 * 2) + 2 * (2 * 2 * 4) + 2 * (3 * 40 * 24 * 2)


@pytest.mark.parametrize("name", ["hidden_states", "w_gate_up", "w_down", "topk_weights", "topk_ids"])
def test_refuses_a_buffer_within_an_input(name: str, tileops_device: torch.device) -> None:
    """A buffer that shares memory with an input would be written while that is read."""
    tensors = inputs([[1, 3]] * 20, tileops_device, f=40, dtype=torch.bfloat16)
    names = "hidden_states", "w_gate_up", "w_down", "topk_weights", "topk_ids"
    shared = torch.empty(20 * 40 * 16, dtype=torch.uint8, device=tileops_device)
    given = dict(zip(names, tensors, strict=True))
    if name.startswith("topk"):
        given[name] = shared[: 20 * 2 * 4].view(given[name].dtype).view(20, 2).copy_(given[name])
        output = shared[: 20 * 40 * 2].view(torch.bfloat16).view(20, 40)
    else:
        output = given[name].reshape(-1)[: 20 * 40].view(20, 40)
    with pytest.raises(LayoutError) as caught:
        IndexedExpertMLPFwdOp()(output, **given)
    assert str(caught.value) == (
        f"IndexedExpertMLPFwdOp: output: expected memory of its own, received some of {name}; pass another buffer"
    )


def test_refuses_what_does_not_fit() -> None:
    """Each wrong argument is named with what was expected, before a kernel is built."""
    device, op = torch.device("cpu"), IndexedExpertMLPFwdOp()
    x, w_gate_up, w_down, weights, ids = inputs([[1, 3], [0, 2]], device, dtype=torch.bfloat16)
    output = torch.empty_like(x)
    with pytest.raises(ShapeError, match=r"w_down: expected shape \[5, 40, 24\].*received \[5, 40, 23\]"):
        op(output, x, w_gate_up, w_down[..., :23], weights, ids)
    with pytest.raises(ShapeError, match=r"hidden_states: expected shape \[2, 40\].*received \[1, 40\]"):
        op(output, x[:1], w_gate_up, w_down, weights, ids)
    with pytest.raises(DTypeError, match=r"topk_ids: expected dtype int32.*received int64"):
        op(output, x, w_gate_up, w_down, weights, ids.long())
    with pytest.raises(DTypeError, match=r"w_down: expected dtype bfloat16.*received float16"):
        op(output, x, w_gate_up, w_down.half(), weights, ids)
    with pytest.raises(DeviceError, match="topk_ids: expected device cpu, as output has, received device meta"):
        op(output, x, w_gate_up, w_down, weights, ids.to("meta"))
    mend = r"; allocate output = torch.empty_like\(output, {}\) before the call, which writes it$"
    layout = r"output: expected a contiguous tensor, received strides \[1, 2\]"
    with pytest.raises(LayoutError, match=layout + mend.format("memory_format=torch.contiguous_format")):
        op(torch.empty(40, 2, dtype=torch.bfloat16).t(), x, w_gate_up, w_down, weights, ids)
    with pytest.raises(DTypeError, match="output: expected dtype .*received float32" + mend.format("dtype=torch.*16")):
        op(output.float(), x, w_gate_up, w_down, weights, ids)
    with pytest.raises(ParameterTypeError, match="routed_scaling_factor"):
        IndexedExpertMLPFwdOp("2")  # type: ignore[arg-type]
    assert list(op.iter_kernels()) == []


def test_compiles_to_one_node(tileops_device: torch.device) -> None:
    """Compiled cold, the graph holds one operator, which writes the buffer as an eager call does."""
    torch.compiler.reset()
    tensors = inputs(IDS["three-tokens"], tileops_device, dtype=torch.bfloat16)
    op, backend, output = IndexedExpertMLPFwdOp(2.0), RecordingBackend(), poison(torch.empty_like(tensors[0]))
    torch.compile(op, fullgraph=True, backend=backend)(output, *tensors)
    assert len(backend.graphs) == 1
    assert_identical(output, check(tensors, 2.0))
