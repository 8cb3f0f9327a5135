"""GroupNormFwdOp and InstanceNormFwdOp agree with torch, move running statistics, and refuse what their entries do."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tileops.errors import ArgumentError, DTypeError, ParameterError, ParameterTypeError, RuleError, ShapeError
from tileops.norm import GroupNormFwdOp, InstanceNormFwdOp
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, lay_out, poisoned_allocations
from tileops_testing.numerics import assert_close, assert_identical

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
GROUPED = (((4, 6), 2), ((1, 3, 2), 3), ((4, 6, 33), 1), ((3, 8, 7, 7), 4), ((2, 4, 16, 16), 2), ((2, 4, 3, 4, 5), 4))
MAPS = ((1, 3, 2), (4, 7, 33), (3, 5, 7, 7), (2, 3, 16, 16), (2, 2, 3, 4, 5))
AFFINE = pytest.mark.parametrize("affine", [(), ("weight",), ("bias",), ("weight", "bias")], ids="-".join)
group = pytest.mark.op("GroupNormFwdOp")
instance = pytest.mark.op("InstanceNormFwdOp")


def make(*shape: int, dtype: torch.dtype, device: torch.device, layout: Layout = "contiguous", seed: int = 0) -> Tensor:
    return TensorInput(shape=shape, dtype=dtype, layout=layout).make(seed, device)


def statistics(channels: int, device: torch.device, layout: Layout = "contiguous") -> tuple[Tensor, Tensor]:
    mean = make(channels, dtype=torch.float32, device=device, layout=layout, seed=1)
    var = TensorInput(shape=(channels,), dtype=torch.float32, layout=layout, values="positive").make(2, device)
    return mean, var


def sizes_of(normed: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Return what the terms behind each element add up to, from the values without weight and bias."""
    view = (1, -1, *[1] * (normed.ndim - 2))
    sizes = normed.abs() + 1
    if weight is not None:
        sizes = sizes * weight.double().abs().reshape(view)
    return sizes if bias is None else sizes + bias.double().abs().reshape(view)


@group
@AFFINE
@pytest.mark.parametrize(("shape", "groups"), GROUPED, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_groups_agree_with_torch(
    dtype: torch.dtype, shape: tuple[int, ...], groups: int, affine: tuple[str, ...], tileops_device: torch.device
) -> None:
    """Any dtype, axes and groups, with weight and bias each passed or not, gives torch's values, rounded once."""
    x = make(*shape, dtype=dtype, device=tileops_device)
    given = {name: make(shape[1], dtype=dtype, device=tileops_device, seed=len(name)) for name in affine}
    with poisoned_allocations():
        y = GroupNormFwdOp(groups)(x, **given)
    wide = {name: tensor.double() for name, tensor in given.items()}
    expected = functional.group_norm(x.double(), groups, wide.get("weight"), wide.get("bias"))
    sizes = sizes_of(functional.group_norm(x.double(), groups), given.get("weight"), given.get("bias"))
    assert_close(y, expected, dtype=dtype, summed=x[0].numel() // groups, terms=sizes)
    assert (y.shape, y.is_contiguous(), y.device) == (shape, True, x.device)


@instance
@AFFINE
@pytest.mark.parametrize("shape", MAPS, ids=str)
@pytest.mark.parametrize("mode", ["own", "moving", "running"])
def test_instances_agree_with_torch(
    mode: str, shape: tuple[int, ...], affine: tuple[str, ...], tileops_device: torch.device
) -> None:
    """Any axes, with weight and bias each passed or not, gives torch's values and running statistics."""
    x = make(*shape, dtype=torch.float32, device=tileops_device)
    given = {name: make(shape[1], dtype=torch.float32, device=tileops_device, seed=3) for name in affine}
    mine, theirs = statistics(shape[1], tileops_device), statistics(shape[1], tileops_device)
    own = mode != "running"
    op = InstanceNormFwdOp(use_input_stats=own, momentum=0.3)
    with poisoned_allocations():
        y = op(x, **given) if mode == "own" else op(x, *mine, **given)
    mean, var = (None, None) if mode == "own" else theirs
    expected = functional.instance_norm(x, mean, var, given.get("weight"), given.get("bias"), own, 0.3)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    for moved, right in zip(mine, theirs, strict=True):
        torch.testing.assert_close(moved, right, rtol=1e-5, atol=1e-6)
    assert y.is_contiguous()


@instance
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("mode", ["own", "moving", "running"])
def test_half_precision_instances_are_rounded_once(mode: str, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Half-precision maps are normalised in float32; the weight has their dtype and statistics are float32."""
    x = make(4, 5, 40, dtype=dtype, device=tileops_device)
    weight, bias = (make(5, dtype=dtype, device=tileops_device, seed=seed) for seed in (3, 4))
    mine, right = statistics(5, tileops_device), statistics(5, tileops_device)
    own = mode != "running"
    op = InstanceNormFwdOp(use_input_stats=own)
    y = op(x, weight=weight, bias=bias) if mode == "own" else op(x, *mine, weight, bias)
    mean, var = (None, None) if mode == "own" else (right[0].double(), right[1].double())
    plain = (None, None) if own else (right[0].double(), right[1].double())
    normed = functional.instance_norm(x.double(), plain[0], plain[1], use_input_stats=own)
    expected = functional.instance_norm(x.double(), mean, var, weight.double(), bias.double(), own)
    assert_close(y, expected, dtype=dtype, summed=40, terms=sizes_of(normed, weight, bias))
    for moved, exact in zip(mine, (mean, var), strict=True):
        if exact is not None:
            assert_close(moved, exact, dtype=torch.float32, summed=160, terms=exact.abs() + 1)


@group
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts_of_groups(layout: Layout, tileops_device: torch.device) -> None:
    """Whatever the layout of x, weight and bias, equal elements give equal bits."""
    dense = [make(*shape, dtype=torch.float16, device=tileops_device) for shape in ((4, 6, 10), (6,), (6,))]
    laid_out = [lay_out(tensor, layout) for tensor in dense]
    copies = [tensor.clone(memory_format=torch.contiguous_format) for tensor in laid_out]
    op = GroupNormFwdOp(3)
    assert_identical(op(*laid_out), op(*copies))


@group
def test_channels_last(tileops_device: torch.device) -> None:
    """Maps whose channels lie innermost are normalised like others, into plain memory."""
    x = make(2, 6, 5, 7, dtype=torch.float32, device=tileops_device)
    last = x.contiguous(memory_format=torch.channels_last)
    op = GroupNormFwdOp(2)
    assert_identical(op(last), op(x))
    assert op(last).is_contiguous()


@instance
@pytest.mark.parametrize("layout", ["transposed", "sliced", "offset"])
def test_running_statistics_of_any_layout_are_moved_in_place(layout: Layout, tileops_device: torch.device) -> None:
    """Running statistics that lie apart in memory are written where they are, and nothing between them is."""
    x = make(4, 6, 10, dtype=torch.float32, device=tileops_device)
    dense, strided = statistics(6, tileops_device), statistics(6, tileops_device, layout)
    op = InstanceNormFwdOp()
    op(x, *dense)
    op(x, *strided)
    for moved, right in zip(strided, dense, strict=True):
        assert_identical(moved, right)
        around = torch.as_strided(moved, (moved.untyped_storage().nbytes() // 4,), (1,), 0)
        assert int(around.isnan().sum()) == around.numel() - 6


@group
@pytest.mark.parametrize("length", [1, 64, 1000])
def test_large_means_cost_no_digits(length: int, tileops_device: torch.device) -> None:
    """Groups whose mean is thousands of times their spread are normalised as if they were centred."""
    values = torch.tensor([0.0, 2.0, 4.0, 6.0], device=tileops_device)
    right = torch.tensor([-1.341639, -0.447213, 0.447213, 1.341639], device=tileops_device)
    x, expected = (each.repeat(3, 2 * length).reshape(3, 8, length) for each in (values, right))
    for offset in (0.0, 30000.0, -1e6):
        torch.testing.assert_close(GroupNormFwdOp(2)(x + offset), expected, rtol=0, atol=4e-6)


@group
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_nan_and_infinity_stay_in_their_group(dtype: torch.dtype, tileops_device: torch.device) -> None:
    """A NaN or an infinity makes its group NaN and changes no other group by a bit."""
    clean = make(2, 6, 9, dtype=dtype, device=tileops_device)
    spoilt = clean.clone()
    spoilt[0, 3, 0], spoilt[1, 0, 8] = math.nan, math.inf
    op = GroupNormFwdOp(3)
    y, expected = op(spoilt), op(clean)
    assert y[0, 2:4].isnan().all()
    assert y[1, :2].isnan().all()
    assert_identical(y[0, [0, 1, 4, 5]], expected[0, [0, 1, 4, 5]])
    assert_identical(y[1, 2:], expected[1, 2:])


@instance
@pytest.mark.parametrize("length", [5, 297, 3000])
def test_infinities_move_the_mean_as_a_sum_would(length: int, tileops_device: torch.device) -> None:
    """An infinity makes the running mean infinite, one of the other sign or a NaN in any entry NaN, as in torch."""
    x = make(4, 5, length, dtype=torch.float32, device=tileops_device)
    x[0, 0, 0], x[2, 1, length - 1], x[3, 2, 1] = math.inf, -math.inf, math.nan
    x[0, 3, 2], x[1, 3, 4] = math.inf, -math.inf
    mine = statistics(5, tileops_device)
    theirs = mine[0].cpu().clone(), mine[1].cpu().clone()
    y = InstanceNormFwdOp()(x, *mine)
    functional.instance_norm(x.cpu(), *theirs)
    assert [str(value) for value in mine[0].tolist()[:4]] == ["inf", "-inf", "nan", "nan"]
    for moved, right in zip(mine, theirs, strict=True):
        torch.testing.assert_close(moved.cpu(), right, equal_nan=True)
    spoilt = [(0, 0), (2, 1), (3, 2), (0, 3), (1, 3)]
    assert y.isnan().any(2).nonzero().tolist() == sorted(map(list, spoilt))
    assert all(y[place].isnan().all() for place in spoilt)


@instance
def test_one_kernel_serves_each_mode(tileops_device: torch.device) -> None:
    """Moving and given statistics are served through an interface each, weights in their own dtype."""
    x = make(2, 3, 4, dtype=torch.float16, device=tileops_device)
    for own, key in ((True, "instance_norm_train"), (False, "batch_norm_infer")):
        op = InstanceNormFwdOp(use_input_stats=own)
        for weight in (make(3, dtype=torch.float16, device=tileops_device), torch.ones(3, device=tileops_device), None):
            op(x, *statistics(3, tileops_device), weight)
        assert [kernel.call.weight_dtype for kernel in op.iter_kernels()] == [torch.float16, torch.float32]
        assert len(op.built_entries(key)) == 2


@group
@pytest.mark.parametrize("shape", [(0, 4, 3), (2, 4, 0), (0, 4), (2, 0, 3)], ids=str)
def test_no_elements_of_groups(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """A call that writes no element gives an empty tensor and builds no kernel."""
    op = GroupNormFwdOp(2)
    assert op(torch.empty(shape, device=tileops_device)).shape == shape
    assert list(op.iter_kernels()) == []


@instance
@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 3, 0)], ids=str)
def test_no_elements_leave_the_statistics(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """Maps without elements give an empty tensor and leave running statistics as they are."""
    op, running = InstanceNormFwdOp(), statistics(3, tileops_device)
    assert op(torch.empty(shape, device=tileops_device), *running).shape == shape
    for moved, before in zip(running, statistics(3, tileops_device), strict=True):
        assert_identical(moved, before)


@instance
def test_running_statistics_are_read_alone(tileops_device: torch.device) -> None:
    """Without use_input_stats, running statistics are read and stay as they are."""
    running = statistics(3, tileops_device)
    op = InstanceNormFwdOp(use_input_stats=False)
    op(make(2, 3, 4, dtype=torch.float32, device=tileops_device), *running)
    assert op.last_call.written == ()
    for kept, before in zip(running, statistics(3, tileops_device), strict=True):
        assert_identical(kept, before)


@group
def test_batch_and_group_counts_do_not_build(tileops_device: torch.device) -> None:
    """Calls that differ in the number of batch entries share one kernel, as do weights passed and not on a CPU."""
    op = GroupNormFwdOp(2)
    for batch in (1, 2, 17):
        op(make(batch, 4, 8, dtype=torch.float32, device=tileops_device))
    assert len(list(op.iter_kernels())) == 1


@group
def test_one_node_compiled_once(tileops_device: torch.device) -> None:
    """The op is one node of a compiled graph, which serves every batch with eager's bits."""
    torch.compiler.reset()
    op, backend = GroupNormFwdOp(2), RecordingBackend()
    bias = make(4, dtype=torch.float16, device=tileops_device)
    compiled = torch.compile(op, fullgraph=True, dynamic=True, backend=backend)
    for batch in (3, 17, 100):
        x = make(batch, 4, 8, dtype=torch.float16, device=tileops_device)
        assert_identical(compiled(x, None, bias), op(x, bias=bias))
    assert [graph.names for graph in backend.graphs] == [("tileops::norm_group_norm_fwd",)]


@group
@pytest.mark.parametrize("groups", [0, -1])
def test_num_groups_below_one_is_refused(groups: int) -> None:
    """A number of groups below one is refused at construction."""
    with pytest.raises(ParameterError) as failure:
        GroupNormFwdOp(groups)
    assert str(failure.value) == (
        f"GroupNormFwdOp: num_groups: expected at least 1, received {groups}; pass num_groups of at least 1"
    )


@group
def test_channels_that_make_no_groups_are_refused(tileops_device: torch.device) -> None:
    """A number of channels that the groups do not divide is refused, naming both."""
    with pytest.raises(RuleError) as failure:
        GroupNormFwdOp(4)(torch.ones(2, 6, 3, device=tileops_device))
    assert str(failure.value) == (
        "GroupNormFwdOp: num_groups: expected a divisor of 6 for C=6 (axis 1 of x), received 4; pass a divisor of 6"
    )


@group
@pytest.mark.parametrize("shape", [(1, 4), (1, 4, 1, 1)], ids=str)
def test_groups_of_one_value_are_refused(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """A single value has no variance: refused, as in torch for one batch entry."""
    with pytest.raises(RuleError) as failure:
        GroupNormFwdOp(4)(torch.ones(shape, device=tileops_device))
    assert str(failure.value) == (
        "GroupNormFwdOp: x: expected another value than 1 as C // num_groups * prod(L) for C=4 (axis 1 of x), "
        f"L={list(shape[2:])} (axes of x), num_groups=4, received 1; pass x of other extents, or another num_groups"
    )


@instance
@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 1, 1)], ids=str)
def test_maps_of_one_value_are_refused(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """A single value per map has no variance of its own: refused, as in torch."""
    with pytest.raises(RuleError) as failure:
        InstanceNormFwdOp()(torch.ones(shape, device=tileops_device))
    assert str(failure.value) == (
        f"InstanceNormFwdOp: x: expected another value than 1 as prod(L) for L={list(shape[2:])} (axes of x), "
        "use_input_stats=True, received 1; pass x of other extents, or pass use_input_stats=False"
    )


@instance
def test_running_statistics_are_needed(tileops_device: torch.device) -> None:
    """Without use_input_stats, a call without running statistics is refused, naming them."""
    with pytest.raises(RuleError) as failure:
        InstanceNormFwdOp(use_input_stats=False)(torch.ones(2, 3, 4, device=tileops_device))
    assert str(failure.value) == (
        "InstanceNormFwdOp: running_mean: expected a Tensor for use_input_stats=False, received None; "
        "pass running_mean, or pass use_input_stats=True"
    )


@instance
def test_one_running_statistic_is_refused(tileops_device: torch.device) -> None:
    """A running mean without a running variance is refused, naming the other."""
    mean, _ = statistics(3, tileops_device)
    with pytest.raises(ArgumentError) as failure:
        InstanceNormFwdOp()(torch.ones(2, 3, 4, device=tileops_device), mean)
    assert str(failure.value) == (
        "InstanceNormFwdOp: running_var: expected a Tensor with running_mean, received None; pass running_var"
    )


@group
def test_dtype_of_weight_is_refused(tileops_device: torch.device) -> None:
    """A weight of another dtype than x is refused, naming both."""
    x = torch.ones(2, 4, 3, device=tileops_device)
    with pytest.raises(DTypeError) as failure:
        GroupNormFwdOp(2)(x, torch.ones(4, dtype=torch.float16, device=tileops_device))
    assert str(failure.value) == (
        "GroupNormFwdOp: dtypes: expected (x=float16, weight=float16), (x=bfloat16, weight=bfloat16), "
        "(x=float32, weight=float32), (x=float16, weight=float32) or (x=bfloat16, weight=float32), "
        "received (x=float32, weight=float16); convert the inputs to one of these rows"
    )


@group
@pytest.mark.parametrize("shape", [(1,), (3,), (4, 1)], ids=str)
def test_shape_of_bias_is_refused(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """A bias that has not one element for each channel is refused, also one that would broadcast."""
    with pytest.raises(ShapeError) as failure:
        GroupNormFwdOp(2)(torch.ones(2, 4, 3, device=tileops_device), bias=torch.ones(shape, device=tileops_device))
    assert str(failure.value) == (
        f"GroupNormFwdOp: bias: expected shape [4] for C=4, received {list(shape)}; pass bias of shape [4]"
    )


@group
@pytest.mark.parametrize("groups", [2.0, None, True, (2,)])
def test_type_of_num_groups_is_refused(groups: object) -> None:
    """A number of groups that is no integer is refused at construction."""
    with pytest.raises(ParameterTypeError) as failure:
        GroupNormFwdOp(groups)  # type: ignore[arg-type]
    assert str(failure.value) == (
        f"GroupNormFwdOp: num_groups: expected int, received {groups!r}; pass num_groups as int"
    )


@instance
def test_cost(tileops_device: torch.device) -> None:
    """Moving statistics are read and written; the elements move once each."""
    op, running = InstanceNormFwdOp(), statistics(3, tileops_device)
    op(make(2, 3, 4, dtype=torch.float16, device=tileops_device), *running)
    assert op.eval_roofline().bytes == 2 * 24 * 2 + 4 * 3 * 4
    assert op.eval_roofline().flops == 8 * 24
