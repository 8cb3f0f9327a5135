"""Terms: what one side of a comparison is of what a caller passed, and how errors ask for another value of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tileops.manifest.expressions import Attribute, Call, Expression, Literal, Name
from tileops.manifest.primitives import show_shape
from tileops.manifest.spelling import spell

if TYPE_CHECKING:
    from tileops.manifest.origins import Origins

CONSTANT, COMPUTED, AXIS, PARAMETER = range(4)
"""How near a term is to what a caller passed; of a comparison's terms the nearest is its subject."""


@dataclass(frozen=True, slots=True)
class Term:
    """One side of a comparison; `{}` in its texts is what is asked of its value."""

    near: int
    subject: str
    value: object
    expected: str
    mend: str
    hidden: frozenset[str] = frozenset()
    """The names that need not be given as reasons: the subject's own."""
    whole: bool = False
    """Whether the value is a number of things, written before them."""


def term_of(tree: Expression, origins: Origins) -> Term:
    """Return what a resolved expression is of what was passed."""
    return _parameter(tree, origins) or _axis(tree, origins) or _computed(tree, origins)


def _parameter(tree: Expression, origins: Origins) -> Term | None:
    """Return the term of a parameter, of its length or of its value for one axis."""
    value = origins.value(tree)
    match tree:
        case Name(name) if origins.is_parameter(tree):
            return Term(PARAMETER, name, value, "{}", f"pass {name} of {{}}", frozenset({name}))
        case Call("len", (Name(name) as inner,)) if origins.is_parameter(inner):
            texts = ("{} elements", f"pass {name} of {{}} elements")
            return Term(PARAMETER, name, origins.values[name], *texts, frozenset({name}), whole=True)
        case Call("per_axis", (Name(name) as inner, Literal(place), Literal()), _) if origins.is_parameter(inner):
            texts = (f"{{}} for axis {place}", f"pass {name} of {{}} for axis {place}")
            return Term(PARAMETER, name, value, *texts, frozenset({name}))
        case Attribute(Name(name) as inner, field) if origins.is_parameter(inner):
            texts = (f"{field} to be {{}}", f"pass {name} whose {field} is {{}}")
            return Term(PARAMETER, name, value, *texts, frozenset({name}))
    return None


def _axis(tree: Expression, origins: Origins) -> Term | None:
    """Return the term of an index that some tensor shows as it is, or of the number of a tensor's axes."""
    match tree:
        case Name(name):
            place = origins.place_of(name)
        case Call("len", (Name(name),)):
            place = origins.place_of(name)
            if place is None or place.what != "the shape":
                return None
            texts = ("{} axes", f"pass {place.tensor} of {{}} axes")
            return Term(AXIS, place.tensor, origins.value(tree), *texts, frozenset({name, place.tensor}), whole=True)
        case _:
            return None
    if place is None:
        return None
    tensor, value = place.tensor, origins.value(tree)
    if place.what == "the dtype":
        texts = ("dtype {}", f"pass {tensor} of dtype {{}}")
    elif place.what == "the shape":
        texts, value = ("shape {}", f"pass {tensor} of shape {{}}"), show_shape(_extents(value))
    else:
        texts = (f"{{}} as {place.what}", f"pass {tensor} whose {place.what} is {{}}")
    if not place.passed:
        texts = (texts[0], "change one of these")
    return Term(AXIS, tensor, value, *texts, frozenset({name, tensor}) if place.passed else frozenset())


def _computed(tree: Expression, origins: Origins) -> Term:
    """Return the term of anything else: a constant, or what follows from parameters and axes."""
    leaves = [name for name in origins.leaves(tree) if name in origins.values]
    places = {name: place for name in leaves if (place := origins.place_of(name)) is not None}
    parameters = [name for name in leaves if name in origins.subjects]
    tensors = sorted({place.tensor for name, place in places.items() if name not in parameters})
    if not tensors and not parameters:
        return Term(CONSTANT, "call", origins.value(tree), "{}", "pass other arguments")
    mends = [f"{tensor} of other extents" for tensor in tensors] + [f"another {name}" for name in parameters]
    subject = (tensors or parameters)[0]
    return Term(COMPUTED, subject, origins.value(tree), f"{{}} as {spell(tree)}", f"pass {', or '.join(mends)}")


def _extents(value: object) -> tuple[object, ...]:
    return value if isinstance(value, tuple) else ()
