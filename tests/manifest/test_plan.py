"""The generated checks of a call: records, errors, results and keys."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable

import pytest
import torch

from tests.manifest.rms_norm import PLAN, constructed
from tileops.errors import ArgumentError, DeviceError, DTypeError, ResultError, ShapeError, SignatureError
from tileops.manifest import roofline
from tileops.manifest.plan import EffectBranch
from tileops.manifest.record import OutputFacts, TensorFacts, Traffic

X = torch.empty(2, 3, 8)
WEIGHT = torch.empty(8)


def test_names_come_from_the_entry() -> None:
    """The plan lists inputs, parameters, outputs and branches as the entry declares them."""
    assert PLAN.inputs == ("x", "weight")
    assert PLAN.required_inputs == ("x",)
    assert PLAN.optional_inputs == ("weight",)
    assert [(found.name, found.required) for found in PLAN.parameters] == [("normalized_shape", True), ("eps", False)]
    assert PLAN.outputs == ("y",)
    assert PLAN.branches == (EffectBranch("", (), ("y",), has_out=False),)
    assert PLAN.select_branch(constructed(), X, WEIGHT) == 0


def test_a_record_states_the_call() -> None:
    """The record holds the solved indices, the tensors' types, the outputs and the least traffic."""
    call = PLAN.check_call(constructed(), X, WEIGHT)
    assert call.indices == {"T": torch.float32, "W": torch.float32, "B": (2, 3)}
    assert call.parameters == {"normalized_shape": (8,), "eps": None}
    assert call.device == torch.device("cpu")
    assert call.branch_key == (True,)
    assert call.tensors == {
        "x": TensorFacts((2, 3, 8), torch.float32),
        "weight": TensorFacts((8,), torch.float32),
        "y": TensorFacts((2, 3, 8), torch.float32),
    }
    assert call.outputs == (OutputFacts("y", (2, 3, 8), torch.float32),)
    assert call.traffic == {"x": Traffic(192, 0), "weight": Traffic(32, 0), "y": Traffic(0, 192)}
    assert (call.written, call.has_out, dict(call.metadata), call.is_empty_write) == ((), False, {}, False)


def test_a_record_of_an_omitted_weight() -> None:
    """An optional input that is not passed is in neither tensors nor traffic."""
    call = PLAN.check_call(constructed(), X, None)
    assert sorted(call.tensors) == ["x", "y"]
    assert sorted(call.traffic) == ["x", "y"]
    assert call.branch_key == (False,)


def test_a_record_is_frozen() -> None:
    """A record cannot be changed, nor can the mappings that it gives."""
    call = PLAN.check_call(constructed(), X, None)
    with pytest.raises(AttributeError):
        call.device = None  # type: ignore[misc]
    with pytest.raises(TypeError, match="does not support item assignment"):
        call.indices["B"] = ()  # type: ignore[index]


@pytest.mark.parametrize("shape", [(0, 8), (2, 0, 8)])
def test_no_rows_is_an_empty_write(shape: tuple[int, ...]) -> None:
    """A call whose every output holds no element writes nothing."""
    assert PLAN.check_call(constructed(), torch.empty(shape), WEIGHT).is_empty_write


def test_meta_tensors_are_checked_alike() -> None:
    """Meta tensors give the record that real tensors give, but for the device."""
    real = PLAN.check_call(constructed(), X, WEIGHT)
    meta = PLAN.check_call(constructed(), X.to("meta"), WEIGHT.to("meta"))
    assert meta.device == torch.device("meta")
    assert (meta.outputs, meta.indices) == (real.outputs, real.indices)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (
            lambda: (X[..., :7], WEIGHT),
            ShapeError,
            "x: expected shape [*B, 8] for normalized_shape=(8,), received [2, 3, 7]; pass x whose last axis is 8",
        ),
        (
            lambda: (X[0, 0, 0], None),
            ShapeError,
            "x: expected shape [*B, 8] for normalized_shape=(8,), received []; pass x whose last axis is 8",
        ),
        (
            lambda: (X, WEIGHT[:7]),
            ShapeError,
            "weight: expected shape [8] for normalized_shape=(8,), received [7]; pass weight of shape [8]",
        ),
        (
            lambda: (X, WEIGHT.reshape(1, 8)),
            ShapeError,
            "weight: expected shape [8] for normalized_shape=(8,), received [1, 8]; pass weight of shape [8]",
        ),
        (
            lambda: (X.long(), None),
            DTypeError,
            "x: expected dtype float16, bfloat16 or float32, received int64; convert x with .to(torch.float32)",
        ),
        (
            lambda: (X, WEIGHT.half()),
            DTypeError,
            (
                "dtypes: expected (x=float16, weight=float16), (x=bfloat16, weight=bfloat16), "
                "(x=float32, weight=float32), (x=float16, weight=float32) or (x=bfloat16, weight=float32), "
                "received (x=float32, weight=float16); "
                "convert the inputs to one of these rows"
            ),
        ),
        (
            lambda: (X, WEIGHT.to("meta")),
            DeviceError,
            "weight: expected device cpu, as x has, received device meta; make weight on cpu",
        ),
        (lambda: (None, WEIGHT), ArgumentError, "x: expected a Tensor, received None; pass x"),
        (lambda: (X, [1.0]), ArgumentError, "weight: expected a Tensor, received list; pass a torch.Tensor"),
    ],
)
def test_a_wrong_call_is_refused(
    make: Callable[[], tuple[object, ...]], error: type[SignatureError], message: str
) -> None:
    """A call that does not fit raises one typed error of one line: op, argument, expected, received, mend."""
    with pytest.raises(error) as caught:
        PLAN.check_call(constructed(), *make())
    assert str(caught.value) == f"RMSNormFwdOp: {message}"


def test_the_mend_names_several_axes() -> None:
    """With a normalized shape of two axes the message asks for both."""
    with pytest.raises(ShapeError) as caught:
        PLAN.check_call(constructed((3, 8)), torch.empty(2, 8), None)
    assert str(caught.value) == (
        "RMSNormFwdOp: x: expected shape [*B, 3, 8] for normalized_shape=(3, 8), received [2, 8]; "
        "pass x whose last axes are 3, 8"
    )


def test_equal_metadata_gives_equal_keys() -> None:
    """The key of a call depends on dtype, shape and device of each tensor, and on which are passed."""
    key = PLAN.metadata_key(X, WEIGHT)
    assert key == PLAN.metadata_key(torch.ones(2, 3, 8), torch.ones(8))
    others = [
        PLAN.metadata_key(X, None),
        PLAN.metadata_key(X.half(), WEIGHT),
        PLAN.metadata_key(X[0], WEIGHT),
        PLAN.metadata_key(X.to("meta"), WEIGHT),
    ]
    assert len({key, *others}) == 5


def test_no_key_without_tensors() -> None:
    """An argument that is no tensor gives no key, so that the full check reports it."""
    assert PLAN.metadata_key([1.0], None) is None


@pytest.mark.parametrize(
    ("result", "received"),
    [
        (torch.empty(2, 3, 7), "float32 [2, 3, 7] on cpu"),
        (torch.empty(2, 3, 8, dtype=torch.float64), "float64 [2, 3, 8] on cpu"),
        (torch.empty(2, 3, 8, device="meta"), "float32 [2, 3, 8] on meta"),
        (torch.empty(2, 8, 3).transpose(1, 2), "float32 [2, 3, 8] on cpu, strides [24, 1, 3]"),
        (None, "NoneType"),
        ((X,), "tuple"),
    ],
)
def test_a_wrong_result_is_refused(result: object, received: str) -> None:
    """A returned value that differs from the record in type, shape, dtype, device or layout raises ResultError."""
    call = PLAN.check_call(constructed(), X, WEIGHT)
    PLAN.check_result(call, torch.empty(2, 3, 8))
    with pytest.raises(ResultError) as caught:
        PLAN.check_result(call, result)
    assert str(caught.value) == (
        f"RMSNormFwdOp: y: expected float32 [2, 3, 8] on cpu, contiguous, received {received}; "
        "the implementation has to return that"
    )


def test_source_can_be_read_and_stepped_through() -> None:
    """The generated source is printable, and a traceback shows its lines."""
    assert "# x: [*B, *normalized_shape]" in PLAN.source
    try:
        PLAN.check_call(constructed(), X[..., :7], None)
    except ShapeError as error:
        frames = traceback.extract_tb(error.__traceback__)
    assert frames[-1].name == "check_call_0"
    assert (frames[-1].line or "").startswith("raise _messages.shape(")
    assert "def check_call(" in inspect.getsource(PLAN.check_call)


def test_the_roofline_counts_each_tensor_once() -> None:
    """Bytes are each tensor read or written once; operations depend on whether a weight is passed."""
    with_weight = PLAN.check_call(constructed(), X, WEIGHT)
    without = PLAN.check_call(constructed(), X, None)
    assert (roofline.flops(with_weight), roofline.bytes_moved(with_weight)) == (4 * 48 + 3 * 6, 192 + 32 + 192)
    assert (roofline.flops(without), roofline.bytes_moved(without)) == (3 * 48 + 3 * 6, 192 + 192)
