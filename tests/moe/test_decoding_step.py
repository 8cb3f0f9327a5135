"""A decoder's step around a mixture of experts, captured in a CUDA graph."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.moe.test_fused_moe import arguments, assert_near, shared_weights
from tileops.moe import FusedMoESharedExpertFwdOp
from tileops.norm import RMSNormFwdOp
from tileops_testing.graphs import CudaGraphRecorder
from tileops_testing.inputs import TensorInput
from tileops_testing.numerics import assert_identical

pytestmark = pytest.mark.op("FusedMoESharedExpertFwdOp")


@pytest.mark.parametrize("compiles", [False, True], ids=["plain", "compiled"])
@pytest.mark.parametrize("m", [1, 3, 40])
def test_a_decoding_step_is_one_cuda_graph(m: int, compiles: bool, tileops_device: torch.device) -> None:
    """Norm, router, mixture and residual replay on new activations, whose tokens other experts get."""
    if tileops_device.type != "cuda":
        pytest.skip(f"CUDA graphs need a CUDA device, the device is {tileops_device}")
    op, norm = FusedMoESharedExpertFwdOp(2, renormalize=True, num_experts=6), RMSNormFwdOp((128,))
    x, _, gate_up, down = arguments(m, tileops_device, h=128, f=256)
    weights = shared_weights(128, 48, tileops_device)
    router, scale = (
        TensorInput(shape=shape, dtype=torch.bfloat16).make(5, tileops_device) for shape in ((6, 128), (128,))
    )

    def step(x: Tensor) -> Tensor:
        hidden = norm(x, scale)
        shared, routed = op(hidden, (hidden @ router.T).float(), gate_up, down, None, *weights)
        assert shared is not None
        return x + shared + routed

    run = torch.compile(step, fullgraph=True) if compiles else step
    run(x)
    recorder = CudaGraphRecorder()
    replayed = recorder.capture(lambda: run(x))
    for seed in range(3):
        x.copy_(torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)))
        recorder.replay()
        assert_identical(replayed, run(x))
        assert_near(replayed, step(x).float())
