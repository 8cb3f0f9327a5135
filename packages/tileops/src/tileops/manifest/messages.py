"""The errors of a call that does not fit its signature: one line each, made only when a check has failed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from tileops.errors import (
    ArgumentError,
    AxisError,
    DeviceError,
    DTypeError,
    ExpressionError,
    LayoutError,
    RepeatedAxisError,
    ResultError,
    RuleError,
    ShapeError,
)
from tileops.manifest.expressions import Call, Expression, Name, ShapeItem, Spread, parse_expression
from tileops.manifest.origins import Origins
from tileops.manifest.primitives import show_dtype, show_shape
from tileops.manifest.source import evaluate
from tileops.manifest.spelling import spell
from tileops.manifest.trees import free_names
from tileops.manifest.wording import Words, one_of, show_value

if TYPE_CHECKING:
    from tileops.manifest.model import Formula, OpEntry, TensorType
    from tileops.manifest.record import OutputFacts


_DENSE = "memory_format=torch.contiguous_format"


class Messages:
    """Makes the errors of one op."""

    def __init__(self, entry: OpEntry, parameters: tuple[str, ...]) -> None:
        self.op = entry.name
        self.signature = entry.signature
        self.parameters = parameters
        self._names = frozenset(parameter.name for parameter in entry.signature.parameters)

    def not_a_tensor(self, name: str, received: object) -> ArgumentError:
        """Return the error for an argument that is not a tensor."""
        if received is None:
            return ArgumentError(f"{self.op}: {name}: expected a Tensor, received None; pass {name}")
        kind = type(received).__name__
        return ArgumentError(f"{self.op}: {name}: expected a Tensor, received {kind}; pass a torch.Tensor")

    def presence(self, passed: Mapping[str, bool], values: Mapping[str, object]) -> ArgumentError | RuleError:
        """Return the error for a combination of passed tensors and parameter values that no branch accepts."""
        settled = {name: values[name] for name in self.parameters if name in values}
        for tensor in self.signature.inputs:
            if isinstance(tensor.optional, bool):
                continue
            wanted = bool(evaluate(tensor.optional.tree, settled, passed))
            if wanted != passed[tensor.name]:
                expected, mend = ("a Tensor", f"pass {tensor.name}") if wanted else ("None", f"leave {tensor.name} out")
                why = self._words(settled, passed).condition(tensor.optional.tree)
                received = "a Tensor" if passed[tensor.name] else "None"
                return ArgumentError(f"{self.op}: {tensor.name}: expected {expected}{why}, received {received}; {mend}")
        for rule in self.signature.shape_rules:
            try:
                if evaluate(rule.tree, settled, passed) is False:
                    return self._broken(rule, settled, passed)
            except ExpressionError:
                continue
        given = [name for name, there in passed.items() if there]
        return RuleError(
            f"{self.op}: no form of the signature takes {', '.join(given)} together; see its manifest entry"
        )

    def dtype_choice(
        self, name: str, allowed: tuple[str, ...], received: torch.dtype, writes: bool = False
    ) -> DTypeError:
        """Return the error for a dtype that is not among those of its index."""
        near = nearest(received, allowed)
        apart = f"pass the real and the imaginary parts of {name} apart, as torch.view_as_real gives them"
        return DTypeError(
            f"{self.op}: {name}: expected dtype {one_of(allowed)}, received {show_dtype(received)}; "
            + (apart if near is None else self._converted(name, f"torch.{near}", writes))
        )

    def dtype(
        self, name: str, written: str, expected: torch.dtype, received: torch.dtype, writes: bool = False
    ) -> DTypeError:
        """Return the error for a dtype that differs from what other tensors or parameters settle."""
        wanted = show_dtype(expected)
        reason = "" if written == wanted else self._settled_by(name, written)
        return DTypeError(
            f"{self.op}: {name}: expected dtype {wanted}{reason}, received {show_dtype(received)}; "
            + self._converted(name, f"torch.{wanted}", writes)
        )

    def _settled_by(self, name: str, written: str) -> str:
        """Return what settles a dtype: another tensor, a parameter, or an expression of both as it is written."""
        match parse_expression(written):
            case Name(index):
                found = self._holder(index, name)
            case Call("coalesce_dtype", (Name(parameter), Name(index))):
                holder = self._holder(index, name)
                found = holder and f"{parameter} says, or else {holder}"
            case _:
                found = ""
        return f", as {found}" if found else f" ({written})"

    def _holder(self, index: str, apart: str) -> str:
        if any(found.name == index and found.tensor is None for found in self.signature.parameters):
            return f"{index} says"
        constructed = [found.tensor for found in self.signature.parameters if found.tensor is not None]
        tensors = sorted((*self.signature.inputs, *constructed), key=lambda tensor: tensor.is_optional)
        names = [tensor.name for tensor in tensors if tensor.dtype.tree == Name(index) and tensor.name != apart]
        return f"{names[0]} has" if names else ""

    def _converted(self, name: str, dtype: str, writes: bool) -> str:
        if writes:
            return self._replaced(name, f".to({dtype})", f"dtype={dtype}")
        return f"convert {name} with .to({dtype})"

    def _replaced(self, name: str, changed: str, like: str) -> str:
        """Return the mend of a tensor that the call writes: a copy made for the call alone would be lost."""
        if any(tensor.name == name and not tensor.write_only for tensor in self.signature.inputs):
            return f"assign {name} = {name}{changed} before the call, which writes it"
        return f"allocate {name} = torch.empty_like({name}, {like}) before the call, which writes it"

    def dtype_combination(
        self, received: Mapping[str, torch.dtype], tensors: Mapping[str, str] | None = None
    ) -> DTypeError:
        """Return the error for dtypes of indices that are each allowed, but not together.

        `tensors` names for each index a tensor that has it, for whoever passed the tensors.
        """
        shown = {name: name for name in received} | dict(tensors or {})
        rows = [_row({shown.get(key, key): dtype for key, dtype in row.items()}) for row in self.signature.dtype_combos]
        given = _row({shown[key]: show_dtype(dtype) for key, dtype in received.items()})
        return DTypeError(
            f"{self.op}: dtypes: expected {one_of(tuple(rows))}, received {given}; "
            "convert the inputs to one of these rows"
        )

    def device(self, name: str, first: str, expected: object, received: object, writes: bool = False) -> DeviceError:
        """Return the error for a tensor on another device than the call's."""
        because = f", as {first} has" if first else ""
        values = str(received) != "meta"
        mend = f"move {name} with .to('{expected}')" if values else f"make {name} on {expected}"
        if values and writes:
            mend = self._replaced(name, f".to('{expected}')", f"device='{expected}'")
        return DeviceError(
            f"{self.op}: {name}: expected device {expected}{because}, received device {received}; {mend}"
        )

    def contiguous(self, name: str, strides: tuple[int, ...], writes: bool = False) -> LayoutError:
        """Return the error for a tensor that has to be contiguous."""
        mend = self._replaced(name, ".contiguous()", _DENSE) if writes else f"pass {name}.contiguous()"
        return LayoutError(
            f"{self.op}: {name}: expected a contiguous tensor, received strides {show_shape(strides)}; {mend}"
        )

    def overlapping(self, name: str, strides: tuple[int, ...]) -> LayoutError:
        """Return the error for a written tensor of which several elements share memory."""
        return LayoutError(
            f"{self.op}: {name}: expected memory of its own for each element, received strides {show_shape(strides)}; "
            + self._replaced(name, ".clone()", _DENSE)
        )

    def buffer_shape(self, output: str, expected: tuple[int, ...], received: tuple[int, ...]) -> ShapeError:
        """Return the error for a caller's buffer of another shape than the output that it receives."""
        return ShapeError(
            f"{self.op}: out: expected shape {show_shape(expected)} of {output}, received {show_shape(received)}; "
            f"pass out of shape {show_shape(expected)}"
        )

    def negative(self, output: str, written: str, shape: tuple[int, ...]) -> ShapeError:
        """Return the error for an output that would have a negative extent."""
        return ShapeError(
            f"{self.op}: {output}: expected extents of {written} that are not negative, received {show_shape(shape)}; "
            "pass larger inputs"
        )

    def shape(
        self, tensor: TensorType, items: tuple[ShapeItem, ...], received: tuple[int, ...], values: Mapping[str, object]
    ) -> ShapeError:
        """Return the error for a shape that does not fit, with what is known of the expected one filled in."""
        present = dict.fromkeys(values, True)
        parts = [_filled(item, values, present) for item in items]
        expected = show_shape([part for part, _ in parts])
        used = {name: values[name] for item in items for name in sorted(free_names(item)) if name in values}
        reason = f" for {', '.join(f'{name}={show_value(value)}' for name, value in used.items())}" if used else ""
        return ShapeError(
            f"{self.op}: {tensor.name}: expected shape {expected}{reason}, received {show_shape(received)}; "
            f"{_mend(tensor.name, parts, expected, received)}"
        )

    def rule(self, place: int, values: Mapping[str, object], present: Mapping[str, bool]) -> RuleError:
        """Return the error for a refinement that does not hold."""
        return self._broken(self.signature.shape_rules[place], values, present)

    def _broken(self, rule: Formula, values: Mapping[str, object], present: Mapping[str, bool]) -> RuleError:
        match rule.tree:
            case Call("valid_axes" | "unique_axes" as function, (Name(name), rank)) if not isinstance(rank, Spread):
                count = evaluate(rank, values, present)
                if isinstance(count, int) and name in values:
                    return self._axes(function, name, values[name], max(count, 1))
        found = self._words(values, present).of(rule.tree, rule.text)
        return RuleError(
            f"{self.op}: {found.subject}: expected {found.expected}, received {found.received}; "
            f"{found.mend or 'change what it reads so that it holds'}"
        )

    def _words(self, values: Mapping[str, object], present: Mapping[str, bool]) -> Words:
        return Words(Origins(self.signature, values, present, self._names))

    def _axes(self, function: str, name: str, axes: object, room: int) -> RuleError:
        if function == "valid_axes":
            return AxisError(
                f"{self.op}: {name}: expected axes from {-room} to {room - 1}, received {axes!r}; "
                "pass axes that the tensor has"
            )
        return RepeatedAxisError(
            f"{self.op}: {name}: expected each axis once, received {axes!r}; "
            f"remove what stands twice: {room - 1} and -1 are one axis"
        )

    def failed(self, written: str, error: Exception) -> RuleError:
        """Return the error for a declared expression that has no value for this call."""
        return RuleError(
            f"{self.op}: {written}: expected a value, received none: {error}; pass arguments for which it has one"
        )

    def result(self, output: OutputFacts, device: object, received: object) -> ResultError:
        """Return the error for a returned value that is not what the signature promises."""
        promised = f"{show_dtype(output.dtype)} {show_shape(output.shape)} on {device}, contiguous"
        return ResultError(
            f"{self.op}: {output.name}: expected {promised}, received {_describe(received)}; "
            "the implementation has to return that"
        )

    def result_count(self, names: tuple[str, ...], received: object) -> ResultError:
        """Return the error for a wrong number of returned values."""
        expected = (
            "None"
            if not names
            else f"{len(names)} values ({', '.join(names)})"
            if len(names) > 1
            else f"one Tensor ({names[0]})"
        )
        count = (
            f"{type(received).__name__} of {len(received)}"
            if isinstance(received, tuple | list)
            else type(received).__name__
        )
        return ResultError(
            f"{self.op}: result: expected {expected}, received {count}; the implementation has to return that"
        )


def _describe(received: object) -> str:
    if not isinstance(received, torch.Tensor):
        return type(received).__name__
    layout = "" if received.is_contiguous() else f", strides {show_shape(received.stride())}"
    return f"{show_dtype(received.dtype)} {show_shape(received.shape)} on {received.device}{layout}"


def _filled(item: ShapeItem, values: Mapping[str, object], present: Mapping[str, bool]) -> tuple[str, bool]:
    tree: Expression = item.value if isinstance(item, Spread) else item
    text = spell(tree)
    if free_names(tree) <= set(values):
        try:
            found = evaluate(tree, values, present)
        except ExpressionError:
            found = None
        if isinstance(found, tuple | list):
            return ", ".join(map(str, found)), True
        if found is not None:
            return str(found), True
    return (f"*{text}" if isinstance(item, Spread) else text), False


def _row(dtypes: Mapping[str, str]) -> str:
    return f"({', '.join(f'{key}={value}' for key, value in dtypes.items())})"


def _mend(name: str, parts: list[tuple[str, bool]], expected: str, received: tuple[int, ...]) -> str:
    filled = [text for text, known in parts if known and text]
    axes = ", ".join(filled)
    last = ", ".join(str(extent) for extent in received[-(axes.count(",") + 1) :])
    if filled and not parts[0][1] and all(known for _, known in parts[1:]) and last != axes:
        return (
            f"pass {name} whose last axis is {axes}" if ", " not in axes else f"pass {name} whose last axes are {axes}"
        )
    return f"pass {name} of shape {expected}"


def nearest(received: torch.dtype, allowed: tuple[str, ...]) -> str | None:
    """Return the dtype among `allowed` that keeps most of what `received` holds, None for imaginary parts.

    Within a kind it is the smallest that is as wide, else the widest; whole numbers go to the widest of another kind.
    """
    found = {name: getattr(torch, name) for name in allowed}
    alike = {name: dtype for name, dtype in found.items() if _kind(dtype) == _kind(received)}
    if received.is_complex and not alike:
        return None
    wide = [name for name, dtype in alike.items() if dtype.itemsize >= received.itemsize]
    if wide:
        return min(wide, key=lambda name: found[name].itemsize)
    return max(alike or found, key=lambda name: found[name].itemsize)


def _kind(dtype: torch.dtype) -> str:
    return "complex" if dtype.is_complex else "floating point" if dtype.is_floating_point else "whole"
