"""What the validator asks of an implemented op class, each difference found."""

from __future__ import annotations

from typing import ClassVar

import pytest
import torch

from tileops.manifest import registry
from tileops.manifest.implementation import class_problems, reference
from tileops.manifest.parse import parse_entry

ENTRY = registry.entry("RMSNormFwdOp")


class Right:
    """A class that follows the entry of RMSNormFwdOp."""

    compile_op_names: tuple[str, ...] = ("tileops::norm_rms_norm_fwd",)

    def __init__(self, normalized_shape: object, eps: object = None, *, target: object = None) -> None: ...

    def forward(self, x: object, weight: object = None) -> None: ...


class OtherNames(Right):
    """Its first parameter has another name."""

    def __init__(self, shape: object, eps: object = None, *, target: object = None) -> None: ...


class NoTarget(Right):
    """It takes no target."""

    def __init__(self, normalized_shape: object, eps: object = None) -> None: ...


class PositionalTarget(Right):
    """Its target is positional."""

    def __init__(self, normalized_shape: object, eps: object = None, target: object = None) -> None: ...


class OtherDefault(Right):
    """Its eps has another default."""

    def __init__(self, normalized_shape: object, eps: object = 1e-6, *, target: object = None) -> None: ...


class KeywordOnly(Right):
    """Its eps is keyword-only."""

    def __init__(self, normalized_shape: object, *, eps: object = None, target: object = None) -> None: ...


class Injected(Right):
    """It takes an object beyond the manifest's parameters, and says so."""

    injected_parameters: ClassVar[tuple[str, ...]] = ("experts",)

    def __init__(
        self, normalized_shape: object, eps: object = None, *, experts: object = None, target: object = None
    ) -> None: ...


class OtherForward(Right):
    """Its forward names the weight otherwise."""

    def forward(self, x: object, w: object = None) -> None: ...


class RequiredWeight(Right):
    """Its forward requires the weight."""

    def forward(self, x: object, weight: object) -> None: ...  # type: ignore[override]


class NoBoundary(Right):
    """It has no compile boundary."""

    compile_op_names: tuple[str, ...] = ()


class WithDelegates(Right):
    """It holds a sub-op."""

    delegate_types: ClassVar[dict[str, type]] = {"norm": Right}


NAMES = "RMSNormFwdOp.__init__ takes"
ASKED = "and the entry asks for (normalized_shape, eps, target)"


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (Right, []),
        (Injected, []),
        (OtherNames, [("constructor", f"{NAMES} (shape, eps, target), {ASKED}")]),
        (NoTarget, [("constructor", f"{NAMES} (normalized_shape, eps), {ASKED}")]),
        (PositionalTarget, [("constructor", "RMSNormFwdOp.__init__ has to end in *, target=None")]),
        (OtherDefault, [("constructor", "eps has the default None in the entry and not in the class")]),
        (KeywordOnly, [("constructor", "eps is positional in the entry and not in the class")]),
        (OtherForward, [("forward", "forward takes (x, w), and the entry asks for (x, weight)")]),
        (RequiredWeight, [("forward", "weight needs the default None in forward")]),
        (NoBoundary, [("boundary", "RMSNormFwdOp has no compile boundary, and the entry asks for one")]),
        (WithDelegates, [("composition", "delegate_types holds norm: Right, and the entry's stages are none")]),
    ],
)
def test_a_class_follows_its_entry(op: type, expected: list[tuple[str, str]]) -> None:
    """Constructor, forward, boundary and sub-ops are those that the entry says; injected parameters are allowed."""
    assert [(found.rule, found.message) for found in class_problems(ENTRY, op)] == expected


def test_a_composite_holds_its_stages() -> None:
    """A composite has no boundary, and holds the ops of its stages under their names, in order."""
    entry = registry.entry("FusedMoEFwdOp")
    found = [problem.rule for problem in class_problems(entry, Right)]
    assert found.count("composition") == 1
    assert found.count("boundary") == 1


def test_a_reference_that_is_not_installed_is_not_asked_for() -> None:
    """A reference API of a package that cannot be imported is no problem; a wrong name in one that can is."""
    text = "signature:\n  outputs: {y: {dtype: float32, shape: '[]'}}\nref_api: "
    absent = parse_entry(text + "no_such_package.f", "ToyFwdOp", family="toy")
    wrong = parse_entry(text + "torch.no_such_function", "ToyFwdOp", family="toy")
    assert list(reference(absent)) == []
    assert [problem.message for problem in reference(wrong)] == [
        "torch.no_such_function does not exist in the installed torch"
    ]


class Typed:
    """A class that follows the entry of AlibiFwdOp, whose defaults are a dtype and None."""

    compile_op_names: tuple[str, ...] = ()

    def __init__(
        self,
        *,
        seq_len: object,
        num_heads: object,
        out_dtype: object = torch.float32,
        device: object = None,
        target: object = None,
    ) -> None: ...

    def forward(self) -> None: ...


def test_a_dtype_default_is_the_dtype_of_its_name() -> None:
    """An entry writes a dtype by name, and the class holds the dtype itself."""
    entry = registry.entry("AlibiFwdOp")
    assert [problem.message for problem in class_problems(entry, Typed)] == []
