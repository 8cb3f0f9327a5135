"""Mistakes of a caller: named before anything runs, alike in every mode, and the op is usable afterwards."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch

from tileops.errors import SignatureError
from tileops_kernels.errors import TileOPsError

from .composites import ones
from .toys import CentreFwdOp, DoubleFwdOp, GatherFwdOp, Hooks, IntoFwdOp, NegateFwdOp, TableFwdOp

Mistake = tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any], type[Exception], tuple[str, ...]]

MISTAKES: dict[str, Mistake] = {
    "wrong dtype": (
        DoubleFwdOp,
        lambda op: op(ones(2).long()),
        lambda op: op(ones(2)),
        TypeError,
        ("DoubleFwdOp", "x", "float16 or float32", "int64", ".to(torch.float32)"),
    ),
    "two dtypes": (
        DoubleFwdOp,
        lambda op: op(ones(2), ones(2).half()),
        lambda op: op(ones(2), ones(2)),
        TypeError,
        ("DoubleFwdOp", "bias", "float32", "float16", ".to(torch.float32)"),
    ),
    "wrong shape": (
        DoubleFwdOp,
        lambda op: op(ones(2, 3), ones(3)),
        lambda op: op(ones(2, 3), ones(2, 3)),
        ValueError,
        ("DoubleFwdOp", "bias", "[2, 3]", "[3]", "pass bias of shape [2, 3]"),
    ),
    "wrong rank": (
        lambda: TableFwdOp(ones(2)),
        lambda op: op(torch.tensor(1.0)),
        lambda op: op(ones(2)),
        ValueError,
        ("TableFwdOp", "x", "[*S, 2]", "[]", "pass x whose last axis is 2"),
    ),
    "wrong device": (
        DoubleFwdOp,
        lambda op: op(ones(2), torch.ones(2, device="meta")),
        lambda op: op(ones(2)),
        RuntimeError,
        ("DoubleFwdOp", "bias", "cpu", "meta", "make bias on cpu"),
    ),
    "buffer on another device": (
        IntoFwdOp,
        lambda op: op(ones(2), out=torch.ones(2, device="meta")),
        lambda op: op(ones(2), out=ones(2)),
        RuntimeError,
        ("IntoFwdOp", "out", "cpu", "meta", "make out on cpu"),
    ),
    "buffer of another dtype": (
        IntoFwdOp,
        lambda op: op(ones(2), out=ones(2).half()),
        lambda op: op(ones(2)),
        TypeError,
        ("IntoFwdOp", "out", "float32", "float16", "allocate out = torch.empty_like(out, dtype=torch.float32)"),
    ),
    "index on the wrong device": (
        GatherFwdOp,
        lambda op: op(ones(2), torch.zeros(1, dtype=torch.int64, device="meta")),
        lambda op: op(ones(2), torch.tensor([0])),
        RuntimeError,
        ("GatherFwdOp", "places", "cpu", "meta", "make places on cpu"),
    ),
    "missing input": (
        lambda: CentreFwdOp(training=True),
        lambda op: op(ones(2), ones(2)),
        lambda op: op(ones(2), ones(2), torch.tensor(0)),
        TypeError,
        ("CentreFwdOp", "count", "a Tensor", "None", "pass count"),
    ),
    "shared memory written": (
        lambda: NegateFwdOp(inplace=True),
        lambda op: op(torch.zeros(1).expand(3)),
        lambda op: op(ones(3)),
        RuntimeError,
        ("NegateFwdOp", "x", "memory of its own", "[0]", "assign x = x.clone() before the call, which writes it"),
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_named_and_leaves_the_op_usable(name: str) -> None:
    """One line with op, argument, expected, received and mend; the builtin that torch raises; nothing ran."""
    make, wrong, right, builtin, parts = MISTAKES[name]
    op = make()
    with pytest.raises(builtin) as caught:
        wrong(op)
    text = str(caught.value)

    assert isinstance(caught.value, (SignatureError, TileOPsError))
    assert [part for part in parts if part not in text] == []
    assert "\n" not in text
    assert Hooks.runs == []
    right(op)


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_has_the_same_text_when_traced(name: str) -> None:
    """A compiled call wraps the eager call's error, which stands in its text."""
    make, wrong, _, builtin, _ = MISTAKES[name]
    with pytest.raises(builtin) as eager:
        wrong(make())
    op = make()
    compiled: Any = torch.compile(op, fullgraph=True, backend="eager")
    with pytest.raises((torch._dynamo.exc.TorchRuntimeError, torch._dynamo.exc.Unsupported, builtin)) as traced:
        wrong(compiled)

    assert str(eager.value) in str(traced.value)


def test_values_are_read_on_every_call() -> None:
    """What a tensor holds is never kept: a weight changed in place changes the result."""
    op, x, bias = DoubleFwdOp(), ones(2), ones(2)
    first = op(x, bias).tolist()
    bias.mul_(5)

    assert (first, op(x, bias).tolist()) == ([3.0, 3.0], [7.0, 7.0])


def test_a_tensor_in_the_place_of_a_freed_one_is_another() -> None:
    """Nothing is keyed by an address."""
    op = DoubleFwdOp()
    results = [op(torch.full((1024,), value))[0].item() for value in (1.0, 2.0, 3.0)]

    assert results == [2.0, 4.0, 6.0]


def test_import_construction_and_discovery_touch_no_accelerator() -> None:
    """In a process where every question about CUDA raises, the library imports, constructs and lists its targets."""
    program = (
        "import torch\n"
        "def forbidden(*_, **__):\n"
        "    raise AssertionError('no question about CUDA may be asked here')\n"
        "for name in ('is_available', 'device_count', '_lazy_init', 'get_device_capability', 'current_device'):\n"
        "    setattr(torch.cuda, name, forbidden)\n"
        "for name in ('is_available', 'current_accelerator', 'device_count'):\n"
        "    setattr(torch.accelerator, name, forbidden)\n"
        "import tileops\n"
        "from tileops.backend import registered_targets\n"
        "from tileops.norm import RMSNormFwdOp\n"
        "RMSNormFwdOp((4,))\n"
        "print(registered_targets(), torch.cuda.is_initialized())\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert (result.stdout, result.stderr) == ("('reference',) False\n", "")
