"""The kinds of every function that expressions call: what it takes and what it gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from tileops.manifest.kinds import (
    AnyKind,
    BoolKind,
    DimKind,
    DTypeKind,
    FloatKind,
    IntKind,
    Kind,
    LiteralKind,
    NoneKind,
    SequenceKind,
    ShapeKind,
    SumKind,
    TensorKind,
    union,
)

_INT, _DIM, _BOOL, _SHAPE, _TENSOR = IntKind(), DimKind(), BoolKind(), ShapeKind(), TensorKind()
_INTS, _DTYPE, _ANY = SequenceKind(IntKind()), DTypeKind(()), AnyKind()
_NUMBER = union((_INT, FloatKind(), _BOOL))
_AXES = union((_INT, _INTS, NoneKind()))
_LAYOUT = SumKind("MGroupedLayout")


@dataclass(frozen=True, slots=True)
class FunctionKind:
    """One function's type; `symbolic` says that it works where sizes are symbols."""

    parameters: tuple[Kind, ...]
    result: Kind
    keywords: Mapping[str, Kind] = field(default_factory=dict)
    variadic: bool = False
    symbolic: bool = True


PRIMITIVE_KINDS: Final[Mapping[str, FunctionKind]] = {
    "broadcast": FunctionKind((_SHAPE,), _SHAPE, variadic=True),
    "reduced": FunctionKind((_SHAPE, _AXES, _BOOL, LiteralKind(("full", "noop", "reject"))), _SHAPE),
    "valid_axes": FunctionKind((_AXES, _INT), _BOOL),
    "unique_axes": FunctionKind((_AXES, _INT), _BOOL),
    "nonempty_axes": FunctionKind((_AXES, _SHAPE), _BOOL),
    "per_axis": FunctionKind((_AXES, _INT, _INT), _INT, {"fallback": _INT}),
    "ceil_div": FunctionKind((_INT, _INT), _INT),
    "len": FunctionKind((SequenceKind(_ANY),), _DIM),
    "prod": FunctionKind((_INTS,), _INT),
    "sum": FunctionKind((_INTS,), _INT),
    "max": FunctionKind((_INTS,), _INT, {"default": _INT}),
    "min": FunctionKind((_INTS,), _INT, {"default": _INT}),
    "all": FunctionKind((SequenceKind(_BOOL),), _BOOL),
    "conv.out": FunctionKind((_INT,) * 5, _INT),
    "pool.out": FunctionKind((*(_INT,) * 5, _BOOL), _DIM),
    "moe.capacity": FunctionKind((_LAYOUT, _INT, _INT), _DIM),
    "mhc.expansion": FunctionKind((_INT,), _DIM),
    "promote_int_to_float": FunctionKind((_DTYPE,), _DTYPE),
    "coalesce_dtype": FunctionKind((union((_DTYPE, NoneKind())), _DTYPE), _DTYPE),
    "balanced_sizes": FunctionKind((_INT, _INT), SequenceKind(_DIM), symbolic=False),
    "repeat": FunctionKind((_INT, _INT), _INTS, symbolic=False),
    "category": FunctionKind((union((_NUMBER, _DTYPE)),), LiteralKind(("bool", "int", "float", "complex"))),
    "representable": FunctionKind((_NUMBER, _DTYPE), _BOOL),
}

GENERATOR_KINDS: Final[Mapping[str, FunctionKind]] = {
    "as_tensor": FunctionKind((_INTS,), _TENSOR),
    "prefix_sum": FunctionKind((_INTS,), _TENSOR),
    "exclusive_prefix_sum": FunctionKind((_INTS,), _TENSOR),
    "chunk_indices": FunctionKind((_INTS, _INT), _TENSOR),
    "token_indices": FunctionKind((_INTS,), _TENSOR),
    "packed_positions": FunctionKind((_INTS,), _TENSOR),
    "chunk_offsets": FunctionKind((_INTS, _INT), _TENSOR),
    "paged_block_table": FunctionKind((_INT, _INT, _INT), _TENSOR),
    "nsa_block_indices": FunctionKind((_INTS, _INT, _INT, _INT), _TENSOR),
    "nsa_block_counts": FunctionKind((_INT, _INT, _INT), _TENSOR),
    "topk_ids": FunctionKind((_INT, _INT, _INT), _TENSOR),
    "random_ids": FunctionKind((_INT, _INT, _INT), _TENSOR),
    "sample_indices": FunctionKind((_INT, _INT), _TENSOR),
    "moe.layout_metadata": FunctionKind((_LAYOUT, _INT, _INT), _TENSOR),
    "moe.masked_routed_metadata": FunctionKind((_LAYOUT, _INT, _INT), _TENSOR),
    "moe.inverse_indices": FunctionKind((_INT, _INT), _TENSOR),
    "causal_topk_indices": FunctionKind((_INT,) * 7, _TENSOR),
    "attn.sparse_topk_positions": FunctionKind((_INTS, _INT, _INT), _TENSOR),
    "key_windows": FunctionKind((_INTS, _INT, _INT, LiteralKind(("start", "end"))), _TENSOR),
    "full": FunctionKind((_SHAPE, _NUMBER), _TENSOR),
}

PREDICATE_KINDS: Final[Mapping[str, FunctionKind]] = {
    "prefix_offsets": FunctionKind((_INT,), _BOOL),
    "max_segment": FunctionKind((_INT,), _BOOL),
    "in_range": FunctionKind((_INT, _INT), _BOOL),
    "sums_to": FunctionKind((_INT,), _BOOL),
    "exclusive_prefix_of": FunctionKind((_TENSOR,), _BOOL),
    "indices_within": FunctionKind((_TENSOR,), _BOOL),
    "chunk_offsets_of": FunctionKind((_TENSOR, _INT), _BOOL),
    "attn.paged_fits": FunctionKind((_TENSOR, _INT), _BOOL),
    "moe.layout_valid": FunctionKind((_LAYOUT, _INT, _INT), _BOOL),
}
"""The kinds of predicates' arguments after the tensor itself."""
