"""Cases: sizes capped for a CPU, grown for a second call, emptied; and the cases that manifest rows give."""

from __future__ import annotations

import pytest
import torch

from tileops.elementwise import AlibiFwdOp, ReluFwdOp
from tileops.norm import RMSNormFwdOp
from tileops.rope import LongRoPEFwdOp, RoPEFwdOp
from tileops_testing.cases import CPU_TENSOR, Size, capped_sizes
from tileops_testing.catalog import family_of, implemented_ops, op_class
from tileops_testing.errors import MissingReferenceError, SelectionError
from tileops_testing.references import family_references, reference_for
from tileops_testing.workload_cases import cases_of, stem_of, workload_cases

from . import toys


@pytest.mark.parametrize(
    ("size", "capped"),
    [
        (5, 5),
        (2048, 64),
        (0, 0),
        ((2048,), (64,)),
        ((4, 2048), (4, 16)),
        ((64, 2, 64), (16, 2, 2)),
        ((), ()),
        ((0, 900), (0, 900)),
    ],
)
def test_capped_sizes(size: Size, capped: Size) -> None:
    """The longest axis is cut first, until the axes multiply to the cap; no axis falls below one."""
    assert capped_sizes({"B": size}, 64) == {"B": capped}


def test_resized_and_emptied() -> None:
    """A second choice of sizes is larger by one; an empty one has no element."""
    case = toys.doubling_case(toys.Doubling, rows=3)
    resized, emptied = case.resized(), case.emptied()
    assert resized is not None
    assert emptied is not None
    assert (resized.sizes, emptied.sizes) == ({"rows": 4}, {"rows": 0})


def test_workload_rows_become_cases() -> None:
    """Every manifest row times its dtypes is a case at full size, whose inputs follow its free sizes."""
    cases = {case.label: case for case in workload_cases(RMSNormFwdOp)}
    prefill = cases["llama-8b-prefill-float16"]
    assert prefill.sizes == {"B": (2048,)}
    assert prefill.parameters == {"normalized_shape": (4096,)}
    specs = prefill.inputs({"B": (2, 3)})
    assert {name: spec.shape for name, spec in specs.items() if spec} == {"x": (2, 3, 4096), "weight": (4096,)}
    assert cases["no-affine-float32"].inputs({"B": (2,)})["weight"] is None
    assert all(case.seed == 0 for case in cases.values())


def test_cases_on_cpu_are_small() -> None:
    """On CPU free sizes are cut to 64 rows and to inputs of half a million elements."""
    for case in cases_of(RMSNormFwdOp, small=True):
        assert case.largest_input() <= CPU_TENSOR
        for size in case.sizes.values():
            assert torch.Size(size if isinstance(size, tuple) else (size,)).numel() <= 64


def test_further_shapes_are_cases_too() -> None:
    """The kit's edge shapes stand beside the workload rows, with labels of their own."""
    labels = [case.label for case in cases_of(RMSNormFwdOp, small=False)]
    assert "two-axes-bfloat16" in labels
    assert len(set(labels)) == len(labels)


def test_stem() -> None:
    """Test ids begin with the op's name in snake case, without family and direction."""
    assert [stem_of(op) for op in ("RMSNormFwdOp", "RoPEFwdOp", "AlibiFwdOp")] == ["rms_norm", "rope", "alibi"]


def test_every_implemented_op_has_a_reference() -> None:
    """No implemented op lacks a reference, and no reference lacks an op."""
    for op in implemented_ops():
        assert reference_for(op.__name__, family_of(op.__name__)) is not None
    assert set(family_references("norm")) == {op.__name__ for op in implemented_ops(families=["norm"])}


def test_missing_reference_says_where_to_write_it() -> None:
    """The error names the module that a reference belongs in."""
    with pytest.raises(
        MissingReferenceError, match=r"^NoFwdOp: expected a reference in tileops_testing.references.norm"
    ):
        reference_for("NoFwdOp", "norm")


def test_selection_by_op_and_family() -> None:
    """Ops are selected by name and by family; a name that is not there is refused with the nearest."""
    assert implemented_ops(ops=["RMSNormFwdOp"]) == (op_class("RMSNormFwdOp"),)
    assert op_class("RMSNormFwdOp") in implemented_ops(families=["norm"])
    with pytest.raises(SelectionError, match=r"^op: .*, received RmsNormFwdOp; did you mean RMSNormFwdOp"):
        implemented_ops(ops=["RmsNormFwdOp"])
    with pytest.raises(SelectionError, match=r"^family: .*, received norms; did you mean norm"):
        implemented_ops(families=["norms"])


def test_sizes_that_a_rule_ties_grow_as_it_allows() -> None:
    """An even width grows by two, and one that the construction-time factors decide is no free size."""
    plain = {case.label: case for case in workload_cases(RoPEFwdOp)}["sequence-2k-float16"]
    resized = plain.resized()
    assert resized is not None
    assert (plain.sizes, resized.sizes) == ({"S": 2048, "D": 64}, {"S": 2049, "D": 66})
    tied = {case.label: case for case in workload_cases(LongRoPEFwdOp)}["phi-3-prefill-8k-float32-float16"]
    assert tied.sizes == {"B": 1, "S": 8192, "H": 32}
    factors = tied.parameters["rescale_factors"]
    assert isinstance(factors, torch.Tensor)
    assert (factors.shape, factors.dtype, factors.device.type) == ((64,), torch.float32, "cpu")


def test_an_op_without_tensors_is_constructed_for_the_device() -> None:
    """Where no tensor says where a call runs, the case does; on a CPU its numbers are as small as free sizes."""
    full, small = workload_cases(AlibiFwdOp)[0], cases_of(AlibiFwdOp, small=True)[0]
    assert (full.parameters["seq_len"], small.parameters["seq_len"]) == (2048, 64)
    assert full.on(torch.device("cpu")).parameters["device"] == torch.device("cpu")
    relu = workload_cases(ReluFwdOp)[0]
    assert relu.on(torch.device("cpu")) is relu
