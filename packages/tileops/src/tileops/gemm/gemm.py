"""Matrix product."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from tileops.op.base import Op
from tileops_kernels.gemm import GEMM, GEMM_KERNELS, GemmCall, GemmFwdInterface
from tileops_kernels.interface import KernelInterface
from tileops_kernels.kernel import KernelType


class GemmFwdOp(Op):
    """`d = a @ b` of two matrices, each of which may be stored transposed.

    a: `[M, K]`, or `[K, M]` under trans_a; b: `[K, N]`, or `[N, K]` under trans_b (as linear layers store weights); one
    dtype, float16 or bfloat16; any layout. Returns a new contiguous `[M, N]` tensor of that dtype. Products are summed
    in float32 and rounded once. Any extent may be 0; without terms (K is 0) the result is zeros.

    Raises ParameterTypeError at construction, and ShapeError, DTypeError, DeviceError or ArgumentError on a call,
    before any kernel runs.

    Source: `torch.matmul`.
    """

    kernel_types: ClassVar[Mapping[str, KernelType]] = GEMM_KERNELS
    interfaces: ClassVar[Mapping[str, type[KernelInterface]]] = {GEMM: GemmFwdInterface}

    trans_a: bool
    trans_b: bool

    def __init__(self, trans_a: bool = False, trans_b: bool = True, *, target: str | None = None) -> None:
        self.trans_a = trans_a
        self.trans_b = trans_b
        super().__init__(target=target)

    def forward(self, a: Tensor, b: Tensor) -> Tensor:
        """Compute the product of checked inputs."""
        call = GemmCall.of(a, b, trans_a=self.trans_a, trans_b=self.trans_b)
        return self.kernel_for(GEMM, call)(a.contiguous(), b.contiguous())

    if TYPE_CHECKING:
        __call__ = forward  # a call has forward's type
