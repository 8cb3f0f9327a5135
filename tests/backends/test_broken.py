"""Backends that fail to load: undone as a whole, warned about once, listed, and chained to what asks for them."""

from __future__ import annotations

from .conftest import Run

RECORDED = """
import traceback, warnings
import torch
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    from tileops.norm import RMSNormFwdOp
    from tileops.backend import load_failures, registered_targets, BackendLoadWarning, UnknownTargetError
    ops = [RMSNormFwdOp((4,)) for _ in range(3)]
warned = [str(item.message) for item in caught if item.category is BackendLoadWarning]
"""

FAILURES = [
    (
        "absent_attribute (tileops-broken 0.1): AttributeError: module 'broken_backend.half' has no attribute "
        "'no_such_function'"
    ),
    ("absent_module (tileops-broken 0.1): ModuleNotFoundError: No module named 'broken_backend.no_such_module'"),
    (
        "raises_in_register (tileops-broken 0.1): RegistrationError: register: op: expected the name of an op in the "
        "manifest, received 'RMSNormFwdOop'; did you mean RMSNormFwdOp"
    ),
    "raises_on_import (tileops-broken 0.1): RuntimeError: no driver for this card",
]


def test_each_broken_backend_is_warned_about_once_and_listed(run: Run) -> None:
    """With its name, its distribution and the exception, one line each; ops work through what is left."""
    program = """
for line in (*warned, "--", *load_failures(), "--", registered_targets()):
    print(line)
print(ops[0](torch.full((1, 4), 3.0)).mean().item() > 0.99, ops[0].serving_target)
"""
    lines = run(RECORDED + program, "broken", "plain_torch")
    warned, listed, rest = lines[:4], lines[5:9], lines[10:]

    assert [line.split(": ")[0] for line in warned] == [
        f"backend {name} of tileops-broken 0.1 failed to load and was left out"
        for name in ("absent_attribute", "absent_module", "raises_in_register", "raises_on_import")
    ]
    assert all(line.endswith("; mend or uninstall the distribution") for line in warned)
    assert all(line.startswith(expected) for line, expected in zip(listed, FAILURES, strict=True))
    assert rest == ["('plain_torch', 'reference')", "True builtin"]


def test_asking_for_a_broken_backend_chains_its_failure(run: Run) -> None:
    """The error lists the known targets and the failures, and the traceback is the backend's own."""
    program = """
for target in ("raises_on_import", "raises_in_register"):
    try:
        RMSNormFwdOp((4,), target=target)(torch.ones(1, 4))
    except UnknownTargetError as error:
        print(str(error).split("; failed to load: ")[0])
        print(str(error).endswith("or leave target out to let the device decide"))
        print(type(error.__cause__).__name__)
        print("broken_backend" in "".join(traceback.format_exception(error)))
"""
    assert run(RECORDED + program, "broken") == [
        "RMSNormFwdOp: target: expected one of ['builtin', 'reference'], received 'raises_on_import'",
        "True",
        "RuntimeError",
        "True",
        "RMSNormFwdOp: target: expected one of ['builtin', 'reference'], received 'raises_in_register'",
        "True",
        "RegistrationError",
        "True",
    ]


def test_two_distributions_that_claim_one_op_and_target(run: Run) -> None:
    """The second is refused as a whole, naming both; the first serves."""
    program = """
print(*load_failures(), sep="\\n")
print(len(warned), registered_targets())
op = RMSNormFwdOp((4,), target="plain_torch")
print(op(torch.full((1, 4), 3.0)).mean().item() > 0.99)
"""
    assert run(RECORDED + program, "rival", "plain_torch") == [
        (
            "rival (tileops-rival 0.2): RegistrationError: builder of RMSNormFwdOp for target 'plain_torch': expected "
            "one registration, received a second from tileops-rival 0.2 after that of tileops-plain-torch 0.1; remove "
            "one of the two, or choose another name"
        ),
        "1 ('plain_torch', 'reference')",
        "True",
    ]


def test_a_plugin_may_construct_ops_while_it_loads(run: Run) -> None:
    """It sees the registry as it is then; afterwards its target is there."""
    program = """
import eager_plugin
print(len(warned), load_failures(), registered_targets("RMSNormFwdOp"))
from tileops_kernels.norm import RMS_NORM_KERNELS
print([seen == tuple(RMS_NORM_KERNELS) for seen in eager_plugin.SEEN])
print(RMSNormFwdOp((4,), target="eager")(torch.ones(1, 4)).sum().item())
"""
    assert run(RECORDED + program, "eager_plugin") == ["0 () ('eager', 'reference')", "[True, True]", "0.0"]


def test_a_plugin_that_is_imported_first_is_loaded_later(run: Run) -> None:
    """Its import constructs an op, which starts discovery; the half-initialised module is left for the next request."""
    program = """
import warnings
warnings.simplefilter("error")
import eager_plugin
import torch
from tileops.backend import load_failures, registered_targets
from tileops.norm import RMSNormFwdOp
print(load_failures(), registered_targets("RMSNormFwdOp"))
print(RMSNormFwdOp((4,), target="eager")(torch.ones(1, 4)).sum().item())
"""
    assert run(program, "eager_plugin") == ["() ('eager', 'reference')", "0.0"]
