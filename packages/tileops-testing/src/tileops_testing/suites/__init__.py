"""The suites: what every op must satisfy eagerly, under `torch.compile` and in a CUDA graph."""

from __future__ import annotations

from tileops_testing.suites.compile_contract import CompileContractSuite
from tileops_testing.suites.cuda_graph import CudaGraphSuite
from tileops_testing.suites.eager import EagerSuite
from tileops_testing.suites.suite import Check, Checks, Suite

__all__ = ["Check", "Checks", "CompileContractSuite", "CudaGraphSuite", "EagerSuite", "Suite"]
