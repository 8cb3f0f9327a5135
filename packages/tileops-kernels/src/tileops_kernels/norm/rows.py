"""What the norms over rows share on the host: launch settings, what each strategy refuses, and the launch.

A norm's kernel types inherit one strategy (`OnChipRows`, `StreamedRows`, `GeneralRows` or `CPURows`) and a class of
that norm, which names its programs and the tensors that scale and shift a row, and writes `forward`.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from math import gcd
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from tileops_kernels.build import cpu, cuda
from tileops_kernels.build.launcher import CPUFunction
from tileops_kernels.build.loaded import Loaded
from tileops_kernels.build.program import Program
from tileops_kernels.devices import is_current
from tileops_kernels.kernel import Kernel
from tileops_kernels.memory import ACCESS_BYTES, addresses, aligned, aligned_matrix, in_shape
from tileops_kernels.norm.interfaces import LayerNormCall

DTYPES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}
"""The dtypes that every norm kernel serves, with TileLang's names for them."""

WARP = 32


@dataclass(frozen=True, slots=True)
class OnChipSettings:
    """Launch settings of rows in registers: see the builders `row_norm_on_chip` and `rms_norm_on_chip`."""

    lanes: int
    rows: int
    blocks: int


@dataclass(frozen=True, slots=True)
class StreamingSettings:
    """Launch settings of rows that are read twice: see the builders `row_norm_streaming` and `rms_norm_streaming`."""

    vector: int
    lanes: int
    rows: int
    unroll: int


def vector_width(call: LayerNormCall) -> int:
    """Elements of one 16-byte access."""
    return ACCESS_BYTES // call.dtype.itemsize


def piece_vector(call: LayerNormCall) -> int:
    """Elements of the widest access that divides the pieces of a row."""
    return gcd(call.piece, vector_width(call))


def on_chip_settings(call: LayerNormCall, *, threads: int = 768, accesses: int = 8) -> OnChipSettings:
    """One access a thread for short rows, several rows a block; up to `accesses` a thread for longer ones.

    Few threads with many accesses each measured best on an H200 (docs/performance/rms_norm.md): 64 threads for 4096
    half-precision elements, 96 for 5120, 128 for 8192, with registers for 768 `threads` on a multiprocessor.
    """
    vectors = call.n // piece_vector(call)
    if vectors <= 128:
        lanes = lanes_of(vectors)
        return OnChipSettings(lanes=lanes, rows=max(1, 128 // lanes), blocks=1)
    lanes = max(64, lanes_of(-(-vectors // accesses)))
    return OnChipSettings(lanes=lanes, rows=1, blocks=max(1, threads // lanes))


def narrow_settings(call: LayerNormCall) -> OnChipSettings:
    """Blocks of 128 threads as far as eight accesses of each hold a row; four where it is shorter than they or longer.

    Accesses of less than 16 bytes leave a thread registers for more of them (docs/performance/norms.md).
    """
    vectors = call.n // piece_vector(call)
    accesses = 8 if 128 < vectors <= 1024 else 4
    lanes = lanes_of(-(-vectors // accesses))
    return OnChipSettings(lanes=lanes, rows=max(1, 128 // lanes), blocks=1)


def streaming_settings(call: LayerNormCall, *, unroll: int = 8) -> StreamingSettings:
    """As many threads as a block may have, so that the few rows under way are still cached when read again."""
    vector = vector_width(call)
    return StreamingSettings(vector=vector, lanes=min(1024, lanes_of(call.n // vector)), rows=1, unroll=unroll)


def general_settings(call: LayerNormCall) -> StreamingSettings:
    """The widest access that divides the row, and a few accesses for each thread."""
    vector = piece_vector(call)
    vectors = call.n // vector
    unroll = 4 if vectors > 4 * WARP else 1
    lanes = min(256, lanes_of(-(-vectors // unroll)))
    return StreamingSettings(vector=vector, lanes=lanes, rows=max(1, 128 // lanes), unroll=unroll)


def lanes_of(vectors: int) -> int:
    """Threads for `vectors` accesses: a power of two below a warp, else whole warps."""
    if vectors <= WARP:
        return 1 << (vectors - 1).bit_length()
    return -(-vectors // WARP) * WARP


def dtype_refusal(dtype: torch.dtype, weight_dtype: torch.dtype | None = None) -> str | None:
    """None for the dtypes that every norm kernel serves, else the reason."""
    if dtype not in DTYPES:
        return f"serves {', '.join(DTYPES.values())}, not {str(dtype).removeprefix('torch.')}"
    if weight_dtype in (None, dtype, torch.float32):
        return None
    given, received = (str(found).removeprefix("torch.") for found in (dtype, weight_dtype))
    return f"takes weights in float32 or {given} for {given}, not {received}"


def weight_dtypes(call: LayerNormCall) -> Mapping[str, str]:
    """What a builder is told of the dtype of weight and bias where it is not that of the rows."""
    if call.weight_dtype in (None, call.dtype):
        return {}
    return {"scales": DTYPES[call.weight_dtype]}


def vector_refusal(call: LayerNormCall) -> str | None:
    """None for rows, or the channels of rows, that are whole accesses of 16 bytes."""
    if call.piece % vector_width(call) == 0:
        return None
    rows = f"rows are read {ACCESS_BYTES} bytes at a time; n={call.n}"
    pieces = "" if call.piece == call.n else f" in channels of {call.piece}"
    return f"{rows}{pieces} is no multiple of {vector_width(call)} elements"


def _on_chip_limit(call: LayerNormCall, accesses: int) -> int:
    """The longest row that is held in registers: 512 threads with `accesses` each.

    Twice that, with eight of them, measured slower than reading the row twice (docs/performance/rms_norm.md).
    """
    return 512 * accesses * piece_vector(call)


Function = TypeVar("Function", cuda.CUDAFunction, CPUFunction)


class RowNormKernel(Kernel[LayerNormCall], Generic[Function]):
    """An entry of a norm over rows; it holds a program for each combination of the tensors that a call may omit."""

    stem: ClassVar[str] = "row_norm"
    """The names of the program modules and of their builders begin with it."""
    fixed: ClassVar[Mapping[str, bool]] = {}
    """What the builder is told of every program of this norm."""
    affine: ClassVar[tuple[str, ...]]
    """For each tensor that scales or shifts a row, the builder's argument that says it is passed."""
    omissible: ClassVar[bool] = True
    """Whether a call may omit each of `affine`."""
    names: ClassVar[tuple[str, ...]] = ("x", "weight", "bias")
    """What errors call the tensors that are read: rows first, then `affine`."""

    def __init__(self, call: LayerNormCall) -> None:
        super().__init__(call)
        self._n = call.n
        self._eps = call.eps
        self._loaded: Loaded[tuple[bool, ...], Function] = Loaded(lambda passed: self._compiled(self.program(*passed)))

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        """None for the dtypes that all norms serve; a modulated one takes all tensors in one."""
        reason = dtype_refusal(call.dtype, call.weight_dtype)
        if reason is None and cls.fixed.get("modulated") and (other := weight_dtypes(call)):
            reason = f"takes scales and shifts in {DTYPES[call.dtype]} for {DTYPES[call.dtype]}, not {other['scales']}"
        return reason or super().refusal(call)

    def programs(self) -> Sequence[Program]:
        """The program of each signature, the one with every tensor first."""
        choices = (True, False) if self.omissible else (True,)
        return [self.program(*passed) for passed in itertools.product(choices, repeat=len(self.affine))]

    def program(self, *passed: bool) -> Program:
        """The program of the signature in which each of `affine` is passed or not."""
        module, builder, settings = self._build()
        return Program.of(
            f"tileops_kernels.norm.programs.{self.stem}{module}",
            f"{self.stem}_{builder}",
            n=self._n,
            dtype=DTYPES[self.call.dtype],
            **dict(zip(self.affine, passed, strict=True)),
            **self._variant(),
            **weight_dtypes(self.call),
            **settings,
        )

    def _variant(self) -> Mapping[str, bool | int]:
        """What the builder is told beside the signature and the launch settings."""
        return self.fixed

    @abstractmethod
    def _build(self) -> tuple[str, str, Mapping[str, int]]:
        """How the module's and the builder's names end, and the launch settings among the builder's arguments."""
        ...

    def load(self, passed: tuple[bool, ...]) -> Function:
        """The program of the signature in which each of `affine` is passed or not, built by its first call."""
        return self._loaded[passed]

    @abstractmethod
    def launch(
        self, sources: tuple[Tensor, ...], affine: tuple[Tensor | None, ...], results: tuple[Tensor, ...]
    ) -> None:
        """Read `sources`, contiguous rows, and the tensors of `affine` that are passed, and write `results`.

        `affine` has rows as `sources` has where the norm is modulated, else one.
        """
        ...

    @abstractmethod
    def _compiled(self, program: Program) -> Function:
        """`program` as a function of the kernel's device."""
        ...


class CUDARows(RowNormKernel[cuda.CUDAFunction]):
    """The launch on CUDA."""

    def __init__(self, call: LayerNormCall) -> None:
        super().__init__(call)
        self._launches_as_is = call.n > 1 and torch.cuda.device_count() == 1
        """Whether a matrix needs neither a view, whose strides are then its own, nor a change of the current device."""

    def launch(
        self, sources: tuple[Tensor, ...], affine: tuple[Tensor | None, ...], results: tuple[Tensor, ...]
    ) -> None:
        """Launch on tensors of any shape, address and device; the current device is what it was."""
        if (count := results[0].numel()) == 0:
            return
        if not is_current(device := results[0].device):
            with torch.cuda.device(device):
                self.launch(sources, affine, results)
            return
        n = self._n
        rows = count // n
        read = [aligned_matrix(tensor, rows, n) for tensor in sources]
        passed = [self._parameter(aligned(tensor)) for tensor in affine if tensor is not None]
        written = [in_shape(tensor, (rows, n), (n, 1)) for tensor in results]
        run = self.load_for(tuple([tensor is not None for tensor in affine]), rows)
        run(*read, *passed, *written, self._eps)

    def load_for(self, passed: tuple[bool, ...], rows: int) -> cuda.CUDAFunction:  # noqa: ARG002 - kernel types with several programs choose by it
        """The program of a signature for so many rows; all that a signature may need are built by its first call."""
        return self.load(passed)

    def _parameter(self, tensor: Tensor) -> Tensor:
        """An aligned tensor of `affine` as the program takes it: one row, which all share."""
        return in_shape(tensor, (self._n,), (1,))

    def _compiled(self, program: Program) -> cuda.CUDAFunction:
        return cuda.load_for(self, program)


class OnChipRows(CUDARows):
    """The whole row in registers: read once, written once."""

    threads: ClassVar[int] = 768
    """Threads of a multiprocessor that are given registers: the more a thread holds, the fewer."""
    accesses: ClassVar[int] = 8
    """The most accesses of a thread to one row."""

    def __init__(self, call: LayerNormCall) -> None:
        super().__init__(call)
        self.settings = self._choose(call)

    @classmethod
    def _choose(cls, call: LayerNormCall) -> OnChipSettings:
        return on_chip_settings(call, threads=cls.threads, accesses=cls._most_accesses(call))

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        """None for rows of whole 16-byte accesses that a block can hold."""
        reason = super().refusal(call) or cls._access_refusal(call)
        if reason is None and call.n > (limit := _on_chip_limit(call, cls._most_accesses(call))):
            reason = f"a block holds rows of up to {limit} elements on chip; n={call.n} is longer"
        return reason

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return asdict(self.settings)

    @classmethod
    def _most_accesses(cls, call: LayerNormCall) -> int:
        """Half as many where weights take twice the registers of the row's elements, which they are held beside."""
        return cls.accesses // 2 if weight_dtypes(call) else cls.accesses

    def _build(self) -> tuple[str, str, Mapping[str, int]]:
        return "", "on_chip", {"vector": piece_vector(self.call), **asdict(self.settings)}

    @classmethod
    def _access_refusal(cls, call: LayerNormCall) -> str | None:
        return vector_refusal(call)


class NarrowRows(OnChipRows):
    """The whole row in registers, in narrower accesses: rows whose pieces are no whole ones of 16 bytes."""

    @classmethod
    def _choose(cls, call: LayerNormCall) -> OnChipSettings:
        return narrow_settings(call)

    @classmethod
    def _access_refusal(cls, call: LayerNormCall) -> str | None:
        if vector_refusal(call):
            return None
        return f"serves channels that are no whole {ACCESS_BYTES}-byte accesses; those of {call.piece} elements are"


class _ChunkedRows(CUDARows):
    """Rows read twice in chunks."""

    settings: StreamingSettings

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return asdict(self.settings)

    def _build(self) -> tuple[str, str, Mapping[str, int]]:
        return "", "streaming", asdict(self.settings)


class StreamedRows(_ChunkedRows):
    """Rows too long to hold: read twice, 16 bytes at a time."""

    unroll: ClassVar[int] = 8
    """Accesses of a thread at a time."""

    def __init__(self, call: LayerNormCall) -> None:
        super().__init__(call)
        self.settings = streaming_settings(call, unroll=self.unroll)

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        """None for rows of whole 16-byte accesses."""
        return super().refusal(call) or vector_refusal(call)


class GeneralRows(_ChunkedRows):
    """Rows of any length."""

    general: ClassVar[bool] = True

    def __init__(self, call: LayerNormCall) -> None:
        super().__init__(call)
        self.settings = general_settings(call)


class CPURows(RowNormKernel[CPUFunction]):
    """Rows of any length on a CPU, shared among the threads that torch uses."""

    devices: ClassVar[frozenset[str]] = frozenset({"cpu"})

    @classmethod
    def entry_for(cls, call: LayerNormCall) -> tuple[Hashable, Callable[[], CPURows]]:
        """One entry for all threads and all row counts."""
        return (call.n, call.eps, call.dtype, call.weight_dtype), partial(cls, call)

    def __init__(self, call: LayerNormCall) -> None:
        super().__init__(call)
        self._all_passed = (True,) * len(self.affine)

    def _build(self) -> tuple[str, str, Mapping[str, int]]:
        return "_cpu", "rows", {}

    def run_at(self, places: tuple[int, ...], count: int) -> bool:
        """Run on the tensors at these addresses, every one of `affine` among them, with a result of `count` elements.

        A shorter way than `launch`, which has to be taken where this gives False: there is nothing to do, or a tensor
        without memory.
        """
        if count == 0 or 0 in places:
            return False
        self._loaded[self._all_passed](*places, self._eps, count // self._n, torch.get_num_threads())
        return True

    def launch(
        self, sources: tuple[Tensor, ...], affine: tuple[Tensor | None, ...], results: tuple[Tensor, ...]
    ) -> None:
        """Run on tensors of any shape."""
        if (count := results[0].numel()) == 0:
            return
        places = [tensor.data_ptr() for tensor in (*sources, *affine, *results) if tensor is not None]
        if 0 in places:
            given = zip(self.names, (*sources, *affine), strict=False)
            addresses(self, **{name: tensor for name, tensor in given if tensor is not None})  # names the tensor
        run = self.load(tuple([tensor is not None for tensor in affine]))
        run(*places, self._eps, count // self._n, torch.get_num_threads())

    def _compiled(self, program: Program) -> CPUFunction:
        return cpu.load_for(self, program)
