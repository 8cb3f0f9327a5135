"""Exporting an op class from its family's package without importing the family's other ops."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib import import_module


def export(package: str, modules: Mapping[str, str], name: str) -> object:
    """The attribute `name` of `package`, imported from the submodule that `modules` gives and kept on the package.

    Raises AttributeError for a name that `modules` does not hold, as a package without it would.
    """
    module = modules.get(name)
    if module is None:
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    value: object = getattr(import_module(f"{package}.{module}"), name)
    setattr(sys.modules[package], name, value)
    return value
