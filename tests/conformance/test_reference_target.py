"""The `reference` target: serves what has a reference, claims no device, and costs nothing to install."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.spec import toys
from tileops.backend import TensorSpec, registered_targets
from tileops.manifest import registry as manifest
from tileops.manifest.plan import build_plan
from tileops.norm import RMSNormFwdOp
from tileops_testing import reference_target
from tileops_testing.catalog import implemented_ops
from tileops_testing.conformance import check_target
from tileops_testing.errors import WrongReferenceError
from tileops_testing.references import Reference, family_references

from .kernels import few_cases

CPU = torch.device("cpu")


def test_it_serves_every_op_that_has_a_reference() -> None:
    """Of the manifest's ops, exactly those."""
    known = set(manifest.names())
    expected = {op for family in manifest.families() for op in family_references(family) if op in known}

    assert {op for op in known if "reference" in registered_targets(op)} == expected
    assert expected >= {op.__name__ for op in implemented_ops()}


def test_it_is_chosen_by_name_and_claims_no_device() -> None:
    """Without asking for it, the in-tree kernels serve."""
    op = RMSNormFwdOp((4,), target="reference")
    y = op(torch.full((2, 4), 3.0))
    other = RMSNormFwdOp((4,))
    other(torch.ones(2, 4))

    assert torch.allclose(y, torch.ones(2, 4))
    assert (op.serving_target, other.serving_target, list(op.iter_kernels())) == ("reference", "builtin", [])


def test_it_passes_conformance() -> None:
    """The worked example of a backend is right."""
    assert {found.outcome for found in check_target("reference", ops=("RMSNormFwdOp",), cases=few_cases)} == {"passed"}


def test_installing_it_costs_little() -> None:
    """Constructing an op loads it: no kit module but the references, and nothing heavy."""
    program = (
        "import sys, torch\n"
        "from tileops.norm import RMSNormFwdOp\n"
        "before = set(sys.modules)\n"
        "RMSNormFwdOp((4,))\n"
        "new = set(sys.modules) - before\n"
        "print('tileops_testing.reference_target' in new)\n"
        "heavy = ('tilelang', 'tvm', 'rich', 'pytest', 'scipy', 'numpy', 'sympy')\n"
        "print(sorted(name for name in new if name.split('.')[0] in heavy))\n"
        "allowed = ('tileops_testing.references', 'tileops_testing.errors', 'tileops_testing.reference_target')\n"
        "print(sorted(n for n in new if n.startswith('tileops_testing.') and not n.startswith(allowed)))\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert result.stdout == "True\n[]\n[]\n"


def spec(*shape: int, dtype: torch.dtype = torch.float32) -> TensorSpec:
    return TensorSpec(CPU, dtype, shape)


def toy_kernel(
    monkeypatch: pytest.MonkeyPatch, op: Any, function: Any, *specs: TensorSpec | None, **parameters: Any
) -> Any:
    """The kernel that the target builds for a toy op with this reference."""
    monkeypatch.setattr(reference_target, "_plan", lambda _: build_plan(op._plan.entry))
    monkeypatch.setattr(reference_target, "reference_for", lambda *_: Reference(function))
    return reference_target.build_kernel(op.__name__, "toy", *specs, **parameters)


def test_results_have_the_promised_dtype(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the reference computes wide is rounded to what the signature says, in a tensor of its own."""
    kernel = toy_kernel(monkeypatch, toys.TripleFwdOp, lambda x: x.double() * 3, spec(2, dtype=torch.float16))
    y = kernel(torch.ones(2, dtype=torch.float16))

    assert (y.dtype, y.tolist(), y.is_contiguous()) == (torch.float16, [3.0, 3.0], True)


def test_an_absent_input_and_a_null_output_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold their places."""
    told: list[Any] = []

    def double(x: Tensor, bias: Tensor | None) -> Tensor:
        told.append(bias)
        return x * 2

    toy_kernel(monkeypatch, toys.DoubleFwdOp, double, spec(2), None)(torch.ones(2), None)
    split = toy_kernel(monkeypatch, toys.SplitFwdOp, lambda x, sums: (x + 1, None), spec(2), sums=False)
    y, total = split(torch.ones(2))

    assert (told, y.tolist(), total) == ([None], [2.0, 2.0], None)


def test_a_written_input_is_the_object_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference writes it."""
    kernel = toy_kernel(monkeypatch, toys.NegateFwdOp, lambda x, inplace: x.neg_(), spec(2), inplace=True)
    x = torch.ones(2)

    assert kernel(x) is x
    assert x.tolist() == [-1.0, -1.0]


def test_the_callers_buffer_is_written_and_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel built without one takes one by keyword."""
    kernel = toy_kernel(monkeypatch, toys.IntoFwdOp, lambda x: x.double() + 1, spec(2))
    out = torch.full((2,), torch.nan)

    assert kernel(torch.ones(2), out=out) is out
    assert (out.tolist(), kernel(torch.ones(2)).tolist()) == ([2.0, 2.0], [2.0, 2.0])


def test_an_op_without_inputs_is_placed_by_its_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result lies on the call's device."""
    kernel = toy_kernel(
        monkeypatch, toys.RampFwdOp, lambda n, dtype, device: torch.arange(n), n=3, dtype=torch.float16, device=CPU
    )

    assert (kernel().tolist(), kernel().dtype) == ([0.0, 1.0, 2.0], torch.float16)


def test_a_reference_that_returns_too_little_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says how many outputs the signature has."""
    kernel = toy_kernel(monkeypatch, toys.SplitFwdOp, lambda x, sums: x, spec(2), sums=True)
    with pytest.raises(WrongReferenceError) as caught:
        kernel(torch.ones(2))
    assert str(caught.value) == (
        "SplitFwdOp: expected its reference to return 2 outputs (y, total), received 1; return one value per output of "
        "the signature, None for an absent one"
    )
