"""`python -m downstream`: run the attention, say which kernel types serve it, and compare it with plain PyTorch."""

from __future__ import annotations

import sys

import torch

from downstream.attention import Attention, norm_call, plain_attention, rotation_call
from tileops_kernels.reduction import SoftmaxCall

TOLERANCE = 1e-5
"""Float32 results of a few thousand terms, each term rounded a few times."""


def main() -> int:
    """Print what serves each call and how far the result is from plain PyTorch; 1 if that is too far."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(0)
    query, key, value = (torch.randn(2, 40, 8, 128, device=device) for _ in range(3))
    weight = torch.rand(128, device=device) + 0.5
    attention = Attention()
    result, expected = attention(query, key, value, weight), plain_attention(query, key, value, weight)
    difference = (result - expected).abs().max().item()

    hidden = torch.empty(1, 4096, device=device)
    softmax_call = SoftmaxCall(device=query.device, dtype=query.dtype, result=query.dtype)
    print(f"RMSNorm of heads:  {attention.norms.key_for(norm_call(query))}")
    print(f"RMSNorm of tokens: {attention.norms.key_for(norm_call(hidden))}")
    print(f"RoPE:              {attention.rotations.key_for(rotation_call(query))}")
    print(f"softmax:           {attention.softmaxes.key_for(softmax_call)}")
    print(f"head_norm on tokens: {attention.norms.explain(norm_call(hidden)).passed_over['head_norm']}")
    print(f"within {TOLERANCE} of PyTorch: {difference <= TOLERANCE}")
    return 0 if difference <= TOLERANCE else 1


if __name__ == "__main__":
    sys.exit(main())
