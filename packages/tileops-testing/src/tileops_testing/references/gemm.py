"""What each op of the gemm family means, in plain PyTorch and float64."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from tileops_testing.references.reference import Reference

__all__ = ["REFERENCES", "gemm_fwd"]


def gemm_fwd(a: Tensor, b: Tensor, *, trans_a: bool = False, trans_b: bool = True) -> Tensor:
    """Return ``a @ b`` in float64, each transposed first where said."""
    return _stored(a, trans_a) @ _stored(b, trans_b)


def _gemm_terms(a: Tensor, b: Tensor, *, trans_a: bool = False, trans_b: bool = True) -> Tensor:
    return _stored(a, trans_a).abs() @ _stored(b, trans_b).abs()


def _stored(matrix: Tensor, transposed: bool) -> Tensor:
    wide = matrix.double()
    return wide.T if transposed else wide


def _summed(values: Mapping[str, object]) -> int:
    """The number of terms; where only the construction is known, what a model has at most."""
    terms = values.get("K", 16384)
    if not isinstance(terms, int):
        raise TypeError(f"K: expected an integer, received {terms!r}")
    return max(terms, 1)


REFERENCES: Mapping[str, Reference] = {
    "GemmFwdOp": Reference(gemm_fwd, summed=_summed, terms=_gemm_terms),
}
