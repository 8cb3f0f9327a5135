"""What the reduction ops refuse: one line each, naming op, argument, what is expected and what was received."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tileops.errors import ArgumentError, AxisError, DTypeError, GradientError, ParameterTypeError, RepeatedAxisError
from tileops.op.base import Op
from tileops.reduction import LogSoftmaxFwdOp, LogSumExpFwdOp, ProdFwdOp, SoftmaxFwdOp, StdFwdOp, SumFwdOp, VarFwdOp

pytestmark = pytest.mark.op(
    "SumFwdOp", "ProdFwdOp", "SoftmaxFwdOp", "LogSoftmaxFwdOp", "LogSumExpFwdOp", "VarFwdOp", "StdFwdOp"
)

OPS: dict[str, Callable[[int], Op]] = {
    "SumFwdOp": SumFwdOp,
    "ProdFwdOp": ProdFwdOp,
    "SoftmaxFwdOp": SoftmaxFwdOp,
    "LogSoftmaxFwdOp": LogSoftmaxFwdOp,
    "LogSumExpFwdOp": LogSumExpFwdOp,
    "VarFwdOp": VarFwdOp,
    "StdFwdOp": StdFwdOp,
}
RESULTS = "float16 | bfloat16 | float32 | int64 | None"


@pytest.fixture
def x(tileops_device: torch.device) -> Tensor:
    return torch.ones(2, 3, device=tileops_device)


@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize(("dim", "rank", "bounds"), [(2, 2, "-2 to 1"), (-3, 2, "-2 to 1"), (1, 0, "-1 to 0")])
def test_an_axis_that_the_tensor_lacks(name: str, dim: int, rank: int, bounds: str, x: Tensor) -> None:
    """An axis out of range is an IndexError, also for a tensor without axes, which has 0 and -1."""
    op = OPS[name](dim)
    with pytest.raises(AxisError) as failure:
        op(x if rank else x.sum())
    assert (
        str(failure.value) == f"{name}: dim: expected axes from {bounds}, received {dim}; pass axes that the tensor has"
    )
    assert isinstance(failure.value, IndexError)
    assert list(op.iter_kernels()) == []


def test_one_of_several_axes_that_the_tensor_lacks(x: Tensor) -> None:
    """One axis out of range among several is refused, showing them all."""
    with pytest.raises(AxisError) as failure:
        SumFwdOp([0, 2])(x)
    assert str(failure.value) == (
        "SumFwdOp: dim: expected axes from -2 to 1, received (0, 2); pass axes that the tensor has"
    )


@pytest.mark.parametrize("dim", [(0, 0), (0, -2), (1, 0, -1)])
def test_an_axis_that_stands_twice(dim: tuple[int, ...], x: Tensor) -> None:
    """An axis named twice, from the front or the back, is a RuntimeError."""
    with pytest.raises(RepeatedAxisError) as failure:
        SumFwdOp(dim)(x)
    assert str(failure.value) == (
        f"SumFwdOp: dim: expected each axis once, received {dim}; remove what stands twice: 1 and -1 are one axis"
    )
    assert isinstance(failure.value, RuntimeError)


@pytest.mark.parametrize(
    ("dtype", "mend"),
    [
        (torch.float64, "convert x with .to(torch.float32)"),
        (torch.float8_e4m3fn, "convert x with .to(torch.float16)"),
        (torch.complex64, "pass the real and the imaginary parts of x apart, as torch.view_as_real gives them"),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["SumFwdOp", "ProdFwdOp"])
def test_dtype_of_x(name: str, dtype: torch.dtype, mend: str, x: Tensor) -> None:
    """A dtype that the signature lacks is refused before any kernel is built, with the dtype that keeps most of it."""
    op = OPS[name](0)
    with pytest.raises(DTypeError) as failure:
        op(x.to(dtype))
    assert str(failure.value) == (
        f"{name}: x: expected dtype float16, bfloat16, float32, bool, uint8, int8, int16, int32 or int64, received "
        f"{str(dtype).removeprefix('torch.')}; {mend}"
    )
    assert list(op.iter_kernels()) == []
    assert op.serving_target is None


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.float64], ids=str)
def test_dtype_of_a_softmax(dtype: torch.dtype, x: Tensor) -> None:
    """A softmax takes no integers, as torch's does not."""
    with pytest.raises(DTypeError) as failure:
        SoftmaxFwdOp(0)(x.to(dtype))
    assert str(failure.value) == (
        "SoftmaxFwdOp: x: expected dtype float16, bfloat16 or float32, received "
        f"{str(dtype).removeprefix('torch.')}; convert x with .to(torch.float32)"
    )


@pytest.mark.parametrize(
    ("construct", "message"),
    [
        (
            lambda: SumFwdOp("0"),  # type: ignore[arg-type]
            "SumFwdOp: dim: expected int | list[int] | None, received '0'; pass dim as int | list[int] | None",
        ),
        (
            lambda: SumFwdOp(True),
            "SumFwdOp: dim: expected int | list[int] | None, received True; pass dim as int | list[int] | None",
        ),
        (lambda: ProdFwdOp(None), "ProdFwdOp: dim: expected int, received None; pass dim as int"),  # type: ignore[arg-type]
        (lambda: ProdFwdOp((0,)), "ProdFwdOp: dim: expected int, received (0,); pass dim as int"),  # type: ignore[arg-type]
        (
            lambda: SoftmaxFwdOp((0,)),  # type: ignore[arg-type]
            "SoftmaxFwdOp: dim: expected int | None, received (0,); pass dim as int | None",
        ),
        (
            lambda: SumFwdOp(0, 1),  # type: ignore[arg-type]
            "SumFwdOp: keepdim: expected bool, received 1; pass keepdim as bool",
        ),
        (
            lambda: SumFwdOp(dtype=torch.int32),
            f"SumFwdOp: dtype: expected {RESULTS}, received int32; pass dtype as {RESULTS}",
        ),
        (
            lambda: ProdFwdOp(0, dtype=torch.float64),
            f"ProdFwdOp: dtype: expected {RESULTS}, received float64; pass dtype as {RESULTS}",
        ),
        (
            lambda: SoftmaxFwdOp(0, dtype=torch.int64),
            (
                "SoftmaxFwdOp: dtype: expected float16 | bfloat16 | float32 | None, received int64; "
                "pass dtype as float16 | bfloat16 | float32 | None"
            ),
        ),
    ],
)
def test_types_of_parameters(construct: Callable[[], Op], message: str) -> None:
    """A parameter of another type is refused at construction."""
    with pytest.raises(ParameterTypeError) as failure:
        construct()
    assert str(failure.value) == message


def test_argument_lists(x: Tensor) -> None:
    """A missing axis, a dtype by place, another library's name for dim, and a second tensor are refused."""
    with pytest.raises(
        ArgumentError, match=r"^ProdFwdOp: missing a required argument: 'dim'; expected parameters \(dim, "
    ):
        ProdFwdOp()  # type: ignore[call-arg]
    with pytest.raises(
        ArgumentError, match=r"^SumFwdOp: too many positional arguments; expected parameters \(dim=None, "
    ):
        SumFwdOp(0, False, torch.float32)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match=r"^SumFwdOp: axis: expected parameters .*, received the keyword 'axis'"):
        SumFwdOp(axis=0)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError) as failure:
        SumFwdOp(0)(x, x)  # type: ignore[call-arg]
    assert str(failure.value) == "SumFwdOp: expected at most 1 arguments (x), received 2; call it as op(x)"


@pytest.mark.parametrize("name", OPS)
def test_compiled_error_holds_the_eager_message(name: str, x: Tensor) -> None:
    """A wrong call from compiled code fails with the eager call's message inside."""
    torch.compiler.reset()
    with pytest.raises((RuntimeError, AxisError), match=f"{name}: dim: expected axes from -2 to 1, received 5"):
        torch.compile(OPS[name](5), fullgraph=True)(x)


@pytest.mark.parametrize("name", OPS)
def test_backward_is_refused_by_name(name: str, x: Tensor) -> None:
    """A call whose input needs a gradient computes; running backward through it raises, naming the op."""
    y = OPS[name](0)(x.clone().requires_grad_())
    assert y.requires_grad
    with pytest.raises(GradientError, match=rf"^{name}: backward through its output is not defined; .*torch.no_grad"):
        y.sum().backward()
