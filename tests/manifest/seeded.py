"""A right entry, and mistakes that may be seeded into it: each changes one line, and is one problem by itself."""

from __future__ import annotations

from typing import Final

RIGHT: Final = """\
ToyFwdOp:
  family: toy
  status: spec-only
  ref_api: torch.nn.functional.rms_norm
  signature:
    forall:
      B: Dim
      N: Dim
      K: Dim
      P: Dim
      L: Seq[Int]
      T: DType[float16 | float32]
      W: DType[float16 | float32]
    params:
      flag: {type: bool, default: false}
      mode: {type: "'a' | 'b'", default: a}
      scale: {type: float | None, default: null}
      size: {type: int, default: 4}
    types:
      Mat:
        params: {flip: Bool, rows: Dim, columns: Dim}
        match: flip
        cases:
          - {when: false, is: "[rows, columns]"}
          - {when: true, is: "[columns, rows]"}
      Layout:
        sum:
          masked: {python: tileops.moe.layouts.MaskedLayout, fields: {max_m: Dim}, invariant: max_m >= 1}
    let:
      half: ceil_div(N, 2)
      wide: 2 * half + size
    inputs:
      x: {dtype: T, shape: "[B, N]", mutated: flag}
      a: {dtype: T, shape: "Mat[flag, K, N]"}
      offsets: {dtype: int32, shape: "[P + 1]", values: prefix_sum(L), requires: [prefix_offsets(B)]}
      w: {dtype: W, shape: "[N]", optional: true}
      v: {dtype: T, shape: "[N]", optional: mode == 'b'}
    outputs:
      y: {dtype: T, shape: "[B, N]", alias: x}
      z: {dtype: T, shape: "[wide, half]"}
      u: {dtype: T, shape: "[K]", nullable: mode == 'a'}
    shape_rules:
      - N % 2 == 0
      - size >= 1
      - K >= 1 and B >= 1
      - flag or mode == 'a' or present(w)
    dtype_combos:
      - {T: float16, W: float16}
      - {T: float32, W: float32}
  workloads:
    - {label: one, B: 5, N: 8, K: 3, L: [2, 3], dtype_cases: [{T: float16}]}
    - {label: two, B: 5, N: 16, K: 3, L: [2, 3], mode: b, some: [v, w], dtype_cases: [{T: float16, W: float16}]}
    - {label: three, B: 4, N: 8, K: 2, L: [4], flag: true, dtype_cases: [{T: float16}, {T: float32}]}
    - label: four
      B: 4
      N: 8
      K: 7
      L: [1, 3]
      scale: 0.5
      size: 2
      some: [w]
      dtype_cases:
        - {T: float16, W: float16}
        - {T: float32, W: float32}
  composition:
    kind: composite
    stages:
      - {name: first, op: AFwdOp}
      - {name: second, kernel: some_kernel}
  roofline:
    flops: B * N + K
    bytes: bytes(x) + bytes(a)
"""

MISTAKES: Final[tuple[tuple[str, str], ...]] = (
    ("family: toy", "family: other"),
    ("status: spec-only", "status: done"),
    ("torch.nn.functional.rms_norm", "torch.nn.functional.rmsnorm"),
    ("      P: Dim", "      P: 3"),
    ("      K: Dim", "      K: Dimm"),
    ("L: Seq[Int]", "L: [Seq, Int]"),
    ("      W: DType[float16 | float32]", "      W: DType[float16 | half]"),
    ("flag: {type: bool, default: false}", "flag: {type: bool, default: no}"),
    ("mode: {type: \"'a' | 'b'\", default: a}", "mode: {type: \"'a' | 'b'\", default: c}"),
    ("scale: {type: float | None, default: null}", "scale: {type: float | None, default: null, keyword: true}"),
    ("size: {type: int, default: 4}", "size: {type: int, defaults: 4}"),
    ("match: flip", "match: flap"),
    ('when: false, is: "[rows, columns]"', 'when: maybe, is: "[rows, columns]"'),
    ('is: "[columns, rows]"', 'is: "[columns, row]"'),
    ("invariant: max_m >= 1", "invariant: max_n >= 1"),
    ("half: ceil_div(N, 2)", "half: ceildiv(N, 2)"),
    ("wide: 2 * half + size", "wide: 2 * half + sizes"),
    ('x: {dtype: T, shape: "[B, N]"', 'x: {dtype: T, shape: "[B, M]"'),
    ('"Mat[flag, K, N]"', '"Mat[flag, K N]"'),
    ("values: prefix_sum(L)", "values: running_sum(L)"),
    ("w: {dtype: W,", "w: {dtype: W, colour: red,"),
    ("optional: mode == 'b'", "optional: mode == 'c'"),
    ("alias: x", "alias: q"),
    ('"[wide, half]"', '"[wide, halve]"'),
    ('u: {dtype: T, shape: "[K]"', 'u: {dtype: K, shape: "[K]"'),
    ("- N % 2 == 0", "- N / 2 >= 0"),
    ("- size >= 1", "- size >= 'a'"),
    ("- K >= 1 and B >= 1", "- K >= 1 and Z >= 1"),
    ("- flag or mode == 'a' or present(w)", "- flag or mode == 'a' or present(ww)"),
    ("- {T: float32, W: float32}\n  workloads", "- {T: float64, W: float32}\n  workloads"),
    ("label: one,", "label: One row,"),
    ("label: two, B: 5", "label: two, B: -5"),
    ("label: three, B: 4", "label: three, Q: 7, B: 4"),
    ("      K: 7", "      K: true"),
    ("      L: [1, 3]", "      L: [1, 2]"),
    ("      scale: 0.5", "      scale: half"),
    ("      size: 2\n", "      size: 0\n"),
    ("      some: [w]", "      some: [ww]"),
    ("- label: four", "- labels: four"),
    ("        - {T: float16, W: float16}\n        -", "        - {T: float16, W: int8}\n        -"),
    ("        - {T: float32, W: float32}\n  composition", "        - {T: float32, V: float32}\n  composition"),
    ("op: AFwdOp", "op: AOp"),
    ("name: second", "name: Second"),
    ("flops: B * N + K", "flops: B * NN + K"),
    ("bytes: bytes(x) + bytes(a)", "bytes: bytes(x) + bytes(aa)"),
)
"""What stands in the right entry, and what a mistake puts in its place."""


def seeded(*mistakes: tuple[str, str]) -> str:
    """Return the text of the entry with these mistakes in it."""
    text = RIGHT
    for right, wrong in mistakes:
        assert text.count(right) == 1, right
        text = text.replace(right, wrong)
    return text
