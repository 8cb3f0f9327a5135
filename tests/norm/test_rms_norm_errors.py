"""What RMSNormFwdOp refuses: one line each, naming op, argument, what is expected and what was received."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tileops.errors import (
    ArgumentError,
    DeviceError,
    DTypeError,
    GradientError,
    NoCallError,
    ParameterError,
    ParameterTypeError,
    ShapeError,
)
from tileops.norm import RMSNormFwdOp

pytestmark = pytest.mark.op("RMSNormFwdOp")


@pytest.fixture
def op() -> RMSNormFwdOp:
    return RMSNormFwdOp((8,))


@pytest.fixture
def x(tileops_device: torch.device) -> Tensor:
    return torch.ones(3, 8, device=tileops_device)


def other_device(tensor: Tensor) -> Tensor:
    """The tensor elsewhere: on CPU when it is on a GPU, else on the meta device."""
    return tensor.cpu() if tensor.is_cuda else tensor.to("meta")


@pytest.mark.parametrize("dtype", [torch.float64, torch.int32, torch.int64, torch.bool], ids=str)
def test_dtype_of_x(op: RMSNormFwdOp, x: Tensor, dtype: torch.dtype) -> None:
    """A dtype that the signature lacks, integers among them, is refused before any kernel is built."""
    received = str(dtype).removeprefix("torch.")
    with pytest.raises(DTypeError) as failure:
        op(x.to(dtype))
    assert str(failure.value) == (
        f"RMSNormFwdOp: x: expected dtype float16, bfloat16 or float32, received {received}; "
        "convert x with .to(torch.float32)"
    )
    assert list(op.iter_kernels()) == []
    assert op.serving_target is None


def test_dtype_of_weight(op: RMSNormFwdOp, x: Tensor) -> None:
    """A weight of another dtype than x is refused, naming both."""
    with pytest.raises(DTypeError) as failure:
        op(x, torch.ones(8, dtype=torch.float16, device=x.device))
    assert str(failure.value) == (
        "RMSNormFwdOp: dtypes: expected (x=float16, weight=float16), (x=bfloat16, weight=bfloat16), "
        "(x=float32, weight=float32), (x=float16, weight=float32) or (x=bfloat16, weight=float32), "
        "received (x=float32, weight=float16); convert the inputs to one of these rows"
    )


@pytest.mark.parametrize(("shape", "received"), [((3, 9), "[3, 9]"), ((8, 3), "[8, 3]"), ((), "[]"), ((1,), "[1]")])
def test_shape_of_x(op: RMSNormFwdOp, x: Tensor, shape: tuple[int, ...], received: str) -> None:
    """Trailing axes that are not the normalized shape are refused."""
    with pytest.raises(ShapeError) as failure:
        op(torch.ones(shape, device=x.device))
    assert str(failure.value) == (
        f"RMSNormFwdOp: x: expected shape [*B, 8] for normalized_shape=(8,), received {received}; "
        "pass x whose last axis is 8"
    )


@pytest.mark.parametrize(("shape", "received"), [((9,), "[9]"), ((1, 8), "[1, 8]"), ((), "[]")])
def test_shape_of_weight(op: RMSNormFwdOp, x: Tensor, shape: tuple[int, ...], received: str) -> None:
    """A weight of another shape than the normalized one is refused, also one that would broadcast."""
    with pytest.raises(ShapeError) as failure:
        op(x, torch.ones(shape, device=x.device))
    assert str(failure.value) == (
        f"RMSNormFwdOp: weight: expected shape [8] for normalized_shape=(8,), received {received}; "
        "pass weight of shape [8]"
    )


def test_weight_on_another_device(op: RMSNormFwdOp, x: Tensor) -> None:
    """A weight on another device than x is refused, naming both devices."""
    weight = other_device(torch.ones(8, device=x.device))
    with pytest.raises(DeviceError) as failure:
        op(x, weight)
    assert str(failure.value) == (
        f"RMSNormFwdOp: weight: expected device {x.device}, as x has, received device {weight.device}; "
        + (f"move weight with .to('{x.device}')" if x.is_cuda else "make weight on cpu")
    )


def test_misspelled_argument(op: RMSNormFwdOp, x: Tensor) -> None:
    """A keyword that the call does not take is refused, with the nearest one, or listing those it takes."""
    with pytest.raises(ArgumentError) as failure:
        op(x, wieght=x)  # type: ignore[call-arg]
    assert str(failure.value) == (
        "RMSNormFwdOp: wieght: expected arguments (x, weight=None), received the keyword 'wieght'; did you mean weight?"
    )
    with pytest.raises(ArgumentError, match=r"received the keyword 'gamma'; call it as op\(x, weight=None\)"):
        op(x, gamma=x)  # type: ignore[call-arg]


def test_missing_surplus_and_foreign_arguments(op: RMSNormFwdOp, x: Tensor) -> None:
    """A missing tensor, one too many, and something that is no tensor are each refused by name."""
    with pytest.raises(ArgumentError, match=r"^RMSNormFwdOp: x: expected a tensor, received nothing; call it as op\("):
        op()  # type: ignore[call-arg]
    with pytest.raises(
        ArgumentError, match=r"^RMSNormFwdOp: expected at most 2 arguments \(x, weight=None\), received 3"
    ):
        op(x, None, x)  # type: ignore[call-arg]
    with pytest.raises(ArgumentError, match=r"^RMSNormFwdOp: x: expected a torch.Tensor, received list; pass "):
        op([1.0])  # type: ignore[arg-type]


def test_misspelled_parameter() -> None:
    """A keyword that the constructor does not take is refused, with the nearest one."""
    with pytest.raises(ArgumentError) as failure:
        RMSNormFwdOp((8,), epsilon=1e-6)  # type: ignore[call-arg]
    assert str(failure.value) == (
        "RMSNormFwdOp: epsilon: expected parameters (normalized_shape, eps=None, *, target=None), "
        "received the keyword 'epsilon'; did you mean eps?"
    )


def test_missing_parameter() -> None:
    """Constructing without the normalized shape is refused, showing the parameters."""
    with pytest.raises(
        ArgumentError, match=r"^RMSNormFwdOp: .*'normalized_shape'; expected parameters \(normalized_shape, "
    ):
        RMSNormFwdOp()  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (8, "RMSNormFwdOp: normalized_shape: expected tuple[int, ...], received 8; pass normalized_shape=(8,)"),
        (
            (8.0,),
            (
                "RMSNormFwdOp: normalized_shape: expected tuple[int, ...], received (8.0,); "
                "pass normalized_shape as tuple[int, ...]"
            ),
        ),
    ],
)
def test_type_of_normalized_shape(shape: object, message: str) -> None:
    """A normalized shape that is no tuple of integers is refused at construction."""
    with pytest.raises(ParameterTypeError) as failure:
        RMSNormFwdOp(shape)  # type: ignore[arg-type]
    assert str(failure.value) == message


def test_empty_normalized_shape() -> None:
    """A normalized shape without axes is refused at construction, naming the rule."""
    with pytest.raises(ParameterError) as failure:
        RMSNormFwdOp(())
    assert str(failure.value) == (
        "RMSNormFwdOp: normalized_shape: expected at least 1 element, received (); "
        "pass normalized_shape of at least 1 element"
    )


@pytest.mark.parametrize("eps", ["1e-6", True, (1e-6,)])
def test_type_of_eps(eps: object) -> None:
    """An eps that is neither a number nor None is refused at construction."""
    with pytest.raises(ParameterTypeError) as failure:
        RMSNormFwdOp((8,), eps=eps)  # type: ignore[arg-type]
    assert str(failure.value) == f"RMSNormFwdOp: eps: expected float | None, received {eps!r}; pass eps as float | None"


def test_usable_after_an_error(op: RMSNormFwdOp, x: Tensor) -> None:
    """A refused call leaves the op as it was: no record, and the next right call computes."""
    with pytest.raises(ShapeError):
        op(torch.ones(3, 9, device=x.device))
    with pytest.raises(NoCallError):
        _ = op.last_call
    assert op(x).allclose(x)


def test_every_message_is_one_line(op: RMSNormFwdOp, x: Tensor) -> None:
    """Errors that a compiler wraps stay readable because they are one line."""
    with pytest.raises(DTypeError) as failure:
        op(x.double())
    assert "\n" not in str(failure.value)


def test_compiled_error_holds_the_eager_message(op: RMSNormFwdOp, x: Tensor) -> None:
    """A wrong call from compiled code fails with the eager call's message inside."""
    torch.compiler.reset()
    with pytest.raises(
        RuntimeError, match="RMSNormFwdOp: x: expected dtype float16, bfloat16 or float32, received int32"
    ):
        torch.compile(op, fullgraph=True)(x.int())


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "compiled"])
def test_backward_is_refused_by_name(op: RMSNormFwdOp, x: Tensor, compiled: bool) -> None:
    """A call whose input needs a gradient computes; running backward through it raises, naming the op."""
    torch.compiler.reset()
    function = torch.compile(op, fullgraph=True) if compiled else op
    leaf = x.clone().requires_grad_()
    y = function(leaf)
    assert y.detach().allclose(x)
    assert y.requires_grad
    with pytest.raises(
        GradientError, match=r"^RMSNormFwdOp: backward through its output is not defined; .*torch.no_grad"
    ):
        y.sum().backward()
    assert leaf.grad is None


def test_no_gradient_is_recorded_where_none_is_wanted(op: RMSNormFwdOp, x: Tensor) -> None:
    """Under no_grad, and for inputs that need no gradient, the result needs none."""
    with torch.no_grad():
        assert not op(x.clone().requires_grad_()).requires_grad
    with torch.inference_mode():
        assert not op(x).requires_grad
    assert not op(x).requires_grad
