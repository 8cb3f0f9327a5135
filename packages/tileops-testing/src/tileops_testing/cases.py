"""`Case`: one call of one op, with the sizes that may change from call to call."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tileops_testing.inputs import Layout, TensorInput
from tileops_testing.references import Expected, Reference
from tileops_testing.subject import SubjectOp

__all__ = ["CPU_ELEMENTS", "CPU_TENSOR", "Case", "Inputs", "Size", "Sizes", "capped_sizes", "grown_sizes"]

Size = int | tuple[int, ...]
Sizes = Mapping[str, Size]
Inputs = tuple[Tensor | None, ...]

CPU_ELEMENTS = 64
"""On CPU, the most that the axes of one free size multiply to."""

CPU_TENSOR = 1 << 19
"""On CPU, the most elements that an input has, unless construction alone asks for more."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """One call of an op class: how to construct the op, and the inputs for any choice of the free sizes.

    Attributes:
        op: The op class, constructed with ``parameters`` by keyword.
        label: Tells this case from the op's others, for example ``llama-8b-prefill-float16``.
        row: The label of the workload row that it is a case of, in one of the row's dtype cases.
        parameters: The construction parameters.
        sizes: The free sizes, those that a call decides and construction does not.
        inputs: The inputs by name, in signature order, for a choice of free sizes; None for one that is not passed.
        reference: What the op means.
        second: Other free sizes, for calls that must not recompile; by default each is larger by its step.
        steps: How much larger a free size may be by the signature, for one that may not be larger by one.
        empty: Those free sizes that are others when no element is left, nothing where none may be zero; by default the
            first one, whose last axis is zero.
        device_parameter: The construction parameter that says where a call without tensors runs.
        writable: The inputs that some call may write; None where any may be.
        seed: Of the random inputs.
    """

    op: Callable[..., SubjectOp]
    label: str
    parameters: Mapping[str, object]
    inputs: Callable[[Sizes], Mapping[str, TensorInput | None]]
    reference: Reference
    sizes: Sizes
    second: Sizes | None = None
    steps: Mapping[str, int] = field(default_factory=dict)
    empty: Sizes | None = None
    device_parameter: str | None = None
    row: str = ""
    writable: frozenset[str] | None = None
    seed: int = 0

    @property
    def op_name(self) -> str:
        """The name of the op class."""
        return self.op.__name__

    @property
    def id(self) -> str:
        """``<op class>-<label>``, as reports name the case."""
        return f"{self.op_name}-{self.label}"

    def construct(self, target: str | None = None) -> SubjectOp:
        """Return a fresh instance of the op."""
        return self.op(**self.parameters, target=target)

    def on(self, device: torch.device) -> Case:
        """Return the case as it is constructed for ``device``: the same where tensors say where a call runs."""
        if self.device_parameter is None:
            return self
        return replace(self, parameters={**self.parameters, self.device_parameter: device})

    def tensors(self, device: torch.device, *, layout: Layout | None = None, fresh: int = 0) -> Inputs:
        """Return the inputs in signature order.

        Args:
            device: Where they lie.
            layout: Replaces the layout of every input.
            fresh: Other numbers give other values.
        """
        made: list[Tensor | None] = []
        for position, spec in enumerate(self.inputs(self.sizes).values()):
            if spec is None:
                made.append(None)
                continue
            laid_out = spec if layout is None else spec.with_layout(layout)
            made.append(laid_out.make(self.seed + 1000 * fresh + position, device))
        return tuple(made)

    def names(self) -> tuple[str, ...]:
        """The names of the inputs, in signature order."""
        return tuple(self.inputs(self.sizes))

    def copies(self, inputs: Inputs) -> Inputs:
        """Return the inputs for a call that may write them: those that it may write as copies, dense in memory."""
        return tuple(
            tensor if tensor is None or (self.writable is not None and name not in self.writable) else tensor.clone()
            for name, tensor in zip(self.names(), inputs, strict=True)
        )

    def expected(self, inputs: Inputs) -> Expected:
        """Return what the reference says of a call on ``inputs``; it writes the inputs that the op writes."""
        return self.reference.expected(inputs, self.parameters)

    @property
    def summed(self) -> int:
        """The number of terms in the longest sum behind one output element."""
        return self.reference.summed({**self.parameters, **self.sizes})

    def capped(self, elements: int = CPU_ELEMENTS) -> Case:
        """Return the case with free sizes small enough for a CPU; other sizes are what construction fixed."""
        found = replace(self, sizes=capped_sizes(self.sizes, elements))
        return found if elements == 1 or found.largest_input() <= CPU_TENSOR else self.capped(elements // 2)

    def largest_input(self) -> int:
        """Return the number of elements of the largest input."""
        return max((math.prod(spec.shape) for spec in self.inputs(self.sizes).values() if spec is not None), default=0)

    def resized(self) -> Case | None:
        """Return the case with other free sizes, or None when it has none."""
        second = self.second if self.second is not None else grown_sizes(self.sizes, self.steps)
        return None if second is None else replace(self, sizes=second)

    def emptied(self) -> Case | None:
        """Return the case with a free size of zero, or None when it has none that may be."""
        empty = self.empty if self.empty is not None else _emptied(self.sizes)
        return replace(self, sizes={**self.sizes, **empty}) if empty else None


def capped_sizes(sizes: Sizes, elements: int) -> Sizes:
    """Return ``sizes`` with every axis cut so that the axes of each free size multiply to ``elements`` at most."""
    capped: dict[str, Size] = {}
    for name, size in sizes.items():
        if isinstance(size, int):
            capped[name] = min(size, elements)
            continue
        axes = list(size)
        while math.prod(axes) > elements:
            longest = max(range(len(axes)), key=axes.__getitem__)
            others = math.prod(axis for index, axis in enumerate(axes) if index != longest)
            axes[longest] = max(1, elements // others) if others < elements else axes[longest] // 2
        capped[name] = tuple(axes)
    return capped


def grown_sizes(sizes: Sizes, steps: Mapping[str, int]) -> Sizes | None:
    """Return ``sizes`` with every axis larger by its size's step, 1 unless stated; None where there is no axis."""
    grown: dict[str, Size] = {}
    for name, size in sizes.items():
        step = steps.get(name, 1)
        grown[name] = size + step if isinstance(size, int) else tuple(axis + step for axis in size)
    return None if grown == dict(sizes) else grown


def _emptied(sizes: Sizes) -> Sizes | None:
    for name, size in sizes.items():
        if isinstance(size, int):
            return {**sizes, name: 0}
        if size:
            return {**sizes, name: (*size[:-1], 0)}
    return None
