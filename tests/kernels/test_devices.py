"""The current CUDA device: left alone where it is the one that is asked for, and after a launch what it was."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest
import torch

from tests.kernels.launches import CurrentDevice, Launches
from tileops_kernels.devices import STATED_FACTS, is_current, made_current
from tileops_kernels.norm import (
    BatchNormBwdCall,
    BatchNormInferCall,
    BatchNormTrainCall,
    GroupNormCall,
    InstanceNormTrainCall,
    LayerNormCall,
)
from tileops_kernels.norm.batch_norm import BatchNormInferKernel, BatchNormTrainKernel
from tileops_kernels.norm.batch_norm_bwd import BatchNormBwdKernel
from tileops_kernels.norm.group_norm import GroupNormOnChipKernel, GroupNormSharedKernel
from tileops_kernels.norm.instance_norm import InstanceNormTrainKernel
from tileops_kernels.norm.layer_norm import LayerNormOnChipKernel

CUDA: Final[Mapping[str, Any]] = {"device": torch.device("cuda", 0), "facts": STATED_FACTS[90], "dtype": torch.float16}
NORM: Final[Mapping[str, Any]] = {**CUDA, "eps": 1e-5}
MOVING: Final[Mapping[str, Any]] = {**NORM, "length": 64, "momentum": 0.1}
X, ROWS, ONES = torch.randn(2, 3, 8, 8).half(), torch.randn(2, 64).half(), torch.ones(3)

KERNELS: Final[Mapping[str, Callable[[], object]]] = {
    "batch_norm_train": lambda: BatchNormTrainKernel(BatchNormTrainCall(**MOVING))(X, ONES, ONES, None, ONES),
    "batch_norm_infer": lambda: BatchNormInferKernel(BatchNormInferCall(**NORM, length=64))(X, ONES, ONES, ONES, None),
    "batch_norm_bwd": lambda: BatchNormBwdKernel(BatchNormBwdCall(**CUDA, length=64))(X, X, ONES, ONES, ONES),
    "instance_norm_train": lambda: InstanceNormTrainKernel(InstanceNormTrainCall(**MOVING))(X, ONES, ONES, None, None),
    "group_norm_shared": lambda: GroupNormSharedKernel(GroupNormCall(**NORM, n=192, span=3))(X, None, None),
    "group_norm_on_chip": lambda: GroupNormOnChipKernel(GroupNormCall(**NORM, n=192, span=3))(X, None, None),
    "layer_norm_on_chip": lambda: LayerNormOnChipKernel(LayerNormCall(**NORM, n=64))(ROWS, None, None),
}
"""A call of each kernel type that launches on its own."""

each_kernel = pytest.mark.parametrize("call", KERNELS.values(), ids=KERNELS)


def test_the_current_device_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is asked of the driver where a tensor's device is the current one."""
    current = CurrentDevice(monkeypatch, 1)
    assert is_current(torch.device("cuda", 1))
    with made_current(torch.device("cuda", 1)):
        assert current.index == 1
    assert current.entered == []


def test_another_device_is_current_for_as_long_as_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor's device is made current, and the one before it again after."""
    current = CurrentDevice(monkeypatch, 1)
    assert not is_current(torch.device("cuda", 0))
    with made_current(torch.device("cuda", 0)):
        assert current.index == 0
    assert (current.index, current.entered) == (1, [torch.device("cuda", 0)])


@each_kernel
def test_a_launch_on_the_current_device_leaves_it_alone(
    call: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel makes no device current where its tensors' device is."""
    launches = Launches(monkeypatch)
    call()
    assert (launches.indices, launches.current.entered) == ([None], [])


@each_kernel
def test_a_launch_on_another_device_makes_it_current(
    call: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where another device is current, the tensors' own is while a program launches, and the other again after."""
    launches = Launches(monkeypatch)
    launches.current.index = 1
    call()
    assert (launches.indices, launches.current.entered, launches.current.index) == ([None], [X.device], 1)


@each_kernel
def test_a_launch_that_fails_leaves_the_current_device(
    call: Callable[[], object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error from a launch passes, and the device that was current is again."""
    launches = Launches(monkeypatch)
    launches.current.index = 1

    def fail(*_: object) -> None:
        raise RuntimeError("no launch")

    monkeypatch.setattr(launches, "run", fail)
    with pytest.raises(RuntimeError, match="no launch"):
        call()
    assert (launches.current.entered, launches.current.index) == ([X.device], 1)
