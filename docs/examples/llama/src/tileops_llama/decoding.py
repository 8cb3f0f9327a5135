"""Decoding with a cache of fixed length: a step reads and writes the same tensors each time, so it can be captured."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

WARM_STEPS = 2
SIZES: dict[str, dict[str, int]] = {
    "tiny": {"hidden_size": 128, "intermediate_size": 256, "num_hidden_layers": 2, "vocab_size": 256},
    "small": {"hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 4, "vocab_size": 4096},
    "8b": {"hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "vocab_size": 128256},
}
"""Lengths by name; heads have 64 elements, and 128 in the largest."""


def make_model(size: str, device: torch.device, dtype: torch.dtype, *, seed: int = 0) -> Any:
    """A Llama of that size with random weights, made on the device without a network."""
    lengths = SIZES[size]
    heads = lengths["hidden_size"] // (128 if size == "8b" else 64)
    config = LlamaConfig(
        **lengths,
        num_attention_heads=heads,
        num_key_value_heads=max(1, heads // 4),
        max_position_embeddings=8192,
        rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
    )
    torch.manual_seed(seed)
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            model = LlamaForCausalLM(config)
    finally:
        torch.set_default_dtype(previous)
    return model.eval().requires_grad_(False)


class Decoding:
    """Greedy decoding of one batch; `step` takes and gives nothing: its state are tensors that stay where they are.

    A compiled step belongs to these tensors, so decode anew by `restart` and not by another object.
    """

    def __init__(self, model: Any, prompt: Tensor, new_tokens: int) -> None:
        batch, length = prompt.shape
        self._model, self._prompt = model, prompt
        self._cache = StaticCache(config=model.config, max_cache_len=length + new_tokens)
        self._places = torch.arange(length + new_tokens, device=prompt.device)
        self.logits = prompt.new_empty(0)
        self.tokens = prompt.new_empty(batch, 1)
        self.position = prompt.new_empty(1, 1)
        self.restart()

    def restart(self) -> None:
        """Forget every token but the prompt's and the first one after them."""
        length = self._prompt.shape[1]
        self._cache.reset()
        places = self._places[:length]
        self.logits = self._run(self._prompt, places[None], (self._places <= places[:, None])[None, None])
        self.tokens.copy_(self.logits[:, -1:].argmax(-1))
        self.position.fill_(length)

    def step(self) -> None:
        """Append one token to each sequence."""
        mask = (self._places <= self.position)[None, None]
        logits = self._run(self.tokens, self.position, mask)
        self.logits = logits
        self.tokens.copy_(logits[:, -1:].argmax(-1))
        self.position.add_(1)

    def _run(self, tokens: Tensor, positions: Tensor, mask: Tensor) -> Tensor:
        logits: Tensor = self._model(
            input_ids=tokens, position_ids=positions, attention_mask=mask, cache=self._cache, use_cache=True
        ).logits
        return logits


def captured(step: Callable[[], object]) -> Callable[[], None]:
    """A decoding's step as a CUDA graph: what it launches is recorded once and replayed as a whole.

    Two steps run before, so that everything is compiled and allocated.
    """
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_STEPS):
            step()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay() -> None:
        graph.replay()

    return replay


def seconds(run: Callable[[], object], device: torch.device, times: int) -> float:
    """What one of `times` runs takes, the device waited for at both ends."""
    _wait(device)
    started = time.perf_counter()
    for _ in range(times):
        run()
    _wait(device)
    return (time.perf_counter() - started) / times


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
