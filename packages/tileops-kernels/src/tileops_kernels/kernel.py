"""Kernel: the base of kernel types, which say where they run, what they serve and how they are built."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, Generic, TypeAlias

from tileops_kernels.build.program import Program
from tileops_kernels.errors import ContractTypeError
from tileops_kernels.interface import CallT


class Kernel(Generic[CallT]):
    """One implementation of a kernel interface.

    A kernel type inherits `Kernel[ItsCallSpec]` first and one interface second, declares availability (`devices`,
    `supported_archs`), applicability (`refusal`) and precedence (`general`, `preferred_over`), and writes `forward`.
    An instance is an entry, built for one identity and called many times from any thread.
    """

    devices: ClassVar[frozenset[str]] = frozenset({"cuda"})
    """Device types that it runs on."""
    supported_archs: ClassVar[frozenset[int] | None] = None
    """CUDA architectures that it runs on, such as {80, 89, 90}; None for all."""
    general: ClassVar[bool] = False
    """True for the fallback that ranks below every other type of the interface."""
    preferred_over: ClassVar[frozenset[str]] = frozenset()
    """Keys of the same interface that it beats where both serve the call."""

    def __init__(self, call: CallT) -> None:
        self.call = call

    @classmethod
    def refusal(cls, call: CallT) -> str | None:  # noqa: ARG003 - for overrides
        """None when it serves `call`, else the reason as a sentence; an override ends with `super().refusal(call)`."""
        return None

    @classmethod
    def entry_for(cls, call: CallT) -> tuple[Hashable, Callable[[], Kernel[CallT]]]:
        """The build identity of `call` (all that changes the entry, and nothing more) and a factory for the entry."""
        return call, partial(cls, call)

    @classmethod
    def autotune_configs(cls, call: CallT) -> Sequence[object]:  # noqa: ARG003 - for overrides
        """The launch settings among which tuning may choose for `call`; empty for a kernel type that is not tuned."""
        return ()

    def configure(self, config: object) -> None:
        """Launch with `config`, one of `autotune_configs`, from the next call on."""
        raise ContractTypeError(
            f"{type(self).__name__}: configure is missing; "
            f"expected a method that takes one of autotune_configs, received {config!r}; "
            "define configure and trial beside autotune_configs"
        )

    def trial(self) -> Callable[[], object]:
        """A function that runs this kernel once on random tensors of its own, for tuning to time."""
        raise ContractTypeError(
            f"{type(self).__name__}: trial is missing; expected a method that gives a run to time, received none; "
            "define configure and trial beside autotune_configs"
        )

    def config(self) -> Mapping[str, object]:
        """The launch settings, empty for a kernel that has none."""
        return {}

    def programs(self) -> Sequence[Program]:
        """Every program that this entry could build, so that they can be compiled without being run."""
        return ()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "forward" in cls.__dict__:  # calling an entry is calling `forward`, with no frame between
            setattr(cls, "__call__", cls.__dict__["forward"])  # noqa: B010

    def __call__(self, *args: Any, **kwargs: Any) -> Any:  # noqa: ARG002 - for overrides
        """Run `forward`; the interface beside it among the bases gives the call its type."""
        raise ContractTypeError(
            f"{type(self).__name__}: forward is missing; "
            "expected a method with its interface's arguments, received none; define forward in the kernel type"
        )


KernelType: TypeAlias = type[Kernel[Any]]
"""Any kernel type, whatever its call spec: what tables and registries hold."""
