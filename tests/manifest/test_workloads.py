"""Workload rows: a row times its dtype cases gives cases with stable ids and the type of every tensor."""

from __future__ import annotations

import torch

from tileops.manifest import registry
from tileops.manifest.rowsolving import TensorCase

CASES = {case.id: case for case in registry.cases("RMSNormFwdOp")}


def test_a_row_and_its_dtype_give_a_case() -> None:
    """A case holds the constructor's arguments, each tensor's type, the dtypes and the indices."""
    case = CASES["llama-8b-prefill-bfloat16"]
    assert case.label == "llama-8b-prefill"
    assert case.parameters == {"normalized_shape": (4096,)}
    assert case.tensors == {
        "x": TensorCase((2048, 4096), torch.bfloat16),
        "weight": TensorCase((4096,), torch.bfloat16),
    }
    assert case.dtypes == {"T": torch.bfloat16, "W": torch.bfloat16}
    assert case.indices == {"B": (2048,), "T": torch.bfloat16, "W": torch.bfloat16}


def test_an_omitted_input_is_none() -> None:
    """An optional tensor that a row does not name is None in its cases."""
    assert CASES["no-affine-float32"].tensors["weight"] is None


def test_ids_are_unique() -> None:
    """No two cases of an op share an id."""
    assert len(CASES) == len(registry.cases("RMSNormFwdOp"))
