"""The record of a checked call: what the signature says of it, frozen, computed where it is read."""

from __future__ import annotations

import math
import weakref
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import msgspec
import torch

if TYPE_CHECKING:
    from tileops.manifest.branches import Branch
    from tileops.manifest.model import OpEntry

Dims = tuple[int, ...]


class TensorFacts(msgspec.Struct, frozen=True):
    """A tensor's shape and dtype."""

    shape: Dims
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """The bytes of its elements."""
        return math.prod(self.shape) * self.dtype.itemsize


class OutputFacts(msgspec.Struct, frozen=True):
    """One output of a call: its name, shape and dtype."""

    name: str
    shape: Dims
    dtype: torch.dtype


class Traffic(msgspec.Struct, frozen=True):
    """The bytes of one tensor that a call reads and writes at the least."""

    reads: int
    writes: int


class BranchFacts(msgspec.Struct, frozen=True):
    """What is the same for every call of one branch."""

    entry: OpEntry
    key: tuple[object, ...]
    present: Mapping[str, bool]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    indices: tuple[str, ...]
    parameters: tuple[str, ...]
    constructed: Mapping[str, int]
    branch: Branch
    written: tuple[str, ...]
    unread: frozenset[str]
    aliases: Mapping[str, str]
    has_out: bool

    def __repr__(self) -> str:
        return f"BranchFacts({self.entry.name!r}, {self.key!r})"


class Observed(Mapping[str, torch.Tensor]):
    """The metadata tensors of a call, held weakly and read when asked for."""

    def __init__(self, tensors: Mapping[str, torch.Tensor]) -> None:
        self._references = {name: weakref.ref(tensor) for name, tensor in tensors.items()}

    def __getitem__(self, name: str) -> torch.Tensor:
        """Return a tensor of the call. Raises KeyError when it is no metadata tensor, or no longer exists."""
        tensor = self._references[name]()
        if tensor is None:
            raise KeyError(f"{name}: the tensor of the recorded call no longer exists")
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._references)

    def __len__(self) -> int:
        return len(self._references)

    def __repr__(self) -> str:
        return f"Observed({', '.join(self._references)})"


class SignatureCall(msgspec.Struct, frozen=True):
    """One checked call; it holds sizes and dtypes, and no tensor but through weak references."""

    branch: BranchFacts
    index_values: tuple[object, ...]
    parameter_values: tuple[object, ...]
    device: torch.device | None
    shapes: tuple[Dims, ...]
    dtypes: tuple[torch.dtype, ...]
    outputs: tuple[OutputFacts, ...]
    metadata: Mapping[str, torch.Tensor] = MappingProxyType({})
    stages: Mapping[str, tuple[SignatureCall, ...]] = MappingProxyType({})

    @property
    def branch_key(self) -> tuple[object, ...]:
        """The values of the signature's discriminants."""
        return self.branch.key

    @property
    def written(self) -> tuple[str, ...]:
        """The inputs that the call writes, in order."""
        return self.branch.written

    @property
    def has_out(self) -> bool:
        """Whether the caller passed the destination."""
        return self.branch.has_out

    @property
    def indices(self) -> Mapping[str, object]:
        """The value of every index and let of this branch, those that construction settled included."""
        found = {name: self.parameter_values[place] for name, place in self.branch.constructed.items()}
        return MappingProxyType(found | dict(zip(self.branch.indices, self.index_values, strict=True)))

    @property
    def parameters(self) -> Mapping[str, object]:
        """The value of every construction parameter."""
        return MappingProxyType(dict(zip(self.branch.parameters, self.parameter_values, strict=False)))

    def observing(self, tensors: Mapping[str, torch.Tensor]) -> SignatureCall:
        """Return the record of an equal call whose metadata tensors are these."""
        return msgspec.structs.replace(self, metadata=Observed(tensors))

    @property
    def tensors(self) -> Mapping[str, TensorFacts]:
        """The inputs that were passed and the outputs, by name."""
        passed = zip(self.branch.inputs, self.shapes, self.dtypes, strict=True)
        facts = {name: TensorFacts(shape, dtype) for name, shape, dtype in passed}
        facts |= {output.name: TensorFacts(output.shape, output.dtype) for output in self.outputs}
        return MappingProxyType(facts)

    @property
    def traffic(self) -> Mapping[str, Traffic]:
        """The bytes read and written at the least, per tensor; an alias is counted with its input."""
        facts = self.tensors
        found = {}
        for name in self.branch.inputs:
            size = facts[name].nbytes
            written = name in self.branch.written
            found[name] = Traffic(0 if written and name in self.branch.unread else size, size if written else 0)
        for output in self.outputs:
            if self.branch.aliases.get(output.name) not in self.branch.written:
                found[output.name] = Traffic(0, facts[output.name].nbytes)
        return MappingProxyType(found)

    @property
    def is_empty_write(self) -> bool:
        """Whether there is something to write and all of it holds no elements."""
        traffic = self.traffic
        targets = [*self.branch.written, *(output.name for output in self.outputs if output.name in traffic)]
        return bool(targets) and all(math.prod(self.tensors[name].shape) == 0 for name in targets)


class ConstructionIndices(msgspec.Struct, frozen=True):
    """What construction settled: parameter values, the indices solved from them, and discriminants."""

    values: tuple[object, ...]
    parameters: Mapping[str, object]
    indices: Mapping[str, object]
    discriminants: tuple[object, ...]
    device: torch.device | None = None
