"""Expressions to Python source: what is emitted consists of the language's own constructs and nothing else."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from tileops.errors import ExpressionError
from tileops.manifest.expressions import (
    Attribute,
    Binary,
    Call,
    Comparison,
    Comprehension,
    Conditional,
    Expression,
    Literal,
    Logical,
    Name,
    Negative,
    Not,
    Slice,
    Spread,
    Subscript,
    Tuple,
    Unknown,
)
from tileops.manifest.kinds import DTYPE_NAMES
from tileops.manifest.primitives import DTYPES, PRIMITIVES, Dims, balanced_sizes, repeat
from tileops_kernels.errors import TileOPsError

Presence = Mapping[str, bool]
S = TypeVar("S", bound=Sequence[object])
MOST_EVALUATED: Final = 1 << 23
"""The elements that evaluating one expression may make and run over, all its parts together."""

LONGEST_PRODUCT: Final = 1 << 12
"""The bits that a product of a sequence may have while an expression is evaluated."""


def function_alias(name: str) -> str:
    """Return the name under which emitted source calls a primitive."""
    return "_" + name.replace(".", "_")


NAMESPACE: Final[dict[str, object]] = {
    "__builtins__": {},
    "_inf": math.inf,
    **{function_alias(name): function for name, function in PRIMITIVES.items()},
    **{f"_dtype_{name}": dtype for name, dtype in DTYPES.items()},
}
"""What emitted expressions can name, besides their own variables."""


class Emitter:
    """Emits expressions of one signature branch; `present` settles which tensors the branch has."""

    def __init__(self, variables: Mapping[str, str], present: Presence, counted: str = "") -> None:
        self.variables = variables
        self.present = present
        self.counted = counted
        """The function, if any, that each sequence passes through which a comprehension runs over."""

    def emit(self, expression: Expression | Spread) -> str:  # noqa: C901, PLR0911, PLR0912 - one case for each construct
        """Return source whose value is the expression's."""
        match expression:
            case Literal(value):
                return repr(value)
            case Unknown():
                raise ExpressionError("what is unknown has no value")
            case Name(name):
                return self._name(name)
            case Negative(operand):
                return f"(-{self.emit(operand)})"
            case Not(operand):
                return f"(not {self.emit(operand)})"
            case Binary(operator, left, right):
                return f"({self.emit(left)} {operator} {self.emit(right)})"
            case Comparison(first, operators, rest):
                links = (f"{operator} {self.emit(value)}" for operator, value in zip(operators, rest, strict=True))
                return f"({self.emit(first)} {' '.join(links)})"
            case Logical(operator, operands):
                return "(" + f" {operator} ".join(self.emit(operand) for operand in operands) + ")"
            case Conditional(condition, then, otherwise):
                return f"({self.emit(then)} if {self.emit(condition)} else {self.emit(otherwise)})"
            case Call():
                return self._call(expression)
            case Spread(value):
                return f"*{self.emit(value)}"
            case Attribute(value, "value"):
                return self.emit(value)
            case Attribute(value, field):
                return f"{self.emit(value)}.{field}"
            case Subscript(value, index):
                return f"{self.emit(value)}[{self.emit(index)}]"
            case Slice(value, start, stop):
                bounds = ("" if start is None else self.emit(start), "" if stop is None else self.emit(stop))
                return f"{self.emit(value)}[{bounds[0]}:{bounds[1]}]"
            case Tuple(items):
                return self.tuple(items)
            case Comprehension(body, target, sequence):
                inner = Emitter({**self.variables, target: target}, self.present, self.counted)
                values = self.emit(sequence)
                return f"[{inner.emit(body)} for {target} in {f'{self.counted}({values})' if self.counted else values}]"

    def tuple(self, items: tuple[Expression | Spread, ...]) -> str:
        """Return source of a tuple; a single spread of a name is that name."""
        if len(items) == 1 and isinstance(items[0], Spread):
            return self.emit(items[0].value)
        return "(" + "".join(f"{self.emit(item)}, " for item in items).rstrip(" ") + ")"

    def _name(self, name: str) -> str:
        if name in self.variables:
            return self.variables[name]
        if name in DTYPE_NAMES:
            return f"_dtype_{name}"
        if name == "inf":
            return "_inf"
        raise ExpressionError(f"{name!r} has no value here")

    def _call(self, call: Call) -> str:
        if call.function == "present":
            return self._present(call)
        if call.function not in PRIMITIVES:
            raise ExpressionError(f"{call.function!r} is not a primitive")
        arguments = [self.emit(argument) for argument in call.arguments]
        arguments += [f"{key}={self.emit(value)}" for key, value in call.keywords]
        return f"{function_alias(call.function)}({', '.join(arguments)})"

    def _present(self, call: Call) -> str:
        match call.arguments:
            case (Name(name),) if name in self.present:
                return repr(self.present[name])
            case (Name(name),) if name in self.variables:
                return f"({self.variables[name]} is not None)"
        raise ExpressionError("present(name) asks about an optional tensor, a nullable parameter or out")


def compiled(expression: Expression, names: tuple[str, ...], present: Presence) -> Callable[..., object]:
    """Return a function of the names' values, in order, that gives the expression's value."""
    body = Emitter({name: name for name in names}, present).emit(expression)
    function: Callable[..., object] = eval(f"lambda {', '.join(names)}: {body}", NAMESPACE)  # noqa: S307 - closed source
    return function


def evaluate(expression: Expression, values: Mapping[str, object], present: Presence) -> object:
    """Return the expression's value where the names have these values.

    Raises:
        ExpressionError: the expression reads another name, or has no value for these.
    """
    emitter = Emitter({name: f"_values[{name!r}]" for name in values}, present, "_counted")
    budget = _Budget()
    namespace = {
        **NAMESPACE,
        "_values": values,
        "_counted": budget.charged,
        "_repeat": budget.repeat,
        "_balanced_sizes": budget.balanced_sizes,
        "_prod": budget.product,
    }
    return run(lambda: eval(emitter.emit(expression), namespace))  # noqa: S307 - closed source


class _Budget:
    """Counts the elements that one evaluation makes and runs over, and ends it when they are too many."""

    def __init__(self) -> None:
        self.left = MOST_EVALUATED

    def charged(self, sequence: S) -> S:
        self.left -= len(sequence)
        if self.left < 0:
            raise ExpressionError(f"it makes or runs over more than {MOST_EVALUATED} elements")
        return sequence

    def product(self, values: Sequence[int]) -> int:
        found = 1
        for value in values:
            found *= value
            if type(found) is int and found.bit_length() > LONGEST_PRODUCT:
                raise ExpressionError(f"it multiplies to more than {LONGEST_PRODUCT} bits")
        return found

    def repeat(self, value: int, count: int) -> Dims:
        return self.charged(repeat(value, count))

    def balanced_sizes(self, total: int, count: int) -> Dims:
        return self.charged(balanced_sizes(total, count))


def run(computation: Callable[[], object]) -> object:
    """Return what a computation gives; every failure that an expression can have becomes one kind of error."""
    try:
        return computation()
    except (
        ArithmeticError,
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
        MemoryError,
        RuntimeError,
    ) as error:
        if isinstance(error, TileOPsError):
            raise
        raise ExpressionError(f"{type(error).__name__}: {' '.join(str(error).split())}") from error
