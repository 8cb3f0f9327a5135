"""Targets: who serves an op as a whole. The in-tree kernels are the target BUILTIN."""

from __future__ import annotations

from typing import Final

from tileops.errors import UnknownTargetError

BUILTIN: Final = "builtin"
"""The in-tree kernels, whatever else is installed."""


def select_target(op_name: str, requested: str | None) -> str:
    """The target that serves an op whose constructor asked for `requested`; None asks for detection."""
    if requested is None or requested == BUILTIN:
        return BUILTIN
    raise unknown_target(op_name, requested)


def unknown_target(op_name: str, requested: str) -> UnknownTargetError:
    """The error for a target that nobody registered."""
    return UnknownTargetError(
        f"{op_name}: target: expected one of ['{BUILTIN}'], received {requested!r}; leave target out to let the device "
        "decide"
    )
