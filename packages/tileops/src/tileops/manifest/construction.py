"""The construction check: parameter values against their kinds, and what is then already known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import torch

from tileops.errors import ExpressionError, ParameterError, ParameterTypeError, ShapeError
from tileops.manifest.branches import Discriminant, discriminants
from tileops.manifest.expressions import Attribute, Call, Name
from tileops.manifest.kinds import (
    DTYPE_NAMES,
    DeviceKind,
    DTypeKind,
    LiteralKind,
    NoneKind,
    SequenceKind,
    SumKind,
    UnionKind,
)
from tileops.manifest.messages import Messages
from tileops.manifest.origins import Origins
from tileops.manifest.primitives import DTYPES
from tileops.manifest.record import ConstructionIndices
from tileops.manifest.source import compiled, evaluate, run
from tileops.manifest.trees import free_names, possible_names
from tileops.manifest.unification import unify
from tileops.manifest.values import accepts, constructor_of, settled
from tileops.manifest.wording import Words, one_of, show_value

if TYPE_CHECKING:
    from tileops.manifest.model import Formula, OpEntry, Parameter, TensorType

_CONSTANTS: Final = DTYPE_NAMES | {"inf"}


class ConstructionCheck:
    """Checks one op class's constructions and keeps what they settle."""

    def __init__(self, entry: OpEntry) -> None:
        self.op = entry.name
        self.signature = entry.signature
        self.messages = Messages(entry, ())
        self.deciding = tuple(found for found in discriminants(self.signature) if not found.of_call)
        self.plain = tuple(found for found in self.signature.parameters if found.tensor is None)
        self.tensors = tuple(found.tensor for found in self.signature.parameters if found.tensor is not None)
        self.names = tuple(found.name for found in self.plain)
        self.parameters = tuple(found.name for found in self.signature.parameters)
        self.known = self.known_where({tensor.name: True for tensor in self.tensors})
        self._functions: dict[int, tuple[tuple[str, ...], Callable[..., object]]] = {}

    def known_where(self, present: Mapping[str, bool]) -> tuple[str, ...]:
        """Return the names that construction settles when these construction-time tensors are passed."""
        known = dict.fromkeys(self.names)
        for tensor in self.tensors:
            if present.get(tensor.name, True):
                known |= dict.fromkeys(sorted(name for name in _indices(tensor) if name in self.signature.forall))
        progress = True
        while progress:
            readable = known.keys() | _CONSTANTS | {tensor.name for tensor in self.tensors}
            ready = [name for name, formula in self.signature.let.items() if free_names(formula.tree) <= readable]
            progress = not known.keys() >= set(ready)
            known |= dict.fromkeys(ready)
        return tuple(known)

    def __call__(self, op: object) -> ConstructionIndices:
        """Return what the attributes of an op instance settle.

        Raises:
            ParameterTypeError: a value is not of its parameter's kind.
            ParameterError: a value is missing, or breaks a refinement.
            SignatureError: a construction-time tensor does not fit.
        """
        values = {parameter.name: self._value(op, parameter) for parameter in self.plain}
        passed = {tensor.name: self._tensor(op, tensor) for tensor in self.tensors}
        present = {name: tensor is not None for name, tensor in passed.items()}
        known = dict(values)
        for declared in self.tensors:
            tensor = passed[declared.name]
            if tensor is not None:
                known |= self._indices_of(declared, tensor, known, present)
        for name in self.known_where(present) if self.signature.let else ():
            if name not in known:
                known[name] = self._evaluate(self.signature.let[name], known, present)
        for rule in self.signature.shape_rules:
            readable = free_names(rule.tree) <= {*known, *_CONSTANTS, *present}
            if readable and self._evaluate(rule, known, present) is not True:
                raise self._broken(rule, known, present)
        indices = {name: value for name, value in known.items() if name not in values}
        ordered = tuple(known.get(name) for name in self.known)
        deciding = tuple(decided(found, values, present) for found in self.deciding)
        device = next((tensor.device for tensor in passed.values() if tensor is not None), None)
        return ConstructionIndices(ordered, values, indices, deciding, self._device(values) or device)

    def _device(self, values: Mapping[str, object]) -> torch.device | None:
        for parameter in self.plain:
            members = parameter.kind.members if isinstance(parameter.kind, UnionKind) else (parameter.kind,)
            value = values[parameter.name]
            if any(isinstance(member, DeviceKind) for member in members) and isinstance(value, torch.device):
                return value
        return None

    def _attribute(self, op: object, name: str, expected: object) -> object:
        try:
            return getattr(op, name)
        except AttributeError:
            raise ParameterError(
                f"{self.op}: {name}: expected {expected}, received nothing; assign self.{name} before super().__init__"
            ) from None

    def _value(self, op: object, parameter: Parameter) -> object:
        value = self._attribute(op, parameter.name, parameter.kind)
        if not accepts(parameter.kind, value, self.signature.sums):
            raise self._refusal(parameter, value)
        for member in parameter.kind.members if isinstance(parameter.kind, UnionKind) else (parameter.kind,):
            if isinstance(member, SumKind) and value is not None:
                self._invariant(parameter, member, value)
        try:
            return settled(parameter.kind, value)
        except ExpressionError:
            raise ParameterError(
                f"{self.op}: {parameter.name}: expected {parameter.kind}, received {value!r}; "
                "pass a torch.device, or the name or index of one"
            ) from None

    def _invariant(self, parameter: Parameter, kind: SumKind, value: object) -> None:
        declared = self.signature.sums[str(kind)]
        constructor = constructor_of(declared, value)
        if constructor is None or constructor.invariant is None:
            return
        fields = {field.name: getattr(value, field.name) for field in constructor.fields}
        if evaluate(constructor.invariant.tree, fields, {}) is not True:
            invariant = constructor.invariant
            words = Words(Origins(self.signature, fields, {}, frozenset(fields)))
            found = words.of(invariant.tree, invariant.text)
            if found.mend:
                field = "" if found.subject in found.mend else f" as {found.subject}"
                raise ParameterError(
                    f"{self.op}: {parameter.name}: expected {found.subject} to be {found.expected}, "
                    f"received {found.received}; {found.mend}{field}"
                )
            shown = ", ".join(f"{name}={show_value(value)}" for name, value in fields.items())
            raise ParameterError(
                f"{self.op}: {parameter.name}: expected {invariant.text} of {constructor.name}, received {shown}; "
                "pass fields for which it holds"
            )

    def _refusal(self, parameter: Parameter, value: object) -> ParameterError | ParameterTypeError:
        name, kind = parameter.name, parameter.kind
        text = f"{self.op}: {name}: expected {kind}, received {show_value(value)}"
        if isinstance(kind, SequenceKind) and accepts(kind.element, value, self.signature.sums):
            return ParameterTypeError(f"{text}; pass {name}=({value},)")
        if isinstance(value, str) and isinstance(kind, LiteralKind):
            return ParameterError(f"{text}; pass one of these words")
        if isinstance(value, torch.dtype) and isinstance(kind, DTypeKind):
            return ParameterError(f"{text}; pass one of these dtypes")
        members = kind.members if isinstance(kind, UnionKind) else (kind,)
        dtypes = tuple(dtype for member in members if isinstance(member, DTypeKind) for dtype in member.values)
        if isinstance(value, str) and dtypes and all(isinstance(member, DTypeKind | NoneKind) for member in members):
            named = value.removeprefix("torch.")
            words = (named,) if named in dtypes else dtypes
            return ParameterTypeError(f"{text}; pass {one_of(tuple(f'torch.{word}' for word in words))}")
        return ParameterTypeError(f"{text}; pass {name} as {kind}")

    def _tensor(self, op: object, declared: TensorType) -> torch.Tensor | None:
        value = self._attribute(op, declared.name, "a Tensor")
        if value is None and declared.is_optional:
            return None
        if not isinstance(value, torch.Tensor):
            raise self.messages.not_a_tensor(declared.name, value)
        return value

    def _indices_of(
        self, declared: TensorType, tensor: torch.Tensor, known: Mapping[str, object], present: Mapping[str, bool]
    ) -> dict[str, object]:
        """Return the indices that a construction-time tensor gives, after checking it against what is known."""
        found: dict[str, object] = {}
        match declared.dtype.tree:
            case Name(index) if index in self.signature.forall and index not in known:
                kind = self.signature.forall[index]
                if isinstance(kind, DTypeKind) and tensor.dtype not in {DTYPES[name] for name in kind.values}:
                    raise self.messages.dtype_choice(declared.name, kind.values, tensor.dtype)
                found[index] = tensor.dtype
            case tree:
                expected = evaluate(tree, known, present)
                if expected is not tensor.dtype and isinstance(expected, torch.dtype):
                    raise self.messages.dtype(declared.name, declared.dtype.text, expected, tensor.dtype)
        try:
            return found | unify(declared.shape.items, tuple(tensor.shape), {**known, **found}, present)
        except ExpressionError:
            error: ShapeError = self.messages.shape(declared, declared.shape.items, tuple(tensor.shape), known)
            raise error from None

    def _evaluate(self, formula: Formula, values: Mapping[str, object], present: Mapping[str, bool]) -> object:
        cached = self._functions.get(id(formula)) if not present else None
        if cached is None:
            read = tuple(name for name in values if name in free_names(formula.tree))
            cached = read, compiled(formula.tree, read, present)
            if not present:
                self._functions[id(formula)] = cached
        names, function = cached
        try:
            return run(lambda: function(*(values[name] for name in names)))
        except ExpressionError as error:
            raise ParameterError(
                f"{self.op}: {formula.text}: expected a value, received none: {error}; "
                "pass parameters for which it has one"
            ) from None

    def _broken(self, rule: Formula, values: Mapping[str, object], present: Mapping[str, bool]) -> ParameterError:
        words = Words(Origins(self.signature, values, present, frozenset(self.parameters)))
        found = words.of(rule.tree, rule.text)
        return ParameterError(
            f"{self.op}: {found.subject}: expected {found.expected}, received {found.received}; "
            f"{found.mend or f'pass {found.subject} for which it holds'}"
        )


def _indices(tensor: TensorType) -> frozenset[str]:
    return possible_names(tensor.dtype.tree).union(*(possible_names(item) for item in tensor.shape.items))


def decided(found: Discriminant, values: Mapping[str, object], present: Mapping[str, bool]) -> object:
    """Return a discriminant's value; a field that the value's constructor lacks is None."""
    match found.tree:
        case Call(_, (Name(name),)):
            return present[name] if name in present else values[name] is not None
        case Name(name) | Attribute(Name(name), "value"):
            return values[name]
        case Attribute(Name(name), field):
            value = getattr(values[name], field, None)
            return str(value) if isinstance(value, str) else value
    raise ExpressionError("a discriminant is a parameter, a field of one, or the presence of one")
