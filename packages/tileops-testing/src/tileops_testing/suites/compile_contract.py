"""The compile suite: a cold `torch.compile(fullgraph=True)` gives one node, eager's values, and serves other sizes.

Of a composite, which has no node of its own, the graph holds its stages' nodes and nothing else.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch._dynamo.exc import TorchDynamoException, Unsupported
from torch.fx.experimental import _config as symbolic_shapes

from tileops.manifest import registry
from tileops_testing.cases import Case, Inputs
from tileops_testing.errors import CheckFailedError
from tileops_testing.fakes import TensorFacts, assert_facts, fake_outputs
from tileops_testing.graphs import RecordingBackend
from tileops_testing.numerics import assert_identical
from tileops_testing.subject import SubjectOp, outputs_of
from tileops_testing.suites.suite import Check, Checks, assert_outputs, kernels_of

__all__ = ["CompileContractSuite"]

_UNPACKING = frozenset({"_operator.getitem"})
"""What a graph may call beside the op's operators: taking one of several outputs."""

_PASSING_ON = frozenset({"torch.empty_like", "torch.cat", "Tensor.chunk"})
"""What a composite's graph may call beside its stages' operators: making the buffer and the parts that it passes on."""

_OPCHECKS = (
    "test_schema",
    "test_autograd_registration",
    "test_faketensor",
    "test_aot_dispatch_static",
    "test_aot_dispatch_dynamic",
)


@dataclass(frozen=True)
class CompileContractSuite:
    """Calls from compiled code."""

    name: str = "compile_contract"
    backend: str = "inductor"

    def unavailable(self, case: Case, device: torch.device) -> str | None:
        """Return the reason when neither the op class nor, for a composite, a stage has a compile boundary."""
        del device
        return None if _operators(case) else f"{case.op_name} has no compile boundary (compile_op_names is empty)"

    def run(self, case: Case, *, device: torch.device, target: str | None = None) -> tuple[Check, ...]:
        """Check one case: cold capture, single node, eager's values, strides, dynamic sizes, opcheck."""
        checks = Checks(self.name, case, device)
        recording = RecordingBackend(self.backend)
        inputs = case.tensors(device)
        promised = fake_outputs(case.construct(target), inputs)
        op = _with_stages(case.construct(target), inputs)
        passed = cloned_with_layout(inputs)
        outputs: tuple[Tensor | None, ...] = ()
        with checks.check("cold"):
            outputs = _cold_call(op, recording, passed)
        if checks.failed:
            return checks.finish(captured(recording))
        with checks.check("stages' nodes" if _is_composite(case) else "one node"):
            assert_nodes(case, recording)
        with checks.check("equals eager"):
            _assert_equals_eager(case, inputs, passed, outputs, promised, target)
        with checks.check("strides"):
            assert_facts(promised, outputs, situation="compiled call")
        del inputs  # of the largest cases a device holds few sets
        second = case.resized()
        if second is None:
            checks.not_applicable("dynamic", "the op has no free size")
        else:
            with checks.check("dynamic"):
                _assert_compiles_once(case, second, device, target, self.backend)
        with checks.check("opcheck"):
            _opcheck(case, recording)
        return checks.finish(captured(recording))


def captured(recording: RecordingBackend) -> str:
    """Return the text of the captured graphs, for whoever reads a failure."""
    if not recording.graphs:
        return "captured graph: none"
    texts = [graph.code.replace("\n", "\n    ") for graph in recording.graphs]
    return "\n".join(f"captured graph:\n    {text}" for text in texts)


def _operators(case: Case) -> tuple[str, ...]:
    """The operators that calls of the case may be: the op's own, or those of a composite's stages."""
    return _operators_of(case.op)


def _operators_of(op: Any) -> tuple[str, ...]:
    operators: tuple[str, ...] = getattr(op, "compile_op_names", ())
    stages = [name for stage in getattr(op, "delegate_types", {}).values() for name in _operators_of(stage)]
    return operators or tuple(dict.fromkeys(stages))


def _is_composite(case: Case) -> bool:
    return not getattr(case.op, "compile_op_names", ())


def _chooses_stages(op: Any) -> bool:
    """Whether calls decide which stages run, of a composite or of one of its stages."""
    entry = registry.find(op.__name__)
    composition = None if entry is None else entry.composition
    if composition is None:
        return False
    return any(stage.optional for stage in composition.stages) or any(
        _chooses_stages(stage) for stage in op.delegate_types.values()
    )


def _with_stages(op: Any, inputs: Inputs) -> Any:
    """The op, holding the sub-ops that a call on these inputs needs: a composite may need a call to know which."""
    if getattr(op, "delegate_types", {}) and _chooses_stages(type(op)):
        op(*[None if tensor is None else tensor.to("meta") for tensor in inputs])
    return op


def _cold_call(op: SubjectOp, recording: RecordingBackend, inputs: Inputs) -> tuple[Tensor | None, ...]:
    """The first call ever of a fresh instance happens inside a compiled function."""
    torch.compiler.reset()
    if kernels_of(op):
        raise CheckFailedError(f"a fresh instance holds {len(kernels_of(op))} kernels; construction must build none")
    compiled = torch.compile(_caller(op), fullgraph=True, dynamic=False, backend=recording)
    with _refusals_are_findings():
        return outputs_of(compiled(*inputs))


@contextlib.contextmanager
def _refusals_are_findings() -> Iterator[None]:
    """While active, what dynamo or its backend refuses to compile fails the check under way."""
    try:
        yield
    except Unsupported as error:
        raise CheckFailedError(f"a graph break, which fullgraph=True refuses: {error}") from error
    except TorchDynamoException as error:
        raise CheckFailedError(f"torch.compile refuses the call: {error}") from error


def cloned_with_layout(inputs: Inputs) -> Inputs:
    """Return copies of the inputs that keep their strides."""
    return tuple(None if tensor is None else tensor.clone(memory_format=torch.preserve_format) for tensor in inputs)


def _caller(op: SubjectOp) -> Callable[..., Any]:
    def call(*tensors: Tensor | None) -> Any:
        return op(*tensors)

    return call


def assert_nodes(case: Case, recording: RecordingBackend) -> None:
    """Raise unless one graph was captured, whose call nodes are one operator of the op and its unpacking.

    Of a composite they are operators of its stages, as many as there are, their unpacking, and what is passed on.
    """
    if len(recording.graphs) != 1:
        raise CheckFailedError(f"one graph expected, {len(recording.graphs)} captured: a graph break in the call")
    names = [name for name in recording.names() if name not in _UNPACKING]
    operators = _operators(case)
    if _is_composite(case):
        strange = next((name for name in names if name not in operators and name not in _PASSING_ON), None)
        if strange is not None or not names:
            raise CheckFailedError(
                f"call nodes out of {list(operators)} alone expected, captured {names}; the first other: {strange}"
            )
    elif len(names) != 1 or names[0] not in operators:
        raise CheckFailedError(f"one call node out of {list(operators)} expected, captured {names}")


def _assert_equals_eager(
    case: Case,
    inputs: Inputs,
    passed: Inputs,
    outputs: tuple[Tensor | None, ...],
    promised: tuple[TensorFacts | None, ...],
    target: str | None,
) -> None:
    """Raise unless outputs, and ``passed`` after the compiled call, hold what an eager call on ``inputs`` leaves."""
    copies, given = case.copies(inputs), case.copies(inputs)
    eager = outputs_of(case.construct(target)(*given))
    for position, (compiled, value) in enumerate(zip(outputs, eager, strict=True)):
        if compiled is not None and value is not None:
            assert_identical(compiled, value, what=f"output {position}, compiled against eager")
    for name, compiled, value in zip(case.names(), passed, given, strict=True):
        if compiled is not None and value is not None:
            assert_identical(compiled, value, what=f"input {name} after the call, compiled against eager")
    assert_outputs(case, outputs, case.expected(copies), promised)


def _assert_compiles_once(case: Case, second: Case, device: torch.device, target: str | None, backend: str) -> None:
    """With ``dynamic=True`` the graph compiled for one choice of free sizes serves another."""
    torch.compiler.reset()
    recording = RecordingBackend(backend)
    op = case.construct(target)
    compiled = torch.compile(_caller(op), fullgraph=True, dynamic=True, backend=recording)
    for shaped in (case, second):
        inputs = shaped.tensors(device)
        _with_stages(op, inputs)
        promised = fake_outputs(case.construct(target), inputs)
        expected = shaped.expected(shaped.copies(inputs))
        with _no_size_stands_for_another(), _refusals_are_findings():
            outputs = outputs_of(compiled(*inputs))
        assert_facts(promised, outputs, situation=f"dynamic call with sizes {dict(shaped.sizes)}")
        assert_outputs(shaped, outputs, expected, promised)
    if len(recording.graphs) != 1 and not _specialised_by_torch(case) and not _chooses_stages(case.op):
        raise CheckFailedError(
            f"sizes {dict(case.sizes)} and {dict(second.sizes)} need one graph with dynamic=True, "
            f"compiled {len(recording.graphs)}; {_first_difference(recording)}"
        )


def _first_difference(recording: RecordingBackend) -> str:
    """Say where the first two graphs part."""
    first, second, *_ = (graph.code.splitlines() for graph in recording.graphs)
    for left, right in zip(first, second, strict=False):
        if left != right:
            return f"the first line to differ reads {left.strip()!r} and then {right.strip()!r}"
    return "their text is the same: a guard on a size tells them apart"


@contextlib.contextmanager
def _no_size_stands_for_another() -> Iterator[None]:
    """Two sizes that happen to be equal get a symbol each, so that the graph serves calls in which they differ."""
    duck_shapes = symbolic_shapes.use_duck_shape
    symbolic_shapes.use_duck_shape = False
    try:
        yield
    finally:
        symbolic_shapes.use_duck_shape = duck_shapes


def _specialised_by_torch(case: Case) -> bool:
    """Whether a free axis is 0 or 1, which torch itself compiles apart."""
    axes = [axis for size in case.sizes.values() for axis in (size if isinstance(size, tuple) else (size,))]
    return any(axis in (0, 1) for axis in axes)


def _opcheck(case: Case, recording: RecordingBackend) -> None:
    calls = [call for name in _operators(case) for graph in recording.graphs for call in graph.operator_calls(name)]
    if not calls:
        raise CheckFailedError("no operator call captured that opcheck could repeat")
    for call in calls:
        results = torch.library.opcheck(
            call.operator, call.args, call.kwargs, test_utils=_OPCHECKS, raise_exception=False
        )
        for name, result in results.items():
            if result != "SUCCESS":
                raise CheckFailedError(f"{name} of {call.operator}: {result}")
