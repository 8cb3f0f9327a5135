"""Values of kinds: whether a value is of one, and how the plan keeps it."""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING

import torch

from tileops.errors import ExpressionError
from tileops.manifest.kinds import (
    AnyKind,
    BoolKind,
    DeviceKind,
    DimKind,
    DTypeKind,
    FloatKind,
    IntKind,
    Kind,
    LiteralKind,
    NoneKind,
    SequenceKind,
    ShapeKind,
    StrKind,
    SumKind,
    UnionKind,
    UnknownKind,
)
from tileops.manifest.primitives import DTYPES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tileops.manifest.model import Constructor, SumType

    Sums = Mapping[str, SumType]


def accepts(kind: Kind, value: object, sums: Sums) -> bool:  # noqa: C901, PLR0911, PLR0912
    """Whether a value is of the kind; True and False are no numbers, a list counts as a tuple."""
    match kind:
        case BoolKind():
            return isinstance(value, bool)
        case IntKind():
            return isinstance(value, int) and not isinstance(value, bool)
        case DimKind():
            return isinstance(value, int) and not isinstance(value, bool) and value >= 0
        case FloatKind():
            return isinstance(value, float | int) and not isinstance(value, bool)
        case StrKind():
            return isinstance(value, str)
        case NoneKind():
            return value is None
        case LiteralKind(values):
            return isinstance(value, str) and value in values
        case DTypeKind(values):
            return isinstance(value, torch.dtype) and any(DTYPES[name] is value for name in values)
        case DeviceKind():
            return isinstance(value, torch.device | str | int) and not isinstance(value, bool)
        case ShapeKind():
            return accepts(SequenceKind(DimKind()), value, sums)
        case SequenceKind(element, size):
            if not isinstance(value, tuple | list) or size not in {None, len(value)}:
                return False
            return all(accepts(element, item, sums) for item in value)
        case SumKind(name):
            return name in sums and constructor_of(sums[name], value) is not None
        case UnionKind(members):
            return any(accepts(member, value, sums) for member in members)
        case AnyKind() | UnknownKind():
            return True
    return False


def constructor_of(declared: SumType, value: object) -> Constructor | None:
    """Return the constructor that a value was made by, when its fields are of their kinds, else None."""
    for constructor in declared.constructors:
        if isinstance(value, python_class(constructor.python)):
            fits = all(accepts(field.kind, getattr(value, field.name, None), {}) for field in constructor.fields)
            return constructor if fits and getattr(value, "kind", None) == constructor.name else None
    return None


@functools.cache
def python_class(name: str) -> type:
    """Return the class of a dotted name.

    Raises:
        ExpressionError: it cannot be imported, or is no class.
    """
    module, _, attribute = name.rpartition(".")
    try:
        found: object = getattr(importlib.import_module(module), attribute, None)
    except (ImportError, ValueError) as error:
        raise ExpressionError(f"{name} cannot be imported: {error}") from error
    if not isinstance(found, type):
        raise ExpressionError(f"{name} is not a class")
    return found


def settled(kind: Kind, value: object) -> object:
    """Return the value as the plan keeps it: sequences as tuples, devices as torch.device.

    Raises:
        ExpressionError: a word or a number names no device.
    """
    if isinstance(value, tuple | list):
        return tuple(value)
    members = kind.members if isinstance(kind, UnionKind) else (kind,)
    if any(isinstance(member, DeviceKind) for member in members) and isinstance(value, str | int):
        try:
            return torch.device(value)
        except RuntimeError as error:
            raise ExpressionError(f"{value!r} names no device") from error
    return value


def from_manifest(kind: Kind, value: object, sums: Sums) -> object:
    """Return a row's or a default's value as a constructor takes it: dtypes for their names, sum types built."""
    members = kind.members if isinstance(kind, UnionKind) else (kind,)
    if isinstance(value, str) and any(isinstance(member, DTypeKind) and value in member.values for member in members):
        return DTYPES[value]
    if isinstance(value, dict):
        for member in members:
            if isinstance(member, SumKind) and member.name in sums:
                return _built(sums[member.name], value)
    return value


def _built(declared: SumType, fields: dict[str, object]) -> object:
    given = dict(fields)
    name = given.pop("kind", None)
    for constructor in declared.constructors:
        if constructor.name == name:
            try:
                for field in constructor.fields:
                    if field.python is not None and field.name in given:
                        given[field.name] = python_class(field.python)(given[field.name])
                built: object = python_class(constructor.python)(**given)
            except (TypeError, ValueError) as error:
                raise ExpressionError(f"{declared.name}.{name}: {error}") from error
            return built
    raise ExpressionError(f"{declared.name} has no constructor {name!r}; write kind: with one of its names")
