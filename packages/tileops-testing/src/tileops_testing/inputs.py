"""Seeded input tensors: what values they hold and how they lie in memory."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

import torch
from torch import Tensor

__all__ = ["LAYOUTS", "Layout", "TensorInput", "Values", "lay_out", "poison", "poisoned_allocations"]

Layout = Literal["contiguous", "transposed", "expanded", "sliced", "offset"]
"""How a tensor lies in memory.

``transposed``: the last two axes exchanged in storage (one axis: every second element). ``expanded``: stride 0 on
the first axis. ``sliced``: part of longer rows, from an odd column. ``offset``: contiguous, one element into its
storage, hence not aligned for wide accesses.
"""

LAYOUTS: tuple[Layout, ...] = get_args(Layout)

Values = Literal["normal", "small", "positive", "near_one", "large", "integers", "booleans"]
"""What a tensor holds: ``normal`` deviates, ``small`` ones of 1/32, ``positive`` ones in (0, 1], weights ``near_one``,
``large`` ones about 1e4, small non-negative ``integers``, ``booleans``.
"""

_SLICE_START, _SLICE_MARGIN = 3, 5
_DRAWN_AT_ONCE = 1 << 28
"""So many elements are drawn in float32 at a time: of the largest tensors a device holds no such copy as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInput:
    """One input of a case: shape, dtype, layout and kind of values; `make` draws the tensor.

    With `contents`, as metadata has, it holds those whatever the seed. One that must be `contiguous` by the signature
    is so in every layout, in ``offset`` one element into its storage.
    """

    shape: tuple[int, ...]
    dtype: torch.dtype
    layout: Layout = "contiguous"
    values: Values = "normal"
    contents: Tensor | None = field(default=None, compare=False)
    contiguous: bool = False

    def make(self, seed: int, device: torch.device) -> Tensor:
        """Return the tensor that ``seed`` stands for: equal arguments give equal elements on one device type."""
        if self.contents is not None:
            return lay_out(self.contents.to(device, copy=True), self.layout)
        generator = torch.Generator(device=device).manual_seed(seed)
        return lay_out(_draw_all(self, generator, device), self.layout)

    def with_layout(self, layout: Layout) -> TensorInput:
        """Return the same input lying otherwise in memory, where the signature allows it."""
        return replace(self, layout="contiguous" if self.contiguous and layout != "offset" else layout)


def _draw_all(spec: TensorInput, generator: torch.Generator, device: torch.device) -> Tensor:
    total = math.prod(spec.shape)
    if total <= _DRAWN_AT_ONCE:
        return _draw(spec, generator, device)
    drawn = torch.empty(spec.shape, dtype=spec.dtype, device=device)
    for piece in drawn.view(-1).split(_DRAWN_AT_ONCE):
        piece.copy_(_draw(replace(spec, shape=(piece.numel(),)), generator, device))
    return drawn


def _draw(spec: TensorInput, generator: torch.Generator, device: torch.device) -> Tensor:
    if spec.values == "booleans" or spec.dtype is torch.bool:
        return torch.randint(0, 2, spec.shape, generator=generator, device=device).to(torch.bool)
    if spec.values == "integers" or not (spec.dtype.is_floating_point or spec.dtype.is_complex):
        return torch.randint(0, 64, spec.shape, generator=generator, device=device).to(spec.dtype)
    if spec.dtype.is_complex:
        return _draw_complex(spec, generator, device)
    drawn = torch.randn(spec.shape, generator=generator, device=device, dtype=torch.float32)
    if spec.values == "positive":
        drawn = drawn.abs_().clamp_(2.0**-10, 8.0).div_(8.0)
    elif spec.values == "small":
        drawn = drawn.div_(32.0)
    elif spec.values == "near_one":
        drawn = drawn.mul_(0.1).add_(1.0)
    elif spec.values == "large":
        drawn = drawn.mul_(100.0).add_(1e4)
    return drawn.to(spec.dtype)


def _draw_complex(spec: TensorInput, generator: torch.Generator, device: torch.device) -> Tensor:
    """Return elements of which each part is drawn as a tensor of its own would be."""
    parts = replace(spec, shape=(*spec.shape, 2), dtype=spec.dtype.to_real())
    return torch.view_as_complex(_draw(parts, generator, device))


def lay_out(tensor: Tensor, layout: Layout) -> Tensor:
    """Return a tensor of the same shape in ``layout``, with equal elements.

    ``expanded`` is the exception: it repeats the first slice along the first axis. A tensor without
    axes has one layout only and is returned in it.
    """
    if tensor.ndim == 0 or layout == "contiguous":
        return tensor.contiguous()
    if layout == "expanded":
        return tensor[:1].contiguous().expand(tensor.shape)
    if layout == "transposed":
        return _transposed(tensor)
    if layout == "offset":
        storage = tensor.new_empty(tensor.numel() + 1)
        return poison(storage)[1:].view(tensor.shape).copy_(tensor)
    length = tensor.shape[-1]
    storage = poison(tensor.new_empty((*tensor.shape[:-1], length + _SLICE_MARGIN)))
    return storage[..., _SLICE_START : _SLICE_START + length].copy_(tensor)


def _transposed(tensor: Tensor) -> Tensor:
    if tensor.ndim == 1:
        return poison(tensor.new_empty(2 * tensor.shape[0]))[::2].copy_(tensor)
    return tensor.transpose(-1, -2).contiguous().transpose(-1, -2)


def poison(tensor: Tensor) -> Tensor:
    """Fill ``tensor`` in place with what no right result holds (NaN, or the dtype's largest number), return it."""
    if tensor.dtype.is_floating_point or tensor.dtype.is_complex:
        return tensor.fill_(float("nan"))
    if tensor.dtype is torch.bool:
        return tensor.fill_(True)
    return tensor.fill_(torch.iinfo(tensor.dtype).max)


@contextlib.contextmanager
def poisoned_allocations() -> Iterator[None]:
    """While active, every tensor that torch allocates without initialising it holds NaN (integers: the largest).

    An element that a kernel does not write is thus never right by luck.
    """
    mode = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    fill = torch.utils.deterministic.fill_uninitialized_memory  # type: ignore[attr-defined]
    torch.use_deterministic_algorithms(True, warn_only=False)
    torch.utils.deterministic.fill_uninitialized_memory = True  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(mode, warn_only=warn_only)
        torch.utils.deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]
