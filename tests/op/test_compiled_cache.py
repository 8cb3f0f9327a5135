"""Processes that share one inductor cache on disk: never another program's graph, and always a hit for the same one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.op("SumFwdOp")

PROGRAM = """
import json, sys
import torch
from torch._dynamo.utils import counters
from tileops.reduction import SumFwdOp

axis, dtype = int(sys.argv[1]), getattr(torch, sys.argv[2])
op, x = SumFwdOp(axis, dtype=dtype), torch.arange(32.0).reshape(8, 4)
y = torch.compile(op, fullgraph=True)(x)
names = [("inductor", "fxgraph_cache_hit"), ("inductor", "fxgraph_cache_miss")]
names += [("aot_autograd", "autograd_cache_hit"), ("aot_autograd", "autograd_cache_miss")]
print(json.dumps([torch.equal(y, x.sum(axis, dtype=dtype)), *(counters[group][name] for group, name in names)]))
"""
RIGHT_AND_COMPILED = [True, 0, 1, 0, 1]
RIGHT_FROM_THE_CACHE = [True, 1, 0, 1, 0]


def test_graphs_are_found_again_and_never_mistaken(tmp_path: Path) -> None:
    """An op constructed first with another axis or dtype misses the cache; the same program again hits it; all right.

    On an input of 8 x 4 another program's graph would give the wrong length.
    """

    def run(axis: int, dtype: str) -> list[object]:
        caches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(axis), dtype],
            env={**os.environ, **caches, "TORCHINDUCTOR_AUTOGRAD_CACHE": "1"},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        found: list[object] = json.loads(done.stdout)
        return found

    assert run(0, "float32") == RIGHT_AND_COMPILED
    assert run(1, "float32") == RIGHT_AND_COMPILED
    assert run(0, "float16") == RIGHT_AND_COMPILED
    assert run(0, "float32") == RIGHT_FROM_THE_CACHE
