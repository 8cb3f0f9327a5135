"""The modules that take the places of a Llama's norms, attention and rotary tables."""

from __future__ import annotations

import copy
from typing import Any

from torch import Tensor, nn
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from tileops.norm import RMSNormFwdOp
from tileops.rope import RoPENeoxPositionIdsFwdOp


class Norm(nn.Module):
    """RMSNorm of a given weight; norms of equal length and eps share one op."""

    def __init__(self, weight: nn.Parameter, eps: float) -> None:
        super().__init__()
        self.weight = weight
        self.op = RMSNormFwdOp.shared(tuple(weight.shape), eps=eps)

    def forward(self, hidden_states: Tensor) -> Tensor:
        """Normalise the last axis."""
        return self.op(hidden_states, self.weight)


class Attention(nn.Module):
    """The attention of a Llama layer on its own projections; queries and keys are turned by one op of all layers."""

    def __init__(self, original: Any) -> None:
        super().__init__()
        self.q_proj, self.k_proj = original.q_proj, original.k_proj
        self.v_proj, self.o_proj = original.v_proj, original.o_proj
        self.layer_idx: int = original.layer_idx
        self.head_dim: int = original.head_dim
        self.is_causal, self.num_key_value_groups = (
            True,
            original.num_key_value_groups,
        )  # read by the attention function
        self._attend = ALL_ATTENTION_FUNCTIONS["sdpa"]
        config = original.config
        base: float = config.rope_parameters["rope_theta"]
        self.turn = RoPENeoxPositionIdsFwdOp.shared(config.max_position_embeddings, base)

    def forward(
        self,
        hidden_states: Tensor,
        position_ids: Tensor,
        attention_mask: Tensor | None = None,
        cache: Any = None,
        **_: object,
    ) -> tuple[Tensor, None]:
        """Attend from each token to those before it, or those that the mask leaves; positions say how far to turn."""
        batch, length, _width = hidden_states.shape
        positions = position_ids.expand(batch, length).reshape(-1)
        heads = batch, length, -1, self.head_dim
        flat = batch * length, -1, self.head_dim
        query = self.turn(self.q_proj(hidden_states).view(flat), positions).view(heads).transpose(1, 2)
        key = self.turn(self.k_proj(hidden_states).view(flat), positions).view(heads).transpose(1, 2)
        value = self.v_proj(hidden_states).view(heads).transpose(1, 2)
        if cache is not None:
            key, value = cache.update(key, value, self.layer_idx)
        mixed, _weights = self._attend(self, query, key, value, attention_mask, scaling=self.head_dim**-0.5)
        return self.o_proj(mixed.reshape(batch, length, -1)), None


class NoTables(nn.Module):
    """In place of the tables of cosines and sines: the op turns by positions."""

    def forward(self, *_: object, **__: object) -> None:
        """Give nothing."""


def with_ops(model: Any) -> Any:
    """A copy of a `LlamaForCausalLM` that holds the same weights and computes norms and rotations by ops.

    Raises ValueError for a model with scaled rotary frequencies, which `RoPENeoxPositionIdsFwdOp` does not have.
    """
    kind = model.config.rope_parameters["rope_type"]
    if kind != "default":
        raise ValueError(f"with_ops: rope_type: expected 'default', received {kind!r}; use a config without scaling")
    copied = copy.deepcopy(model, {id(weight): weight for weight in model.parameters()})
    decoder = copied.model
    decoder.rotary_emb = NoTables()
    decoder.norm = _norm(decoder.norm)
    for layer in decoder.layers:
        layer.input_layernorm = _norm(layer.input_layernorm)
        layer.post_attention_layernorm = _norm(layer.post_attention_layernorm)
        layer.self_attn = Attention(layer.self_attn)
    return copied


def _norm(original: Any) -> Norm:
    return Norm(original.weight, original.variance_epsilon)
