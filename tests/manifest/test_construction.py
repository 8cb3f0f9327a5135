"""The construction check: parameter values against their kinds and the signature's refinements."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from tests.manifest.rms_norm import PLAN, constructed
from tileops.errors import ParameterError, ParameterTypeError


@pytest.mark.parametrize("shape", [(8,), [8], torch.Size([8])])
def test_a_sequence_is_kept_as_a_tuple(shape: object) -> None:
    """A list or a torch.Size passed for a tuple parameter is kept as a plain tuple."""
    found = constructed(shape).parameters["normalized_shape"]
    assert (found, type(found)) == ((8,), tuple)


@pytest.mark.parametrize("eps", [None, 0, 0.0, 1e-6])
def test_a_whole_number_passes_for_a_float(eps: object) -> None:
    """`float | None` takes None, a float and a whole number, and changes none of them."""
    assert constructed((8,), eps).parameters == {"normalized_shape": (8,), "eps": eps}


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (8, "normalized_shape: expected tuple[int, ...], received 8; pass normalized_shape=(8,)"),
        ("8", "normalized_shape: expected tuple[int, ...], received '8'; pass normalized_shape as tuple[int, ...]"),
        (
            (8.0,),
            "normalized_shape: expected tuple[int, ...], received (8.0,); pass normalized_shape as tuple[int, ...]",
        ),
        (
            (True,),
            "normalized_shape: expected tuple[int, ...], received (True,); pass normalized_shape as tuple[int, ...]",
        ),
        (None, "normalized_shape: expected tuple[int, ...], received None; pass normalized_shape as tuple[int, ...]"),
    ],
)
def test_a_value_of_another_type_is_refused(shape: object, message: str) -> None:
    """A value that is not of the parameter's kind raises ParameterTypeError, also a TypeError; a bool is no number."""
    with pytest.raises(ParameterTypeError) as caught:
        constructed(shape)
    assert str(caught.value) == f"RMSNormFwdOp: {message}"
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (
            (),
            "expected at least 1 element, received (); pass normalized_shape of at least 1 element",
        ),
        (
            (4, -1),
            "expected elements to be at least 0, received (4, -1); pass normalized_shape whose elements are at least 0",
        ),
    ],
)
def test_a_refinement_of_parameters_is_checked(shape: object, message: str) -> None:
    """A refinement that reads parameters only is checked at construction and raises ParameterError, a ValueError."""
    with pytest.raises(ParameterError) as caught:
        constructed(shape)
    assert str(caught.value) == f"RMSNormFwdOp: normalized_shape: {message}"
    assert isinstance(caught.value, ValueError)


def test_an_unassigned_parameter_is_named() -> None:
    """A parameter that the constructor has not assigned raises ParameterError with the mend."""
    with pytest.raises(ParameterError) as caught:
        PLAN.check_construction(SimpleNamespace(normalized_shape=(8,)))
    assert str(caught.value) == (
        "RMSNormFwdOp: eps: expected float | None, received nothing; assign self.eps before super().__init__"
    )
