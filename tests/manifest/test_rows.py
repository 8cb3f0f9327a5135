"""Rows as calls: for random values of every entry's rows, inference gives back what the row states."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

from tests.manifest.ops import plan_of
from tileops.errors import ExpressionError, SignatureError
from tileops.manifest import registry, workloads
from tileops.manifest.kinds import DimKind, ShapeKind
from tileops.manifest.model import OpEntry, WorkloadRow
from tileops.manifest.record import SignatureCall
from tileops.manifest.workloads import WorkloadCase

NAMES = registry.names()
MOST_BYTES = 1 << 22


@st.composite
def varied(draw: st.DrawFn, entry: OpEntry) -> tuple[WorkloadRow, dict[str, str]]:
    """Return a row of the entry with some of its extents drawn anew, and one of its dtype cases."""
    row = draw(st.sampled_from(entry.workloads))
    values = dict(row.values)
    for name, value in row.values.items():
        kind = entry.signature.forall.get(name)
        if isinstance(kind, DimKind):
            values[name] = draw(st.just(value) | st.integers(0, 12))
        elif isinstance(kind, ShapeKind) and isinstance(value, tuple):
            rank = st.just(len(value)) | st.integers(0, 4)
            drawn = draw(rank.flatmap(lambda size: st.lists(st.integers(0, 5), min_size=size, max_size=size)))
            values[name] = draw(st.just(value) | st.just(tuple(drawn)))
    return msgspec.structs.replace(row, values=values), dict(draw(st.sampled_from(row.dtype_cases)))


def on_device(entry: OpEntry, case: WorkloadCase, device: str) -> SignatureCall:
    """Return the record of the case called with uninitialised tensors on the device."""
    plan = plan_of(entry.name)
    tensors = [
        None if tensor is None else torch.empty(tensor.shape, dtype=tensor.dtype, device=device)
        for tensor in case.tensors.values()
    ]
    return plan.check_call(plan.check_construction(workloads.constructed(entry, case)), *tensors)


def symbolic(entry: OpEntry, case: WorkloadCase) -> SignatureCall:
    """Return the record of the case called with fake tensors of which every size is a symbol."""
    plan = plan_of(entry.name)
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    tensors: list[torch.Tensor | None] = []
    for tensor in case.tensors.values():
        if tensor is None:
            tensors.append(None)
            continue
        context: Any = StatelessSymbolicContext(dynamic_sizes=[DimDynamic.DYNAMIC] * len(tensor.shape))
        real = torch.empty(tensor.shape, dtype=tensor.dtype, device="meta")
        tensors.append(mode.from_tensor(real, symbolic_context=context))
    with mode:
        return plan.check_call(plan.check_construction(workloads.constructed(entry, case)), *tensors)


def settled(value: object) -> object:
    """Return the value with symbols as the numbers that they stand for."""
    if isinstance(value, tuple):
        return tuple(settled(item) for item in value)
    return value.node.hint if isinstance(value, torch.SymInt) else value


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow])
@given(data=st.data())
def test_inference_gives_back_the_row(name: str, data: st.DataObject) -> None:
    """Instantiating a row and checking the call gives the row's indices, on meta, symbolic and real tensors."""
    entry = registry.default().entry(name)
    row, dtypes = data.draw(varied(entry))
    try:
        case = workloads.instantiate(entry, row, dtypes)
        record = on_device(entry, case, "meta")
    except (ExpressionError, SignatureError):
        assume(False)
        return
    for index, value in record.indices.items():
        assert value == case.indices[index]
    traced = symbolic(entry, case)
    assert {index: settled(value) for index, value in traced.indices.items()} == record.indices
    assert [settled(output.shape) for output in traced.outputs] == [output.shape for output in record.outputs]
    size = sum(facts.nbytes for facts in record.tensors.values())
    if size <= MOST_BYTES:
        real = on_device(entry, case, "cpu")
        assert (real.indices, real.outputs, real.traffic) == (record.indices, record.outputs, record.traffic)


@pytest.mark.parametrize("name", NAMES)
def test_every_row_of_the_manifest_is_a_call(name: str) -> None:
    """Each row as it stands is accepted, and its generated contents meet what the entry requires of them."""
    entry = registry.default().entry(name)
    for case in workloads.cases(entry):
        record = workloads.meta_call(plan_of(name), case)
        assert record.indices.items() <= case.indices.items()
        contents = workloads.metadata(entry, case)
        assert workloads.broken_requirements(entry, case, contents) == []


def test_ids_are_unique() -> None:
    """No two cases of one op share an id."""
    for name in NAMES:
        ids = [case.id for case in workloads.cases(registry.default().entry(name))]
        assert len(ids) == len(set(ids))


@pytest.mark.parametrize("name", NAMES)
def test_a_row_s_effects_are_those_of_its_branch(name: str) -> None:
    """The effect branch that a call selects writes what its record writes, and allocates its other outputs."""
    entry, plan = registry.default().entry(name), plan_of(name)
    for case in workloads.cases(entry):
        record = workloads.meta_call(plan, case)
        settled = plan.check_construction(workloads.constructed(entry, case))
        tensors = [None if found is None else torch.empty(0, device="meta") for found in case.tensors.values()]
        buffer = {"out": torch.empty(0, device="meta")} if record.has_out else {}
        effect = plan.branches[plan.select_branch(settled, *tensors, **buffer)]
        given_back = {output.name for output in entry.signature.outputs if output.alias in record.written}
        given_back |= {output.name for output in entry.signature.outputs if output.buffer and record.has_out}
        assert effect.writes == record.written
        assert effect.has_out == record.has_out
        assert effect.allocates == tuple(o.name for o in record.outputs if o.name not in given_back)
