"""Tables that an entry keeps: made once, by the entry's factory, from what its call spec says and from nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tileops_kernels.calls import CallSpec
from tileops_kernels.errors import BuildError


def entry_table(call: CallSpec, values: Sequence[float] | Tensor, dtype: torch.dtype) -> Tensor:
    """`values` on the call's device in `dtype`, rounded once: numbers from float64, a tensor from its own dtype.

    Ready for every stream on return.

    An ordinary tensor also where the factory runs under inference mode. Raises BuildError while a CUDA graph is being
    captured: what a capture allocates belongs to its graph.
    """
    device = torch.device("cpu") if call.device is None else call.device
    on_gpu = device.type == "cuda"
    if on_gpu and torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing():
        raise BuildError(
            f"{type(call).__name__}: the table of this call is not made yet and a CUDA graph is being captured; "
            "expected a warmed-up call, received the first one; make the same call once before capturing"
        )
    with torch.inference_mode(mode=False):
        exact = torch.as_tensor(
            values, dtype=values.dtype if isinstance(values, Tensor) else torch.float64, device="cpu"
        )
        table = exact.to(dtype).to(device)
    if on_gpu:
        torch.cuda.current_stream(device).synchronize()
    return table
