"""RMSNormFwdOp in a CUDA graph from a process that never called it: refused, and usable afterwards."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

pytestmark = pytest.mark.op("RMSNormFwdOp")

COLD_CAPTURE = """
import warnings
import torch
from tileops.norm import RMSNormFwdOp

warnings.filterwarnings("ignore", message="The CUDA Graph is empty")
op, x = RMSNormFwdOp((256,)), torch.randn(8, 256, dtype=torch.float16, device="cuda")
try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        op(x)
except RuntimeError as error:
    print(error)
print(len(list(op.iter_kernels())), op.serving_target)
expected = op(x)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y = op(x)
y.zero_()
graph.replay()
torch.cuda.synchronize()
print(torch.equal(y, expected))
"""


def test_cold_capture_is_refused_in_a_fresh_process(tileops_device: torch.device) -> None:
    """A first call within a capture raises one line that asks for a warm-up; after one, capture and replay work."""
    if tileops_device.type != "cuda":
        pytest.skip(f"CUDA graphs need a CUDA device, the device is {tileops_device}")
    done = subprocess.run(
        [sys.executable, "-c", COLD_CAPTURE], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    refusal, state, replayed = done.stdout.strip().splitlines()
    assert "warm" in refusal
    assert "captur" in refusal
    assert (state, replayed) == ("0 None", "True")
