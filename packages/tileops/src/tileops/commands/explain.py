"""`python -m tileops explain`: the call that a command line states, and what would serve it."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields
from difflib import get_close_matches

import torch
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text
from torch._subclasses.fake_tensor import FakeTensorMode

from tileops.backend.registry import BUILTIN
from tileops.commands.statements import (
    EXAMPLE,
    TENSOR_FORM,
    StatedDevice,
    StatedTensor,
    read_device,
    read_parameter,
    read_tensor,
)
from tileops.errors import SignatureError, StatementError
from tileops.manifest import registry
from tileops.manifest.expressions import Name, Spread
from tileops.manifest.kinds import DeviceKind, SequenceKind, UnionKind
from tileops.manifest.model import OpEntry, Parameter
from tileops.manifest.primitives import show_dtype, show_shape
from tileops.op.base import Op
from tileops.op.explaining import Explanation, KernelChoice, explain_call
from tileops_kernels.devices import STATED_FACTS, DeviceFacts


@dataclass(slots=True)
class StatedCall:
    """A call as a command line states it: an op's constructor arguments and the tensors of one call.

    `assumed` says what was not stated and follows from the tensors.
    """

    op: type[Op]
    entry: OpEntry
    parameters: dict[str, object] = field(default_factory=dict)
    tensors: dict[str, StatedTensor] = field(default_factory=dict)
    place: StatedDevice | None = None
    assumed: list[str] = field(default_factory=list)

    @property
    def facts(self) -> DeviceFacts | None:
        """The facts of a machine that is not there, None for one that is."""
        return None if self.place is None or self.place.arch is None else STATED_FACTS[self.place.arch]

    def explain(self, target: str | None = None) -> Explanation:
        """What would serve the call.

        Raises what the construction or the call would raise; where that names what was assumed, StatementError, which
        says so.
        """
        try:
            return self._explain(target)
        except SignatureError as error:
            named = [note for note in self.assumed if note.partition("=")[0] in str(error)]
            if not named:
                raise
            raise StatementError(f"{error}; {'; '.join(named)}: state it where it is another") from error

    def _explain(self, target: str | None) -> Explanation:
        op = self.op(**self.parameters, target=target)
        mode = FakeTensorMode()
        declared = {tensor.name: tensor.device for tensor in self.entry.signature.inputs}
        with mode:
            made = {
                name: torch.empty(tensor.shape, dtype=tensor.dtype, device=self._device(tensor, declared.get(name)))
                for name, tensor in self.tensors.items()
            }
        inputs = [made.get(name) for name in declared]
        return explain_call(op, inputs, made.get("out"), mode=mode, facts=self.facts)

    def _device(self, tensor: StatedTensor, declared: str | None) -> torch.device:
        if tensor.place is not None:
            return tensor.place.device
        if declared is not None:
            return torch.device(declared)
        return torch.device("cpu") if self.place is None else self.place.device


def read_call(op: str, statements: Sequence[str]) -> StatedCall:
    """The call that `NAME=VALUE` words state: inputs and `out` as tensors, the rest as construction parameters.

    A tensor without a device is on that of the first one that has one, else on the CPU. Raises UnknownOpError, and
    StatementError for what cannot be read, for an unknown or repeated name, and for what is missing.
    """
    entry = registry.default().entry(op)
    if entry.status != "implemented":
        raise StatementError(
            f"{op}: expected an op that is implemented, received one that the manifest only specifies; choose another "
            "op"
        )
    found = StatedCall(getattr(importlib.import_module(f"tileops.{entry.family}"), op), entry)
    parameters = {parameter.name: parameter for parameter in entry.signature.parameters}
    tensors = [tensor.name for tensor in entry.signature.inputs]
    if any(output.buffer for output in entry.signature.outputs):
        tensors.append("out")
    places: list[StatedDevice] = []
    for name, text in _named(op, statements, [*tensors, *parameters]):
        if name in tensors:
            found.tensors[name] = read_tensor(op, name, text)
            places += [place for place in (found.tensors[name].place,) if place is not None]
        elif _is_device(parameters[name]) and text not in {"None", "null"}:
            places.append(read_device(op, name, text))
            found.parameters[name] = places[-1].device
        else:
            found.parameters[name] = _parameter(op, parameters[name], text, entry)
    archs = sorted({str(place) for place in places if place.device.type == "cuda"})
    if len(archs) > 1 and any(place.arch for place in places):
        raise StatementError(f"{op}: expected one CUDA device, received {' and '.join(archs)}; state the same for all")
    found.place = places[0] if places else None
    _complete(found)
    return found


def _named(op: str, statements: Sequence[str], known: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The name and the value of each statement, every name known and none given twice."""
    seen: set[str] = set()
    for statement in statements:
        name, equals, text = statement.partition("=")
        if not equals:
            raise StatementError(f"{op}: expected NAME=VALUE, received {statement!r}; write = between the two")
        if name not in known:
            near = get_close_matches(name, known, n=1)
            mend = f"did you mean {near[0]}?" if near else f"`python -m tileops.manifest show {op}` shows its type"
            raise StatementError(f"{op}: expected one of {', '.join(known)}, received {name!r}; {mend}")
        if name in seen:
            raise StatementError(f"{op}: {name}: expected one value, received a second, {text!r}; leave one out")
        seen.add(name)
        yield name, text


def _parameter(op: str, parameter: Parameter, text: str, entry: OpEntry) -> object:
    """A parameter's value; a construction-time tensor is one of ones, of the stated type."""
    if parameter.tensor is None:
        return read_parameter(op, parameter.name, parameter.kind, text, entry.signature.sums)
    if text in {"None", "null"}:
        return None
    stated = read_tensor(op, parameter.name, text)
    return torch.ones(stated.shape, dtype=stated.dtype)


def _is_device(parameter: Parameter) -> bool:
    members = parameter.kind.members if isinstance(parameter.kind, UnionKind) else (parameter.kind,)
    return any(isinstance(member, DeviceKind) for member in members)


def _complete(call: StatedCall) -> None:
    """Fill in the lengths that end a stated shape, and refuse a call that lacks anything else."""
    op, signature = call.entry.name, call.entry.signature
    for tensor in signature.inputs:
        if tensor.name not in call.tensors and not tensor.is_optional:
            raise StatementError(
                f"{op}: {tensor.name}: expected {TENSOR_FORM}, received nothing; add it as in {tensor.name}={EXAMPLE}"
            )
    for parameter in signature.parameters:
        if parameter.name in call.parameters or not parameter.required:
            continue
        found = _trailing(call, parameter)
        if found is None:
            raise StatementError(
                f"{op}: {parameter.name}: expected {parameter.kind}, received nothing; add {parameter.name}=VALUE"
            )
        call.parameters[parameter.name] = found[0]
        call.assumed.append(f"{parameter.name}={found[0]} is assumed, from the shape of {found[1]}")


def _trailing(call: StatedCall, parameter: Parameter) -> tuple[tuple[int, ...], str] | None:
    """The lengths that a tensor's shape consists of, else the last one of a shape that ends with them."""
    if not isinstance(parameter.kind, SequenceKind):
        return None
    spread, found = Spread(Name(parameter.name)), None
    for tensor in call.entry.signature.inputs:
        stated = call.tensors.get(tensor.name)
        if stated is None or not stated.shape or tensor.shape.items[-1:] != (spread,):
            continue
        if tensor.shape.items == (spread,):
            return stated.shape, tensor.name
        found = found or (stated.shape[-1:], tensor.name)
    return found


def render(call: StatedCall, explained: Explanation) -> Iterator[RenderableType]:
    """The page that `explain` prints, line by line; a table is one part."""
    yield from (Text(line) for line in call.assumed)
    yield from _page(explained, call.place, 0)


def _page(explained: Explanation, place: StatedDevice | None, indent: int) -> Iterator[RenderableType]:
    record, before = explained.record, " " * indent
    declared = [tensor.name for tensor in record.branch.entry.signature.inputs]
    taken = [(name, record.tensors[name]) for name in declared if name in record.tensors]
    tensors = [f"{name} {show_dtype(facts.dtype)} {show_shape(facts.shape)}" for name, facts in taken]
    outputs = [f"{output.name} {show_dtype(output.dtype)} {show_shape(output.shape)}" for output in record.outputs]
    yield Text(f"{before}{explained.op}", style="bold")
    yield Text(f"{before}  on      {_machine(explained, place)}")
    yield Text(f"{before}  takes   {', '.join(tensors) or 'no tensor'}")
    yield Text(f"{before}  returns {', '.join(outputs) or 'nothing'}")
    if explained.target != BUILTIN and not explained.stages:
        yield Text(f"{before}  served by target {explained.target}: the kernel that its builder returns")
    elif explained.kernel is not None:
        yield Text(f"{before}  served by {explained.kernel.selection.key}, asked for {_asked(explained.kernel)}")
        yield Text("")
        yield Padding(_choice(explained.kernel), (0, 0, 0, indent))
    elif not explained.stages:
        yield Text(f"{before}  served by no kernel: there is nothing to compute")
    for stage, calls in explained.stages.items():
        for inner in calls:
            yield Text("")
            yield Text(f"{before}stage {stage}")
            yield from _page(inner, place, indent + 2)


def _machine(explained: Explanation, place: StatedDevice | None) -> str:
    if place is not None and place.arch is not None:
        facts = STATED_FACTS[place.arch]
        return f"{place}: {facts.sm_count} multiprocessors, {facts.smem_budget} bytes of shared memory for a block"
    return str(explained.record.device or "a device that nothing states")


def _choice(choice: KernelChoice) -> Table:
    """A line per kernel type: the one that serves first, then the others with their reasons."""
    shown = Table(box=None, pad_edge=False)
    for heading in ("key", "kernel type", "outcome"):
        shown.add_column(heading, overflow="fold")
    for key in sorted(choice.types, key=lambda key: (key != choice.selection.key, key)):
        served = key == choice.selection.key
        outcome = "serves" if served else f"not: {choice.selection.passed_over[key]}"
        shown.add_row(Text(key), Text(choice.types[key].__name__), Text(outcome), style="bold" if served else None)
    return shown


def _asked(choice: KernelChoice) -> str:
    """The interface and what the call spec states, without the device and the facts, which the page says before."""
    stated = {item.name: getattr(choice.call, item.name) for item in fields(choice.call)}
    shown = [
        f"{name}={value!r}" for name, value in stated.items() if name not in {"device", "facts"} and value is not None
    ]
    return f"{choice.interface}({', '.join(shown)})"
