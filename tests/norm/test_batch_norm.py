"""BatchNormFwdOp computes what its reference says, moves running statistics, and refuses what torch refuses."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tileops.errors import ArgumentError, DTypeError, RuleError, ShapeError
from tileops.norm import BatchNormFwdOp
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, poisoned_allocations
from tileops_testing.numerics import assert_close, assert_identical
from tileops_testing.references.norm import batch_norm_fwd

pytestmark = pytest.mark.op("BatchNormFwdOp")

SHAPES = ((6, 5), (1, 3, 2), (4, 7, 33), (3, 5, 7, 7), (2, 3, 16, 16), (2, 300, 1, 1), (2, 2, 3, 4, 5), (3, 7, 60, 50))


def make(*shape: int, dtype: torch.dtype, device: torch.device, layout: Layout = "contiguous", seed: int = 0) -> Tensor:
    return TensorInput(shape=shape, dtype=dtype, layout=layout).make(seed, device)


def statistics(channels: int, device: torch.device, layout: Layout = "contiguous") -> tuple[Tensor, Tensor]:
    mean = make(channels, dtype=torch.float32, device=device, layout=layout, seed=1)
    var = TensorInput(shape=(channels,), dtype=torch.float32, layout=layout, values="positive").make(2, device)
    return mean, var


@pytest.mark.parametrize("affine", [(), ("weight",), ("bias",), ("weight", "bias")], ids="-".join)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_agrees_with_torch(
    training: bool, shape: tuple[int, ...], affine: tuple[str, ...], tileops_device: torch.device
) -> None:
    """Any number of axes, with weight and bias each passed or not, gives torch's values and running statistics."""
    x = make(*shape, dtype=torch.float32, device=tileops_device)
    given = {name: make(shape[1], dtype=torch.float32, device=tileops_device, seed=3) for name in affine}
    mine, theirs = statistics(shape[1], tileops_device), statistics(shape[1], tileops_device)
    with poisoned_allocations():
        y = BatchNormFwdOp(training=training, momentum=0.3)(x, *mine, **given)
    expected = functional.batch_norm(x, *theirs, given.get("weight"), given.get("bias"), training, 0.3)
    torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
    for moved, right in zip(mine, theirs, strict=True):
        torch.testing.assert_close(moved, right, rtol=1e-5, atol=1e-6)
    assert y.is_contiguous()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_half_precision_keeps_float32_statistics(
    training: bool, dtype: torch.dtype, tileops_device: torch.device
) -> None:
    """Half-precision activations are normalised in float32 and rounded once; statistics and affine are float32."""
    x = make(8, 5, 40, dtype=dtype, device=tileops_device)
    mine, right = statistics(5, tileops_device), statistics(5, tileops_device)
    y = BatchNormFwdOp(training=training)(x, *mine)
    expected = batch_norm_fwd(x, *right, training=training)
    assert_close(y, expected, dtype=dtype, summed=320, terms=expected.abs() + 1)
    for moved, exact in zip(mine, right, strict=True):
        assert_close(moved, exact, dtype=torch.float32, summed=320, terms=exact.abs() + 1)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("training", [True, False], ids=["train", "eval"])
def test_layouts(training: bool, layout: Layout, tileops_device: torch.device) -> None:
    """Whatever the layout of x, equal elements give equal bits."""
    x = make(4, 6, 10, dtype=torch.float16, device=tileops_device, layout=layout)
    op, outputs, moved = BatchNormFwdOp(training=training), [], []
    for given in (x, x.clone(memory_format=torch.contiguous_format)):
        running = statistics(6, tileops_device)
        outputs.append(op(given, *running))
        moved.append(torch.stack(running))
    assert_identical(outputs[0], outputs[1])
    assert_identical(moved[0], moved[1])


@pytest.mark.parametrize("layout", ["transposed", "sliced", "offset"])
def test_running_statistics_of_any_layout_are_moved_in_place(layout: Layout, tileops_device: torch.device) -> None:
    """Running statistics that lie apart in memory are written where they are, and nothing between them is."""
    x = make(4, 6, 10, dtype=torch.float32, device=tileops_device)
    dense, strided = statistics(6, tileops_device), statistics(6, tileops_device, layout)
    op = BatchNormFwdOp(training=True)
    op(x, *dense)
    op(x, *strided)
    for moved, right in zip(strided, dense, strict=True):
        assert_identical(moved, right)
        around = torch.as_strided(moved, (moved.untyped_storage().nbytes() // 4,), (1,), 0)
        assert int(around.isnan().sum()) == around.numel() - 6


def test_large_means_cost_no_digits(tileops_device: torch.device) -> None:
    """Channels whose mean is thousands of times their spread are normalised as if they were centred."""
    x = torch.tensor([0.0, 2.0, 4.0, 6.0], device=tileops_device).repeat(3, 1).reshape(3, 1, 4)
    for offset in (0.0, 30000.0, -1e6):
        y = BatchNormFwdOp(training=True)(x + offset)
        expected = torch.tensor([-1.341639, -0.447213, 0.447213, 1.341639], device=tileops_device).expand(3, 1, 4)
        torch.testing.assert_close(y, expected, rtol=0, atol=2e-6)


def test_nan_stays_in_its_channel(tileops_device: torch.device) -> None:
    """A NaN or an infinity makes its channel NaN, running statistics included, and changes no other by a bit."""
    clean = make(4, 5, 9, dtype=torch.float32, device=tileops_device)
    spoilt = clean.clone()
    spoilt[2, 1, 3], spoilt[0, 3, 0] = math.nan, math.inf
    mine, right = statistics(5, tileops_device), statistics(5, tileops_device)
    op = BatchNormFwdOp(training=True)
    y, expected = op(spoilt, *mine), op(clean, *right)
    assert y[:, [1, 3]].isnan().all()
    assert mine[1][[1, 3]].isnan().all()
    assert_identical(y[:, [0, 2, 4]], expected[:, [0, 2, 4]])
    assert_identical(mine[0][[0, 2, 4]], right[0][[0, 2, 4]])


@pytest.mark.parametrize("shape", [(6, 5), (4, 5, 9), (4, 5, 33, 9), (3, 5, 60, 50)], ids=str)
def test_infinities_move_the_mean_as_a_sum_would(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """The running mean of a channel with an infinity is infinite, of one with both or a NaN it is NaN."""
    for seed in range(3):
        x, (mean, var) = make(*shape, dtype=torch.float32, device=tileops_device), statistics(5, tileops_device)
        flat = x.transpose(0, 1).reshape(5, -1)
        places = torch.rand(flat.shape[1], generator=torch.Generator().manual_seed(seed)).argsort().tolist()
        flat[0, places[:2]], flat[1, places[0]], flat[2, places[0]] = math.inf, -math.inf, math.nan
        flat[3, places[0]], flat[3, places[1]] = math.inf, -math.inf
        spoilt = flat.reshape(5, shape[0], *shape[2:]).transpose(0, 1).contiguous()
        y = BatchNormFwdOp(training=True)(spoilt, mean, var)
        assert [str(value) for value in mean.tolist()[:4]] == ["inf", "-inf", "nan", "nan"]
        assert var.isnan().tolist() == [True] * 4 + [False]
        assert y.transpose(0, 1).flatten(1).isnan().all(1).tolist() == [True] * 4 + [False]
        assert not y[:, 4].isnan().any()


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 3, 0), (0, 3)], ids=str)
def test_no_elements_leave_the_statistics(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """A batch without elements gives an empty tensor and, as in torch, leaves running statistics as they are."""
    op, running = BatchNormFwdOp(training=True), statistics(3, tileops_device)
    assert op(torch.empty(shape, device=tileops_device), *running).shape == shape
    for moved, before in zip(running, statistics(3, tileops_device), strict=True):
        assert_identical(moved, before)
    assert list(op.iter_kernels()) == []


def test_inference_writes_nothing(tileops_device: torch.device) -> None:
    """Outside training, running statistics are read and stay as they are."""
    running = statistics(3, tileops_device)
    op = BatchNormFwdOp()
    op(make(2, 3, 4, dtype=torch.float32, device=tileops_device), *running)
    assert op.last_call.written == ()
    for kept, before in zip(running, statistics(3, tileops_device), strict=True):
        assert_identical(kept, before)


def test_each_mode_asks_its_own_interface(tileops_device: torch.device) -> None:
    """Training and inference are served through two interfaces."""
    x, running = make(2, 3, 4, dtype=torch.float32, device=tileops_device), statistics(3, tileops_device)
    train, infer = BatchNormFwdOp(training=True), BatchNormFwdOp()
    train(x, *running)
    infer(x, *running)
    assert [len(train.built_entries(key)) for key in ("batch_norm_train", "batch_norm_infer")] == [1, 0]
    assert [len(infer.built_entries(key)) for key in ("batch_norm_train", "batch_norm_infer")] == [0, 1]


def test_inference_needs_running_statistics(tileops_device: torch.device) -> None:
    """Outside training, a call without running statistics is refused, naming them."""
    with pytest.raises(RuleError) as failure:
        BatchNormFwdOp()(torch.ones(2, 3, device=tileops_device))
    assert str(failure.value) == (
        "BatchNormFwdOp: running_mean: expected a Tensor for training=False, received None; "
        "pass running_mean, or pass training=True"
    )


@pytest.mark.parametrize("shape", [(1, 3), (1, 3, 1, 1)], ids=str)
def test_training_on_one_value_is_refused(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """In training a single value per channel has no variance: refused, as in torch."""
    with pytest.raises(RuleError) as failure:
        BatchNormFwdOp(training=True)(torch.ones(shape, device=tileops_device))
    assert str(failure.value) == (
        "BatchNormFwdOp: x: expected another value than 1 as B * prod(L) for B=1 (axis 0 of x), "
        f"L={list(shape[2:])} (axes of x), training=True, received 1; pass x of other extents, or pass training=False"
    )


def test_one_running_statistic_is_refused(tileops_device: torch.device) -> None:
    """A running mean without a running variance, or the reverse, is refused, naming the other."""
    x, (mean, var) = torch.ones(2, 3, device=tileops_device), statistics(3, tileops_device)
    messages = []
    for given in ({"running_mean": mean}, {"running_var": var}):
        with pytest.raises(ArgumentError) as failure:
            BatchNormFwdOp(training=True)(x, **given)
        messages.append(str(failure.value))
    assert messages == [
        "BatchNormFwdOp: running_var: expected a Tensor with running_mean, received None; pass running_var",
        "BatchNormFwdOp: running_var: expected None without running_mean, received a Tensor; leave running_var out",
    ]


def test_half_precision_affine_is_refused(tileops_device: torch.device) -> None:
    """Weight, bias and running statistics are float32 whatever the dtype of x."""
    x = torch.ones(2, 3, dtype=torch.float16, device=tileops_device)
    with pytest.raises(DTypeError) as failure:
        BatchNormFwdOp(training=True)(x, weight=torch.ones(3, dtype=torch.float16, device=tileops_device))
    assert str(failure.value) == (
        "BatchNormFwdOp: weight: expected dtype float32, received float16; convert weight with .to(torch.float32)"
    )


@pytest.mark.parametrize("training", [True, False])
def test_half_precision_statistics_are_refused(training: bool, tileops_device: torch.device) -> None:
    """In training the statistics are written, so that a converted copy has to take their place."""
    x = torch.ones(2, 3, dtype=torch.float16, device=tileops_device)
    with pytest.raises(DTypeError) as failure:
        BatchNormFwdOp(training=training)(x, torch.zeros_like(x[0]), x[0].float())
    converted = "running_mean.to(torch.float32) before the call, which writes it"
    mend = f"assign running_mean = {converted}" if training else "convert running_mean with .to(torch.float32)"
    assert str(failure.value) == (f"BatchNormFwdOp: running_mean: expected dtype float32, received float16; {mend}")


@pytest.mark.parametrize("shape", [(3,), ()], ids=str)
def test_x_without_channels_is_refused(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """An x without a batch axis and a channel axis is refused."""
    with pytest.raises(ShapeError) as failure:
        BatchNormFwdOp(training=True)(torch.ones(shape, device=tileops_device))
    assert str(failure.value) == (
        f"BatchNormFwdOp: x: expected shape [B, C, *L], received {list(shape)}; pass x of shape [B, C, *L]"
    )


def test_cost(tileops_device: torch.device) -> None:
    """Training reads and writes the running statistics; the elements move once each."""
    op, running = BatchNormFwdOp(training=True), statistics(3, tileops_device)
    op(make(2, 3, 4, dtype=torch.float16, device=tileops_device), *running)
    assert op.eval_roofline().bytes == 2 * 24 * 2 + 4 * 3 * 4
    assert op.eval_roofline().flops == 8 * 24


def test_one_op_serves_other_calls(tileops_device: torch.device) -> None:
    """An op normalises each call by its own length and dtype, whatever the call before was."""
    op = BatchNormFwdOp(eps=0.0)
    mean, var = torch.ones(2, device=tileops_device), torch.full((2,), 4.0, device=tileops_device)
    for shape, dtype in (((1, 2, 3), torch.float32), ((1, 2), torch.float32), ((1, 2), torch.float16)):
        y = op(torch.full(shape, 5.0, dtype=dtype, device=tileops_device), mean, var)
        assert (y.shape, y.dtype, set(y.flatten().tolist())) == (shape, dtype, {2.0})
