"""Words of a command line: what each form of them states, and what is said of a wrong one."""

from __future__ import annotations

import pytest
import torch

from tileops.commands.statements import StatedDevice, StatedTensor, read_device, read_dtype, read_parameter, read_tensor
from tileops.errors import StatementError
from tileops.manifest import registry
from tileops.moe import MaskedLayout

SM90 = StatedDevice(torch.device("cuda", 0), 90)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2048x4096:float16@cuda:sm90", StatedTensor((2048, 4096), torch.float16, SM90)),
        ("2,3:int64", StatedTensor((2, 3), torch.int64, None)),
        (":float32@cpu", StatedTensor((), torch.float32, StatedDevice(torch.device("cpu")))),
        ("0x4:bool@sm_90a", StatedTensor((0, 4), torch.bool, SM90)),
    ],
)
def test_a_tensor_is_read(text: str, expected: StatedTensor) -> None:
    """A shape, a dtype and a device; nothing before the colon is a scalar, and an architecture is a device."""
    assert read_tensor("AnyOp", "x", text) == expected


def test_a_device_is_shown_as_it_was_stated() -> None:
    """An architecture that was stated is shown in place of an index."""
    assert [str(read_device("AnyOp", "x", text)) for text in ("sm90", "cpu", "xpu:1")] == ["cuda:sm90", "cpu", "xpu:1"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "2048x4096",
            (
                "AnyOp: x: expected SHAPE:DTYPE, with @DEVICE behind it where that is not the first tensor's, received "
                "'2048x4096'; write it as in x=2048x4096:float16@cuda:sm90"
            ),
        ),
        (
            "2048,b:float16",
            (
                "AnyOp: x: expected extents with x between them, received '2048,b'; write it as in "
                "x=2048x4096:float16@cuda:sm90, and leave them out for a scalar"
            ),
        ),
        ("4:fp16", "AnyOp: x: expected a dtype as torch names it, received 'fp16'; did you mean float16?"),
        ("4:flaot32", "AnyOp: x: expected a dtype as torch names it, received 'flaot32'; did you mean float32?"),
        ("4:zz", "AnyOp: x: expected a dtype as torch names it, received 'zz'; write one such as float16"),
        (
            "99999999999x99999999999:float16",
            (
                "AnyOp: x: expected fewer than 2 ** 63 bytes, received extents 99999999999x99999999999; state a "
                "smaller tensor"
            ),
        ),
        (
            "4:float16@gpu",
            (
                "AnyOp: x: expected a device, received 'gpu'; write cpu, cuda:0, or cuda:sm90 to ask about another "
                "machine"
            ),
        ),
        (
            "4:float16@cuda:sm91",
            (
                "AnyOp: x: expected an architecture among sm80, sm86, sm89, sm90, sm100, sm120, received sm91; state "
                "one of these, or run the command on the machine and name its device"
            ),
        ),
    ],
)
def test_a_wrong_tensor_is_refused(text: str, message: str) -> None:
    """The error names the op and the input, and says how to write it."""
    with pytest.raises(StatementError) as caught:
        read_tensor("AnyOp", "x", text)
    assert str(caught.value) == message


@pytest.mark.parametrize(("count", "shown"), [(0, "no CUDA devices"), (1, "1 CUDA device"), (2, "2 CUDA devices")])
def test_a_device_that_this_machine_lacks_is_refused(count: int, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA device is one of this machine's, unless an architecture is stated."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: count)
    with pytest.raises(StatementError) as caught:
        read_device("AnyOp", "x", "cuda:7")
    assert str(caught.value) == (
        f"AnyOp: x: expected a device of this machine, which has {shown}, received 'cuda:7'; state an architecture, "
        "such as cuda:sm90"
    )


def test_a_cuda_device_without_an_index_is_the_current_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """`cuda` is the device that a call on this machine would run on."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    assert [read_device("AnyOp", "x", text).device.index for text in ("cuda", "cuda:0")] == [1, 0]


@pytest.mark.parametrize(
    ("op", "name", "text", "expected"),
    [
        ("RMSNormFwdOp", "normalized_shape", "4096", (4096,)),
        ("RMSNormFwdOp", "normalized_shape", "64x32", [64, 32]),
        ("RMSNormFwdOp", "normalized_shape", "(64, 32)", [64, 32]),
        ("RMSNormFwdOp", "normalized_shape", "(64,)", [64]),
        ("RMSNormFwdOp", "eps", "1e-6", 1e-6),
        ("RMSNormFwdOp", "eps", "None", None),
        ("SumFwdOp", "dim", "1", 1),
        ("SumFwdOp", "dim", "[0, 1]", [0, 1]),
        ("SumFwdOp", "keepdim", "True", True),
        ("SumFwdOp", "dtype", "float32", torch.float32),
        ("VectorNormFwdOp", "ord", "inf", float("inf")),
        ("VectorNormFwdOp", "ord", "-inf", float("-inf")),
        ("RoPEFwdOp", "input_layout", "2d", "2d"),
        ("MoEGroupedGemmFwdOp", "layout", "{kind: masked, max_m: 32}", MaskedLayout(max_m=32)),
    ],
)
def test_a_parameter_is_read(op: str, name: str, text: str, expected: object) -> None:
    """A value is written as in a workload row, or as Python and shapes are."""
    signature = registry.default().entry(op).signature
    (kind,) = [parameter.kind for parameter in signature.parameters if parameter.name == name]
    assert read_parameter(op, name, kind, text, signature.sums) == expected


@pytest.mark.parametrize(
    ("op", "name", "text", "message"),
    [
        (
            "RMSNormFwdOp",
            "eps",
            "abc",
            "RMSNormFwdOp: eps: expected float | None, received 'abc'; write eps=VALUE of that kind",
        ),
        (
            "SumFwdOp",
            "dim",
            "[0",
            (
                "SumFwdOp: dim: expected int | list[int] | None, received '[0': did not find expected ',' or ']'; "
                "write dim as a workload row of the manifest does"
            ),
        ),
        (
            "MoEGroupedGemmFwdOp",
            "layout",
            "{kind: tiled}",
            (
                "MoEGroupedGemmFwdOp: layout: expected MGroupedLayout, received '{kind: tiled}': MGroupedLayout has no "
                "constructor 'tiled'; write kind: with one of its names; write layout as a workload row of the "
                "manifest does"
            ),
        ),
    ],
)
def test_a_wrong_parameter_is_refused(op: str, name: str, text: str, message: str) -> None:
    """The error says of which kind the parameter is."""
    signature = registry.default().entry(op).signature
    (kind,) = [parameter.kind for parameter in signature.parameters if parameter.name == name]
    with pytest.raises(StatementError) as caught:
        read_parameter(op, name, kind, text, signature.sums)
    assert str(caught.value) == message


def test_a_dtype_is_read() -> None:
    """A dtype goes by the name that torch and the manifest have for it."""
    assert read_dtype("AnyOp", "x", "bfloat16") is torch.bfloat16
