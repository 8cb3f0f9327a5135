"""What the tests of the other entries share: plans by op name, and constructions from keyword arguments."""

from __future__ import annotations

import functools
from types import SimpleNamespace

import torch

from tileops.manifest import registry
from tileops.manifest.plan import SignaturePlan, build_plan
from tileops.manifest.record import ConstructionIndices, SignatureCall
from tileops.manifest.values import from_manifest


@functools.cache
def plan_of(name: str) -> SignaturePlan:
    """Return the plan of an op of the manifest."""
    return build_plan(registry.default().entry(name))


def construct(name: str, **parameters: object) -> ConstructionIndices:
    """Return what constructing the op with these parameters settles; the others have their defaults."""
    plan = plan_of(name)
    values = {
        found.name: None if found.required else from_manifest(found.kind, found.default, plan.entry.signature.sums)
        for found in plan.parameters
    }
    return plan.check_construction(SimpleNamespace(**{**values, **parameters}))


def call(
    name: str, *tensors: torch.Tensor | None, out: torch.Tensor | None = None, **parameters: object
) -> SignatureCall:
    """Return the record of a call; inputs that are not given are left out."""
    plan = plan_of(name)
    given = [*tensors, *[None] * (len(plan.inputs) - len(tensors))]
    buffer = {} if out is None else {"out": out}
    return plan.check_call(construct(name, **parameters), *given, **buffer)


def half(*shape: int) -> torch.Tensor:
    """Return an uninitialised float16 tensor."""
    return torch.empty(*shape, dtype=torch.float16)


def whole(*shape: int) -> torch.Tensor:
    """Return an uninitialised int32 tensor."""
    return torch.empty(*shape, dtype=torch.int32)
