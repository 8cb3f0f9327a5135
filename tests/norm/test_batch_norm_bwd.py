"""BatchNormBwdOp gives torch's gradients for every shape, dtype and layout, and refuses what its entry does."""

from __future__ import annotations

import math
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tileops.errors import ArgumentError, DTypeError, ShapeError
from tileops.norm import BatchNormBwdOp
from tileops_testing.graphs import RecordingBackend
from tileops_testing.inputs import LAYOUTS, Layout, TensorInput, poisoned_allocations
from tileops_testing.numerics import assert_close, assert_identical
from tileops_testing.references.norm import REFERENCES

pytestmark = pytest.mark.op("BatchNormBwdOp")

SHAPES = (
    (6, 5),
    (300, 1),
    (33, 300),
    (1, 3),
    (1, 3, 2),
    (4, 7, 33),
    (4, 1, 257),
    (3, 5, 7, 7),
    (2, 3, 16, 16),
    (2, 300, 1, 1),
    (2, 2, 3, 4, 5),
    (2, 2, 96, 256),
)
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def make(*shape: int, dtype: torch.dtype, device: torch.device, layout: Layout = "contiguous", seed: int = 0) -> Tensor:
    return TensorInput(shape=shape, dtype=dtype, layout=layout).make(seed, device)


def statistics(channels: int, device: torch.device, layout: Layout = "contiguous") -> tuple[Tensor, Tensor, Tensor]:
    """Return a weight, a mean and a rstd."""
    weight, mean = (make(channels, dtype=torch.float32, device=device, layout=layout, seed=seed) for seed in (2, 3))
    rstd = TensorInput(shape=(channels,), dtype=torch.float32, layout=layout, values="positive").make(4, device)
    return weight, mean, rstd


def of_torch(grad_out: Tensor, x: Tensor, weight: Tensor, mean: Tensor, rstd: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    given = grad_out, x, weight, None, None, mean, rstd
    gradients: tuple[Tensor, Tensor, Tensor] = torch.ops.aten.native_batch_norm_backward(
        *given, True, 1e-5, [True, True, True]
    )
    return gradients


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_agrees_with_torch(dtype: torch.dtype, shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """Any dtype and number of axes gives torch's values in float64, summed in float32 and rounded once."""
    grad_out, x = (make(*shape, dtype=dtype, device=tileops_device, seed=seed) for seed in (0, 1))
    given = grad_out, x, *statistics(shape[1], tileops_device)
    with poisoned_allocations():
        results = BatchNormBwdOp()(*given)
    expected = of_torch(*(tensor.double() for tensor in given))
    behind = REFERENCES["BatchNormBwdOp"].expected(given, {})
    for result, right, terms in zip(results, expected, behind.terms, strict=True):
        assert terms is not None
        assert_close(result, right, dtype=result.dtype, summed=x[:, 0].numel(), terms=terms)
    assert [(result.dtype, tuple(result.shape)) for result in results] == [
        (dtype, shape),
        (torch.float32, shape[1:2]),
        (torch.float32, shape[1:2]),
    ]
    assert all(result.is_contiguous() for result in results)


@pytest.mark.parametrize("shape", [(6, 5), (4, 7, 33), (3, 5, 7, 7)], ids=str)
def test_is_the_gradient_of_batch_norm(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """With the batch's own mean and rstd, the results are what autograd gives for torch's batch_norm in training."""
    x, weight, bias = (
        make(*size, dtype=torch.float64, device=tileops_device, seed=seed).requires_grad_()
        for seed, size in enumerate((shape, shape[1:2], shape[1:2]))
    )
    grad_out = make(*shape, dtype=torch.float64, device=tileops_device, seed=5)
    functional.batch_norm(x, None, None, weight, bias, training=True, eps=1e-3).backward(grad_out)
    axes = (0, *range(2, len(shape)))
    variance, mean = torch.var_mean(x.detach(), dim=axes, correction=0)
    given = grad_out, x.detach(), weight.detach(), mean, (variance + 1e-3).rsqrt()
    results = BatchNormBwdOp()(*(tensor.float() for tensor in given))
    for result, leaf in zip(results, (x, weight, bias), strict=True):
        assert leaf.grad is not None
        torch.testing.assert_close(result, leaf.grad.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32], ids=str)
def test_layouts(dtype: torch.dtype, layout: Layout, tileops_device: torch.device) -> None:
    """Whatever the layout of the inputs, equal elements give equal bits."""
    grad_out, x = (make(4, 6, 10, dtype=dtype, device=tileops_device, layout=layout, seed=seed) for seed in (0, 1))
    given = grad_out, x, *statistics(6, tileops_device, layout)
    dense = (tensor.clone(memory_format=torch.contiguous_format) for tensor in given)
    for result, right in zip(BatchNormBwdOp()(*given), BatchNormBwdOp()(*dense), strict=True):
        assert_identical(result, right)
        assert result.is_contiguous()


def test_one_tensor_for_two_inputs_and_expanded_ones(tileops_device: torch.device) -> None:
    """One tensor may be both grad_out and x, and the gradient of a sum may be one element seen everywhere."""
    x, given = make(3, 4, 9, dtype=torch.float32, device=tileops_device), statistics(4, tileops_device)
    for grad_out in (x, torch.ones((), device=tileops_device).expand(3, 4, 9)):
        for result, right in zip(BatchNormBwdOp()(grad_out, x, *given), of_torch(grad_out, x, *given), strict=True):
            torch.testing.assert_close(result, right, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("shape", [(5, 4), (3, 4, 9), (2, 4, 20, 20)], ids=str)
@pytest.mark.parametrize(("name", "value"), list(product(("grad_out", "x"), (math.nan, math.inf, -math.inf))))
def test_values_that_are_not_finite_stay_in_their_channel(
    name: str, value: float, shape: tuple[int, ...], tileops_device: torch.device
) -> None:
    """A NaN or an infinity gives what torch gives in its channel, and changes no other by a bit."""
    grad_out, x = (make(*shape, dtype=torch.float32, device=tileops_device, seed=seed) for seed in (0, 1))
    given = statistics(4, tileops_device)
    clean = BatchNormBwdOp()(grad_out, x, *given)
    {"grad_out": grad_out, "x": x}[name].view(shape[0], 4, -1)[1, 2, 0] = value
    spoilt, expected = BatchNormBwdOp()(grad_out, x, *given), of_torch(grad_out, x, *given)
    for result, right in zip(spoilt, expected, strict=True):
        torch.testing.assert_close(result, right, rtol=1e-4, atol=1e-4, equal_nan=True)
    others = [0, 1, 3]
    assert_identical(spoilt[0][:, others], clean[0][:, others])
    for result, right in zip(spoilt[1:], clean[1:], strict=True):
        assert_identical(result[others], right[others])


def test_statistics_that_are_not_finite(tileops_device: torch.device) -> None:
    """Weights, means and rstds that are NaN, infinite or zero give what torch gives."""
    grad_out, x = (make(3, 6, 5, dtype=torch.float32, device=tileops_device, seed=seed) for seed in (0, 1))
    odd = torch.tensor([math.nan, math.inf, -math.inf, 0.0, 1.0, -2.0], device=tileops_device)
    for place in range(3):
        given = list(statistics(6, tileops_device))
        given[place] = odd
        for result, right in zip(BatchNormBwdOp()(grad_out, x, *given), of_torch(grad_out, x, *given), strict=True):
            torch.testing.assert_close(result, right, rtol=1e-4, atol=1e-4, equal_nan=True)


def test_large_channels_keep_their_digits(tileops_device: torch.device) -> None:
    """A sum of a million equal gradients is exact, however small each is beside it."""
    grad_out = torch.full((4, 1, 512, 512), 0.3, device=tileops_device)
    x = torch.full((4, 1, 512, 512), 3.0, device=tileops_device)
    one = torch.ones(1, device=tileops_device)
    _, grad_weight, grad_bias = BatchNormBwdOp()(grad_out, x, one, one, one)
    exact = grad_out.double().sum().float().reshape(1)
    torch.testing.assert_close(grad_bias, exact, rtol=2e-6, atol=0)
    torch.testing.assert_close(grad_weight, 2 * exact, rtol=2e-6, atol=0)


@pytest.mark.parametrize("shape", [(0, 3, 4), (2, 3, 0), (0, 3), (2, 0, 4)], ids=str)
def test_no_elements(shape: tuple[int, ...], tileops_device: torch.device) -> None:
    """A batch without elements gives an empty grad_x and sums of nothing, and asks for no kernel."""
    op, empty = BatchNormBwdOp(), torch.empty(shape, dtype=torch.float16, device=tileops_device)
    with poisoned_allocations():
        grad_x, grad_weight, grad_bias = op(empty, empty, *statistics(shape[1], tileops_device, "sliced"))
    assert grad_x.shape == shape
    assert grad_x.dtype == torch.float16
    for gradient in (grad_weight, grad_bias):
        assert_identical(gradient, torch.zeros(shape[1], device=tileops_device))
    assert list(op.iter_kernels()) == []


def test_inputs_are_not_written(tileops_device: torch.device) -> None:
    """No input is written."""
    given = [make(3, 4, 9, dtype=torch.float32, device=tileops_device, seed=seed) for seed in (0, 1)]
    given += statistics(4, tileops_device)
    before = [tensor.clone() for tensor in given]
    BatchNormBwdOp()(*given)
    for tensor, right in zip(given, before, strict=True):
        assert_identical(tensor, right)


def test_dynamic_compiles_once(tileops_device: torch.device) -> None:
    """With dynamic=True one compilation serves other batches, channels and planes, and on a CPU one kernel."""
    op, backend = BatchNormBwdOp(), RecordingBackend()
    torch.compiler.reset()
    compiled = torch.compile(op, fullgraph=True, dynamic=True, backend=backend)
    for shape in ((3, 4, 5, 6), (7, 8, 9, 10), (2, 33, 6, 4)):
        grad_out, x = (make(*shape, dtype=torch.float32, device=tileops_device, seed=seed) for seed in (0, 1))
        given = statistics(shape[1], tileops_device)
        for result, right in zip(compiled(grad_out, x, *given), op(grad_out, x, *given), strict=True):
            assert_identical(result, right)
    assert len(backend.graphs) == 1
    if tileops_device.type == "cpu":
        assert len(list(op.iter_kernels())) == 1


def test_mixed_dtypes_are_refused(tileops_device: torch.device) -> None:
    """The dtype of x is grad_out's, and what belongs to a channel is float32."""
    x, given = torch.ones(2, 3, device=tileops_device), statistics(3, tileops_device)
    with pytest.raises(DTypeError) as failure:
        BatchNormBwdOp()(x.half(), x, *given)
    assert str(failure.value).startswith("BatchNormBwdOp: x: expected dtype float16")
    with pytest.raises(DTypeError) as failure:
        BatchNormBwdOp()(x.half(), x.half(), given[0].half(), *given[1:])
    assert str(failure.value) == (
        "BatchNormBwdOp: weight: expected dtype float32, received float16; convert weight with .to(torch.float32)"
    )


def test_shapes_that_do_not_fit_are_refused(tileops_device: torch.device) -> None:
    """The shape of x is grad_out's, with a batch axis and a channel axis, and statistics have a value per channel."""
    x, given = torch.ones(2, 3, 4, device=tileops_device), statistics(3, tileops_device)
    for wrong in (
        (x, x[:, :2], *given),
        (x, x[..., 0], *given),
        (x[0, :, 0], x[0, :, 0], *given),
        (x, x, *statistics(4, tileops_device)),
        (x, x, *given[:2], given[2][:1]),
    ):
        with pytest.raises(ShapeError, match=r"^BatchNormBwdOp: "):
            BatchNormBwdOp()(*wrong)


def test_a_weight_is_required(tileops_device: torch.device) -> None:
    """The weight has no default: pass ones for a BatchNorm without it."""
    x, given = torch.ones(2, 3, device=tileops_device), statistics(3, tileops_device)
    with pytest.raises(ArgumentError, match=r"^BatchNormBwdOp: weight: "):
        BatchNormBwdOp()(x, x, None, *given[1:])  # type: ignore[arg-type]  # what is refused


def test_cost(tileops_device: torch.device) -> None:
    """Three tensors of the activations' size and five of a channel's move once each."""
    op = BatchNormBwdOp()
    x = make(2, 3, 4, dtype=torch.float16, device=tileops_device)
    op(x, x, *statistics(3, tileops_device))
    assert op.eval_roofline().bytes == 3 * 24 * 2 + 5 * 3 * 4
    assert op.eval_roofline().flops == 9 * 24 + 5 * 3
