"""Kernel types of RMSNorm: three on CUDA, by how a row fits the chip, and one on CPU."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import gcd
from typing import ClassVar

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.program import Program
from tileops_kernels.errors import StorageError
from tileops_kernels.kernel import Kernel, KernelType
from tileops_kernels.norm.interfaces import LayerNormCall, RMSNormFwdInterface

DTYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}
"""The dtypes that every kernel type here serves, with TileLang's names for them."""

_CUDA_PROGRAMS = "tileops_kernels.norm.programs.rms_norm"
_CPU_PROGRAMS = "tileops_kernels.norm.programs.rms_norm_cpu"

WARP = 32
ACCESS_BYTES = 16
"""What one thread moves in one access; addresses must be multiples of it."""


@dataclass(frozen=True, slots=True)
class OnChipSettings:
    """Launch settings of rows in registers: see the builder `rms_norm_on_chip`."""

    lanes: int
    rows: int
    blocks: int


@dataclass(frozen=True, slots=True)
class StreamingSettings:
    """Launch settings of rows that are read twice: see the builder `rms_norm_streaming`."""

    vector: int
    lanes: int
    rows: int
    unroll: int


def vector_width(call: LayerNormCall) -> int:
    """Elements of one 16-byte access."""
    return ACCESS_BYTES // call.dtype.itemsize


def on_chip_settings(call: LayerNormCall) -> OnChipSettings:
    """One access a thread for short rows, several rows a block; up to eight accesses a thread for longer ones.

    Few threads with many accesses each measured best on an H200 (docs/performance/rms_norm.md): 64 threads for 4096
    half-precision elements, 96 for 5120, 128 for 8192, with registers for 768 threads on a multiprocessor.
    """
    vectors = call.n // vector_width(call)
    if vectors <= 128:
        lanes = _lanes(vectors)
        return OnChipSettings(lanes=lanes, rows=max(1, 128 // lanes), blocks=1)
    lanes = max(64, _lanes(-(-vectors // 8)))
    return OnChipSettings(lanes=lanes, rows=1, blocks=max(1, 768 // lanes))


def streaming_settings(call: LayerNormCall) -> StreamingSettings:
    """As many threads as a block may have, so that the few rows under way are still cached when read again."""
    vector = vector_width(call)
    return StreamingSettings(vector=vector, lanes=min(1024, _lanes(call.n // vector)), rows=1, unroll=2)


def general_settings(call: LayerNormCall) -> StreamingSettings:
    """The widest access that divides the row, and a few accesses for each thread."""
    vector = gcd(call.n, vector_width(call))
    vectors = call.n // vector
    unroll = 4 if vectors > 4 * WARP else 1
    lanes = min(256, _lanes(-(-vectors // unroll)))
    return StreamingSettings(vector=vector, lanes=lanes, rows=max(1, 128 // lanes), unroll=unroll)


def _lanes(vectors: int) -> int:
    """Threads for `vectors` accesses: a power of two below a warp, else whole warps."""
    if vectors <= WARP:
        return 1 << (vectors - 1).bit_length()
    return -(-vectors // WARP) * WARP


def _dtype_refusal(call: LayerNormCall) -> str | None:
    if call.dtype in DTYPES:
        return None
    return f"serves {', '.join(DTYPES.values())}, not {str(call.dtype).removeprefix('torch.')}"


def _vector_refusal(call: LayerNormCall) -> str | None:
    if call.n % vector_width(call) == 0:
        return None
    return f"rows are read {ACCESS_BYTES} bytes at a time; n={call.n} is no multiple of {vector_width(call)} elements"


class RMSNormCUDAKernel(Kernel[LayerNormCall], RMSNormFwdInterface):
    """The launch, which the CUDA kernel types share; an entry holds a program with a weight and one without."""

    def __init__(self, call: LayerNormCall) -> None:
        super().__init__(call)
        self._n = call.n
        self._eps = call.eps
        self._weighted: cuda.CUDAFunction | None = None
        self._plain: cuda.CUDAFunction | None = None
        self._launches_as_is = call.n > 1 and torch.cuda.device_count() == 1

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        """None for the dtypes that all of them serve."""
        return _dtype_refusal(call) or super().refusal(call)

    def programs(self) -> Sequence[Program]:
        """The program with a weight and the one without."""
        return self.program(weighted=True), self.program(weighted=False)

    @abstractmethod
    def program(self, *, weighted: bool) -> Program:
        """The program of one of the two signatures."""
        ...

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """See `RMSNormFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        shape = x.shape
        if (
            self._launches_as_is
            and weight is not None
            and len(shape) == 2
            and shape[0] > 1
            and weight.dim() == 1
            and not (x.data_ptr() | weight.data_ptr()) % ACCESS_BYTES
        ):
            run = self._weighted or self._load(weighted=True)
            run(x, weight, y, self._eps)
            return y
        return self._launch(x, weight, y)

    def _launch(self, x: Tensor, weight: Tensor | None, y: Tensor) -> Tensor:
        """Launch on tensors of any shape, address and device; the current device is what it was."""
        if y.numel() == 0:
            return y
        n = self._n
        rows = _aligned(x).as_strided((x.numel() // n, n), (n, 1))
        results = y.view(-1, n)
        with torch.cuda.device(x.device):
            if weight is None:
                run = self._plain or self._load(weighted=False)
                run(rows, results, self._eps)
            else:
                run = self._weighted or self._load(weighted=True)
                run(rows, _aligned(weight).as_strided((n,), (1,)), results, self._eps)
        return y

    def _load(self, *, weighted: bool) -> cuda.CUDAFunction:
        """The program of one of the two signatures, built by the first call that needs it."""
        owner = f"{type(self).__name__} for {self.call}"
        run = cuda.load(self.program(weighted=weighted), arch=self.call.arch, owner=owner)
        if weighted:
            self._weighted = run
        else:
            self._plain = run
        return run


class RMSNormOnChipKernel(RMSNormCUDAKernel):
    """RMSNorm with the whole row in registers: read once, written once."""

    preferred_over: ClassVar[frozenset[str]] = frozenset({"rms_norm_streaming"})

    def __init__(self, call: LayerNormCall) -> None:
        super().__init__(call)
        self.settings = on_chip_settings(call)

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        """None for rows of whole 16-byte accesses that a block can hold."""
        reason = super().refusal(call) or _vector_refusal(call)
        if reason is None and call.n > (limit := _on_chip_limit(call)):
            reason = f"a block holds rows of up to {limit} elements on chip; n={call.n} is longer"
        return reason

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return asdict(self.settings)

    def program(self, *, weighted: bool) -> Program:
        """The program of one of the two signatures."""
        settings = self.settings
        return Program.of(
            _CUDA_PROGRAMS,
            "rms_norm_on_chip",
            n=self._n,
            dtype=DTYPES[self.call.dtype],
            weighted=weighted,
            vector=vector_width(self.call),
            lanes=settings.lanes,
            rows=settings.rows,
            blocks=settings.blocks,
        )


class _ChunkedKernel(RMSNormCUDAKernel):
    """Rows read twice in chunks."""

    settings: StreamingSettings

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return asdict(self.settings)

    def program(self, *, weighted: bool) -> Program:
        """The program of one of the two signatures."""
        settings = self.settings
        return Program.of(
            _CUDA_PROGRAMS,
            "rms_norm_streaming",
            n=self._n,
            dtype=DTYPES[self.call.dtype],
            weighted=weighted,
            vector=settings.vector,
            lanes=settings.lanes,
            rows=settings.rows,
            unroll=settings.unroll,
        )


class RMSNormStreamingKernel(_ChunkedKernel):
    """RMSNorm for rows too long to hold: read twice, 16 bytes at a time."""

    def __init__(self, call: LayerNormCall) -> None:
        super().__init__(call)
        self.settings = streaming_settings(call)

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        """None for rows of whole 16-byte accesses."""
        return super().refusal(call) or _vector_refusal(call)


class RMSNormKernel(_ChunkedKernel):
    """RMSNorm for rows of any length."""

    general: ClassVar[bool] = True

    def __init__(self, call: LayerNormCall) -> None:
        super().__init__(call)
        self.settings = general_settings(call)


class RMSNormCPUKernel(Kernel[LayerNormCall], RMSNormFwdInterface):
    """RMSNorm on a CPU: rows are shared among the threads that torch uses; any row length."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    def __init__(self, call: LayerNormCall) -> None:
        super().__init__(call)
        self._n = call.n
        self._eps = call.eps
        self._weighted: CPUFunction | None = None
        self._plain: CPUFunction | None = None

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        """None for the dtypes that all kernel types here serve."""
        return _dtype_refusal(call) or super().refusal(call)

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> tuple[Hashable, Callable[[], RMSNormCPUKernel]]:
        """One entry for all threads and all row counts."""
        return (call.n, call.eps, call.dtype), partial(cls, call)

    def programs(self) -> Sequence[Program]:
        """The program with a weight and the one without."""
        return self.program(weighted=True), self.program(weighted=False)

    def program(self, *, weighted: bool) -> Program:
        """The program of one of the two signatures."""
        return Program.of(_CPU_PROGRAMS, "rms_norm_rows", n=self._n, dtype=DTYPES[self.call.dtype], weighted=weighted)

    def forward(self, x: Tensor, weight: Tensor | None) -> Tensor:
        """See `RMSNormFwdInterface.forward`."""
        y = torch.empty_like(x, memory_format=torch.contiguous_format)
        rows = x.numel() // self._n
        if rows == 0:
            return y
        threads = torch.get_num_threads()
        address = x.data_ptr()
        if not address or (weight is not None and not weight.data_ptr()):
            raise StorageError(
                f"{type(self).__name__} for {self.call}: {'weight' if address else 'x'} has elements and no storage; "
                "expected memory that holds them, received address 0; restore its storage before the call"
            )
        if weight is None:
            run = self._plain or self._load(weighted=False)
            run(address, y.data_ptr(), self._eps, rows, threads)
        else:
            run = self._weighted or self._load(weighted=True)
            run(address, weight.data_ptr(), y.data_ptr(), self._eps, rows, threads)
        return y

    def _load(self, *, weighted: bool) -> CPUFunction:
        """The program of one of the two signatures, built by the first call that needs it."""
        run = cpu.load(self.program(weighted=weighted), owner=f"{type(self).__name__} for {self.call}")
        if weighted:
            self._weighted = run
        else:
            self._plain = run
        return run


def _on_chip_limit(call: LayerNormCall) -> int:
    """The longest row that is held in registers: 512 threads with eight accesses each.

    Twice that measured slower than reading the row twice (docs/performance/rms_norm.md).
    """
    return 512 * 8 * vector_width(call)


def _aligned(tensor: Tensor) -> Tensor:
    """`tensor`, or a copy of it where its first element is not at a multiple of 16 bytes."""
    return tensor if tensor.data_ptr() % ACCESS_BYTES == 0 else tensor.clone()


RMS_NORM_KERNELS: Mapping[str, KernelType] = {
    "rms_norm": RMSNormKernel,
    "rms_norm_streaming": RMSNormStreamingKernel,
    "rms_norm_on_chip": RMSNormOnChipKernel,
    "rms_norm_cpu": RMSNormCPUKernel,
}
"""Every kernel type of `RMSNormFwdInterface` that ships with this package, under its key."""
