"""Kernel types of the shared expert's MLP: four on CUDA, by how operands reach the chip, and one on CPU."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property, partial
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.build import cuda
from tileops_kernels.build.program import Program
from tileops_kernels.devices import made_current
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.memory import addresses, aligned_matrix
from tileops_kernels.moe.interfaces import SharedExpertMLPCall, SharedExpertMLPFwdInterface
from tileops_kernels.products import (
    DTYPES,
    HANDFUL,
    AsyncProduct,
    CPUProduct,
    CUDAProduct,
    GeneralProduct,
    Product,
    ProductSettings,
    TMAProduct,
    dot_settings,
)

_CUDA_PROGRAMS = "tileops_kernels.moe.programs.shared_expert_mlp"
_CPU_PROGRAMS = "tileops_kernels.moe.programs.grouped_gemm_cpu"

LINES = 2
"""Rows of weights that a warp of a handful of rows reads at a time: 2048 gates keep two blocks busy on 128 SMs."""


def tma_settings(call: SharedExpertMLPCall) -> ProductSettings:
    """Tiles for Hopper; a block holds two of the weights' for the activation.

    Few rows take narrow tiles, so that 2048 gates are 64 blocks, and 80 KiB of weights under way in each.
    """
    if call.few_rows:
        return ProductSettings(rows=64, columns=32, depth=128, stages=6, threads=128)
    return ProductSettings(rows=128, columns=128, depth=64, stages=3, threads=256)


def async_settings(call: SharedExpertMLPCall) -> ProductSettings:
    """Tiles for architectures without a tensor memory accelerator."""
    return ProductSettings(rows=64 if call.few_rows else 128, columns=64, depth=32, stages=3, threads=128)


def general_settings(call: SharedExpertMLPCall) -> ProductSettings:
    """Small tiles: operands come an element at a time; TileLang cannot overlap the fetches of two products."""
    del call
    return ProductSettings(rows=64, columns=64, depth=32, stages=1, threads=128)


class _SharedExpertMLPOnCUDA(Product[SharedExpertMLPCall], SharedExpertMLPFwdInterface):
    """Two launches, which all CUDA kernel types share: the gated product, then the other."""

    def forward(self, hidden_states: Tensor, w_gate_up: Tensor, w_down: Tensor) -> Tensor:
        """See `SharedExpertMLPFwdInterface.forward`."""
        (m, k), n = hidden_states.shape, w_down.shape[1]
        output = hidden_states.new_empty((m, k))
        if output.numel() == 0:
            return output
        if n == 0:
            return output.zero_()
        with made_current(hidden_states.device):
            gate_up, down = self._run
            hidden = hidden_states.new_empty((m, n)).as_strided((m, n), (n, 1))
            gate_up(aligned_matrix(hidden_states, m, k), aligned_matrix(w_gate_up, 2 * n, k), hidden)
            down(hidden, aligned_matrix(w_down, k, n), output.as_strided((m, k), (k, 1)))
        return output

    @cached_property
    def _run(self) -> tuple[cuda.CUDAFunction, cuda.CUDAFunction]:
        """The programs, built by the first call that launches them."""
        gate_up, down = self.programs()
        return cuda.load_for(self, gate_up), cuda.load_for(self, down)


class SharedExpertMLPCUDAKernel(_SharedExpertMLPOnCUDA, CUDAProduct[SharedExpertMLPCall]):
    """The programs of products whose operands are streamed through shared memory."""

    def programs(self) -> Sequence[Program]:
        """The program of the gated product and that of the product that follows."""
        return self.program(), self.down()

    def down(self) -> Program:
        """The program of the second product: the first one's without activation, columns and terms exchanged."""
        given = dict(self.program().arguments)
        others = {**given, "activation": "none", "n": given["k"], "k": given["n"]}
        return Program.of(_CUDA_PROGRAMS, "mlp_tiles", **others)

    def program_for(self, stream: str, *, vector: int, n: int = 0, k: int = 0) -> Program:
        """The gated product's program, streaming operands as `stream` says, with n and k compiled in where not 0."""
        return Program.of(
            _CUDA_PROGRAMS,
            "mlp_tiles",
            dtype=DTYPES[self.call.dtype],
            activation="silu_and_mul",
            stream=stream,
            n=n,
            k=k,
            vector=vector,
            **asdict(self.settings),
        )


class SharedExpertMLPDotsKernel(_SharedExpertMLPOnCUDA):
    """Shared expert of a handful of rows: warps read rows of weights once and multiply them in registers."""

    preferred_over: ClassVar[frozenset[str]] = frozenset({"shared_expert_mlp_async", "shared_expert_mlp_tma"})

    def __init__(self, call: SharedExpertMLPCall) -> None:
        super().__init__(call)
        self.settings = dot_settings(call.dtype, lines=LINES, group=HANDFUL, vectors=call.vectors)

    @classmethod
    def refusal(cls, call: SharedExpertMLPCall) -> str | None:
        """None for a handful of rows."""
        reason = super().refusal(call)
        if reason is None and not call.handful:
            reason = f"serves up to {HANDFUL} rows, and there are more"
        return reason

    @classmethod
    def entry_for(cls, call: SharedExpertMLPCall) -> tuple[Hashable, Callable[[], Kernel[SharedExpertMLPCall]]]:
        """One entry for all extents of rows of whole accesses, and one for others."""
        return replace(call, facts=None, n=0, k=0), partial(cls, call)

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return asdict(self.settings)

    def programs(self) -> Sequence[Program]:
        """The program of the gated product and that of the product that follows."""
        given = {"dtype": DTYPES[self.call.dtype], **asdict(self.settings)}
        return (
            Program.of(_CUDA_PROGRAMS, "mlp_dots", gated=True, columns=LINES // 2, **given),
            Program.of(_CUDA_PROGRAMS, "mlp_dots", gated=False, columns=LINES, **given),
        )


class SharedExpertMLPTMAKernel(SharedExpertMLPCUDAKernel, TMAProduct[SharedExpertMLPCall]):
    """Shared expert on Hopper: tiles fetched by the tensor memory accelerator, multiplied by warp groups."""

    preferred_over: ClassVar[frozenset[str]] = frozenset({"shared_expert_mlp_async"})

    def __init__(self, call: SharedExpertMLPCall) -> None:
        super().__init__(call)
        self.settings = tma_settings(call)


class SharedExpertMLPAsyncKernel(SharedExpertMLPCUDAKernel, AsyncProduct[SharedExpertMLPCall]):
    """Shared expert whose tiles are fetched by asynchronous copies; columns and terms are compiled in."""

    def __init__(self, call: SharedExpertMLPCall) -> None:
        super().__init__(call)
        self.settings = async_settings(call)

    @classmethod
    def counted(cls, call: SharedExpertMLPCall) -> int:
        """Elements of the gates and of the factors beside them."""
        return 2 * call.n * call.k


class SharedExpertMLPKernel(SharedExpertMLPCUDAKernel, GeneralProduct[SharedExpertMLPCall]):
    """Shared expert of any extents, fetched an element at a time."""

    def __init__(self, call: SharedExpertMLPCall) -> None:
        super().__init__(call)
        self.settings = general_settings(call)


class SharedExpertMLPCPUKernel(CPUProduct[SharedExpertMLPCall], SharedExpertMLPFwdInterface):
    """Shared expert on a CPU: the threads that torch uses share the rows or the columns of each product."""

    def programs(self) -> Sequence[Program]:
        """The programs of both products, each split by rows and by columns."""
        return (*super().programs(), self.down("rows"), self.down("columns"))

    def program(self, split: str) -> Program:
        """The program of the gated product, whose threads share its "rows" or its "columns"."""
        return self._program("silu_and_mul", split)

    def down(self, split: str) -> Program:
        """The program of the second product."""
        return self._program("none", split)

    def _program(self, activation: str, split: str) -> Program:
        dtype = DTYPES[self.call.dtype]
        return Program.of(
            _CPU_PROGRAMS, "expert_tiles", dtype=dtype, out_dtype=dtype, activation=activation, split=split
        )

    def forward(self, hidden_states: Tensor, w_gate_up: Tensor, w_down: Tensor) -> Tensor:
        """See `SharedExpertMLPFwdInterface.forward`."""
        (m, k), n = hidden_states.shape, w_down.shape[1]
        output = hidden_states.new_empty((m, k))
        if output.numel() == 0:
            return output
        if n == 0:
            return output.zero_()
        rows, gates, columns = addresses(self, hidden_states=hidden_states, w_gate_up=w_gate_up, w_down=w_down)
        hidden, threads = hidden_states.new_empty((m, n)), torch.get_num_threads()
        self.load(m, n)(rows, gates, hidden.data_ptr(), m, n, k, 2 * n, k, k, n, threads)
        self.load(m, k, self.down)(hidden.data_ptr(), columns, output.data_ptr(), m, k, n, n, n, k, threads)
        return output


SHARED_EXPERT_MLP_KERNELS: Mapping[str, KernelType] = {
    "shared_expert_mlp": SharedExpertMLPKernel,
    "shared_expert_mlp_async": SharedExpertMLPAsyncKernel,
    "shared_expert_mlp_tma": SharedExpertMLPTMAKernel,
    "shared_expert_mlp_dots": SharedExpertMLPDotsKernel,
    "shared_expert_mlp_cpu": SharedExpertMLPCPUKernel,
}
