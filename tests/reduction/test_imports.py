"""What importing, constructing and checking the reduction ops loads: no TileLang."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.op("SumFwdOp", "ProdFwdOp", "SoftmaxFwdOp")

CODE = """
import sys, torch
import tileops.reduction
print(sorted(name for name in sys.modules if name.startswith("tileops.reduction.")))
from tileops.reduction import ProdFwdOp, SoftmaxFwdOp, SumFwdOp
x = torch.empty(2, 3, device="meta")
print([tuple(op(x).shape) for op in (SumFwdOp(0), ProdFwdOp(1, True), SoftmaxFwdOp(-1))])
print(sorted({name.partition(".")[0] for name in sys.modules} & {"tilelang", "tvm", "tvm_ffi"}))
"""


def test_checked_meta_calls_load_no_tilelang() -> None:
    """Importing the family loads no op; constructing and checking calls on meta tensors loads no TileLang."""
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["[]", "[(3,), (2, 1), (2, 3)]", "[]"]
