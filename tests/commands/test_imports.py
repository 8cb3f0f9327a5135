"""Imports of ops by a wrong name or from a wrong place: the error says where the op is."""

from __future__ import annotations

from importlib import import_module

import pytest

from tileops.errors import OpNameError


@pytest.mark.parametrize(
    ("package", "name", "mend"),
    [
        ("tileops", "RMSNormOp", "did you mean RMSNormFwdOp of tileops.norm?"),
        ("tileops", "RMSNormFwdOp", "import it from tileops.norm"),
        ("tileops.norm", "RMSNormOp", "did you mean RMSNormFwdOp?"),
        ("tileops.norm", "SoftmaxFwdOp", "import it from tileops.reduction"),
        ("tileops.elementwise", "ClampTensorFwdOp", "ClampTensorFwdOp has a manifest entry and no class yet"),
        ("tileops.norm", "ClampTensorFwdOp", "ClampTensorFwdOp has a manifest entry and no class yet"),
    ],
)
def test_a_wrong_import_says_where_the_op_is(package: str, name: str, mend: str) -> None:
    """The text survives `from package import name`, which a module's own AttributeError would not."""
    with pytest.raises(OpNameError) as failure:
        exec(f"from {package} import {name}")
    assert str(failure.value) == f"{package}: expected the name of one of its ops, received {name!r}; {mend}"


@pytest.mark.parametrize("package", ["tileops", "tileops.norm"])
def test_other_names_are_missing_as_elsewhere(package: str) -> None:
    """What looks like no op is an AttributeError, so that `hasattr` and submodules work."""
    module = import_module(package)
    with pytest.raises(AttributeError, match=f"^module '{package}' has no attribute 'softmax'$"):
        module.softmax  # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'softmax'"):
        exec(f"from {package} import softmax")
    assert not hasattr(module, "__wrapped__")
