"""The floating-point dtypes that kernel types serve, with TileLang's names for them."""

from __future__ import annotations

from collections.abc import Mapping

import torch

FLOATS: Mapping[torch.dtype, str] = {
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
    torch.float32: "float32",
}


def float_refusal(dtype: torch.dtype) -> str | None:
    """None for one of `FLOATS`, else the reason for which a kernel type that serves those alone refuses."""
    if dtype in FLOATS:
        return None
    return f"serves {', '.join(FLOATS.values())}, not {str(dtype).removeprefix('torch.')}"
