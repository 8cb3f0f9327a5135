"""The registry by itself: what a registration is held to, and how a failed load leaves no trace."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable
from importlib.metadata import EntryPoint
from typing import Any, cast

import pytest
import torch

from tileops import backend
from tileops.backend import (
    BUILTIN,
    BackendLoadWarning,
    BackendRegistry,
    Discovery,
    RegistrationError,
    TensorSpec,
    UnknownTargetError,
    load_failures,
    register_kernel_builder,
)
from tileops_kernels.errors import BackendError
from tileops_kernels.kernel import Kernel


@pytest.fixture
def registry() -> BackendRegistry:
    """A registry that knows two ops."""
    return BackendRegistry(lambda: ("AddFwdOp", "MulFwdOp"))


def build(*specs: Any, **parameters: Any) -> Any:
    """A builder."""
    return lambda *tensors: None


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (
            lambda r: r.register_kernel_builder("AdFwdOp", "acme", build),
            (
                "register: op: expected the name of an op in the manifest, received 'AdFwdOp'; did you mean AddFwdOp "
                "or MulFwdOp?"
            ),
        ),
        (
            lambda r: r.register_kernel_type("Completely", "key", Kernel),
            (
                "register: op: expected the name of an op in the manifest, received 'Completely'; see "
                "tileops.manifest.registry.names()"
            ),
        ),
        (
            lambda r: r.register_kernel_builder("AddFwdOp", BUILTIN, build),
            ("register: target: expected a name of your own, received 'builtin'; 'builtin' means the in-tree kernels"),
        ),
        (
            lambda r: r.register_detector("", lambda _: False),
            "register: target: expected a name of your own, received ''; 'builtin' means the in-tree kernels",
        ),
        (
            lambda r: r.register_kernel_builder("AddFwdOp", "acme", cast("Any", None)),
            ("builder of AddFwdOp for target 'acme': expected a callable, received None; pass the function itself"),
        ),
        (
            lambda r: r.register_detector("acme", cast("Any", True)),
            "detector of target 'acme': expected a callable, received True; pass the function itself",
        ),
        (
            lambda r: [r.register_kernel_builder("AddFwdOp", "acme", build) for _ in range(2)],
            (
                "builder of AddFwdOp for target 'acme': expected one registration, received a second from module "
                "tests.backends.test_registry after that of module tests.backends.test_registry; remove one of the "
                "two, or choose another name"
            ),
        ),
        (
            lambda r: [r.register_kernel_type("AddFwdOp", "fast", Kernel) for _ in range(2)],
            (
                "kernel type 'fast' of AddFwdOp: expected one registration, received a second from module "
                "tileops_kernels.kernel after that of module tileops_kernels.kernel; remove one of the two, or choose "
                "another name"
            ),
        ),
    ],
)
def test_a_registration_that_cannot_stand_is_refused(
    wrong: Callable[[BackendRegistry], Any], message: str, registry: BackendRegistry
) -> None:
    """At once, naming what was expected and received, who has it, and the mend."""
    with pytest.raises(RegistrationError) as caught:
        wrong(registry)

    assert str(caught.value) == message
    assert isinstance(caught.value, (BackendError, ValueError))


def test_a_second_registration_names_both_owners(registry: BackendRegistry) -> None:
    """Inside a load the owner is the distribution."""
    with registry.registering("acme 1.0"):
        registry.register_detector("acme", lambda _: False)
    with (
        pytest.raises(RegistrationError, match=r"a second from bolt 2\.0 after that of acme 1\.0"),
        registry.registering("bolt 2.0"),
    ):
        registry.register_detector("acme", lambda _: False)


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failed_load_leaves_nothing(error: type[BaseException], registry: BackendRegistry) -> None:
    """Everything that it registered is undone, and nothing that others did."""
    registry.register_detector("before", lambda _: False)

    def load() -> None:
        with registry.registering("acme 1.0"):
            registry.register_detector("acme", lambda _: True)
            registry.register_kernel_builder("AddFwdOp", "acme", build)
            registry.register_kernel_type("AddFwdOp", "fast", Kernel)
            raise error

    with pytest.raises(error):
        load()

    assert registry.registered_targets() == ("before",)
    assert (registry.kernel_types_of("AddFwdOp"), registry.builder_of("AddFwdOp", "acme")) == ({}, None)


def test_a_registration_during_a_failed_load_of_another_thread_stays(registry: BackendRegistry) -> None:
    """It waits for the load to end, and is not undone with it."""
    loading = threading.Event()

    def other() -> None:
        loading.wait()
        registry.register_detector("other", lambda _: False)

    thread = threading.Thread(target=other)

    def load() -> None:
        with registry.registering("acme 1.0"):
            registry.register_detector("acme", lambda _: True)
            loading.set()
            thread.join(0.05)
            raise RuntimeError("no driver")

    thread.start()
    with pytest.raises(RuntimeError, match="no driver"):
        load()
    thread.join()

    assert registry.registered_targets() == ("other",)


def test_targets_are_listed_sorted_and_by_op(registry: BackendRegistry) -> None:
    """Those with a detector or a builder; BUILTIN is not among them."""
    registry.register_detector("zeta", lambda _: False)
    registry.register_kernel_builder("AddFwdOp", "acme", build)

    assert registry.registered_targets() == ("acme", "zeta")
    assert (registry.registered_targets("AddFwdOp"), registry.registered_targets("MulFwdOp")) == (("acme",), ())
    with pytest.raises(RegistrationError, match="did you mean AddFwdOp"):
        registry.registered_targets("AddFwdO")


def test_the_default_target(registry: BackendRegistry) -> None:
    """A known name, BUILTIN, or None to let detection decide again."""
    registry.register_kernel_builder("AddFwdOp", "acme", build)
    kept = []
    for name in ("acme", BUILTIN, None):
        registry.set_default_target(name)
        kept.append(registry.default_target)

    assert kept == ["acme", BUILTIN, None]
    with pytest.raises(UnknownTargetError, match=r"set_default_target: target: expected one of \['builtin', 'acme'\]"):
        registry.set_default_target("bolt")


def point(name: str, value: str) -> EntryPoint:
    """An entry point of no distribution."""
    return EntryPoint(name, value, "tileops.backends")


def test_an_interrupted_discovery_goes_on_at_the_next_request(registry: BackendRegistry) -> None:
    """What has loaded stays, what has not is loaded then."""
    found = [
        point("a", "tests.backends.test_registry:interrupts"),
        point("b", "tests.backends.test_registry:registers"),
    ]
    discovery = Discovery(registry, find=lambda: found)
    with pytest.raises(KeyboardInterrupt):
        discovery.load()
    discovery.load()
    discovery.load()

    assert registry.registered_targets() == ("acme",)
    assert registry.load_failures() == ()


def interrupts(registry: BackendRegistry) -> None:
    """Is stopped by the user."""
    registry.register_detector("gone", lambda _: False)
    raise KeyboardInterrupt


def registers(registry: BackendRegistry) -> None:
    """Registers a target."""
    registry.register_detector("acme", lambda _: False)


def test_warnings_as_errors_do_not_hide_the_other_backends(registry: BackendRegistry) -> None:
    """Where the warning is raised, the next request loads the rest and does not warn again."""
    found = [point("a", "tests.backends.absent"), point("b", "tests.backends.test_registry:registers")]
    discovery = Discovery(registry, find=lambda: found)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(BackendLoadWarning) as caught:
            discovery.load()
        discovery.load()

    assert str(caught.value) == (
        "backend a of tests.backends.absent failed to load and was left out: ModuleNotFoundError: No module named "
        "'tests.backends.absent'; mend or uninstall the distribution"
    )

    assert registry.registered_targets() == ("acme",)
    assert len(registry.load_failures()) == 1


def test_a_spec_holds_facts_alone() -> None:
    """Device, dtype and shape: hashable, frozen, no tensor."""
    spec = TensorSpec(torch.device("cpu"), torch.float32, (2,))

    assert hash(spec) == hash(TensorSpec(torch.device("cpu"), torch.float32, (2,)))
    with pytest.raises(AttributeError):
        spec.shape = (3,)  # type: ignore[misc]


def test_the_package_exports_what_a_backend_needs() -> None:
    """The functions and types of a backend's author, each with a docstring, and the errors that they may meet."""
    functions = {
        "register_kernel_type",
        "register_detector",
        "register_kernel_builder",
        "set_default_target",
        "default_target",
        "registered_targets",
        "load_failures",
    }
    errors = {"UnknownTargetError", "AmbiguousTargetError", "OpNotAvailableError", "RegistrationError"}

    assert {*functions, *errors, "BackendError", "TensorSpec", "BUILTIN"} <= set(backend.__all__)
    assert [name for name in functions if not getattr(backend, name).__doc__] == []
    assert [name for name in errors if not issubclass(getattr(backend, name), BackendError)] == []


def test_this_process_loads_without_failures() -> None:
    """The environment of these tests has no broken backend; an unknown op is refused by the process's functions too."""
    assert load_failures() == ()
    with pytest.raises(RegistrationError, match="did you mean RMSNormFwdOp"):
        register_kernel_builder("RMSNormFwdOpp", "acme", build)
