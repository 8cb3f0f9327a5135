"""References: the one place where what an op means is written in plain PyTorch, a module per family."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping

from tileops_testing.errors import MissingReferenceError
from tileops_testing.references.reference import Expected, Reference

__all__ = ["Expected", "Reference", "family_references", "reference_for"]


def family_references(family: str) -> Mapping[str, Reference]:
    """Return the references of one family by op class name; empty when the family has none."""
    name = f"{__name__}.{family}"
    if importlib.util.find_spec(name) is None:
        return {}
    module = importlib.import_module(name)
    references: Mapping[str, Reference] = module.REFERENCES
    return references


def reference_for(op: str, family: str) -> Reference:
    """Return the reference of one op.

    Raises:
        MissingReferenceError: No reference is written for it.
    """
    references = family_references(family)
    if op not in references:
        known = ", ".join(sorted(references)) or "none"
        raise MissingReferenceError(
            f"{op}: expected a reference in tileops_testing.references.{family}.REFERENCES, found {known}; "
            "write one, or give the case its own `reference=`"
        )
    return references[op]
