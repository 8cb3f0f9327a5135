"""The signature plan: the checks of one op class, generated once from its entry."""

from __future__ import annotations

import linecache
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
import torch

from tileops.errors import ExpressionError
from tileops.manifest.branches import Branch, branches, discriminants
from tileops.manifest.construction import ConstructionCheck
from tileops.manifest.expressions import Name
from tileops.manifest.generation import BranchWriter
from tileops.manifest.inference import Solver, expand
from tileops.manifest.messages import Messages
from tileops.manifest.model import OpEntry, Parameter
from tileops.manifest.placement import call_device, overlaps
from tileops.manifest.record import BranchFacts, ConstructionIndices, Observed, OutputFacts, SignatureCall
from tileops.manifest.source import NAMESPACE, Emitter
from tileops.manifest.spelling import spell
from tileops.manifest.typecheck import check_kinds

if TYPE_CHECKING:
    from types import CodeType

Check: TypeAlias = Callable[..., SignatureCall]

FAILURES: Final = (ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError)
"""What an expression of the language can raise when it has no value."""


class EffectBranch(msgspec.Struct, frozen=True):
    """One form of a call's effects; each has an operator of its own."""

    suffix: str
    writes: tuple[str, ...]
    allocates: tuple[str, ...]
    has_out: bool


class SignaturePlan(msgspec.Struct, frozen=True, kw_only=True):
    """The generated checks of one op class; tensors are positional, in the order of `inputs`, None where absent."""

    entry: OpEntry
    inputs: tuple[str, ...]
    required_inputs: tuple[str, ...]
    optional_inputs: tuple[str, ...]
    parameters: tuple[Parameter, ...]
    outputs: tuple[str, ...]
    metadata_inputs: tuple[str, ...]
    discriminants: tuple[str, ...]
    branches: tuple[EffectBranch, ...]
    check_construction: Callable[[object], ConstructionIndices]
    metadata_key: Callable[..., tuple[object, ...] | None]
    check_call: Check
    check_result: Callable[[SignatureCall, object], None]
    select_branch: Callable[..., int]
    generator: _Generator

    @property
    def source(self) -> str:
        """The generated source of every branch, as tracebacks and debuggers show it."""
        return self.generator.source()


def build_plan(entry: OpEntry) -> SignaturePlan:
    """Return the plan of an entry; a branch's check is generated when a call first takes that branch."""
    generator = _Generator(entry)
    signature = entry.signature
    return SignaturePlan(
        entry=entry,
        inputs=generator.inputs,
        required_inputs=tuple(tensor.name for tensor in signature.inputs if not tensor.is_optional),
        optional_inputs=tuple(tensor.name for tensor in signature.inputs if tensor.is_optional),
        parameters=signature.parameters,
        outputs=tuple(tensor.name for tensor in signature.outputs),
        metadata_inputs=tuple(tensor.name for tensor in signature.inputs if tensor.values or tensor.requires),
        discriminants=generator.discriminant_names,
        branches=generator.effects,
        check_construction=generator.construction,
        metadata_key=generator.metadata_key(),
        check_call=generator.check_call(),
        check_result=generator.check_result,
        select_branch=generator.select_branch(),
        generator=generator,
    )


class _Generator:
    """Generates the functions of one plan and keeps the checks of its branches."""

    def __init__(self, entry: OpEntry) -> None:
        signature = entry.signature
        self.entry = entry
        check_kinds(entry)
        self.construction = ConstructionCheck(entry)
        self.messages = Messages(entry, self.construction.names)
        self.inputs = tuple(tensor.name for tensor in signature.inputs)
        self.has_buffer = any(output.buffer for output in signature.outputs)
        self.deciding = discriminants(signature)
        self.accepted = {branch.key: branch for branch in branches(signature)}
        self.effects, self.effect_of = _effects(entry, tuple(self.accepted.values()))
        self.checks: dict[tuple[object, ...], Check] = {}
        self.sources: dict[str, str] = {}
        self.arguments = ", ".join(["_construction", *self.inputs]) + (", *, out=None" if self.has_buffer else "")

    @property
    def discriminant_names(self) -> tuple[str, ...]:
        """The discriminants as an entry writes them."""
        return tuple(spell(found.tree) for found in self.deciding)

    def _key(self) -> str:
        """Return source of the key of a call's branch."""
        emitter = Emitter({name: name for name in (*self.inputs, "out")}, {})
        asked = [f"{emitter.emit(found.tree)}, " for found in self.deciding if found.of_call]
        settled = "*_construction.discriminants, " if len(asked) < len(self.deciding) else ""
        return f"({settled}{''.join(asked).rstrip()})"

    def check_call(self) -> Check:
        if not self.deciding:
            return self.check(())
        forwarded = self.arguments.replace("*, out=None", "out=out")
        return self._function(
            "check_call",
            f"def check_call({self.arguments}):\n"
            f'    """Check a call of {self.entry.name} and return its record."""\n'
            f"    _key = {self._key()}\n"
            f"    _check = _checks.get(_key)\n"
            f"    if _check is None:\n"
            f"        _check = _resolve(_construction, _key)\n"
            f"    return _check({forwarded})\n",
            {"_checks": self.checks, "_resolve": self._resolve},
        )

    def select_branch(self) -> Callable[..., int]:
        if len(self.effects) == 1:
            body = "    return 0\n"
        else:
            body = (
                f"    _key = {self._key()}\n"
                f"    _effect = _effect_of.get(_key)\n"
                f"    if _effect is None:\n"
                f"        _resolve(_construction, _key)\n"
                f"    return _effect\n"
            )
        text = f'def select_branch({self.arguments}):\n    """Return the place of the call\'s effect branch."""\n{body}'
        return self._function("select_branch", text, {"_effect_of": self.effect_of, "_resolve": self._resolve})

    def metadata_key(self) -> Callable[..., tuple[object, ...] | None]:
        optional = {tensor.name: tensor for tensor in self.entry.signature.inputs}
        parts = []
        for name in self.inputs:
            facts = f"{name}.dtype, {name}.shape, {name}.device"
            if optional[name].contiguous or optional[name].mutated is not False:
                facts += f", {name}.is_contiguous() or {name}.stride()"
            parts.append(f"None if {name} is None else ({facts}), " if optional[name].is_optional else f"{facts}, ")
        if self.has_buffer:
            parts.append(
                "None if out is None else (out.dtype, out.shape, out.device, out.is_contiguous() or out.stride()), "
            )
        arguments = ", ".join(self.inputs) + (", *, out=None" if self.has_buffer else "")
        text = (
            f"def metadata_key({arguments}):\n"
            f'    """Return what the record of a call depends on, or None where an argument has no shape."""\n'
            f"    try:\n"
            f"        return ({''.join(parts).rstrip()})\n"
            f"    except (AttributeError, RuntimeError):\n"
            f"        return None\n"
        )
        return self._function("metadata_key", text, {"AttributeError": AttributeError, "RuntimeError": RuntimeError})

    def check(self, key: tuple[object, ...]) -> Check:
        """Return the check of one branch, generated on the first request."""
        found = self.checks.get(key)
        if found is None:
            found = self.checks[key] = self._generate(self.accepted[key])
        return found

    def _resolve(self, construction: ConstructionIndices, key: tuple[object, ...]) -> Check:
        if key not in self.accepted:
            passed = dict.fromkeys(self.inputs, True)
            for found, value in zip(self.deciding, key, strict=True):
                if found.of_call and isinstance(asked := found.tree.arguments[0], Name):  # type: ignore[union-attr]
                    passed[asked.name] = bool(value)
            raise self.messages.presence(passed, construction.parameters)
        return self.check(key)

    def _writer(self, branch: Branch) -> BranchWriter:
        known = self.construction.known_where(branch.present)
        solution = Solver(self.entry.signature, branch, known).solve()
        if solution.stuck:
            names = ", ".join(tensor.name for tensor in solution.stuck)
            raise ExpressionError(
                f"{self.entry.name}: nothing gives the indices of {names}; see python -m tileops.manifest validate"
            )
        return BranchWriter(self.entry, branch, solution, self.construction)

    def _written(self, branch: Branch) -> tuple[str, str, BranchWriter]:
        """Return the name and the source of a branch's check, and the writer that knows its indices."""
        writer = self._writer(branch)
        name = f"check_call_{tuple(self.accepted).index(branch.key)}"
        return name, writer.write(name, self.arguments), writer

    def _generate(self, branch: Branch) -> Check:
        signature = self.entry.signature
        name, text, writer = self._written(branch)
        present = [tensor for tensor in signature.inputs if branch.present[tensor.name]]
        facts = BranchFacts(
            entry=self.entry,
            key=branch.key,
            present=dict(branch.present),
            inputs=tuple(tensor.name for tensor in present),
            outputs=tuple(tensor.name for tensor in signature.outputs),
            indices=writer.indices(),
            parameters=self.construction.names,
            constructed={
                found: self.construction.known.index(found)
                for found in self.construction.known_where(branch.present)
                if found not in self.construction.names
            },
            branch=branch,
            written=_writes(branch, self.entry),
            unread=frozenset(tensor.name for tensor in present if tensor.write_only),
            aliases={tensor.name: tensor.alias for tensor in signature.outputs if tensor.alias},
            has_out=branch.present["out"],
        )
        bindings: dict[str, object] = {
            "_facts": facts,
            "_messages": self.messages,
            "_failures": FAILURES,
            "_cpu": torch.device("cpu"),
        }
        for tensor in present:
            bindings[f"_input_{tensor.name}"] = tensor
            bindings[f"_items_{tensor.name}"] = expand(tensor.shape, signature, branch)
        return self._function(name, text, bindings)

    def _function(self, name: str, text: str, bindings: Mapping[str, object]) -> Callable[..., Any]:
        file = f"<tileops {self.entry.name}.{name} {self.entry.digest[:12]}>"
        self.sources[name] = text
        linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
        namespace = {**NAMESPACE, **_SUPPORT, **bindings}
        code: CodeType = compile(text, file, "exec")
        exec(code, namespace)  # noqa: S102 - the text is generated from closed trees
        function: Callable[..., Any] = namespace[name]  # type: ignore[assignment]
        return function

    def source(self) -> str:
        """Return the text of every function; a branch that no call has taken is written, and not compiled."""
        written = [self._written(branch)[:2] for branch in self.accepted.values()]
        return "\n\n".join({**self.sources, **dict(written)}.values())

    def check_result(self, call: SignatureCall, result: object) -> None:
        """Check what an implementation returned against the call's record.

        Raises:
            ResultError: a result differs from what the signature promises.
        """
        outputs = call.outputs
        if len(outputs) == 1 == len(call.branch.outputs):
            (only,) = outputs
            if (  # what nearly every call returns, asked without another frame
                isinstance(result, torch.Tensor)
                and result.dtype is only.dtype
                and result.shape == only.shape
                and result.device == call.device
                and result.is_contiguous()
            ):
                return
            if not _fits(result, only, call):
                raise self.messages.result(only, call.device, result)
            return
        names = call.branch.outputs
        if not names:
            if result is not None:
                raise self.messages.result_count(names, result)
            return
        found = (result,) if len(names) == 1 else result
        if not isinstance(found, tuple | list) or len(found) != len(names):
            raise self.messages.result_count(names, result)
        promised = {output.name: output for output in outputs}
        for name, value in zip(names, found, strict=True):
            output = promised.get(name)
            if output is None:
                if value is not None:
                    raise self.messages.result_count(tuple(promised), result)
            elif not _fits(value, output, call):
                raise self.messages.result(output, call.device, value)


_SUPPORT: Final[Mapping[str, object]] = {
    "_Tensor": torch.Tensor,
    "_OutputFacts": OutputFacts,
    "_SignatureCall": SignatureCall,
    "_call_device": call_device,
    "_overlaps": overlaps,
    "_observed": Observed,
    "any": any,
    "isinstance": isinstance,
    "len": len,
    "tuple": tuple,
}


def _fits(value: object, output: OutputFacts, call: SignatureCall) -> bool:
    if (
        not isinstance(value, torch.Tensor)
        or value.dtype is not output.dtype
        or value.shape != output.shape
        or (value.device != call.device and call.device is not None)
    ):
        return False
    branch = call.branch
    return value.is_contiguous() or branch.aliases.get(output.name) in branch.written or _is_buffer(output, branch)


def _is_buffer(output: OutputFacts, branch: BranchFacts) -> bool:
    """Whether the output is the destination that the caller passed, whose layout is the caller's."""
    return branch.has_out and any(item.name == output.name and item.buffer for item in branch.entry.signature.outputs)


def _writes(branch: Branch, entry: OpEntry) -> tuple[str, ...]:
    return tuple(
        tensor.name
        for tensor in entry.signature.inputs
        if branch.present[tensor.name] and branch.decides(tensor.mutated)
    )


def _effects(
    entry: OpEntry, accepted: tuple[Branch, ...]
) -> tuple[tuple[EffectBranch, ...], dict[tuple[object, ...], int]]:
    """Return the distinct effects of the branches, the one with the least suffix first, and each branch's place."""
    found: dict[EffectBranch, list[tuple[object, ...]]] = {}
    for branch in accepted:
        writes = _writes(branch, entry)
        has_out = branch.present["out"]
        missing = []
        allocated = []
        for output in entry.signature.outputs:
            if output.nullable is not None and not branch.decides(output.nullable):
                missing.append(output.name)
            elif not (output.buffer and has_out) and output.alias not in writes:
                allocated.append(output.name)
        suffix = (
            "".join(f"_writes_{name}" for name in writes)
            + ("_out" if has_out else "")
            + "".join(f"_without_{name}" for name in missing)
        )
        found.setdefault(EffectBranch(suffix, writes, tuple(allocated), has_out), []).append(branch.key)
    ordered = sorted(found, key=lambda effect: (effect.suffix.count("_"), effect.suffix))
    return tuple(ordered), {key: place for place, effect in enumerate(ordered) for key in found[effect]}
