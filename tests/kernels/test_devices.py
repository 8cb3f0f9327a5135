"""The current CUDA device: left alone where it is the one that is asked for."""

from __future__ import annotations

import pytest
import torch

from tileops_kernels.devices import is_current, made_current


@pytest.fixture
def entered(monkeypatch: pytest.MonkeyPatch) -> list[torch.device]:
    """The devices that are made current, with device 1 as the current one."""
    found: list[torch.device] = []

    class Current:
        def __init__(self, device: torch.device) -> None:
            self.device = device

        def __enter__(self) -> None:
            found.append(self.device)

        def __exit__(self, *_: object) -> None:
            found.append(torch.device("cuda", 1))

    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: 1, raising=False)
    monkeypatch.setattr(torch.cuda, "device", Current)
    return found


def test_the_current_device_is_left_alone(entered: list[torch.device]) -> None:
    """Nothing is asked of the driver where a tensor's device is the current one."""
    assert is_current(torch.device("cuda", 1))
    with made_current(torch.device("cuda", 1)):
        assert entered == []
    assert entered == []


def test_another_device_is_current_for_as_long_as_asked(entered: list[torch.device]) -> None:
    """A tensor's device is made current, and the one before it again after."""
    assert not is_current(torch.device("cuda", 0))
    with made_current(torch.device("cuda", 0)):
        assert entered == [torch.device("cuda", 0)]
    assert entered == [torch.device("cuda", 0), torch.device("cuda", 1)]
