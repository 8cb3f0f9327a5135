"""Norms of rows that are too long for one block, and that the blocks of a cluster hold together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import ClassVar

from tileops_kernels.devices import CLUSTER_ARCHS, CLUSTER_BLOCKS
from tileops_kernels.norm.interfaces import LayerNormCall
from tileops_kernels.norm.rows import CUDARows, vector_refusal, vector_width


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    """Launch settings of rows in the registers of several blocks: see the builder `rms_norm_clustered`."""

    lanes: int
    steps: int
    blocks: int
    cluster: int


LANES, STEPS = 512, 8
"""Threads of a block, and the most accesses of a thread."""

SHORTEST = 8192
"""Accesses of 16 bytes of a row beyond which a cluster is faster than reading the row twice."""


def cluster_settings(call: LayerNormCall) -> ClusterSettings:
    """As many accesses a thread as the row needs, and two blocks on a multiprocessor, where one reads as one waits."""
    steps = -(-(call.n // vector_width(call)) // (CLUSTER_BLOCKS * LANES))
    return ClusterSettings(lanes=LANES, steps=steps, blocks=2, cluster=CLUSTER_BLOCKS)


class ClusteredRows(CUDARows):
    """The whole row in the registers of a cluster: read once, written once."""

    supported_archs: ClassVar[frozenset[int] | None] = CLUSTER_ARCHS

    def __init__(self, call: LayerNormCall) -> None:
        super().__init__(call)
        self.settings = cluster_settings(call)

    @classmethod
    def refusal(cls, call: LayerNormCall) -> str | None:
        """None for rows of whole 16-byte accesses that a cluster can hold, and that are worth it."""
        if reason := super().refusal(call) or vector_refusal(call):
            return reason
        vector = vector_width(call)
        shortest, longest = SHORTEST * vector, CLUSTER_BLOCKS * LANES * STEPS * vector
        if shortest < call.n <= longest:
            return None
        return f"a cluster holds rows of {shortest + vector} to {longest} elements; n={call.n}"

    def config(self) -> Mapping[str, object]:
        """The launch settings."""
        return asdict(self.settings)

    def _build(self) -> tuple[str, str, Mapping[str, int]]:
        return "_clustered", "clustered", {"vector": vector_width(self.call), **asdict(self.settings)}
