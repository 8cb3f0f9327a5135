"""Names of operators, made from an op's family and class name."""

from __future__ import annotations

import re

_ACRONYMS = {
    "RMS": "rms",
    "MoE": "moe",
    "RoPE": "rope",
    "YaRN": "yarn",
    "GQA": "gqa",
    "MHA": "mha",
    "MLA": "mla",
    "NSA": "nsa",
    "DSA": "dsa",
    "KV": "kv",
    "QK": "qk",
    "FP8": "fp8",
    "INT8": "int8",
    "INT4": "int4",
    "W4A16": "w4a16",
    "W4A8": "w4a8",
    "W8A8": "w8a8",
    "FFT": "fft",
    "C2C": "c2c",
    "SSD": "ssd",
    "MLP": "mlp",
    "GDN": "gdn",
    "KDA": "kda",
    "GLA": "gla",
    "MHC": "mhc",
    "TopK": "topk",
    "TopP": "topp",
    "MinP": "minp",
}
_WORD = re.compile("|".join([*sorted(_ACRONYMS, key=len, reverse=True), r"[A-Z][a-z]*\d*[a-z]*"]))


def snake(class_name: str) -> str:
    """`RMSNormFwdOp` as `rms_norm_fwd`: the trailing `Op` dropped, words split, acronyms kept whole."""
    words = _WORD.findall(class_name.removesuffix("Op"))
    return "_".join(_ACRONYMS.get(word, word.lower()) for word in words)


def operator_name(family: str, class_name: str, suffix: str = "") -> str:
    """`norm_rms_norm_fwd`: the family once, the class name, then the suffix of the effect branch."""
    name = snake(class_name)
    prefixed = name if name == family or name.startswith(f"{family}_") else f"{family}_{name}"
    return prefixed + suffix
