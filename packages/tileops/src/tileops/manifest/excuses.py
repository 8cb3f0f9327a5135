"""What may follow from a mistake that is reported already: an unknown name stands for something that is declared."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from tileops.errors import ExpressionError
from tileops.manifest.branches import atoms, discriminants, subject
from tileops.manifest.expressions import Unknown
from tileops.manifest.inference import expand
from tileops.manifest.kinds import DTYPE_NAMES, DTypeKind, SequenceKind, UnknownKind
from tileops.manifest.trees import ANYTHING, children, is_known, possible_names

if TYPE_CHECKING:
    from tileops.manifest.branches import Branch
    from tileops.manifest.expressions import ShapeItem
    from tileops.manifest.inference import Solution
    from tileops.manifest.model import Formula, Signature, TensorType

_NEAR: Final = 0.5
"""How alike two words are, of 1, where one may be a misspelling of the other."""


class Excuses:
    """Finds which unsolved indices and unused types follow from unknown names in the types of one signature.

    An unknown name in an input's type is taken for one index that no input solves: for one that is spelled much like
    it, else for one that other types read.
    """

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.declared = _declared(signature)
        self.read = frozenset().union(*type_names(signature))
        self.possible: dict[tuple[str, bool], dict[str, None]] = {}
        self.index_of: dict[tuple[str, bool], str] = {}
        trees = [item for shape in _shapes(signature) for item in shape]
        self.unknown = frozenset().union(*(part.names for tree in trees for part in _unknown_parts(tree)))
        self.needed = not all(map(is_known, trees)) or not all(tensor.dtype.known for tensor in signature.inputs)

    def note(self, branch: Branch, solution: Solution) -> None:
        """Keep which indices a branch leaves unsolved, for the unknown names of its tensors."""
        for stray in self._strays(branch):
            fitting = (name for name in solution.unsolved if self._fits(name, of_dtype=stray[1]))
            self.possible.setdefault(stray, {}).update(dict.fromkeys(fitting))

    def settle(self) -> None:
        """Choose one index for each unknown name, once every branch is noted."""
        for stray, names in self.possible.items():
            self._assign(stray, [name for name in names if name not in self.index_of.values()], self.index_of)

    def of(self, branch: Branch) -> list[str]:
        """Return the indices that the unknown names of a branch's tensors stand for."""
        return (
            [self.index_of[stray] for stray in self._strays(branch) if stray in self.index_of] if self.index_of else []
        )

    @staticmethod
    def _near(word: str, names: Iterable[str]) -> list[str]:
        return difflib.get_close_matches(word, list(names), n=1, cutoff=_NEAR)

    def _assign(self, stray: tuple[str, bool], names: list[str], chosen: dict[tuple[str, bool], str]) -> None:
        needed = [name for name in names if name in self.read]
        found = self._near(stray[0], names) or needed[:1]
        if found:
            chosen[stray] = found[0]

    def _fits(self, name: str, *, of_dtype: bool) -> bool:
        kind = self.signature.forall[name]
        return isinstance(kind, UnknownKind) or (
            isinstance(kind, DTypeKind) == of_dtype and not isinstance(kind, SequenceKind)
        )

    def _strays(self, branch: Branch) -> list[tuple[str, bool]]:
        """Return the unknown names in the types of a branch's inputs, and whether each stands for a dtype."""
        found: dict[tuple[str, bool], None] = {}
        for tensor in self.signature.inputs:
            if branch.present[tensor.name]:
                for of_dtype, trees in ((True, (tensor.dtype.tree,)), (False, self._axes(tensor, branch))):
                    parts = (part for tree in trees for part in _unknown_parts(tree))
                    found |= {(name, of_dtype): None for part in parts for name in self._words(part.names)}
        return list(found)

    def _words(self, names: frozenset[str]) -> list[str]:
        """Return the unknown names of an unknown part; one that only reads known names may still stand for another."""
        return sorted(names - self.declared) or [" ".join(sorted(names))]

    def _axes(self, tensor: TensorType, branch: Branch) -> tuple[ShapeItem, ...]:
        try:
            return expand(tensor.shape, self.signature, branch)
        except ExpressionError:
            return ()

    def sequences(self, tensors: Iterable[TensorType]) -> set[str]:
        """Return the indices that no generator of the tensors reads, and that unknown ones may stand for."""
        formulas = [found for tensor in tensors for found in content_formulas(tensor)]
        read = frozenset().union(*(possible_names(formula.tree) for formula in formulas))
        left = [name for name, kind in self.signature.forall.items() if isinstance(kind, SequenceKind)]
        parts = [part for formula in formulas for part in _unknown_parts(formula.tree)]
        words = [word for part in parts for word in self._words(part.names)]
        unused = [name for name in left if name not in read]
        return set(unused) if read >= ANYTHING else misspelled(words, unused)

    def family(self, name: str) -> bool:
        """Whether an unknown shape may apply a type family that no other shape applies."""
        return bool(self.unknown & {name, *ANYTHING} or self._near(name, sorted(self.unknown - self.declared)))


def misspelled(strange: Iterable[str], missing: Iterable[str]) -> set[str]:
    """Return the missing names that the strange ones are taken for: one each, the nearest."""
    meant: list[str] = []
    for word in strange:
        left = [name for name in missing if name not in meant]
        meant.extend(difflib.get_close_matches(word, left, n=1, cutoff=0.0) or left[:1])
    return set(meant)


def content_formulas(tensor: TensorType) -> tuple[Formula, ...]:
    """Return what is said of a metadata tensor's contents: its generator, and what they satisfy."""
    return ((tensor.values,) if tensor.values is not None else ()) + tensor.requires


def type_names(signature: Signature) -> Iterator[frozenset[str]]:
    """Yield the names that each type of a signature reads or may read, and each let."""
    yield from (possible_names(item) for shape in _shapes(signature) for item in shape)
    yield from (possible_names(tensor.dtype.tree) for tensor in (*signature.inputs, *signature.outputs))
    yield from (possible_names(formula.tree) for formula in signature.let.values())
    yield from (ANYTHING for section in ("inputs", "outputs", "let", "types") if section in signature.lost)


def restricts_unclearly(rule: Formula, signature: Signature) -> bool:
    """Whether a refinement that is unknown, or reads what is, may be one that excludes branches."""
    deciding = {found.tree for found in discriminants(signature)}
    subjects = {subject(tree) for tree in deciding}
    if rule.known:
        kinds = {parameter.name: parameter.kind for parameter in signature.parameters}
        others = [subject(atom) for atom in atoms(rule.tree) if atom not in deciding]
        return bool(others) and all(isinstance(kinds.get(name), UnknownKind) for name in others)
    names = possible_names(rule.tree)
    if names >= ANYTHING or not names:
        return True
    strays = names - _declared(signature)
    if names - strays:
        return names - strays <= subjects
    return any(difflib.get_close_matches(name, list(subjects), n=1, cutoff=_NEAR) for name in strays)


def _declared(signature: Signature) -> frozenset[str]:
    tensors = (*signature.inputs, *signature.outputs)
    return frozenset().union(
        signature.forall,
        signature.let,
        signature.families,
        (parameter.name for parameter in signature.parameters),
        (tensor.name for tensor in tensors),
        DTYPE_NAMES,
        {"inf", "out", *ANYTHING},
    )


def _shapes(signature: Signature) -> Iterator[tuple[ShapeItem, ...]]:
    """Yield the items of every shape that a signature writes: axes, or the arguments of a type family."""
    shapes = [tensor.shape for tensor in (*signature.inputs, *signature.outputs)]
    shapes += [case.shape for family in signature.families.values() for case in family.cases]
    yield from (shape.items if shape.family is None else shape.family.arguments for shape in shapes)


def _unknown_parts(tree: ShapeItem) -> Iterator[Unknown]:
    if isinstance(tree, Unknown):
        yield tree
    for child in children(tree):
        yield from _unknown_parts(child)
