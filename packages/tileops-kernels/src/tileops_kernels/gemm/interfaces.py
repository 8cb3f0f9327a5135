"""Call specs and kernel interfaces of the gemm family."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

from torch import Tensor

from tileops_kernels.calls import CallSpec
from tileops_kernels.interface import InterfaceKey, KernelInterface
from tileops_kernels.memory import ACCESS_BYTES
from tileops_kernels.products import FEW_ROWS, HANDFUL, ProductCall, most_rows_of


@dataclass(frozen=True, slots=True, kw_only=True)
class GemmCall(ProductCall):
    """A product of two matrices.

    `trans_a` and `trans_b` say that an operand is stored transposed, `few_rows` that the result has no more than
    FEW_ROWS rows and `handful` no more than HANDFUL, `most_rows` is the least power of two that is no less than its
    rows, within bounds, `vectors` that the stored rows of both operands and of the result are whole 16-byte accesses;
    `dtype` is that of all three.
    """

    trans_a: bool
    trans_b: bool

    @classmethod
    def of(cls, a: Tensor, b: Tensor, *, trans_a: bool, trans_b: bool) -> GemmCall:
        """The call spec of a product of `a` and `b` as they are stored."""
        m, k = (a.shape[1], a.shape[0]) if trans_a else (a.shape[0], a.shape[1])
        n = b.shape[0] if trans_b else b.shape[1]
        width = ACCESS_BYTES // a.dtype.itemsize
        return cls(
            device=a.device,
            trans_a=trans_a,
            trans_b=trans_b,
            n=n,
            k=k,
            few_rows=m <= FEW_ROWS,
            handful=m <= HANDFUL,
            most_rows=most_rows_of(m),
            vectors=not (a.shape[1] % width or b.shape[1] % width or n % width),
            dtype=a.dtype,
        )


class GemmFwdInterface(KernelInterface, Protocol):
    """The product of two matrices."""

    request: ClassVar[type[CallSpec]] = GemmCall

    @abstractmethod
    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Return `a @ b`, each transposed first where the call says so, in a new tensor.

        a: `[m, k]`, or `[k, m]` under trans_a; b: `[k, n]`, or `[n, k]` under trans_b; `call.dtype`; contiguous, at any
        storage offset; on the call's device; not written. Any extent may be 0; without terms the result is zeros.
        Returns a new contiguous `[m, n]` tensor of the same dtype. Products are summed in float32 and rounded once.
        """
        ...

    def __call__(self, a: Tensor, b: Tensor) -> Tensor:
        """Run `forward`."""
        ...


GEMM: InterfaceKey[GemmCall, GemmFwdInterface] = InterfaceKey("gemm", GemmFwdInterface, GemmCall)
"""The interface through which `GemmFwdOp` calls its kernel."""
