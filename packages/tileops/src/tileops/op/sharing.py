"""Instances shared by equal arguments: modules that each ask for the same op hold one, and compile once."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeVar
from weakref import WeakValueDictionary

from tileops.errors import ArgumentError

if TYPE_CHECKING:
    from tileops.op.base import Op

OpT = TypeVar("OpT", bound="Op")

_SHARED: WeakValueDictionary[Hashable, Op] = WeakValueDictionary()
_GUARD = threading.RLock()


def shared_instance(cls: type[OpT], args: Sequence[object], kwargs: Mapping[str, object]) -> OpT:
    """The instance of `cls` for these constructor arguments: the one alive in this process, else a new one.

    Raises ArgumentError for arguments that cannot be compared by value.
    """
    made = cls.__new__(cls, *args, **kwargs)
    bound = cls.__signature__.bind(*args, **kwargs)
    bound.apply_defaults()
    key = (cls, tuple((name, _comparable(value)) for name, value in bound.arguments.items()))
    try:
        hash(key)
    except TypeError:
        raise ArgumentError(
            f"{cls.__name__}: shared: expected arguments that compare by value, received {dict(bound.arguments)}; "
            "construct "
            f"the op with {cls.__name__}(...) and hand the instance around"
        ) from None
    with _GUARD:
        found = _SHARED.get(key)
        if isinstance(found, cls):
            return found
        cls.__init__(made, *args, **kwargs)  # type: ignore[arg-type]  # bound above
        _SHARED[key] = made
        return made


def _comparable(value: object) -> object:
    """A list as a tuple, and numbers with their type, since 1, 1.0 and True are equal to Python and not to an op."""
    if isinstance(value, list | tuple):
        return tuple(_comparable(item) for item in value)
    return (type(value), value) if isinstance(value, bool | int | float) else value
