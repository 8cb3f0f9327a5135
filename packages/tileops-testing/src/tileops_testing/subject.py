"""`SubjectOp`: what the suites ask of an op under test."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Protocol

from torch import Tensor

__all__ = ["SubjectOp", "SubjectRecord", "outputs_of"]


class SubjectRecord(Protocol):
    """What the suites read of the record of a call."""

    @property
    def tensors(self) -> Mapping[str, Any]:
        """Shape and dtype of each tensor of the call by name."""

    @property
    def written(self) -> Iterable[str]:
        """The names of the inputs that the call wrote."""


class SubjectOp(Protocol):
    """An op instance as the suites see it; `tileops.op.Op` is one."""

    compile_op_names: ClassVar[tuple[str, ...]]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the outputs of a call on the signature's inputs."""

    @property
    def last_call(self) -> SubjectRecord:
        """The record of the last completed call."""

    def iter_kernels(self) -> Iterable[object]:
        """Every kernel the instance holds."""


def outputs_of(result: Tensor | tuple[Tensor | None, ...] | list[Tensor | None] | None) -> tuple[Tensor | None, ...]:
    """Return what a call gave as a tuple of outputs, whatever their number."""
    if result is None:
        return ()
    return tuple(result) if isinstance(result, (tuple, list)) else (result,)
