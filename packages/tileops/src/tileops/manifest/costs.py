"""The least work of calls whose cost follows from the contents of their metadata tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from tileops.errors import ExpressionError

if TYPE_CHECKING:
    from tileops.manifest.record import SignatureCall


def attention_varlen(call: SignatureCall) -> tuple[int, int]:
    """Return operations and bytes of attention over packed requests."""
    queries = _lengths(call.metadata["cu_seqlens_q"])
    keys = _lengths(call.metadata["cu_seqlens_kv"])
    return _attention_flops(call, queries, keys), _tensor_bytes(call)


def attention_paged(call: SignatureCall) -> tuple[int, int]:
    """Return operations and bytes of attention over pages: of the cache, only the requests' own keys are read."""
    queries = _lengths(call.metadata["cu_seqlens_q"])
    keys = call.metadata["cache_seqlens"].tolist()
    return _attention_flops(call, queries, keys), _paged_bytes(call, keys, appended=0)


def attention_appending(call: SignatureCall) -> tuple[int, int]:
    """Return operations and bytes of attention that first appends each request's keys to its pages."""
    queries = _lengths(call.metadata["cu_seqlens_q"])
    held = call.metadata["cache_seqlens"].tolist()
    keys = [before + added for before, added in zip(held, queries, strict=True)]
    return _attention_flops(call, queries, keys), _paged_bytes(call, held, appended=sum(queries))


def routed_experts(call: SignatureCall) -> tuple[int, int]:
    """Return operations and bytes of gated MLPs found by id: experts that no token is routed to are not read."""
    ids, experts = call.metadata["topk_ids"], _number(call, "E")
    here = ids[(ids >= 0) & (ids < experts)]
    read = len(here.unique())
    weights = {"w_gate_up", "w_down"}
    rest = sum(found.reads + found.writes for name, found in call.traffic.items() if name not in weights)
    each = 3 * _number(call, "H") * _number(call, "F")
    return 2 * each * here.numel(), rest + read * each * call.tensors["w_down"].dtype.itemsize


def _lengths(offsets: torch.Tensor) -> list[int]:
    lengths: list[int] = offsets.diff().tolist()
    return lengths


def _number(call: SignatureCall, name: str) -> int:
    value = call.indices[name] if name in call.indices else call.parameters[name]
    if not isinstance(value, int):
        raise ExpressionError(f"{call.branch.entry.name}: {name} is no whole number")
    return value


def _attention_flops(call: SignatureCall, queries: list[int], keys: list[int]) -> int:
    """Return four operations for each visible pair of query and key and each channel."""
    pairs = sum(_visible_pairs(call, rows, columns) for rows, columns in zip(queries, keys, strict=True))
    return 4 * pairs * _number(call, "H") * _number(call, "D")


def _visible_pairs(call: SignatureCall, queries: int, keys: int) -> int:
    """Return how many keys the queries see together; query i stands at i + keys - queries, within its window."""
    position = torch.arange(queries) + keys - queries
    last = torch.full((queries,), keys - 1)
    if call.parameters["is_causal"]:
        last = last.minimum(position)
    first = torch.zeros(queries, dtype=torch.int64)
    left, right = (call.parameters.get(name, -1) for name in ("window_size_left", "window_size_right"))
    if isinstance(left, int) and left >= 0:
        first = first.maximum(position - left)
    if isinstance(right, int) and right >= 0:
        last = last.minimum(position + right)
    return int((last - first + 1).clamp(min=0).sum())


def _tensor_bytes(call: SignatureCall) -> int:
    return sum(found.reads + found.writes for found in call.traffic.values())


def _paged_bytes(call: SignatureCall, keys: list[int], appended: int) -> int:
    """Return the bytes of a call that reads the keys of its requests, and writes those that it appends."""
    pages = {"k_pages", "v_pages"}
    rest = sum(found.reads + found.writes for name, found in call.traffic.items() if name not in pages)
    width = _number(call, "H_kv") * _number(call, "D")
    cache = sum(call.tensors[name].dtype.itemsize for name in pages)
    return rest + (sum(keys) + appended) * width * cache
