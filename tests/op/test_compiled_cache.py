"""Processes that share one inductor cache on disk: never another program's graph, and always a hit for the same one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.op("SumFwdOp")

PROGRAMS = """
import json, os, sys
import torch
import torch._inductor.compile_fx
from torch._dynamo.utils import counters
from tileops.reduction import SumFwdOp

def program(axis, name):
    dtype = getattr(torch, name)
    op, x = SumFwdOp(axis, dtype=dtype), torch.arange(32.0).reshape(8, 4)
    y = torch.compile(op, fullgraph=True)(x)
    counted = [("inductor", "fxgraph_cache_hit"), ("inductor", "fxgraph_cache_miss")]
    counted += [("aot_autograd", "autograd_cache_hit"), ("aot_autograd", "autograd_cache_miss")]
    return [torch.equal(y, x.sum(axis, dtype=dtype)), *(counters[group][name] for group, name in counted)]

for axis, name in json.loads(sys.argv[1]):
    child = os.fork()  # each program is a process that has constructed nothing and compiled nothing
    if not child:
        print(json.dumps(program(axis, name)), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""
RIGHT_AND_COMPILED = [True, 0, 1, 0, 1]
RIGHT_FROM_THE_CACHE = [True, 1, 0, 1, 0]


def test_graphs_are_found_again_and_never_mistaken(tmp_path: Path) -> None:
    """An op constructed first with another axis or dtype misses the cache; the same program again hits it; all right.

    On an input of 8 x 4 another program's graph would give the wrong length. The second interpreter shares nothing with
    the first but the folder, not even the seed of Python's hashes.
    """

    def run(*programs: tuple[int, str]) -> list[object]:
        caches = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path), "TORCHINDUCTOR_FX_GRAPH_CACHE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", PROGRAMS, json.dumps(programs)],
            # no CUDA device: a process that was forked cannot ask for one
            env={**os.environ, **caches, "TORCHINDUCTOR_AUTOGRAD_CACHE": "1", "CUDA_VISIBLE_DEVICES": ""},
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == len(programs), done.stderr
        return [json.loads(line) for line in done.stdout.splitlines()]

    assert run((0, "float32"), (1, "float32"), (0, "float16")) == [RIGHT_AND_COMPILED] * 3
    assert run((0, "float32"), (1, "float32")) == [RIGHT_FROM_THE_CACHE] * 2
