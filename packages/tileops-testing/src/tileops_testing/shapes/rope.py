"""Edge shapes of the rope family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tileops.manifest.model import WorkloadRow

__all__ = ["ROWS"]

_DTYPES = ("float16", "bfloat16", "float32")


def _row(
    label: str,
    *dtypes: str,
    some: Sequence[str] = (),
    factors: str | None = None,
    ids: str | None = None,
    **values: object,
) -> WorkloadRow:
    extra = {name: dtype for name, dtype in (("R", factors), ("I", ids)) if dtype is not None}
    return WorkloadRow(
        label=label, some=tuple(some), dtype_cases=tuple({"T": dtype, **extra} for dtype in dtypes), values=values
    )


ROWS: Mapping[str, Sequence[WorkloadRow]] = {
    "RoPEFwdOp": (
        _row("one-pair", "float32", S=5, D=2),
        _row("odd-half", "float16", S=3, D=70),
        _row("interleaved", *_DTYPES, rope_layout="interleaved", S=33, D=64),
        _row("interleaved-heads", "bfloat16", rope_layout="interleaved", input_layout="2d", B=2, S=17, H=3, D=12),
        _row("beyond-a-block", "float32", S=2, D=600),
        _row("one-token", "float16", input_layout="2d", B=1, S=1, H=1, D=128),
        _row("no-tokens", "float16", S=0, D=64),
    ),
    "RoPELlama31FwdOp": (
        _row("every-dtype", *_DTYPES, base=500000.0, S=33, D=128),
        _row("unscaled", "float32", scale_factor=1.0, S=9, D=32),
        _row("short-context", "float32", original_max_position=64, S=65, D=64),
    ),
    "YaRNFwdOp": (
        _row("every-dtype", *_DTYPES, S=33, D=128),
        _row("unscaled", "float32", scale=1.0, S=9, D=32),
        _row("attention-factor", "float16", scale=40.0, attn_factor=0.7, S=65, D=64),
        _row("no-ramp", "float32", original_max_position=1, S=9, D=16),
    ),
    "RoPENeoxPositionIdsFwdOp": (
        _row("every-dtype", *_DTYPES, ids="int32", max_position=64, H=3, D=64, L=[33, 1, 8]),
        _row("odd-half", "float16", ids="int64", max_position=8, H=1, D=70, L=[3]),
        _row("odd-rest", "bfloat16", ids="int64", max_position=8, rotary_dim=64, H=5, D=71, L=[3, 2]),
        _row("beyond-a-block", "float32", ids="int32", max_position=8, H=2, D=600, L=[2]),
        _row("nothing-rotated", "float16", ids="int64", max_position=8, rotary_dim=0, H=2, D=16, L=[2]),
        _row("no-tokens", "float16", ids="int64", max_position=8, H=2, D=64, L=[]),
    ),
    "LongRoPEFwdOp": (
        _row("extended", "float32", max_position_embeddings=131072, S=9, D=32),
        _row("shrunk", "float16", max_position_embeddings=1024, S=9, D=32),
        _row("half-factors", "float32", some=["rescale_factors"], factors="float16", S=9, P=16, D=32),
    ),
}
