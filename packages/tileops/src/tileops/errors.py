"""The error tree of tileops; every class is also the builtin that torch raises for the same mistake."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileops_kernels.errors import BackendError, TileOPsError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tileops.manifest.model import Problem


class ManifestError(TileOPsError, ValueError):
    """Manifest text breaks the language; `problems` lists every breach with its position."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ExpressionError(TileOPsError, ValueError):
    """An expression of the manifest is malformed, or has no value for these arguments."""


class UnknownOpError(TileOPsError, KeyError):
    """No manifest entry has the name that was asked for."""

    def __str__(self) -> str:
        return str(self.args[0])


class StatementError(TileOPsError, ValueError):
    """A command line states a tensor, a device or a parameter in a way that cannot be read."""


class SignatureError(TileOPsError):
    """A call or a construction does not satisfy the op's signature."""


class ArgumentError(SignatureError, TypeError):
    """An argument is missing, unexpected or of the wrong type."""


class ShapeError(SignatureError, ValueError):
    """A tensor's shape does not fit the signature."""


class DTypeError(SignatureError, TypeError):
    """A tensor's dtype does not fit the signature."""


class DeviceError(SignatureError, RuntimeError):
    """The tensors of one call are on different devices."""


class LayoutError(SignatureError, RuntimeError):
    """A tensor's memory layout does not fit the signature."""


class RuleError(SignatureError, ValueError):
    """A refinement of the signature does not hold."""


class AxisError(RuleError, IndexError):
    """An axis is not among those of the tensor."""


class RepeatedAxisError(RuleError, RuntimeError):
    """An axis stands twice where each may stand once."""


class ParameterError(SignatureError, ValueError):
    """A construction parameter has a value that the signature excludes."""


class ParameterTypeError(SignatureError, TypeError):
    """A construction parameter has the wrong type."""


class ResultError(SignatureError, RuntimeError):
    """What the implementation returned differs from what the signature promises."""


class InstanceNotFoundError(TileOPsError, LookupError):
    """A compiled or exported graph calls an op instance that this process does not hold."""


class GradientError(TileOPsError, RuntimeError):
    """Backward reached an op that is defined forward only."""


class OpNameError(TileOPsError, ImportError):
    """An op is imported from a package that does not have it."""


class UnknownTargetError(BackendError, LookupError):
    """No backend registered the target that was asked for."""


class NoCallError(TileOPsError, RuntimeError):
    """The record of a call is read before any call completed."""


class AmbiguousTargetError(BackendError, LookupError):
    """Several targets claim one device."""


class RegistrationError(BackendError, ValueError):
    """A backend registers what cannot stand: an unknown op, or a name that is taken."""


class BackendLoadWarning(UserWarning):
    """An installed backend failed to load and was left out."""


class TuningWarning(UserWarning):
    """Tuning was asked of an op that a target serves; the target decides its own settings."""


class TracedConstructionError(TileOPsError, RuntimeError):
    """An op is constructed in compiled code, where its construction cannot be traced."""


class DelegateError(TileOPsError, RuntimeError):
    """A composite op and its sub-ops do not fit together."""
