"""Exporting an op class from its family's package without importing the family's other ops."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from difflib import get_close_matches
from importlib import import_module


def export(package: str, modules: Mapping[str, str], name: str) -> object:
    """The attribute `name` of `package`, imported from the submodule that `modules` gives and kept on the package.

    Raises AttributeError for a name that `modules` does not hold, as a package without it would, and OpNameError for
    one that another op has, or nearly has: `from package import name` would replace the text of an AttributeError.
    """
    module = modules.get(name)
    if module is None:
        raise missing(package, name)
    value: object = getattr(import_module(f"{package}.{module}"), name)
    setattr(sys.modules[package], name, value)
    return value


def missing(package: str, name: str) -> AttributeError | ImportError:
    """The error for a name that a package does not have; of an op's name, or nearly one, it says where the op is."""
    found = _elsewhere(package, name) if name.endswith("Op") else ""
    if not found:
        return AttributeError(f"module {package!r} has no attribute {name!r}")
    from tileops.errors import OpNameError  # noqa: PLC0415 - read for an error alone

    return OpNameError(f"{package}: expected the name of one of its ops, received {name!r}; {found}", name=package)


def _elsewhere(package: str, name: str) -> str:
    """Where the op of a name is, or which name was meant; empty for names that no op has or nearly has."""
    from tileops.manifest import registry  # noqa: PLC0415 - read for an error alone

    near = get_close_matches(name, registry.names(), n=1)
    if not near:
        return ""
    entry = registry.default().entry(near[0])
    home = f"tileops.{entry.family}"
    if near[0] == name and home == package and entry.status == "implemented":
        return ""
    if entry.status != "implemented":
        return f"{near[0]} has a manifest entry and no class yet"
    if near[0] == name:
        return f"import it from {home}"
    return f"did you mean {near[0]}{'' if home == package else f' of {home}'}?"
