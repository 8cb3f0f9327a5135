"""How often code that calls ops is compiled: per instance once, and per batch of two and more never again."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import FailOnRecompileLimitHit
from torch._dynamo.testing import CompileCounter

from tileops.norm import RMSNormFwdOp

pytestmark = pytest.mark.op("RMSNormFwdOp")

LAYERS = 12


@pytest.fixture(autouse=True)
def fresh_dynamo() -> None:
    """Each test compiles cold."""
    torch.compiler.reset()


class Layer(torch.nn.Module):
    """A layer of a model, as users write it: it holds the weight, and an op that some function gave it."""

    def __init__(self, make: Callable[[], RMSNormFwdOp]) -> None:
        super().__init__()
        self.norm = make()
        self.weight = torch.nn.Parameter(torch.ones(64))

    def forward(self, x: Tensor) -> Tensor:
        return x + self.norm(x, self.weight)


def compiled_one_by_one(layers: list[Layer], device: torch.device) -> int:
    """Compile each layer on its own, run them all, and return the number of compilations."""
    counter = CompileCounter()
    x = torch.ones(5, 64, device=device)
    for layer in layers:
        layer.to(device).compile(fullgraph=True, backend=counter)
    with torch.no_grad():
        for layer in layers:
            torch.testing.assert_close(layer(x), 2 * x)
    return counter.frame_count


def test_layers_that_share_an_instance_compile_once(tileops_device: torch.device) -> None:
    """A stack of twelve layers with one op among them is one compilation."""
    op = RMSNormFwdOp((64,))

    assert compiled_one_by_one([Layer(lambda: op) for _ in range(LAYERS)], tileops_device) == 1


def test_layers_that_ask_for_a_shared_instance_compile_once(tileops_device: torch.device) -> None:
    """The natural module code, each layer asking for its own op by `shared`, is one compilation too."""
    layers = [Layer(lambda: RMSNormFwdOp.shared((64,))) for _ in range(LAYERS)]

    assert compiled_one_by_one(layers, tileops_device) == 1


def test_an_instance_per_layer_meets_torchs_limit(tileops_device: torch.device) -> None:
    """With an op in each layer, torch refuses the ninth: it compiles one function eight times."""
    counter = CompileCounter()
    layers = [Layer(lambda: RMSNormFwdOp((64,))).to(tileops_device) for _ in range(LAYERS)]
    for layer in layers:
        layer.compile(fullgraph=True, backend=counter)
    x = torch.ones(5, 64, device=tileops_device)
    for layer in layers[:8]:
        layer(x)

    with pytest.raises(FailOnRecompileLimitHit):
        layers[8](x)
    assert counter.frame_count == 8


def test_an_instance_made_in_a_loop_recompiles_each_time(tileops_device: torch.device) -> None:
    """Each new instance is a new constant of the graph, equal parameters or not."""
    counter = CompileCounter()
    compiled = torch.compile(lambda op, x: op(x), fullgraph=True, backend=counter)
    counts = []
    for _ in range(3):
        compiled(RMSNormFwdOp((64,)), torch.ones(5, 64, device=tileops_device))
        counts.append(counter.frame_count)

    assert counts == [1, 2, 3]


def test_a_shared_instance_asked_for_in_a_loop_compiles_once(tileops_device: torch.device) -> None:
    """`shared` gives the one alive, outside the compiled function."""
    counter = CompileCounter()
    compiled = torch.compile(lambda op, x: op(x), fullgraph=True, backend=counter)
    held = RMSNormFwdOp.shared((64,))
    for _ in range(3):
        compiled(RMSNormFwdOp.shared((64,)), torch.ones(5, 64, device=tileops_device))

    assert (counter.frame_count, RMSNormFwdOp.shared((64,))) == (1, held)


def test_one_compilation_serves_every_batch(tileops_device: torch.device) -> None:
    """With dynamic=True batches of two and more share one compilation, whichever comes first, and so do repetitions."""
    counter = CompileCounter()
    compiled = torch.compile(RMSNormFwdOp((64,)), fullgraph=True, dynamic=True, backend=counter)
    for batch in (2, 3, 4096, 17, 2):
        assert compiled(torch.ones(batch, 64, device=tileops_device)).shape == (batch, 64)

    assert counter.frame_count == 1


def test_an_op_constructed_while_traced_is_refused_in_our_words() -> None:
    """With fullgraph the compiler quotes the error; without, the function runs uncompiled and constructs it."""

    def constructing(x: torch.Tensor) -> torch.Tensor:
        return RMSNormFwdOp((64,))(x)

    x = torch.ones(2, 64)
    with pytest.raises(RuntimeError) as failure:
        torch.compile(constructing, fullgraph=True, backend="eager")(x)
    assert (
        "RMSNormFwdOp: construction: expected outside of compiled code, received while it is traced; construct the op "
        "once, before compiling, and call it inside"
    ) in str(failure.value)
    torch.compiler.reset()
    assert torch.equal(torch.compile(constructing, backend="eager")(x), constructing(x))
