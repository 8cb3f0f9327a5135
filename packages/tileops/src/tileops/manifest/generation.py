"""Source of the checks: one straight-line function per branch of a signature, made of its solved steps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from tileops.manifest.checking import infer
from tileops.manifest.expressions import Binary, Call, Expression, Slice, Spread, Subscript
from tileops.manifest.families import matched
from tileops.manifest.inference import Axes, Bind, BindDType, CheckDType, Compare, Compute, Require, Solve, expand
from tileops.manifest.kinds import DimKind, DTypeKind, fits
from tileops.manifest.scopes import facts_of, scope_of
from tileops.manifest.source import Emitter
from tileops.manifest.trees import children, free_names

if TYPE_CHECKING:
    from tileops.manifest.branches import Branch
    from tileops.manifest.construction import ConstructionCheck
    from tileops.manifest.inference import Solution
    from tileops.manifest.model import OpEntry, TensorType


def can_fail(tree: Expression | Spread) -> bool:
    """Whether evaluating the expression may have no value."""
    risky = isinstance(tree, Call | Subscript | Slice) or (isinstance(tree, Binary) and tree.operator in {"//", "%"})
    return (risky and not (isinstance(tree, Call) and tree.function == "present")) or any(
        can_fail(part) for part in children(tree)
    )


class BranchWriter:
    """Writes the check of one branch."""

    def __init__(self, entry: OpEntry, branch: Branch, solution: Solution, construction: ConstructionCheck) -> None:
        self.signature = entry.signature
        self.branch = branch
        self.solution = solution
        self.construction = construction.known
        self.settled = construction.known_where(branch.present)
        self.known: list[str] = list(self.settled)
        self.scope = scope_of(entry.signature).given(facts_of(branch))
        self.lines: list[str] = []
        self.tensors = [tensor for tensor in self.signature.inputs if branch.present[tensor.name]]

    def write(self, name: str, arguments: str) -> str:
        """Return the source of the function."""
        passed = ", ".join(tensor.name for tensor in self.tensors) or "no tensor"
        self._line(f'"""The check of a call that passes {passed}."""')
        if self.construction:
            self._line(f"{', '.join(self.construction)}, = _construction.values")
        self._tensors()
        for step in self.solution.steps:
            match step:
                case BindDType(tensor, index):
                    self._bind_dtype(tensor, index)
                case CheckDType(tensor, expected):
                    self._check_dtype(tensor, expected.tree, expected.text)
                case Axes(tensor, items):
                    self._axes(tensor, items)
                case Compute(let, formula):
                    self._assign(let, self._emit(formula.tree), formula.tree, f"let {let}")
                    self.known.append(let)
                case Require(rule, place):
                    self._require(rule.tree, rule.text, place)
        self._combinations()
        self._return()
        body = "\n".join(f"    {line}" for line in self.lines)
        return f"def {name}({arguments}):\n{body}\n"

    def _line(self, text: str) -> None:
        self.lines.append(text)

    def _emit(self, tree: Expression | Spread) -> str:
        return Emitter({name: name for name in self.known}, self.branch.present).emit(tree)

    def _values(self, *trees: Expression | Spread) -> str:
        """Return source of the known names that the trees read, with their values."""
        read = frozenset().union(*(free_names(tree) for tree in trees))
        return "{" + ", ".join(f"{name!r}: {name}" for name in self.known if name in read) + "}"

    def _assign(self, target: str, source: str, tree: Expression | Spread, declared: str) -> None:
        if not can_fail(tree):
            self._line(f"{target} = {source}")
            return
        self._line("try:")
        self._line(f"    {target} = {source}")
        self._line("except _failures as _error:")
        self._line(f"    raise _messages.failed({declared!r}, _error) from None")

    def _tensors(self) -> None:
        first: TensorType | None = None
        for name in (tensor.name for tensor in self.tensors):
            self._line(f"if not isinstance({name}, _Tensor):")
            self._line(f"    raise _messages.not_a_tensor({name!r}, {name})")
            self._line(f"_dtype_of_{name} = {name}.dtype")
        for tensor in self.tensors:
            name = tensor.name
            if tensor.device == "cpu":
                self._line(f"if {name}.device != _cpu:")
                self._line(f"    raise _messages.device({name!r}, '', _cpu, {name}.device{self._written(tensor)})")
            elif first is None:
                first = tensor
                self._line(f"_device = {name}.device")
            else:
                self._line(f"if {name}.device != _device:")
                given = f"{name!r}, {first.name!r}, _device, {name}.device{self._written(tensor)}"
                self._line(f"    raise _messages.device({given})")
            self._layout(tensor)
        if first is None:
            self._line("_device = _call_device(_construction)")

    def _written(self, tensor: TensorType) -> str:
        """The last argument of an error about a tensor: whether the call writes it, where it does."""
        return ", True" if tensor.buffer or self.branch.decides(tensor.mutated) else ""

    def _layout(self, tensor: TensorType, name: str = "") -> None:
        """Check the memory layout of a tensor that declares one, or that the call writes."""
        name = name or tensor.name
        if tensor.contiguous:
            self._line(f"if not {name}.is_contiguous():")
            self._line(f"    raise _messages.contiguous({name!r}, {name}.stride(){self._written(tensor)})")
        elif self.branch.decides(tensor.mutated) or tensor.buffer:
            self._line(f"if not {name}.is_contiguous() and _overlaps({name}):")
            self._line(f"    raise _messages.overlapping({name!r}, {name}.stride())")

    def _bind_dtype(self, tensor: TensorType, index: str) -> None:
        self._line(f"{index} = _dtype_of_{tensor.name}")
        self.known.append(index)
        kind = self.signature.forall[index]
        if isinstance(kind, DTypeKind):
            allowed = ", ".join(f"_dtype_{name}" for name in kind.values)
            self._line(f"if {index} not in ({allowed},):")
            given = f"{tensor.name!r}, {kind.values!r}, {index}{self._written(tensor)}"
            self._line(f"    raise _messages.dtype_choice({given})")

    def _check_dtype(self, tensor: TensorType, tree: Expression, text: str) -> None:
        received = f"_dtype_of_{tensor.name}"
        expected = self._emit(tree)
        if can_fail(tree):
            self._assign("_expected", expected, tree, f"{tensor.name}: {text}")
            expected = "_expected"
        self._line(f"if {received} is not {expected}:")
        given = f"{tensor.name!r}, {text!r}, {expected}, {received}{self._written(tensor)}"
        self._line(f"    raise _messages.dtype({given})")

    def _axes(self, tensor: TensorType, items: tuple[Compare | Bind | Solve, ...]) -> None:
        name = tensor.name
        written = expand(tensor.shape, self.signature, self.branch)
        error = f"raise _messages.shape(_input_{name}, _items_{name}, _shape_of_{name}, {self._values(*written)})"
        self._line(f"# {name}: {tensor.shape.text}")
        self._line(f"_shape_of_{name} = tuple({name}.shape)")
        if all(isinstance(item, Compare) for item in items):
            self._whole(tensor, tuple(item.item for item in items if isinstance(item, Compare)), error)
            return
        self._runs(tensor, items)
        single = sum(not self._spliced(item) for item in items)
        lengths = [
            f"len(_run_{place})"
            for place, item in enumerate(items)
            if isinstance(item, Compare) and self._spliced(item)
        ]
        counted = " + ".join([str(single), *lengths]) if single or not lengths else " + ".join(lengths)
        open_ended = any(isinstance(item, Bind) and item.spliced for item in items)
        self._line(f"_rest = len(_shape_of_{name}) - {counted if '+' not in counted else f'({counted})'}")
        self._line(f"if _rest {'< 0' if open_ended else '!= 0'}:")
        self._line(f"    {error}")
        offset = _Offset()
        for place, item in enumerate(items):
            self._item(name, place, item, offset, error)

    @staticmethod
    def _spliced(item: Compare | Bind | Solve) -> bool:
        return (isinstance(item, Compare) and isinstance(item.item, Spread)) or (
            isinstance(item, Bind) and item.spliced
        )

    def _whole(self, tensor: TensorType, written: tuple[Expression | Spread, ...], error: str) -> None:
        """Compare a shape of which everything is known at once."""
        name = tensor.name
        source = Emitter({known: known for known in self.known}, self.branch.present).tuple(written)
        if any(can_fail(item) for item in written):
            holder = next(item for item in written if can_fail(item))
            self._assign("_expected", source, holder, f"{name}: {tensor.shape.text}")
            source = "_expected"
        self._line(f"if _shape_of_{name} != {source}:")
        self._line(f"    {error}")

    def _runs(self, tensor: TensorType, items: tuple[Compare | Bind | Solve, ...]) -> None:
        for place, item in enumerate(items):
            if isinstance(item, Compare) and isinstance(item.item, Spread):
                self._assign(
                    f"_run_{place}", self._emit(item.item.value), item.item, f"{tensor.name}: {tensor.shape.text}"
                )

    def _item(self, name: str, place: int, item: Compare | Bind | Solve, offset: _Offset, error: str) -> None:
        shape = f"_shape_of_{name}"
        match item:
            case Bind(index, True):
                start = offset.text()
                offset.add("_rest")
                self._line(f"{index} = {shape}[{start}:{offset.text()}]")
                self.known.append(index)
            case Bind(index, False):
                self._line(f"{index} = {shape}[{offset.text()}]")
                offset.step()
                self.known.append(index)
            case Compare(Spread()):
                start = offset.text()
                offset.add(f"len(_run_{place})")
                self._line(f"if {shape}[{start}:{offset.text()}] != _run_{place}:")
                self._line(f"    {error}")
            case Compare(written):
                expected = self._emit(written)
                if can_fail(written):
                    self._assign("_expected", expected, written, f"{name}: axis {place}")
                    expected = "_expected"
                self._line(f"if {shape}[{offset.text()}] != {expected}:")
                self._line(f"    {error}")
                offset.step()
            case Solve(index, factor, rest, _):
                self._solve(f"{shape}[{offset.text()}]", index, factor, rest, error)
                offset.step()

    def _solve(self, extent: str, index: str, factor: int, rest: Expression, error: str) -> None:
        subtracted = self._emit(rest)
        self._line(f"_left = {extent} - {subtracted}" if subtracted != "0" else f"_left = {extent}")
        if factor != 1:
            self._line(f"if _left % {factor} != 0:")
            self._line(f"    {error}")
        self._line(f"{index} = _left // {factor}" if factor != 1 else f"{index} = _left")
        self._line(f"if {index} < 0:")
        self._line(f"    {error}")
        self.known.append(index)

    def _require(self, tree: Expression, text: str, place: int) -> None:
        self._assign("_holds", self._emit(tree), tree, text)
        written = self.signature.shape_rules[place].tree
        self._line("if not _holds:")
        self._line(f"    raise _messages.rule({place}, {self._behind(written)}, {dict(self.branch.present)!r})")

    def _behind(self, tree: Expression) -> str:
        """Return source of the known names that a rule, the lets in it and the cases of families read."""
        trees: list[Expression | Spread] = [tree, *matched(self.signature)]
        for part in trees:
            lets = [self.signature.let[name].tree for name in free_names(part) if name in self.signature.let]
            trees += [let for let in lets if let not in trees]
        return self._values(*trees)

    def _combinations(self) -> None:
        rows = self.signature.dtype_combos
        names = [name for name in self.known if any(name in row for row in rows)]
        if not names:
            return
        allowed = {tuple(row.get(name) for name in names) for row in rows}
        sources = ", ".join(
            "(" + ", ".join(f"_dtype_{dtype}" for dtype in row) + ",)" for row in sorted(allowed, key=str)
        )
        self._line(f"if ({', '.join(names)},) not in ({sources},):")
        received = ", ".join(f"{name!r}: {name}" for name in names)
        holders = {tensor.dtype.text: tensor.name for tensor in reversed(self.tensors)}
        shown = {name: holders[name] for name in names if name in holders}
        self._line(f"    raise _messages.dtype_combination({{{received}}}, {shown!r})")

    def _return(self) -> None:
        outputs = []
        for tensor in self.signature.outputs:
            if tensor.nullable is not None and not self.branch.decides(tensor.nullable):
                continue
            written = expand(tensor.shape, self.signature, self.branch)
            shape = Emitter({name: name for name in self.known}, self.branch.present).tuple(written)
            failing = [item for item in written if can_fail(item)]
            if failing:
                self._assign(f"_shape_of_{tensor.name}", shape, failing[0], f"{tensor.name}: {tensor.shape.text}")
                shape = f"_shape_of_{tensor.name}"
            dtype = self._emit(tensor.dtype.tree)
            if can_fail(tensor.dtype.tree):
                self._assign(
                    f"_dtype_of_{tensor.name}", dtype, tensor.dtype.tree, f"{tensor.name}: {tensor.dtype.text}"
                )
                dtype = f"_dtype_of_{tensor.name}"
            if any(not isinstance(item, Spread) and not self._is_extent(item) for item in written):
                self._line(f"_shape_of_{tensor.name} = {shape}")
                shape = f"_shape_of_{tensor.name}"
                self._line(f"if any(_extent < 0 for _extent in {shape}):")
                self._line(f"    raise _messages.negative({tensor.name!r}, {tensor.shape.text!r}, {shape})")
            if tensor.buffer and self.branch.present["out"]:
                shape, dtype = self._buffer(tensor, shape, dtype)
            outputs.append(f"_OutputFacts({tensor.name!r}, {shape}, {dtype}), ")
        self._line("return _SignatureCall(")
        self._line("    _facts,")
        self._line(f"    {_tuple(self.indices())},")
        self._line("    _construction.values,")
        self._line("    _device,")
        self._line(f"    {_tuple(f'_shape_of_{tensor.name}' for tensor in self.tensors)},")
        self._line(f"    {_tuple(f'_dtype_of_{tensor.name}' for tensor in self.tensors)},")
        self._line(f"    ({''.join(outputs).rstrip()}),")
        observed = [tensor.name for tensor in self.tensors if tensor.values is not None or tensor.requires]
        if observed:
            self._line(f"    _observed({{{', '.join(f'{name!r}: {name}' for name in observed)}}}),")
        self._line(")")

    def _is_extent(self, item: Expression) -> bool:
        """Whether an axis can never be negative."""
        return fits(infer(item, self.scope), DimKind())

    def _buffer(self, tensor: TensorType, shape: str, dtype: str) -> tuple[str, str]:
        """Check the caller's buffer against the output that it receives."""
        self._line("# out")
        self._line("if not isinstance(out, _Tensor):")
        self._line("    raise _messages.not_a_tensor('out', out)")
        self._line(f"_shape_of_out, _dtype_of_out = {shape}, {dtype}")
        self._line("if tuple(out.shape) != _shape_of_out:")
        self._line(f"    raise _messages.buffer_shape({tensor.name!r}, _shape_of_out, tuple(out.shape))")
        self._line("if out.dtype is not _dtype_of_out:")
        self._line(f"    raise _messages.dtype('out', {tensor.dtype.text!r}, _dtype_of_out, out.dtype, True)")
        self._line("if out.device != _device:")
        self._line("    raise _messages.device('out', '', _device, out.device, True)")
        self._layout(tensor, "out")
        return "_shape_of_out", "_dtype_of_out"

    def indices(self) -> tuple[str, ...]:
        """Return the names that the call settles, in the order of their solution."""
        settled = set(self.settled)
        return tuple(name for name in self.known if name not in settled)


class _Offset:
    """A place among axes: a number, plus lengths that only a call knows."""

    def __init__(self) -> None:
        self.number = 0
        self.terms: list[str] = []

    def step(self) -> None:
        self.number += 1

    def add(self, term: str) -> None:
        self.terms.append(term)

    def text(self) -> str:
        return " + ".join([*([str(self.number)] if self.number or not self.terms else []), *self.terms])


def _tuple(sources: Iterable[str]) -> str:

    return "(" + "".join(f"{source}, " for source in sources).rstrip(" ") + ")"
