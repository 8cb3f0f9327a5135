"""An op with every effect: operators named by suffixes in one order, and the right objects from each branch."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor

from .capture import Capture
from .composites import ones
from .toys import EveryFwdOp

PAIRS = list(product((False, True), repeat=2))


def test_suffixes_stand_in_one_order() -> None:
    """What is written, then the buffer, then what is missing, in the signature's order."""
    written = [f"{'_writes_state' * keep}{'_out' * out}{'_without_kept' * (not keep)}" for keep, out in PAIRS]

    assert sorted(EveryFwdOp.compile_op_names) == sorted(
        f"tileops::toy_every_fwd{suffix}{missing}" for suffix in written for missing in ("", "_without_z")
    )


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize(("keep", "twice", "buffered"), list(product((False, True), repeat=3)))
def test_each_branch_gives_its_outputs(keep: bool, twice: bool, buffered: bool, compiled: bool) -> None:
    """New tensors where the op allocates, the caller's own where it writes, None where an output is missing."""
    op: Any = EveryFwdOp(keep, twice)
    run: Any = torch.compile(op, fullgraph=True, backend="aot_eager") if compiled else op
    x, state, out = ones(2), torch.zeros(2), torch.full((2,), torch.nan)
    y, kept, z = run(x, state, out=out) if buffered else run(x, state)

    assert y.tolist() == [2.0, 2.0]
    assert (y is out) == buffered
    assert (kept is state) == keep
    assert state.tolist() == ([1.0, 1.0] if keep else [0.0, 0.0])
    assert (None if z is None else z.tolist()) == ([3.0, 3.0] if twice else None)


@pytest.mark.parametrize(("keep", "twice", "buffered"), list(product((False, True), repeat=3)))
def test_each_branch_is_one_node_that_passes_opcheck(keep: bool, twice: bool, buffered: bool) -> None:
    """The node is the branch's operator, and PyTorch's checks of it pass."""
    op: Any = EveryFwdOp(keep, twice)
    capture = Capture()
    inputs: list[Tensor] = [ones(2, 3), torch.zeros(2, 3)]
    buffer = {"out": torch.zeros(2, 3)} if buffered else {}
    compiled: Any = torch.compile(op, fullgraph=True, backend=capture)
    compiled(*inputs, **buffer)
    (name,) = capture.operators()
    suffix = f"{'_writes_state' * keep}{'_out' * buffered}{'_without_kept' * (not keep)}{'_without_z' * (not twice)}"

    assert name == f"tileops.toy_every_fwd{suffix}.default"
    operator = getattr(torch.ops.tileops, f"toy_every_fwd{suffix}").default
    torch.library.opcheck(operator, (*inputs, *buffer.values(), op._instance_key))
