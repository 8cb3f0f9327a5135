"""Kind checking: the kind of an expression, with what a condition makes known on its branches."""

from __future__ import annotations

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
from tileops.manifest.facts import Facts, Scope
from tileops.manifest.functions import FunctionKind
from tileops.manifest.kinds import (
    DTYPE_NAMES,
    BoolKind,
    DimKind,
    DTypeKind,
    FloatKind,
    IntKind,
    Kind,
    LiteralKind,
    NoneKind,
    SequenceKind,
    ShapeKind,
    SumKind,
    TensorKind,
    UnionKind,
    UnknownKind,
    fits,
    is_nullable,
    union,
)
from tileops.manifest.model import SumType
from tileops.manifest.reading import counted, suggestion
from tileops.manifest.spelling import spell

_INT, _DIM, _BOOL = IntKind(), DimKind(), BoolKind()
_NUMBERS = union((IntKind(), FloatKind()))


def infer(tree: Expression, scope: Scope) -> Kind:
    """Return the kind of an expression; what is wrong with a part is kept among the scope's faults, if it keeps any.

    Raises:
        ExpressionError: a name is unknown, or a part is not of the kind that its place needs.
    """
    if scope.faults is None:
        return _infer(tree, scope)
    try:
        return _infer(tree, scope)
    except ExpressionError as error:
        return scope.fault(str(error))


def _infer(tree: Expression, scope: Scope) -> Kind:  # noqa: C901, PLR0911, PLR0912 - one case for each construct
    match tree:
        case Unknown():
            return UnknownKind()
        case Literal(value):
            return literal_kind(value)
        case Name(name):
            return _name(name, scope)
        case Negative(operand):
            kind = _number(operand, scope)
            return _INT if fits(kind, _INT) else kind
        case Not(operand):
            _expect(operand, _BOOL, scope)
            return _BOOL
        case Binary():
            return _binary(tree, scope)
        case Comparison():
            return _comparison(tree, scope)
        case Logical():
            return _logical(tree, scope)
        case Conditional(condition, then, otherwise):
            _expect(condition, _BOOL, scope)
            chosen = infer(then, scope.given(learn(condition, scope, holds=True)))
            return _joined(chosen, infer(otherwise, scope.given(learn(condition, scope, holds=False))))
        case Call():
            return _call(tree, scope)
        case Attribute(value, name):
            return _attribute(value, name, scope)
        case Subscript(value, index):
            _expect(index, _INT, scope)
            return _element(value, scope)
        case Slice(value, start, stop):
            for bound in (start, stop):
                if bound is not None:
                    _expect(bound, _INT, scope)
            return SequenceKind(_element(value, scope))
        case Tuple(items):
            return _tuple(items, scope)
        case Comprehension(body, target, sequence):
            if target in scope.names:
                raise ExpressionError(f"{target!r} already has a meaning here; give the comprehension another name")
            return SequenceKind(infer(body, scope.binding(target, _element(sequence, scope))))


def literal_kind(value: float | bool | str | None) -> Kind:
    """Return the kind of a literal: a number that is not negative is a Dim."""
    if value is None:
        return NoneKind()
    if isinstance(value, bool):
        return _BOOL
    if isinstance(value, str):
        return LiteralKind((value,))
    if isinstance(value, int):
        return _DIM if value >= 0 else _INT
    return FloatKind()


def _name(name: str, scope: Scope) -> Kind:
    if name in scope.names:
        return scope.names[name]
    if name in DTYPE_NAMES:
        return DTypeKind((name,))
    if name == "inf":
        return FloatKind()
    if scope.open and name not in scope.tensors:
        return UnknownKind()
    if name in scope.tensors:
        raise ExpressionError(f"{name!r} is a tensor; name the indices of its type in place of reading it")
    raise ExpressionError(
        f"unknown name {name!r}; {suggestion(name, sorted(scope.names)) if scope.names else 'declare it'}"
    )


def _expect(tree: Expression, wanted: Kind, scope: Scope) -> Kind:
    kind = infer(tree, scope)
    if not fits(kind, wanted):
        mend = ""
        if is_nullable(kind) and not is_nullable(wanted):
            mend = f"; it may be None here: write present({spell(tree)}) and {spell(tree)}.value"
        return scope.fault(f"{spell(tree)} is {kind}, and {wanted} is needed{mend}")
    return kind


def _number(tree: Expression, scope: Scope) -> Kind:
    return _expect(tree, _NUMBERS, scope)


def _binary(tree: Binary, scope: Scope) -> Kind:
    left = infer(tree.left, scope)
    if tree.operator == "+" and isinstance(left, SequenceKind | ShapeKind):
        left = _expect(tree.left, SequenceKind(_INT), scope)
        right = _expect(tree.right, SequenceKind(_INT), scope)
        return ShapeKind() if fits(left, SequenceKind(_DIM)) and fits(right, SequenceKind(_DIM)) else SequenceKind(_INT)
    if tree.operator == "+" and isinstance(left, UnknownKind):
        infer(tree.right, scope)
        return left
    left, right = _number(tree.left, scope), _number(tree.right, scope)
    if fits(left, _DIM) and fits(right, _DIM) and tree.operator != "-":
        return _DIM
    if fits(left, _INT) and fits(right, _INT):
        return _INT
    return FloatKind()


def _comparison(tree: Comparison, scope: Scope) -> Kind:
    parts = [tree.first, *tree.rest]
    for operator, left, right in zip(tree.operators, parts, tree.rest, strict=False):
        if operator in {"<", "<=", ">", ">="}:
            _number(left, scope)
            _number(right, scope)
        elif operator in {"in", "not in"}:
            _comparable(infer(left, scope), _element(right, scope), tree)
        else:
            _comparable(infer(left, scope), infer(right, scope), tree)
    return _BOOL


def _comparable(left: Kind, right: Kind, tree: Comparison) -> None:
    """Refuse a comparison that can never hold, such as that with a word which a parameter never is."""
    if isinstance(right, LiteralKind) and isinstance(left, LiteralKind | UnionKind):
        known = {word for member in members(left) if isinstance(member, LiteralKind) for word in member.values}
        strange = [word for word in right.values if word not in known]
        if known and strange:
            raise ExpressionError(f"{spell(tree)}: {strange[0]!r} is not among {', '.join(map(repr, sorted(known)))}")
    pairs = [(first, second) for first in members(left) for second in members(right)]
    if not any(fits(first, second) or fits(second, first) or _overlap(first, second) for first, second in pairs):
        raise ExpressionError(f"{spell(tree)} compares {left} with {right}, which are never equal")


def members(kind: Kind) -> tuple[Kind, ...]:
    """Return the kinds that a union joins, or the kind alone."""
    return kind.members if isinstance(kind, UnionKind) else (kind,)


def _overlap(left: Kind, right: Kind) -> bool:
    if isinstance(left, LiteralKind | DTypeKind) and isinstance(right, LiteralKind | DTypeKind):
        return type(left) is type(right) and bool(set(left.values) & set(right.values))
    return isinstance(left, SequenceKind | ShapeKind) and isinstance(right, SequenceKind | ShapeKind)


def _logical(tree: Logical, scope: Scope) -> Kind:
    inner = scope
    for operand in tree.operands:
        _expect(operand, _BOOL, inner)
        inner = inner.given(learn(operand, inner, holds=tree.operator == "and"))
    return _BOOL


def _joined(left: Kind, right: Kind) -> Kind:
    if fits(left, right):
        return right
    return left if fits(right, left) else union((left, right))


def _element(tree: Expression, scope: Scope) -> Kind:
    kind = infer(tree, scope)
    if isinstance(kind, ShapeKind):
        return _DIM
    if isinstance(kind, UnknownKind):
        return kind
    if isinstance(kind, SequenceKind):
        return kind.element
    raise ExpressionError(f"{spell(tree)} is {kind}, and a sequence is needed")


def _tuple(items: tuple[Expression | Spread, ...], scope: Scope) -> Kind:
    kinds = [_element(item.value, scope) if isinstance(item, Spread) else infer(item, scope) for item in items]
    if not kinds:
        return SequenceKind(_DIM, 0)
    known = None if any(isinstance(item, Spread) for item in items) else len(items)
    if all(fits(kind, _DIM) for kind in kinds):
        return SequenceKind(_DIM, known)
    return SequenceKind(_INT if all(fits(kind, _INT) for kind in kinds) else union(tuple(kinds)), known)


def _call(tree: Call, scope: Scope) -> Kind:
    if tree.function == "present":
        return _present(tree, scope)
    found = scope.functions.get(tree.function)
    if tree.function in {"isinstance", "type"}:
        raise ExpressionError(
            f"{spell(tree)}: kinds are checked before any rule; write present(name), or match name.kind of a sum type"
        )
    if found is None:
        message = f"unknown function {tree.function!r}; {suggestion(tree.function, sorted(scope.functions))}"
        return _uncalled(tree, message, scope)
    wanted = found.parameters
    given = len(tree.arguments)
    if found.variadic:
        wanted = wanted * max(given, 1)
    if given != len(wanted) and not (found.variadic and given == 0):
        message = f"{spell(tree)}: {tree.function} takes {counted(len(found.parameters), 'argument')}, received {given}"
        return _uncalled(tree, message, scope)
    kinds = [_argument(argument, kind, scope) for argument, kind in zip(tree.arguments, wanted, strict=False)]
    for key, value in tree.keywords:
        if key not in found.keywords:
            scope.fault(f"{spell(tree)}: {tree.function} takes no {key}=")
            continue
        kinds.append(SequenceKind(_expect(value, found.keywords[key], scope)))
    return _result(tree.function, found, kinds)


def _uncalled(tree: Call, message: str, scope: Scope) -> Kind:
    """Keep why a call is wrong, and what is wrong with its arguments by themselves."""
    kind = scope.fault(message)
    for argument in (*tree.arguments, *(value for _, value in tree.keywords)):
        if not (isinstance(argument, Name) and argument.name in scope.tensors):
            infer(argument.value if isinstance(argument, Spread) else argument, scope)
    return kind


def _argument(argument: Expression | Spread, wanted: Kind, scope: Scope) -> Kind:
    if isinstance(argument, Spread):
        raise ExpressionError(f"{spell(argument)} stands only in a shape or a tuple")
    if isinstance(wanted, TensorKind):
        if not (isinstance(argument, Name) and argument.name in scope.tensors):
            raise ExpressionError(f"{spell(argument)} is not an input tensor of this signature")
        return wanted
    return _expect(argument, wanted, scope)


def _result(function: str, found: FunctionKind, kinds: list[Kind]) -> Kind:
    """Return the result's kind, with numbers that cannot be negative kept as such."""
    if found.result == _INT:
        flat = [kind.element if isinstance(kind, SequenceKind) else kind for kind in kinds]
        flat = [_DIM if isinstance(kind, ShapeKind) else kind for kind in flat]
        if function in {"prod", "sum", "max", "min", "ceil_div"} and all(fits(kind, _DIM) for kind in flat):
            return _DIM
    return found.result


def _present(tree: Call, scope: Scope) -> Kind:
    match tree.arguments:
        case (Name(name),) if not tree.keywords:
            kind = scope.names.get(name)
            if name in scope.optional or scope.open or isinstance(kind, UnknownKind) or (kind and is_nullable(kind)):
                return _BOOL
            raise ExpressionError(
                f"present({name}) asks about what is always there, or about no name of this signature; "
                "ask about an optional tensor, a nullable parameter or out"
            )
    raise ExpressionError(f"{spell(tree)}: write present(name)")


def _attribute(value: Expression, name: str, scope: Scope) -> Kind:
    if isinstance(value, Name) and value.name in scope.tensors:
        raise ExpressionError(f"{value.name}.{name} reads a tensor; name the indices of its type in the rule")
    kind = infer(value, scope)
    if isinstance(kind, UnknownKind):
        return kind
    if name == "value" and is_nullable(kind):
        if isinstance(value, Name) and value.name in scope.facts.present and isinstance(kind, UnionKind):
            return kind.without_none()
        raise ExpressionError(f"{spell(value)}.value may be None here; stand it behind present({spell(value)})")
    if isinstance(kind, SumKind) and kind.name in scope.sums:
        return _field(value, name, scope.sums[kind.name], scope)
    raise ExpressionError(f"{kind} has no attribute {name!r}; only sum types and nullable values have any")


def _field(value: Expression, name: str, declared: SumType, scope: Scope) -> Kind:
    constructors = {constructor.name: constructor for constructor in declared.constructors}
    if name == "kind":
        return LiteralKind(tuple(constructors))
    known = scope.facts.constructors.get(spell(value), frozenset(constructors))
    kinds = []
    for constructor in sorted(known):
        fields = {field.name: field.kind for field in constructors[constructor].fields}
        if name not in fields and constructors[constructor].incomplete:
            return UnknownKind()
        if name not in fields:
            raise ExpressionError(
                f"{spell(value)}.{name} is not a field of {constructor}; "
                f"match {spell(value)}.kind first to a constructor that has it"
            )
        kinds.append(fields[name])
    if not kinds:
        raise ExpressionError(f"{spell(value)}.{name} stands where no constructor of {declared.name} is possible")
    return union(tuple(kinds))


def learn(condition: Expression, scope: Scope, *, holds: bool) -> Facts:  # noqa: PLR0911
    """Return what is known where a condition holds, or where it does not."""
    facts = scope.facts
    match condition:
        case Call("present", (Name(name),)) if holds:
            return facts.and_present(name)
        case Not(operand):
            return learn(operand, scope, holds=not holds)
        case Logical(operator, operands) if (operator == "and") == holds:
            for operand in operands:
                facts = learn(operand, scope.given(facts), holds=holds)
            return facts
        case Comparison(Attribute(value, "kind"), ("==" | "!=" as operator,), (Literal(str(tag)),)):
            return _learn_kind(value, frozenset({tag}), scope, holds=(operator == "==") == holds)
        case Comparison(Attribute(value, "kind"), ("in" | "not in" as operator,), (Tuple(items),)):
            tags = frozenset(item.value for item in items if isinstance(item, Literal) and isinstance(item.value, str))
            return _learn_kind(value, tags, scope, holds=(operator == "in") == holds)
        case Comparison(Name(name), ("==",), (Literal(value),)) if holds and value is not None:
            return facts.and_present(name)
        case Comparison(Name(name), ("!=",), (Literal(None),)) if holds:
            return facts.and_present(name)
        case Comparison(Name(name), ("!=",), (Literal(value),)) if not holds and value is not None:
            return facts.and_present(name)
        case Comparison(Name(name), ("==",), (Literal(None),)) if not holds:
            return facts.and_present(name)
        case Comparison(Name(name), ("in",), (Tuple(items),)) if holds and Literal(None) not in items:
            return facts.and_present(name)
    return facts


def _learn_kind(value: Expression, tags: frozenset[str], scope: Scope, *, holds: bool) -> Facts:
    kind = infer(value, scope)
    if not isinstance(kind, SumKind) or kind.name not in scope.sums:
        return scope.facts
    everything = frozenset(constructor.name for constructor in scope.sums[kind.name].constructors)
    return scope.facts.and_constructor(spell(value), everything & tags if holds else everything - tags)
