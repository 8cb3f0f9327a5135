"""Inputs that an op writes: their terms are the reference's, and a wrong one is caught by suites and benchmarks."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from tileops.moe import IndexedExpertMLPFwdOp
from tileops_testing.bench import Runner
from tileops_testing.bench.peers import peers_for
from tileops_testing.cases import Case
from tileops_testing.numerics import NumericsError
from tileops_testing.suites.suite import assert_written
from tileops_testing.workload_cases import cases_of

CPU = torch.device("cpu")

pytestmark = pytest.mark.op("IndexedExpertMLPFwdOp")


def case() -> Case:
    return next(case for case in cases_of(IndexedExpertMLPFwdOp, small=True) if case.row == "one-token")


def test_a_written_input_is_compared_by_the_terms_behind_it() -> None:
    """What the reference says of its terms counts, and not what the input held before."""
    some = case()
    inputs = some.tensors(CPU)
    copies = some.copies(inputs)
    expected = some.expected(copies)
    right, before = copies[0], inputs[0]
    assert right is not None
    assert before is not None
    assert set(expected.written) == {"output"}
    assert_written(some, "output", right, right, before, expected)
    wrong = right.clone()
    wrong[0, 3] += 0.1 * expected.written["output"].max().to(wrong.dtype)
    with pytest.raises(NumericsError, match=r"written input output: 1 of 16 elements disagree; worst at \[0, 3\]"):
        assert_written(some, "output", wrong, right, before.fill_(1e9), expected)


def test_only_what_a_call_may_write_is_copied_for_it() -> None:
    """Weights of many gigabytes are lent; the buffer, which the reference writes too, is not."""
    some = case()
    inputs = some.tensors(CPU)
    copies = some.copies(inputs)
    assert [name for name, copy, tensor in zip(some.names(), copies, inputs, strict=True) if copy is not tensor] == [
        "output"
    ]
    everything = replace(some, writable=None).copies(inputs)
    assert not any(copy is tensor for copy, tensor in zip(everything, inputs, strict=True))


def test_a_peer_that_writes_something_else_counts_as_none() -> None:
    """A benchmark compares what implementations write with what the reference writes."""

    def doubled(output: Tensor, *others: Tensor) -> None:
        IndexedExpertMLPFwdOp()(output, *others)
        output.mul_(2)

    peer: Callable[..., object] = doubled
    found = Runner(IndexedExpertMLPFwdOp(), case(), device=CPU).compare({"doubled": peer})
    assert found.best_peer() is None
    assert re.match(r"written input output: \d+ of 16 elements disagree", found["doubled"].worst_error)


def test_peers_of_an_op_that_writes_agree_with_it() -> None:
    """Each peer on a CPU writes what the op does, up to the roundings of its own."""
    peers = peers_for("IndexedExpertMLPFwdOp", "moe")
    assert peers is not None
    for some in cases_of(IndexedExpertMLPFwdOp, small=True):
        if some.row in ("every-expert", "odd"):
            op = some.construct()
            assert isinstance(op, IndexedExpertMLPFwdOp)
            found = Runner(op, some, device=CPU)._check(
                {"tileops": op, **peers.implementations(some, CPU)}, some.tensors(CPU)
            )
            assert set(found) == {"tileops", "torch", "loop"}
            assert all(each.agrees and "elements agree" in each.words for each in found.values())
