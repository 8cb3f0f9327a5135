"""The rule: availability, then applicability, then precedence, whatever the order of declaration."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch

from tileops_kernels.errors import AmbiguousDispatchError, NoImplementationError, OpNotAvailableError
from tileops_kernels.selection import select

from .toys import AMPERE, CPU, HOPPER, TYPES, GeneralScale, HopperScale, ScaleCall, ShortScale

CUDA = torch.device("cuda", 0)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (ScaleCall(device=CPU, n=8), "short"),
        (ScaleCall(device=CPU, n=65), "general"),
        (ScaleCall(device=CUDA, facts=AMPERE, n=8), "short"),
        (ScaleCall(device=CUDA, facts=HOPPER, n=8), "hopper"),
        (ScaleCall(device=CUDA, facts=HOPPER, n=65), "hopper"),
        (ScaleCall(device=CUDA, facts=AMPERE, n=65), "general"),
    ],
)
def test_one_type_wins_in_any_order(call: ScaleCall, expected: str) -> None:
    """A general type ranks below all others, a preferred one above those it names, in every order of declaration."""
    for order in permutations(TYPES):
        assert select("Toy.scale", {key: TYPES[key] for key in order}, call).key == expected


def test_each_type_passed_over_has_its_reason() -> None:
    """A selection says why every other kernel type did not serve."""
    selection = select("Toy.scale", TYPES, ScaleCall(device=CUDA, facts=HOPPER, n=65))

    assert selection.passed_over == {"short": "n is 65, it serves at most 64", "general": "ranks below hopper"}


def test_a_preferred_type_is_the_reason_of_the_beaten_one() -> None:
    """A type beaten through preferred_over names the winner."""
    selection = select("Toy.scale", TYPES, ScaleCall(device=CUDA, facts=HOPPER, n=8))

    assert selection.passed_over == {"short": "hopper is preferred", "general": "ranks below hopper"}


def test_no_type_on_the_device_is_not_available() -> None:
    """Availability is filtered first: with no type for the device, nothing is asked to refuse."""
    with pytest.raises(OpNotAvailableError) as caught:
        select("Toy.scale", {"hopper": HopperScale}, ScaleCall(device=CPU, n=8))

    assert str(caught.value) == (
        "Toy.scale: in-tree kernels do not run on cpu; expected a device among ['cuda'], received cpu (hopper: runs on "
        "cuda); move the tensors, or pass target= of a backend that serves this device"
    )


def test_a_wrong_architecture_is_not_available() -> None:
    """A CUDA device of an unsupported architecture counts as a device that the type does not run on."""
    with pytest.raises(OpNotAvailableError, match=r"hopper: runs on CUDA architectures \[90\], this device is 80"):
        select("Toy.scale", {"hopper": HopperScale}, ScaleCall(device=CUDA, facts=AMPERE, n=8))


def test_an_unknown_device_is_not_available() -> None:
    """A call spec without a device, on a machine without an accelerator, is served by nothing."""
    with pytest.raises(OpNotAvailableError, match="in-tree kernels do not run on an unknown device"):
        select("Toy.scale", TYPES, ScaleCall(n=8))


def test_no_types_at_all_is_not_available() -> None:
    """An interface without kernel types says so."""
    with pytest.raises(OpNotAvailableError, match="expected a kernel type under this interface, received none"):
        select("Toy.scale", {}, ScaleCall(device=CPU, n=8))


def test_every_refusal_is_listed() -> None:
    """When all types refuse, the error is also a ValueError and lists each reason."""
    with pytest.raises(NoImplementationError) as caught:
        select("Toy.scale", {"short": ShortScale}, ScaleCall(device=CPU, n=65))

    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == (
        "Toy.scale: no implementation serves this call; expected a call that one of ['short'] serves, received "
        "ScaleCall(device=device(type='cpu'), facts=None, n=65); refused by short: n is 65, it serves at most 64; "
        "change the "
        "call, or register a kernel type that serves it"
    )


def test_two_equal_types_are_ambiguous() -> None:
    """Two types that serve, with neither preferred, are an error naming both, and a ValueError."""

    class OtherShort(ShortScale):
        pass

    with pytest.raises(AmbiguousDispatchError) as caught:
        select(
            "Toy.scale", {"short": ShortScale, "other": OtherShort, "general": GeneralScale}, ScaleCall(device=CPU, n=8)
        )

    assert isinstance(caught.value, ValueError)
    assert str(caught.value) == (
        "Toy.scale: dispatch is ambiguous between ['other', 'short']; expected one of them to be preferred, received "
        f"{ScaleCall(device=CPU, n=8)}; name the others in the preferred_over of the one that should win"
    )
