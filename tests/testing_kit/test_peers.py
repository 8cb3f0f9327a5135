"""Peers: torch's form of each norm, rope and expert op gives the reference's values, Liger's is called as it asks."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Mapping
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from tileops_testing.bench.peers import peers_for
from tileops_testing.bench.runner import Runner
from tileops_testing.bench.timing import Timing
from tileops_testing.catalog import family_of, implemented_ops, op_class
from tileops_testing.workload_cases import cases_of, workload_cases

OPS = {op.__name__: op for op in implemented_ops((), ("norm", "rope"))}
MIXTURES = ("FusedMoEExpertsFwdOp", "IndexedExpertMLPFwdOp", "MoEGroupedGemmFwdOp", "SharedExpertMLPFwdOp")
CPU, GPU = torch.device("cpu"), torch.device("cuda", 0)


class NoTimer:
    """Finds that everything takes a second."""

    def time(self, functions: Mapping[str, Callable[[], object]]) -> dict[str, Timing]:
        return dict.fromkeys(functions, Timing(1.0, (1.0,)))


LIGER = {
    "RMSNormFwdOp": ("rms_norm", "LigerRMSNormFunction"),
    "LayerNormFwdOp": ("layer_norm", "LigerLayerNormFunction"),
    "FusedAddRMSNormFwdOp": ("fused_add_rms_norm", "LigerFusedAddRMSNormFunction"),
    "GroupNormFwdOp": ("group_norm", "LigerGroupNormFunction"),
    "SoftmaxFwdOp": ("softmax", "LigerSoftmaxFunction"),
}


@pytest.mark.parametrize("name", OPS)
def test_torch_states_every_op(name: str) -> None:
    """Every norm and rope op has torch's form of it and inductor's, and torch's agrees with the reference."""
    peers = peers_for(name, family_of(name))
    assert peers is not None
    for case in cases_of(OPS[name], small=True):
        found = peers.implementations(case, CPU)
        assert list(found) == ["torch", "inductor"]
        if all(tensor is None or tensor.numel() for tensor in case.tensors(CPU)):
            op: Any = case.on(CPU).construct()
            Runner(op, case, timer=NoTimer()).compare({"torch": found["torch"]})


@pytest.mark.parametrize("name", MIXTURES)
def test_every_way_to_compute_experts_agrees(name: str) -> None:
    """Each peer that a CPU has gives the reference's values, of what an op returns and of what it writes."""
    peers = peers_for(name, "moe")
    assert peers is not None
    compared = 0
    for case in [case.capped() for case in cases_of(op_class(name), small=True)]:
        if all(tensor is None or tensor.numel() for tensor in case.tensors(CPU)):
            found = {key: run for key, run in peers.implementations(case, CPU).items() if key != "inductor"}
            op: Any = case.construct()
            Runner(op, case, timer=NoTimer()).compare(found)
            compared += len(found)
    assert compared


@pytest.mark.parametrize("name", LIGER)
def test_liger_is_called_as_it_asks(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where Liger is installed and has the op, its function gets tensors first, then eps and what else it takes."""
    module, function = LIGER[name]
    package, called = ModuleType("liger_kernel"), []
    stand_in = SimpleNamespace(**{function: SimpleNamespace(apply=lambda *given: called.append(given))})
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda path: package if path.startswith("liger") else real(path))
    monkeypatch.setitem(sys.modules, "liger_kernel", package)
    monkeypatch.setitem(sys.modules, f"liger_kernel.ops.{module}", stand_in)
    peers = peers_for(name, family_of(name))
    assert peers is not None
    case = next(case for case in workload_cases(op_class(name)) if None not in case.inputs(case.sizes).values())
    peers.implementations(case, GPU)["liger"](*(tensors := [torch.ones(2, 4)] * len(case.inputs(case.sizes))))
    (given,) = called
    assert all(found is tensor for found, tensor in zip(given, tensors, strict=False))
    assert (
        given[len(tensors) :]
        == {
            "RMSNormFwdOp": (torch.finfo(torch.float32).eps, 0.0, "llama", False),
            "LayerNormFwdOp": (1e-5,),
            "FusedAddRMSNormFwdOp": (1e-6, 0.0, "llama", False),
            "GroupNormFwdOp": (4, case.parameters.get("num_groups"), 1e-5),
            "SoftmaxFwdOp": (),
        }[name]
    )


def test_liger_is_left_out_on_a_cpu() -> None:
    """Triton kernels need a GPU."""
    case = workload_cases(OPS["RMSNormFwdOp"])[0]
    peers = peers_for("RMSNormFwdOp", "norm")
    assert peers is not None
    assert "liger" not in peers.implementations(case, CPU)


@pytest.mark.parametrize(
    ("device", "installed", "found"),
    [(GPU, True, ["torch", "inductor"]), (GPU, False, ["torch"]), (CPU, False, ["torch", "inductor"])],
)
def test_inductor_is_left_out_where_it_cannot_compile(
    device: torch.device, installed: bool, found: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No peer is required: without Triton the ops are measured against what else there is on CUDA."""
    real = importlib.util.find_spec
    stand_in = ModuleType("triton") if installed else None
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: stand_in if name == "triton" else real(name))
    peers = peers_for("RMSNormFwdOp", "norm")
    assert peers is not None
    assert list(peers.available(workload_cases(OPS["RMSNormFwdOp"])[0], device)) == found
