"""Edge shapes of the moe family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tileops.manifest.model import WorkloadRow

__all__ = ["ROWS"]

_TIGHT_ENDS = {"kind": "contiguous", "packing": "tight", "metadata_kind": "physical_psum", "alignment": 1}
_TIGHT_ROWS = {"kind": "contiguous", "packing": "tight", "metadata_kind": "per_row", "alignment": 1}
_ALIGNED_ENDS = {"kind": "contiguous", "packing": "aligned", "metadata_kind": "physical_psum", "alignment": 16}
_UNWEIGHTED = {"kind": "routing", "scale": -0.5, "weighting": "unweighted"}
_MASKED = {"kind": "masked", "max_m": 5}


def _row(label: str, layout: Mapping[str, object], dtype: str, **values: object) -> WorkloadRow:
    return _plain(label, dtype, layout=layout, **values)


def _plain(label: str, dtype: str, **values: object) -> WorkloadRow:
    return WorkloadRow(label=label, some=(), dtype_cases=({"T": dtype},), values=values)


def _shared(label: str, dtype: str, **values: object) -> WorkloadRow:
    some = ("shared_w_gate_up", "shared_w_down")
    return WorkloadRow(label=label, some=some, dtype_cases=({"T": dtype},), values=values)


ROWS: Mapping[str, Sequence[WorkloadRow]] = {
    "MoEGroupedGemmFwdOp": (
        _row("tight-ends", _TIGHT_ENDS, "float16", activation="gelu_and_mul", P=37, E=5, N=33, K=17),
        _row("tight-rows", _TIGHT_ROWS, "bfloat16", out_dtype="float32", P=37, E=5, N=24, K=40),
        _row("aligned-ends", _ALIGNED_ENDS, "bfloat16", P=64, E=3, N=24, K=40),
        _row("masked-odd", _MASKED, "float16", activation="silu_and_mul", E=3, N=7, K=9),
        _row("fewer-rows-than-experts", _TIGHT_ENDS, "float16", P=3, E=8, N=16, K=16),
        _row("no-rows", _TIGHT_ROWS, "float16", P=0, E=4, N=16, K=16),
        _row("no-terms", _TIGHT_ENDS, "bfloat16", P=6, E=2, N=8, K=0),
    ),
    "MoEExpertMLPFwdOp": (
        _row("tight-rows", _TIGHT_ROWS, "float16", activation="gelu_and_mul", P=37, E=5, H=33, F=17),
        _row("masked-odd", _MASKED, "bfloat16", E=3, H=7, F=9),
        _row("no-rows", _TIGHT_ENDS, "float16", P=0, E=4, H=16, F=16),
    ),
    "MoEPrePermuteFwdOp": (
        _row("tight-ends", _TIGHT_ENDS, "float32", num_local_experts=5, M=7, K=3, H=33),
        _row("tight-rows", _TIGHT_ROWS, "float16", num_local_experts=300, M=9, K=1, H=24),
        _row("most-experts", _TIGHT_ROWS, "bfloat16", num_local_experts=7, M=5, K=6, H=7),
        _row("no-columns", _TIGHT_ENDS, "bfloat16", num_local_experts=4, M=3, K=2, H=0),
        _row("no-choices", _TIGHT_ENDS, "float16", num_local_experts=4, M=3, K=0, H=8),
    ),
    "MoEPostPermuteFwdOp": (
        _row("odd", _TIGHT_ENDS, "float32", out_dtype="float16", P=20, M=7, K=3, H=33),
        _row("unweighted", _TIGHT_ROWS, "float16", epilogue=_UNWEIGHTED, P=40, M=9, K=4, H=24),
        _row("wider-result", _ALIGNED_ENDS, "bfloat16", out_dtype="float32", P=64, M=5, K=9, H=264),
        _row("masked-odd", _MASKED, "bfloat16", E=3, M=4, K=2, H=7),
        _row("no-rows", _TIGHT_ENDS, "bfloat16", P=0, M=3, K=2, H=8),
        _row("no-choices", _TIGHT_ENDS, "float16", P=4, M=3, K=0, H=8),
    ),
    "SharedExpertMLPFwdOp": (
        _plain("odd", "float16", M=5, H=33, S=17),
        _plain("more-rows-than-a-tile", "bfloat16", M=70, H=24, S=40),
        _plain("no-rows", "float16", M=0, H=16, S=16),
        _plain("no-hidden-columns", "bfloat16", M=3, H=16, S=0),
    ),
    "FusedMoEExpertsFwdOp": (
        _plain("odd", "float16", routed_scaling_factor=0.5, M=9, H=33, E=5, F=17, K=2),
        _plain("every-expert", "bfloat16", activation="gelu_and_mul", M=7, H=24, E=3, F=40, K=3),
        _plain("few-tokens", "bfloat16", M=4, H=128, E=5, F=256, K=2),
        _plain("more-tokens-than-a-tile", "float16", M=200, H=64, E=2, F=32, K=1),
        _plain("no-choices", "bfloat16", M=2, H=16, E=4, F=16, K=0),
    ),
    "IndexedExpertMLPFwdOp": (
        _plain("odd", "float16", routed_scaling_factor=0.5, M=3, H=33, E=5, F=17, K=2),
        _plain("every-expert", "bfloat16", M=7, H=24, E=3, F=40, K=3),
        _plain("one-token", "bfloat16", M=1, H=16, E=9, F=8, K=4),
        _plain("no-tokens", "float16", M=0, H=16, E=4, F=16, K=2),
        _plain("no-choices", "float16", M=2, H=16, E=4, F=16, K=0),
        _plain("no-hidden-columns", "bfloat16", M=2, H=16, E=4, F=0, K=2),
    ),
    "FusedMoEFwdOp": (
        _plain("odd", "float16", top_k=2, routed_scaling_factor=0.5, M=9, H=33, E=5, F=17),
        _plain("every-expert", "bfloat16", top_k=3, activation="gelu_and_mul", M=7, H=24, E=3, F=40),
        _plain("few-tokens", "bfloat16", top_k=2, renormalize=True, M=4, H=128, E=5, F=256),
    ),
    "FusedMoESharedExpertFwdOp": (
        _shared("odd", "float16", top_k=2, M=9, H=33, E=5, F=17, S=19),
        _shared("second-of-two-parts", "bfloat16", top_k=2, tp_size=2, tp_rank=1, M=40, H=24, E=5, F=16, S=24),
        _plain("routed-alone", "float16", top_k=1, M=4, H=16, E=5, F=16),
    ),
    "FusedTopKFwdOp": (
        WorkloadRow(
            label="every-expert",
            some=(),
            dtype_cases=({"T": "float32"},),
            values={"top_k": 7, "renormalize": True, "M": 5, "E": 7},
        ),
        WorkloadRow(label="one-expert", some=(), dtype_cases=({"T": "bfloat16"},), values={"top_k": 1, "M": 3, "E": 1}),
        WorkloadRow(
            label="many-choices",
            some=("correction_bias",),
            dtype_cases=({"T": "float16"},),
            values={"top_k": 33, "scoring_func": "sigmoid", "renormalize": True, "M": 2, "E": 50},
        ),
        WorkloadRow(
            label="plain-sigmoid",
            some=(),
            dtype_cases=({"T": "bfloat16"},),
            values={"top_k": 3, "scoring_func": "sigmoid", "M": 9, "E": 33},
        ),
    ),
    "MoEPermuteAlignFwdOp": (
        WorkloadRow(
            label="rows-alone", some=(), dtype_cases=({},), values={"num_experts": 5, "block_size": 1, "M": 7, "K": 3}
        ),
        WorkloadRow(
            label="odd-blocks", some=(), dtype_cases=({},), values={"num_experts": 9, "block_size": 3, "M": 33, "K": 4}
        ),
        WorkloadRow(label="no-choices", some=(), dtype_cases=({},), values={"num_experts": 4, "M": 7, "K": 0}),
    ),
}
