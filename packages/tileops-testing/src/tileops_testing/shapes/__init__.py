"""Further shapes for tests, beside the manifest's workload rows: edges that no model has, a module per family."""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping, Sequence

from tileops.manifest.model import WorkloadRow

__all__ = ["rows_for"]


def rows_for(op: str, family: str) -> Sequence[WorkloadRow]:
    """Return the further rows of one op, none when its family has no such module."""
    name = f"{__name__}.{family}"
    if importlib.util.find_spec(name) is None:
        return ()
    rows: Mapping[str, Sequence[WorkloadRow]] = importlib.import_module(name).ROWS
    return rows.get(op, ())
