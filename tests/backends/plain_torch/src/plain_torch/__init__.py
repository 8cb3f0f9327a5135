"""The target `plain_torch`: RMSNorm in plain PyTorch, for the device type `privateuseone` and where it is asked for.

`LabTensor` stands for a tensor of that device: it says that it lies there, and holds its elements on the CPU.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import torch
from torch import Tensor

from tileops.backend import BackendRegistry, TensorSpec

DEVICE = "privateuseone"
BUILT: list[tuple[TensorSpec | None, ...]] = []


class LabTensor(Tensor):
    """A tensor on the laboratory's device."""

    held: Tensor

    @staticmethod
    def __new__(cls: type[Self], held: Tensor, index: int = 0) -> Self:
        """The tensor whose elements `held` has, on the card `index`."""
        device = torch.device(DEVICE, index)
        made: Self = Tensor._make_wrapper_subclass(
            cls, held.shape, strides=held.stride(), dtype=held.dtype, device=device
        )
        made.held = held
        return made

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]  # the stub leaves out what torch passes
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Let the operators of tileops run; this device has no others."""
        if func.namespace != "tileops":
            raise NotImplementedError(f"{func} on {DEVICE}")
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Python)):
            return func(*args, **(kwargs or {}))


def build_rms_norm(
    x: TensorSpec, weight: TensorSpec | None, *, normalized_shape: tuple[int, ...], eps: float | None
) -> Callable[[Tensor, Tensor | None], Tensor]:
    """The kernel of RMSNorm for these inputs."""
    BUILT.append((x, weight))
    offset = torch.finfo(torch.float32).eps if eps is None else eps
    axes = tuple(range(-len(normalized_shape), 0))

    def kernel(x: Tensor, weight: Tensor | None) -> Tensor:
        rows = x.held if isinstance(x, LabTensor) else x
        scale = weight.held if isinstance(weight, LabTensor) else weight
        wide = rows.float()
        scaled = wide * torch.rsqrt(wide.square().mean(dim=axes, keepdim=True) + offset)
        result = (scaled if scale is None else scaled * scale.float()).to(rows.dtype).contiguous()
        return LabTensor(result, x.get_device()) if isinstance(x, LabTensor) else result

    return kernel


def register(registry: BackendRegistry) -> None:
    """Claim the laboratory's device, and serve RMSNorm."""
    registry.register_detector("plain_torch", lambda device: device.type == DEVICE)
    registry.register_kernel_builder("RMSNormFwdOp", "plain_torch", build_rms_norm)
