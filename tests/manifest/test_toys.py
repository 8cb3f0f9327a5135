"""Entries from a text or a mapping, for ops that are not in the manifest, and constructs that no known op combines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tileops.errors import ArgumentError, DeviceError, ExpressionError, LayoutError, ManifestError, ShapeError
from tileops.manifest import roofline
from tileops.manifest.parse import parse_entry
from tileops.manifest.plan import SignaturePlan, build_plan
from tileops.manifest.record import SignatureCall, Traffic


def toy(signature: str) -> SignaturePlan:
    """Return the plan of an op with this signature, as lines of YAML."""
    text = "signature:\n" + "\n".join(f"  {line}" for line in signature.splitlines())
    return build_plan(parse_entry(text, "ToyFwdOp", family="toy"))


def called(plan: SignaturePlan, *tensors: torch.Tensor | None, out: Any = None, **parameters: object) -> SignatureCall:
    """Return the record of a call with these parameters."""
    settled = plan.check_construction(SimpleNamespace(**parameters))
    return plan.check_call(settled, *tensors, **({} if out is None else {"out": out}))


def test_an_entry_from_a_mapping_and_from_a_text() -> None:
    """The same entry from a mapping and from a text is equal in all but its source, digest included."""
    text = "family: toy\nstatus: spec-only\nsignature: {outputs: {y: {dtype: float32, shape: '[2, 3]'}}}\n"
    mapping = {
        "family": "toy",
        "status": "spec-only",
        "signature": {"outputs": {"y": {"dtype": "float32", "shape": "[2, 3]"}}},
    }
    first, second = parse_entry(text, "ToyFwdOp"), parse_entry(mapping, "ToyFwdOp")
    assert (first.signature, first.digest) == (second.signature, second.digest)
    assert parse_entry(text.replace("3", "4"), "ToyFwdOp").digest != first.digest
    assert parse_entry(text + "# a remark\n", "ToyFwdOp").digest == first.digest


def test_a_wrong_entry_lists_its_problems() -> None:
    """A wrong text raises ManifestError with every problem and its place."""
    with pytest.raises(ManifestError) as caught:
        parse_entry("signature:\n  inputs: {x: {dtype: T}}\n  output: {}\n", "ToyFwdOp", family="toy")
    assert [str(problem) for problem in caught.value.problems] == [
        "<entry ToyFwdOp>:3:3: unknown-field: unknown field 'output'; did you mean 'outputs'?",
        "<entry ToyFwdOp>:2:12: missing-field: the field 'shape' is missing",
    ]


def test_a_wrong_kind_stops_the_plan() -> None:
    """No code is generated from an entry whose kinds are wrong."""
    with pytest.raises(ManifestError, match="unknown name 'N'"):
        toy("outputs: {y: {dtype: float32, shape: '[N]'}}")


def test_zero_dimensions() -> None:
    """`[]` is a tensor without axes."""
    plan = toy("inputs: {x: {dtype: float32, shape: '[]'}}\noutputs: {y: {dtype: float32, shape: '[]'}}")
    assert called(plan, torch.tensor(1.0)).outputs[0].shape == ()
    with pytest.raises(ShapeError, match=r"ToyFwdOp: x: expected shape \[\], received \[1\]; pass x of shape \[\]"):
        called(plan, torch.ones(1))


def test_an_index_of_an_absent_construction_time_tensor() -> None:
    """An index that an optional tensor of construction gives is one of the call's where that tensor is absent."""
    plan = toy(
        "forall: {N: Dim}\n"
        "params: {scale: {dtype: float32, shape: '[N]', optional: true}}\n"
        "let: {half: 'ceil_div(N, 2)'}\n"
        "inputs: {x: {dtype: float32, shape: '[N]'}}\n"
        "outputs: {y: {dtype: float32, shape: '[half]'}}"
    )
    for scale in (torch.empty(5), None):
        record = called(plan, torch.empty(5), scale=scale)
        assert (record.indices, record.outputs[0].shape) == ({"N": 5, "half": 3}, (3,))
    with pytest.raises(ShapeError, match=r"x: expected shape \[4\] for N=4, received \[5\]"):
        called(plan, torch.empty(5), scale=torch.empty(4))


def test_axes_around_a_splice() -> None:
    """A shape index takes what the axes before and behind it leave."""
    plan = toy(
        "forall: {A: Dim, S: Shape, Z: Dim}\n"
        "inputs: {x: {dtype: float32, shape: '[A, *S, 2 * Z + 1]'}}\n"
        "outputs: {y: {dtype: float32, shape: '[*S, A + Z]'}}"
    )
    record = called(plan, torch.empty(4, 5, 6, 7))
    assert record.indices == {"A": 4, "S": (5, 6), "Z": 3}
    assert record.outputs[0].shape == (5, 6, 7)
    assert called(plan, torch.empty(4, 1)).indices == {"A": 4, "S": (), "Z": 0}
    for wrong in (torch.empty(4), torch.empty(4, 6), torch.empty(4, 0)):
        with pytest.raises(ShapeError, match=r"expected shape \[A, \*S, 2 \* Z \+ 1\]"):
            called(plan, wrong)


def test_a_tensor_that_stays_on_the_cpu() -> None:
    """A tensor that declares device: cpu takes no part in the call's device, and has to be there."""
    plan = toy(
        "forall: {N: Dim}\n"
        "inputs:\n"
        "  sizes: {dtype: int64, shape: '[N]', device: cpu}\n"
        "  x: {dtype: float32, shape: '[N]'}\n"
        "outputs: {y: {dtype: float32, shape: '[N]'}}"
    )
    sizes = torch.empty(3, dtype=torch.int64)
    assert called(plan, sizes, torch.empty(3, device="meta")).device == torch.device("meta")
    with pytest.raises(DeviceError) as caught:
        called(plan, sizes.to("meta"), torch.empty(3, device="meta"))
    assert str(caught.value) == ("ToyFwdOp: sizes: expected device cpu, received device meta; make sizes on cpu")


def test_a_written_tensor_that_is_not_read() -> None:
    """A write-only tensor is one write and no read; with contiguous it has to be so."""
    plan = toy(
        "forall: {N: Dim, M: Dim}\n"
        "inputs:\n"
        "  y: {dtype: float32, shape: '[N, M]', mutated: true, write_only: true, contiguous: true}\n"
        "  x: {dtype: float32, shape: '[N, M]'}"
    )
    record = called(plan, torch.empty(2, 3), torch.empty(2, 3))
    assert record.traffic == {"y": Traffic(0, 24), "x": Traffic(24, 0)}
    assert (record.outputs, record.written) == ((), ("y",))
    assert plan.branches[0].suffix == "_writes_y"
    plan.check_result(record, None)
    with pytest.raises(LayoutError) as caught:
        called(plan, torch.empty(3, 2).t(), torch.empty(2, 3))
    assert str(caught.value) == (
        "ToyFwdOp: y: expected a contiguous tensor, received strides [1, 2]; allocate y = "
        "torch.empty_like(y, memory_format=torch.contiguous_format) before the call, which writes it"
    )
    assert plan.metadata_key(torch.empty(2, 3), torch.empty(2, 3)) != plan.metadata_key(
        torch.empty(3, 2).t(), torch.empty(2, 3)
    )


def test_a_family_made_of_another() -> None:
    """A case of one family may apply another."""
    plan = toy(
        "forall: {N: Dim, M: Dim}\n"
        "params: {deep: {type: bool}, turned: {type: bool}}\n"
        "types:\n"
        "  Flat:\n"
        "    params: {a: Dim, b: Dim}\n"
        "    match: turned\n"
        "    cases: [{when: false, is: '[a, b]'}, {when: true, is: '[b, a]'}]\n"
        "  Any:\n"
        "    params: {c: Dim}\n"
        "    match: deep\n"
        "    cases: [{when: false, is: '[N, c]'}, {when: true, is: 'Flat[N, 2 * c]'}]\n"
        "inputs: {x: {dtype: float32, shape: 'Any[M]'}}\n"
        "outputs: {y: {dtype: float32, shape: '[N, M]'}}"
    )
    assert called(plan, torch.empty(2, 6), deep=False, turned=True).indices == {"N": 2, "M": 6}
    assert called(plan, torch.empty(2, 6), deep=True, turned=False).indices == {"N": 2, "M": 3}
    assert called(plan, torch.empty(6, 2), deep=True, turned=True).indices == {"N": 2, "M": 3}


def test_a_nullable_word_decides() -> None:
    """A parameter of words or None decides by its value, None among them."""
    plan = toy(
        "forall: {N: Dim}\n"
        "params: {mode: {type: \"'a' | 'b' | None\", default: null}}\n"
        "inputs:\n"
        "  x: {dtype: float32, shape: '[N]'}\n"
        "  w: {dtype: float32, shape: '[N]', optional: \"mode in ('a', 'b')\"}\n"
        "  v: {dtype: float32, shape: '[N]', optional: present(mode) and mode.value == 'b'}\n"
        "outputs: {y: {dtype: float32, shape: '[N]'}}"
    )
    x = torch.empty(2)
    called(plan, x, None, None, mode=None)
    called(plan, x, x, None, mode="a")
    called(plan, x, x, x, mode="b")
    with pytest.raises(ArgumentError, match="w: expected a Tensor for mode='a', received None; pass w"):
        called(plan, x, None, None, mode="a")
    with pytest.raises(ArgumentError, match="v: expected None for mode='a', received a Tensor; leave v out"):
        called(plan, x, x, x, mode="a")


def test_a_negative_output_is_refused() -> None:
    """An output whose extent would be negative is an error of the call, not of the allocator."""
    plan = toy(
        "forall: {N: Dim}\n"
        "inputs: {x: {dtype: float32, shape: '[N]'}}\n"
        "outputs: {y: {dtype: float32, shape: '[N - 4]'}}"
    )
    assert called(plan, torch.empty(4)).outputs[0].shape == (0,)
    with pytest.raises(ShapeError) as caught:
        called(plan, torch.empty(3))
    assert str(caught.value) == (
        "ToyFwdOp: y: expected extents of [N - 4] that are not negative, received [-1]; pass larger inputs"
    )


def test_an_index_of_an_optional_tensor_is_solved_by_whichever_is_there() -> None:
    """An index that two optional tensors share is bound by the first that is passed and checked against the other."""
    plan = toy(
        "forall: {N: Dim, M: Dim}\n"
        "inputs:\n"
        "  x: {dtype: float32, shape: '[N]'}\n"
        "  a: {dtype: float32, shape: '[M]', optional: true}\n"
        "  b: {dtype: float32, shape: '[M]', optional: true}\n"
        "outputs: {y: {dtype: float32, shape: '[N]'}}"
    )
    x, three, four = torch.empty(2), torch.empty(3), torch.empty(4)
    assert called(plan, x, three, None).indices == {"N": 2, "M": 3}
    assert called(plan, x, None, four).indices == {"N": 2, "M": 4}
    assert called(plan, x, None, None).indices == {"N": 2}
    with pytest.raises(ShapeError, match=r"b: expected shape \[3\] for M=3, received \[4\]; pass b of shape \[3\]"):
        called(plan, x, three, four)


ADDED = (
    "  forall: {N: Dim}\n"
    "  inputs:\n"
    "    x: {dtype: float16, shape: '[N]'}\n"
    "    w: {dtype: float32, shape: '[N]', optional: true}\n"
    "  outputs: {y: {dtype: float16, shape: '[N]'}}\n"
)


@pytest.mark.parametrize(
    ("stated", "expected"),
    [
        ("{flops: N}", (8, 8 * 2 + 8 * 2 + 8 * 4)),
        ("{flops: 2 * N, bytes: 3 * bytes(x) + bytes(w) + N}", (16, 3 * 16 + 32 + 8)),
        ("{flops: N if present(w) else 0, bytes: bytes(y)}", (8, 16)),
    ],
)
def test_a_stated_cost(stated: str, expected: tuple[int, int]) -> None:
    """Bytes are each tensor once where nothing is stated; bytes(x) is the size of a tensor, 0 for an absent one."""
    plan = build_plan(parse_entry(f"signature:\n{ADDED}roofline: {stated}", "ToyFwdOp", family="toy"))
    record = called(plan, torch.empty(8, dtype=torch.float16), torch.empty(8))
    assert (roofline.flops(record), roofline.bytes_moved(record)) == expected
    without = called(plan, torch.empty(8, dtype=torch.float16), None)
    assert roofline.bytes_moved(without) == expected[1] - (0 if "bytes(y)" in stated else 32)


@pytest.mark.parametrize(
    ("stated", "message"),
    [
        ("", "ToyFwdOp: the manifest states no roofline"),
        ("roofline: {flops: N - 9}", "ToyFwdOp: N - 9 gives -1, not a count"),
        ("roofline: {func: tileops.manifest.costs.nothing}", "tileops.manifest.costs.nothing is no function"),
        ("roofline: {func: no_such_package.f}", "no_such_package.f cannot be imported: No module named"),
        ("roofline: {func: builtins.repr}", "builtins.repr gives "),
    ],
)
def test_a_cost_that_is_not_there(stated: str, message: str) -> None:
    """A cost that is not stated, that is no count, or whose function does not give one is an error."""
    plan = build_plan(parse_entry(f"signature:\n{ADDED}{stated}", "ToyFwdOp", family="toy"))
    record = called(plan, torch.empty(8, dtype=torch.float16), None)
    with pytest.raises(ExpressionError) as caught:
        roofline.flops(record)
    assert str(caught.value).startswith(message)
