"""`Reference`: what an op means, and how long the sums behind one element of its result are."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from tileops_testing.inputs import Values

__all__ = ["Expected", "Reference"]


def _one_term(parameters: Mapping[str, object]) -> int:
    del parameters
    return 1


@dataclass(frozen=True, slots=True)
class Expected:
    """What a call must give: each output's values and, where terms may cancel, what their absolute values add up to.

    Likewise, by name, what the terms behind the elements of a written input add up to.
    """

    values: tuple[Tensor | None, ...]
    terms: tuple[Tensor | None, ...]
    written: Mapping[str, Tensor] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reference:
    """An op's meaning as a plain function, called with tensors in signature order and parameters by keyword.

    Attributes:
        function: Returns the op's outputs in float64 or float32, or as integers where the op does; an input that the
            op writes, it writes too.
        summed: From the construction parameters and the free sizes of a case, the number of terms in the longest sum
            behind one output element.
        roundings: How often the op rounds a value to the output's dtype on the way.
        values: What inputs hold in the cases of manifest rows, by name; ``normal`` deviates where nothing is said.
        terms: For an op whose terms may cancel, called as the function is: what the absolute values of the terms behind
            each output element add up to, None for an output without such sums.
        written_terms: The same for inputs that the op writes, by name; where nothing is said of one, what it holds
            before and after.
    """

    function: Callable[..., Tensor | tuple[Tensor | None, ...] | None]
    summed: Callable[[Mapping[str, object]], int] = _one_term
    roundings: int = 1
    values: Mapping[str, Values] = field(default_factory=dict)
    terms: Callable[..., Tensor | tuple[Tensor | None, ...]] | None = None
    written_terms: Callable[..., Mapping[str, Tensor]] | None = None

    def outputs(self, inputs: tuple[Tensor | None, ...], parameters: Mapping[str, object]) -> tuple[Tensor | None, ...]:
        """Return the reference's results for one call, always as a tuple."""
        result = self.function(*inputs, **parameters)
        if result is None:
            return ()
        return result if isinstance(result, tuple) else (result,)

    def expected(self, inputs: tuple[Tensor | None, ...], parameters: Mapping[str, object]) -> Expected:
        """Return what one call must give; an input that the op writes is written."""
        terms = None if self.terms is None else self.terms(*inputs, **parameters)
        written = {} if self.written_terms is None else self.written_terms(*inputs, **parameters)
        values = self.outputs(inputs, parameters)
        if terms is None:
            return Expected(values, (None,) * len(values), written)
        return Expected(values, terms if isinstance(terms, tuple) else (terms,), written)
