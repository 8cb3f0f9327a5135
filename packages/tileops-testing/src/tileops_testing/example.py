"""The README's example: RMSNorm, called eagerly and compiled."""

import torch

from tileops.norm import RMSNormFwdOp

device = "cuda" if torch.cuda.is_available() else "cpu"
x, weight = torch.randn(2048, 4096, device=device), torch.ones(4096, device=device)
op = RMSNormFwdOp(normalized_shape=(4096,))


def model(x: torch.Tensor) -> torch.Tensor:
    return op(x, weight).relu()


eager, compiled = model(x), torch.compile(model, fullgraph=True)(x)
print(tuple(eager.shape), eager.dtype, torch.equal(eager, compiled))
