"""Rules of effects, placement and composition: what an entry may say of its tensors and stages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from tileops.manifest.coverage import dtype_values
from tileops.manifest.model import Formula
from tileops.manifest.reserved import is_lower_name, is_op_name
from tileops.manifest.trees import is_known

if TYPE_CHECKING:
    from tileops.manifest.model import Composition, OpEntry, Path, Problem, Signature, TensorType

_WHOLE = frozenset({"uint8", "int8", "int16", "int32", "int64", "bool"})


class Effects:
    """Checks what one entry says of its tensors beyond their types."""

    def __init__(self, entry: OpEntry) -> None:
        self.entry = entry
        self.signature: Signature = entry.signature
        self.inputs = {tensor.name: tensor for tensor in entry.signature.inputs}

    def problems(self) -> Iterator[Problem]:
        """Yield every problem."""
        yield from self._order()
        for tensor in self.signature.inputs:
            yield from self._input(tensor)
            yield from self._metadata(tensor)
        for tensor in self.signature.outputs:
            yield from self._output(tensor)
        buffers = [tensor.name for tensor in self.signature.outputs if tensor.buffer]
        if len(buffers) > 1:
            message = f"{' and '.join(buffers)} would both be out"
            yield self._problem(("outputs", buffers[1], "buffer"), "buffer", message, "let one output take it")
        unread = self.signature.lost & {"inputs", "outputs"}
        if not unread and not self.signature.outputs and all(not tensor.mutated for tensor in self.signature.inputs):
            yield self._problem((), "no-effect", "nothing is returned and nothing is written", "declare an output")
        if self.entry.composition is not None:
            yield from self._composition(self.entry.composition)

    def _problem(self, path: Path, rule: str, message: str, mend: str = "") -> Problem:
        return self.entry.source.problem((self.entry.name, "signature", *path), rule, message, mend)

    def _order(self) -> Iterator[Problem]:
        optional = ""
        for tensor in self.signature.inputs:
            if isinstance(tensor.optional, Formula) and not tensor.optional.known:
                continue
            if tensor.is_optional:
                optional = optional or tensor.name
            elif optional:
                message = f"the required input {tensor.name} stands after the optional {optional}"
                yield self._problem(("inputs", tensor.name), "input-order", message, "put required inputs first")

    def _input(self, tensor: TensorType) -> Iterator[Problem]:
        path = ("inputs", tensor.name)
        for name, there in (("alias", tensor.alias), ("buffer", tensor.buffer), ("nullable", tensor.nullable)):
            if there is not None:
                yield self._problem(
                    (*path, name), "effect", f"{name} is said of outputs, and {tensor.name} is an input"
                )
        if tensor.write_only and tensor.mutated is False:
            message = f"{tensor.name} is write-only and not mutated"
            yield self._problem((*path, "write_only"), "write-only", message, "add mutated")

    def _metadata(self, tensor: TensorType) -> Iterator[Problem]:
        path = ("inputs", tensor.name)
        if tensor.requires and tensor.values is None:
            message = f"{tensor.name} requires something of its contents, and no generator makes them"
            yield self._problem((*path, "requires"), "requires-values", message, "add values")
        if tensor.values is not None:
            strange = [name for name in dtype_values(self.signature, tensor) if name not in _WHOLE]
            if strange:
                message = f"{tensor.name} has generated contents and may be {strange[0]}"
                yield self._problem((*path, "values"), "metadata-dtype", message, "give it an integer dtype")

    def _output(self, tensor: TensorType) -> Iterator[Problem]:
        path = ("outputs", tensor.name)
        said = (
            ("optional", tensor.is_optional),
            ("mutated", tensor.mutated is not False),
            ("write_only", tensor.write_only),
            ("device", tensor.device is not None),
            ("values", tensor.values is not None),
            ("requires", bool(tensor.requires)),
        )
        for name, there in said:
            if there:
                yield self._problem(
                    (*path, name), "effect", f"{name} is said of inputs, and {tensor.name} is an output"
                )
        if tensor.buffer and tensor.nullable is not None:
            yield self._problem((*path, "buffer"), "buffer", f"{tensor.name} is nullable and may be out", "drop one")
        if tensor.alias is None:
            return
        of = self.inputs.get(tensor.alias)
        if of is None and "inputs" in self.signature.lost:
            return
        if of is None:
            yield self._problem((*path, "alias"), "alias", f"{tensor.alias!r} is no input", "name a mutated input")
            return
        if of.mutated is False:
            yield self._problem((*path, "alias"), "alias", f"{of.name} is never written", f"add mutated to {of.name}")
        elif _differ(of, tensor):
            message = f"{tensor.name} and {of.name} have different types"
            yield self._problem((*path, "alias"), "alias", message, "write the same dtype and shape")
        if tensor.buffer:
            yield self._problem((*path, "alias"), "alias", f"{tensor.name} is an alias and may be out", "drop one")

    def _composition(self, composition: Composition) -> Iterator[Problem]:
        path: Path = (self.entry.name, "composition", "stages")
        stages = composition.stages
        if not stages and not composition.lost:
            yield self.entry.source.problem(path, "composition", "a composite has a stage", "name its ops in order")
        seen: set[str] = set()
        for place, stage in enumerate(stages):
            here = (*path, place)
            if stage.lost:
                continue
            if stage.name in seen:
                yield self.entry.source.problem(here, "composition", f"the stage {stage.name!r} stands twice")
            seen.add(stage.name)
            if (stage.op is None) == (stage.kernel is None):
                message = f"the stage {stage.name!r} is an op or a kernel"
                yield self.entry.source.problem(here, "composition", message, "give one of op and kernel")
            if not is_lower_name(stage.name):
                message = f"{stage.name!r} is no stage's name"
                yield self.entry.source.problem(here, "composition", message, "write a lower-case name")
            if stage.op is not None and not is_op_name(stage.op):
                yield self.entry.source.problem(here, "composition", f"{stage.op!r} is not an op's name")


def _differ(first: TensorType, second: TensorType) -> bool:
    """Whether two tensors are declared with different types, as far as their types are known."""
    if first.dtype.known and second.dtype.known and first.dtype.text != second.dtype.text:
        return True
    shapes = (first.shape, second.shape)
    if not all(is_known(item) for shape in shapes for item in shape.items):
        return False
    return first.shape.text != second.shape.text
