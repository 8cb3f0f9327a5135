"""The construction check: parameter values against their kinds, and what is then already known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import torch

from tileops.errors import ExpressionError, ParameterError, ParameterTypeError
from tileops.manifest.branches import discriminants
from tileops.manifest.kinds import (
    DTYPE_NAMES,
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
    UnionKind,
)
from tileops.manifest.messages import show_value
from tileops.manifest.primitives import DTYPES
from tileops.manifest.record import ConstructionIndices
from tileops.manifest.source import compiled, evaluate, run
from tileops.manifest.trees import free_names

if TYPE_CHECKING:
    from tileops.manifest.model import Formula, OpEntry, Parameter

_CONSTANTS: Final = DTYPE_NAMES | {"inf"}


def accepts(kind: Kind, value: object) -> bool:  # noqa: C901, PLR0911 - one case for each construct
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
            return accepts(SequenceKind(DimKind()), value)
        case SequenceKind(element, size):
            if not isinstance(value, tuple | list) or size not in {None, len(value)}:
                return False
            return all(accepts(element, item) for item in value)
        case UnionKind(members):
            return any(accepts(member, value) for member in members)
    return False


def settled(kind: Kind, value: object) -> object:
    """Return the value as the plan keeps it: sequences as tuples, devices as torch.device."""
    if isinstance(value, tuple | list):
        return tuple(value)
    if isinstance(kind, DeviceKind) and isinstance(value, str | int):
        return torch.device(value)
    if (
        isinstance(kind, UnionKind)
        and isinstance(value, str)
        and not any(isinstance(member, StrKind | LiteralKind) for member in kind.members)
    ):
        return torch.device(value)
    return value


class ConstructionCheck:
    """Checks one op class's constructions and keeps what they settle."""

    def __init__(self, entry: OpEntry) -> None:
        signature = entry.signature
        self.op = entry.name
        self.parameters = signature.parameters
        self.deciding = tuple(found for found in discriminants(signature) if not found.of_call)
        self.names = tuple(parameter.name for parameter in signature.parameters if parameter.tensor is None)
        known = {*self.names, *_CONSTANTS}
        self.lets: dict[str, Formula] = {}
        pending = dict(signature.let)
        progress = True
        while progress:
            ready = [name for name, formula in pending.items() if free_names(formula.tree) <= known]
            for name in ready:
                self.lets[name] = pending.pop(name)
            known.update(ready)
            progress = bool(ready)
        self.rules = tuple(rule for rule in signature.shape_rules if free_names(rule.tree) <= known)
        self.known = (*self.names, *self.lets)
        self._functions: dict[Formula, Callable[..., object]] = {}

    def __call__(self, op: object) -> ConstructionIndices:
        """Return what the attributes of an op instance settle.

        Raises:
            ParameterTypeError: a value is not of its parameter's kind.
            ParameterError: a value is missing, or breaks a refinement.
        """
        values = {
            parameter.name: self._value(op, parameter) for parameter in self.parameters if parameter.tensor is None
        }
        indices: dict[str, object] = {}
        for name, formula in self.lets.items():
            indices[name] = self._evaluate(formula, {**values, **indices})
        for rule in self.rules:
            if self._evaluate(rule, {**values, **indices}) is not True:
                raise self._broken(rule, values)
        deciding = tuple(evaluate(found.tree, values, {}) for found in self.deciding) if self.deciding else ()
        return ConstructionIndices((*values.values(), *indices.values()), values, indices, deciding)

    def _value(self, op: object, parameter: Parameter) -> object:
        name = parameter.name
        try:
            value = getattr(op, name)
        except AttributeError:
            raise ParameterError(
                f"{self.op}: {name}: expected {parameter.kind}, received nothing; "
                f"assign self.{name} before super().__init__"
            ) from None
        if not accepts(parameter.kind, value):
            raise self._refusal(parameter, value)
        return settled(parameter.kind, value)

    def _refusal(self, parameter: Parameter, value: object) -> ParameterError | ParameterTypeError:
        name, kind = parameter.name, parameter.kind
        text = f"{self.op}: {name}: expected {kind}, received {show_value(value)}"
        if isinstance(kind, SequenceKind) and accepts(kind.element, value):
            return ParameterTypeError(f"{text}; pass {name}=({value},)")
        if isinstance(value, str) and isinstance(kind, LiteralKind):
            return ParameterError(f"{text}; pass one of these words")
        return ParameterTypeError(f"{text}; pass {name} as {kind}")

    def _evaluate(self, formula: Formula, values: Mapping[str, object]) -> object:
        read = tuple(name for name in values if name in free_names(formula.tree))
        function = self._functions.get(formula)
        if function is None:
            function = self._functions[formula] = compiled(formula.tree, read, {})
        try:
            return run(lambda: function(*(values[name] for name in read)))
        except ExpressionError as error:
            raise ParameterError(
                f"{self.op}: {formula.text}: expected a value, received none: {error}; "
                "pass parameters for which it has one"
            ) from None

    def _broken(self, rule: Formula, values: Mapping[str, object]) -> ParameterError:
        read = [name for name in values if name in free_names(rule.tree)]
        shown = ", ".join(f"{name}={show_value(values[name])}" for name in read)
        subject = read[0] if read else "parameters"
        return ParameterError(
            f"{self.op}: {subject}: expected {rule.text}, received {shown}; pass {subject} for which it holds"
        )
