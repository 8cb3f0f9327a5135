"""The error tree of the kernel layer; `tileops` hangs its own errors under the same root."""

from __future__ import annotations


class TileOPsError(Exception):
    """Root of every error that TileOPs raises on purpose."""


class BackendError(TileOPsError, RuntimeError):
    """A target, a kernel type or its registration cannot do what was asked."""


class OpNotAvailableError(BackendError):
    """Nothing installed runs this op on the call's device."""


class NoImplementationError(TileOPsError, ValueError):
    """Kernel types run on the device, and each refuses the call; the message lists the reasons."""


class AmbiguousDispatchError(TileOPsError, ValueError):
    """Several kernel types serve the call, and none of them is preferred over the others."""


class CallSpecError(TileOPsError, TypeError):
    """A call spec has the wrong type, cannot key a cache, or states device facts."""


class ContractTypeError(TileOPsError, TypeError):
    """A kernel type does not have the shape that its interface asks for."""


class ContractValueError(TileOPsError, ValueError):
    """A set of kernel types contradicts itself: repeated keys, two general ones, a cycle."""


class BuildError(TileOPsError, RuntimeError):
    """A program could not be compiled or loaded; the op stays usable."""


class StorageError(TileOPsError, RuntimeError):
    """A tensor has elements and no memory that holds them."""


class CacheError(TileOPsError, RuntimeError):
    """The folder of compiled programs cannot be used safely."""
