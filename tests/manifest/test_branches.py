"""Branches: found once for a signature, and found soon where type families apply each other."""

from __future__ import annotations

from tileops.manifest import registry
from tileops.manifest.branches import branches, discriminants
from tileops.manifest.inference import expand
from tileops.manifest.parse import parse_entry


def test_chained_families_are_read_once() -> None:
    """Families that each apply the next one in both cases ask one question, however long the chain is."""
    cases = "[{{when: true, is: '{0}'}}, {{when: false, is: '{0}'}}]"
    chain = {n: f"F{n + 1}[n{n}, b{n}]" if n < 23 else f"[n{n}]" for n in range(24)}
    types = "".join(
        f"    F{n}: {{params: {{n{n}: Dim, b{n}: bool}}, match: b{n}, cases: {cases.format(shape)}}}\n"
        for n, shape in chain.items()
    )
    text = (
        "signature:\n  params: {flag: {type: bool}}\n  forall: {N: Dim}\n  types:\n"
        + types
        + "  inputs: {x: {dtype: float32, shape: 'F0[N, flag]'}}\n  outputs: {y: {dtype: float32, shape: '[N]'}}\n"
    )
    signature = parse_entry(text, "ToyFwdOp", family="toy").signature
    assert [found.values for found in discriminants(signature)] == [(False, True)]
    assert [len(expand(signature.inputs[0].shape, signature, branch)) for branch in branches(signature)] == [1, 1]


def test_branches_are_found_once() -> None:
    """Asking a signature again for its branches, or for what decides them, gives the same objects."""
    signature = registry.entry("RMSNormFwdOp").signature
    assert branches(signature) is branches(signature)
    assert discriminants(signature) is discriminants(signature)
