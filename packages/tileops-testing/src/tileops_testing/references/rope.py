"""What each op of the rope family means, in plain PyTorch and float64."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from tileops_testing.references.reference import Reference

__all__ = [
    "REFERENCES",
    "long_rope_fwd",
    "rope_fwd",
    "rope_llama31_fwd",
    "rope_neox_position_ids_fwd",
    "rotated",
    "yarn_fwd",
]


def rotated(x: Tensor, frequencies: Tensor, *, input_layout: str, interleaved: bool, amplitude: float = 1.0) -> Tensor:
    """Return ``x`` in float64 with pair k of token i turned by ``i * frequencies[k]`` and made ``amplitude`` as long.

    Tokens are ``[S, D]``, or ``[B, S, H, D]`` in layout "2d". A pair is two neighbours if ``interleaved``, else element
    k and the one half of D further on.
    """
    length, pairs = x.shape[0 if input_layout == "1d" else 1], x.shape[-1] // 2
    places = torch.arange(length, dtype=torch.float64, device=x.device)
    angles = places[:, None] * frequencies.to(x.device)
    if input_layout == "2d":
        angles = angles[:, None, :]
    cosines, sines = amplitude * angles.cos(), amplitude * angles.sin()
    pair = (pairs, 2) if interleaved else (2, pairs)
    axis = -1 if interleaved else -2
    first, second = x.double().unflatten(-1, pair).unbind(axis)
    turned = [first * cosines - second * sines, second * cosines + first * sines]
    return torch.stack(turned, dim=axis).flatten(-2)


def _terms(x: Tensor, *, amplitude: float, interleaved: bool) -> Tensor:
    """Return the length of each element's pair, which bounds the terms that may cancel in it."""
    pairs = x.shape[-1] // 2
    wide = x.double()
    axis = -1 if interleaved else -2
    wide = wide.unflatten(-1, (pairs, 2) if interleaved else (2, pairs))
    lengths: Tensor = amplitude * math.sqrt(2) * wide.square().sum(dim=axis, keepdim=True).sqrt()
    return lengths.expand_as(wide).flatten(-2)


def _plain(x: Tensor, base: float) -> Tensor:
    width = x.shape[-1]
    return torch.pow(base, torch.arange(0, width, 2, dtype=torch.float64) * (-1.0 / max(width, 1)))


def _long(
    x: Tensor,
    *,
    base: float = 10000.0,
    rescale_factors: Tensor | None = None,
    max_position_embeddings: int = 4096,
    original_max_position_embeddings: int = 4096,
    input_layout: str = "1d",
) -> dict[str, Any]:
    frequencies = _plain(x, base)
    if rescale_factors is not None:
        frequencies = frequencies / rescale_factors.double().cpu()
    extension = max_position_embeddings / original_max_position_embeddings
    amplitude = 1.0
    if extension > 1:
        amplitude = math.sqrt(1 + math.log(extension) / math.log(original_max_position_embeddings))
    return {"frequencies": frequencies, "amplitude": amplitude, "input_layout": input_layout, "interleaved": False}


def _llama31(
    x: Tensor,
    *,
    base: float = 10000.0,
    scale_factor: float = 8.0,
    low_freq_factor: float = 1.0,
    high_freq_factor: float = 4.0,
    original_max_position: int = 8192,
    input_layout: str = "1d",
) -> dict[str, Any]:
    frequencies = []
    for frequency in _plain(x, base).tolist():
        wavelength = 2 * math.pi / frequency if frequency else math.inf
        if wavelength < original_max_position / high_freq_factor:
            frequencies.append(frequency)
        elif wavelength > original_max_position / low_freq_factor:
            frequencies.append(frequency / scale_factor)
        else:
            turns = original_max_position / wavelength
            smooth = (turns - low_freq_factor) / (high_freq_factor - low_freq_factor)
            frequencies.append((1 - smooth) * frequency / scale_factor + smooth * frequency)
    return {
        "frequencies": torch.tensor(frequencies, dtype=torch.float64),
        "input_layout": input_layout,
        "interleaved": False,
    }


def _yarn(
    x: Tensor,
    *,
    base: float = 10000.0,
    scale: float = 16.0,
    original_max_position: int = 4096,
    beta_fast: float = 32.0,
    beta_slow: float = 1.0,
    attn_factor: float = 1.0,
    input_layout: str = "1d",
) -> dict[str, Any]:
    width = x.shape[-1]

    def place(turns: float) -> float:
        return width * math.log(original_max_position / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = max(math.floor(place(beta_fast)), 0), min(math.ceil(place(beta_slow)), width - 1)
    ramp_width = high - low or 0.001
    frequencies = []
    for pair, frequency in enumerate(_plain(x, base).tolist()):
        ramp = min(max((pair - low) / ramp_width, 0.0), 1.0)
        frequencies.append(frequency / scale * ramp + frequency * (1 - ramp))
    return {
        "frequencies": torch.tensor(frequencies, dtype=torch.float64),
        "amplitude": attn_factor * (0.1 * math.log(scale) + 1 if scale > 1 else 1.0),
        "input_layout": input_layout,
        "interleaved": False,
    }


def rope_fwd(x: Tensor, *, rope_layout: str = "neox", base: float = 10000.0, input_layout: str = "1d") -> Tensor:
    """Return ``x`` with pair k of token i turned by ``i * base ** (-2 * k / D)``."""
    return rotated(x, _plain(x, base), input_layout=input_layout, interleaved=rope_layout == "interleaved")


def rope_terms(x: Tensor, *, rope_layout: str = "neox", **_: object) -> Tensor:
    """Return the terms behind each element of `rope_fwd`."""
    return _terms(x, amplitude=1.0, interleaved=rope_layout == "interleaved")


def long_rope_fwd(x: Tensor, **parameters: Any) -> Tensor:
    """Return ``x`` with pairs turned slower by their rescale factor, and longer where the context is extended."""
    return rotated(x, **_long(x, **parameters))


def long_rope_terms(x: Tensor, **parameters: Any) -> Tensor:
    """Return the terms behind each element of `long_rope_fwd`."""
    return _terms(x, amplitude=_long(x, **parameters)["amplitude"], interleaved=False)


def rope_llama31_fwd(x: Tensor, **parameters: Any) -> Tensor:
    """Return ``x`` with pairs of long wavelength turned slower, and those between mixed."""
    return rotated(x, **_llama31(x, **parameters))


def rope_llama31_terms(x: Tensor, **_: object) -> Tensor:
    """Return the terms behind each element of `rope_llama31_fwd`."""
    return _terms(x, amplitude=1.0, interleaved=False)


def yarn_fwd(x: Tensor, **parameters: Any) -> Tensor:
    """Return ``x`` with pairs behind a ramp turned slower, and longer by the attention's factor."""
    return rotated(x, **_yarn(x, **parameters))


def yarn_terms(x: Tensor, **parameters: Any) -> Tensor:
    """Return the terms behind each element of `yarn_fwd`."""
    return _terms(x, amplitude=abs(_yarn(x, **parameters)["amplitude"]), interleaved=False)


def rope_neox_position_ids_fwd(
    x: Tensor, position_ids: Tensor, *, max_position: int, base: float = 10000.0, rotary_dim: int | None = None
) -> Tensor:
    """Return ``x`` with pair k of token i turned by ``position_ids[i] * base ** (-2 * k / rotary_dim)``."""
    del max_position
    width = x.shape[-1] if rotary_dim is None else rotary_dim
    turning, rest = x.double().split([width, x.shape[-1] - width], dim=-1)
    angles = position_ids.double()[:, None, None] * _plain(turning, base).to(x.device)
    first, second = turning.unflatten(-1, (2, width // 2)).unbind(-2)
    turned = [first * angles.cos() - second * angles.sin(), second * angles.cos() + first * angles.sin()]
    return torch.cat([*turned, rest], dim=-1)


def rope_neox_position_ids_terms(x: Tensor, position_ids: Tensor, **parameters: Any) -> Tensor:
    """Return the terms behind each element of `rope_neox_position_ids_fwd`."""
    del position_ids
    width = parameters.get("rotary_dim")
    width = x.shape[-1] if width is None else width
    return torch.cat(
        [_terms(x[..., :width], amplitude=1.0, interleaved=False), torch.zeros_like(x[..., width:].double())], dim=-1
    )


REFERENCES: Mapping[str, Reference] = {
    "RoPEFwdOp": Reference(rope_fwd, terms=rope_terms),
    "RoPELlama31FwdOp": Reference(rope_llama31_fwd, terms=rope_llama31_terms),
    "YaRNFwdOp": Reference(yarn_fwd, terms=yarn_terms),
    "RoPENeoxPositionIdsFwdOp": Reference(rope_neox_position_ids_fwd, terms=rope_neox_position_ids_terms),
    "LongRoPEFwdOp": Reference(long_rope_fwd, terms=long_rope_terms),
}
