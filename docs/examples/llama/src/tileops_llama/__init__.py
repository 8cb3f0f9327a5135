"""A Llama decoder of transformers whose norms and rotary embedding are ops of TileOPs."""

from __future__ import annotations

from tileops_llama.replacing import with_ops

__all__ = ["with_ops"]
