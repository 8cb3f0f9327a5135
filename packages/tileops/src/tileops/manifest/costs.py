"""The least work of calls whose cost follows from the contents of their metadata tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tileops.errors import ExpressionError

if TYPE_CHECKING:
    import torch

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
    causal = bool(call.parameters["is_causal"])
    pairs = sum(_visible_pairs(rows, columns, causal=causal) for rows, columns in zip(queries, keys, strict=True))
    return 4 * pairs * _number(call, "H") * _number(call, "D")


def _visible_pairs(queries: int, keys: int, *, causal: bool) -> int:
    """Return how many keys the queries see together; a causal query i sees keys up to i + keys - queries."""
    if not causal:
        return queries * keys
    hidden = max(queries - keys, 0)
    seeing = queries - hidden
    return seeing * (keys - seeing) + seeing * (seeing + 1) // 2


def _tensor_bytes(call: SignatureCall) -> int:
    return sum(found.reads + found.writes for found in call.traffic.values())


def _paged_bytes(call: SignatureCall, keys: list[int], appended: int) -> int:
    """Return the bytes of a call that reads the keys of its requests, and writes those that it appends."""
    pages = {"k_pages", "v_pages"}
    rest = sum(found.reads + found.writes for name, found in call.traffic.items() if name not in pages)
    width = _number(call, "H_kv") * _number(call, "D")
    cache = sum(call.tensors[name].dtype.itemsize for name in pages)
    return rest + (sum(keys) + appended) * width * cache
