"""Memory of a target's calls: a buffer of its own, new tensors where the op allocates, the caller's where it writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tileops.backend import BackendRegistry
from tileops.errors import LayoutError, ResultError

from .acme import Acme
from .composites import ones
from .toys import IntoFwdOp, NegateFwdOp, SplitFwdOp, TripleFwdOp


def test_a_buffer_within_an_input_does_not_reach_a_target(registry: BackendRegistry) -> None:
    """What a target writes is memory of its own, on every call; a buffer beside the input in one storage is taken."""
    acme = Acme(registry, "IntoFwdOp", lambda x, *, out: out.copy_(x + 1))
    op, storage = IntoFwdOp(target="acme"), torch.ones(8)
    assert op(storage[:4], out=storage[4:]).tolist() == [2.0] * 4
    for out in (storage[:4], storage[2:6], storage[::2]):
        with pytest.raises(LayoutError) as caught:
            op(storage[:4], out=out)
        assert str(caught.value) == (
            "IntoFwdOp: out: expected memory of its own, received some of x; pass another buffer"
        )

    assert (len(acme.given), storage.tolist()) == (1, [1.0] * 4 + [2.0] * 4)


@pytest.mark.parametrize(
    ("op", "compute", "message"),
    [
        (
            TripleFwdOp,
            lambda x: x,
            "TripleFwdOp: y: expected a new tensor, received memory of x; {} has to allocate it",
        ),
        (
            TripleFwdOp,
            lambda x: x[:],
            "TripleFwdOp: y: expected a new tensor, received memory of x; {} has to allocate it",
        ),
        (
            SplitFwdOp,
            lambda x: (both := torch.zeros(2, 3), both[0, :2]),
            "SplitFwdOp: total: expected a new tensor, received memory of y; {} has to allocate it",
        ),
        (
            lambda target: NegateFwdOp(inplace=True, target=target),
            lambda x: -x,
            ("NegateFwdOp: y: expected the caller's own x, received another tensor; {} has to write x and return it"),
        ),
    ],
)
def test_a_target_returns_new_tensors_or_the_callers_own(
    op: Any, compute: Callable[..., Any], message: str, registry: BackendRegistry
) -> None:
    """An input or a part of it is no result of a call that allocates, and a copy is none of a call that writes."""
    Acme(registry, message.partition(":")[0], compute)
    with pytest.raises(ResultError) as caught:
        op(target="acme")(ones(2, 3))

    assert str(caught.value) == message.format("the kernel of target 'acme'")


def test_a_target_writes_the_buffer(registry: BackendRegistry) -> None:
    """A kernel that returns a tensor of its own where it was given one is refused: the buffer holds no result."""
    Acme(registry, "IntoFwdOp", lambda x, *, out: x + 1)
    with pytest.raises(ResultError) as caught:
        IntoFwdOp(target="acme")(ones(2), out=torch.zeros(2))

    assert str(caught.value) == (
        "IntoFwdOp: y: expected the caller's own out, received another tensor; the kernel of target 'acme' has to "
        "write out and return it"
    )
