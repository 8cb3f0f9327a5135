"""What importing, constructing and checking RMSNormFwdOp loads: no TileLang, and no other manifest."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytestmark = pytest.mark.op("RMSNormFwdOp")

WATCH = """
import sys
from tileops.manifest import registry
files = []
def parse_document(document, *rest, parse=registry.parse_document):
    files.append(document.file)
    return parse(document, *rest)
registry.parse_document = parse_document
def loaded():
    return sorted({name.partition('.')[0] for name in sys.modules} & {'tilelang', 'tvm', 'tvm_ffi'})
"""


def run(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", WATCH + code], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_import_loads_no_tilelang() -> None:
    """`import tileops.norm` loads no TileLang and parses no manifest."""
    assert run("import tileops.norm; print(loaded(), files)") == "[] []"


def test_construction_loads_no_tilelang_and_one_manifest() -> None:
    """Constructing the op loads no TileLang and parses its own manifest alone."""
    code = "from tileops.norm import RMSNormFwdOp; RMSNormFwdOp((64,)); print(loaded(), files)"
    assert run(code) == "[] ['manifests/norm/rms_norm.yaml']"


def test_checked_meta_call_loads_no_tilelang() -> None:
    """A fully checked call on meta tensors loads no TileLang."""
    code = (
        "import torch; from tileops.norm import RMSNormFwdOp; "
        "y = RMSNormFwdOp((64,))(torch.empty(3, 64, device='meta'), torch.empty(64, device='meta')); "
        "print(tuple(y.shape), loaded(), files)"
    )
    assert run(code) == "(3, 64) [] ['manifests/norm/rms_norm.yaml']"


def test_construction_starts_no_cuda() -> None:
    """Importing and constructing make no CUDA context, so that a process can still fork."""
    code = (
        "import torch; from tileops.norm import RMSNormFwdOp; RMSNormFwdOp((64,)); print(torch.cuda.is_initialized())"
    )
    assert run(code) == "False"
