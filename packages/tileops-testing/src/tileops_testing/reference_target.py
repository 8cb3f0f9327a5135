"""The `reference` target: every op that has a reference, computed by it in plain PyTorch.

It claims no device and is chosen by ``target="reference"``. It is also the worked example of a backend: an entry point
in the group ``tileops.backends`` names `register`, which registers a builder for each op that the target serves.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from tileops.backend import BackendRegistry, TargetKernel, TensorSpec
from tileops.manifest import registry as manifest
from tileops.manifest.plan import SignaturePlan, build_plan
from tileops.manifest.record import SignatureCall
from tileops_testing.errors import WrongReferenceError
from tileops_testing.references import family_references, reference_for

__all__ = ["TARGET", "build_kernel", "register"]

TARGET = "reference"


def register(registry: BackendRegistry) -> None:
    """Register a builder for every op of the manifest that has a reference; no device is claimed."""
    known = frozenset(manifest.names())
    for family in manifest.families():
        for op in sorted(known.intersection(family_references(family))):
            registry.register_kernel_builder(op, TARGET, functools.partial(build_kernel, op, family))


def build_kernel(op: str, family: str, /, *specs: TensorSpec | None, **parameters: Any) -> TargetKernel:
    """Return a function of the tensors that computes ``op`` by its reference and gives what its signature promises."""
    reference = reference_for(op, family)
    plan = _plan(op)
    call = _checked(plan, specs, parameters)

    def kernel(*tensors: Tensor | None, out: Tensor | None = None) -> Any:
        return _promised(plan, call, reference.outputs(tensors, parameters), tensors, out)

    return kernel


@functools.cache
def _plan(op: str) -> SignaturePlan:
    return build_plan(manifest.default().entry(op))


def _checked(plan: SignaturePlan, specs: Sequence[TensorSpec | None], parameters: dict[str, Any]) -> SignatureCall:
    """What the signature says of a call whose inputs have these specs."""
    construction = plan.check_construction(SimpleNamespace(**parameters))
    with FakeTensorMode():
        fakes = [
            None if spec is None else torch.empty(spec.shape, dtype=spec.dtype, device=spec.device) for spec in specs
        ]
        return plan.check_call(construction, *fakes)


def _promised(
    plan: SignaturePlan,
    call: SignatureCall,
    values: Sequence[Tensor | None],
    tensors: Sequence[Tensor | None],
    out: Tensor | None,
) -> Any:
    """The reference's values as the outputs of the call: new tensors, the caller's buffer, written inputs, None."""
    names = call.branch.outputs
    if len(values) != len(names):
        raise WrongReferenceError(
            f"{plan.entry.name}: expected its reference to return {len(names)} outputs ({', '.join(names)}), received "
            f"{len(values)}; return one value per output of the signature, None for an absent one"
        )
    passed = dict(zip(plan.inputs, tensors, strict=True))
    buffers = {output.name for output in plan.entry.signature.outputs if output.buffer}
    promised = {output.name: output for output in call.outputs}
    results: list[Tensor | None] = []
    for name, value in zip(names, values, strict=True):
        alias = call.branch.aliases.get(name)
        if name not in promised or value is None:
            results.append(None)
        elif alias in call.branch.written:
            results.append(passed[alias])
        elif out is not None and name in buffers:
            results.append(out.copy_(value))
        else:
            facts = promised[name]
            results.append(torch.empty(facts.shape, dtype=facts.dtype, device=call.device).copy_(value))
    return results[0] if len(results) == 1 else tuple(results) if results else None
