"""The device of a call: tensors, then the device parameter, then construction-time tensors, then the accelerator."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tileops.backend import BackendRegistry, OpNotAvailableError
from tileops.op.call import check_signature

from .acme import Acme
from .composites import ones
from .toys import CPU, DoubleFwdOp, RampFwdOp, TableFwdOp


@pytest.fixture
def no_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which torch finds no accelerator."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_: None)


@pytest.fixture
def accelerator(monkeypatch: pytest.MonkeyPatch) -> torch.device:
    """A machine whose accelerator is an xpu, device 3 being current."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda *_: torch.device("xpu"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 3)
    return torch.device("xpu", 3)


@pytest.fixture
def asked(registry: BackendRegistry) -> list[torch.device]:
    """The devices that a detector was asked about; it claims those that are no CPU and no meta device."""
    found: list[torch.device] = []

    def detect(device: torch.device) -> bool:
        found.append(device)
        return device.type == "xpu"

    registry.register_detector("acme", detect)
    return found


def test_the_device_is_first_that_of_the_tensors(accelerator: torch.device, asked: list[torch.device]) -> None:
    """Call-time tensors decide, whatever the accelerator."""
    DoubleFwdOp()(ones(2))

    assert asked == [CPU]


def test_the_device_is_then_the_declared_parameter(accelerator: torch.device, asked: list[torch.device]) -> None:
    """Without tensor inputs, the device parameter decides."""
    assert RampFwdOp(2, torch.float32, CPU)().tolist() == [0.0, 1.0]
    assert asked == [CPU]


def test_the_device_is_then_that_of_construction_time_tensors(asked: list[torch.device]) -> None:
    """Without call-time tensors and a device parameter, tensors passed at construction decide."""
    from tileops.manifest.placement import call_device

    assert call_device(TableFwdOp(torch.ones(2))._construction.values) == CPU


def test_the_device_is_last_the_current_accelerators(accelerator: torch.device, asked: list[torch.device]) -> None:
    """With none of the others, the accelerator's current device decides."""
    with pytest.raises(OpNotAvailableError, match=r"RampFwdOp: target: .* received 'acme'"):
        RampFwdOp(2, torch.float32)()

    assert asked == [accelerator]


def test_the_current_accelerator_is_asked_for_on_every_call(
    accelerator: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One instance follows a change of the current device: its next call is one on that device."""
    op = RampFwdOp(2, torch.float32)
    devices = []
    for index in (3, 4, 3):
        monkeypatch.setattr(torch.accelerator, "current_device_index", lambda index=index: index)
        devices.append(check_signature(op, ()).record.device)

    assert devices == [torch.device("xpu", index) for index in (3, 4, 3)]


def test_with_nothing_to_select_from_the_body_runs_once(no_accelerator: None, asked: list[torch.device]) -> None:
    """No device, no target asked for: no detector is asked, no in-tree kernel is available, nothing is selected."""
    op = RampFwdOp(2, torch.float32)
    for _ in range(2):
        with pytest.raises(OpNotAvailableError) as caught:
            op()
        assert op.serving_target is None

    assert asked == []
    assert str(caught.value) == (
        "RampFwdOp.toy: in-tree kernels do not run on an unknown device; expected a device among ['cpu', 'cuda'], "
        "received an unknown device (toy: runs on cpu, cuda); this process has no accelerator to run on: pass device= "
        "to the op, or state the call spec's device"
    )


def test_a_target_asked_for_serves_without_a_device(no_accelerator: None, registry: BackendRegistry) -> None:
    """A constructor argument or a process default is something to select from."""

    def unreachable() -> Tensor:
        raise RuntimeError("the target's own accelerator is gone")

    acme = Acme(registry, "RampFwdOp", unreachable)
    with pytest.raises(RuntimeError, match="the target's own accelerator is gone"):
        RampFwdOp(2, torch.float32, target="acme")()

    assert (acme.told, acme.parameters) == ([()], [{"n": 2, "dtype": torch.float32, "device": None}])
