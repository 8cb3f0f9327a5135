"""`shared`: one instance per equal constructor arguments, while anyone holds it."""

from __future__ import annotations

import gc
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from tileops.errors import ArgumentError, ParameterTypeError
from tileops.norm import RMSNormFwdOp

from .toys import ScaledFwdOp


def test_equal_arguments_share_an_instance() -> None:
    """However the arguments are spelled, equal ones give the same instance and others another."""
    op = RMSNormFwdOp.shared((64,), eps=1e-6)

    assert RMSNormFwdOp.shared([64], 1e-6) is op
    assert RMSNormFwdOp.shared(normalized_shape=(64,), eps=1e-6, target=None) is op
    assert RMSNormFwdOp.shared((64,)) is not op
    assert ScaledFwdOp.shared(1.0) is not ScaledFwdOp.shared(2.0)


def test_a_constructed_instance_is_not_shared() -> None:
    """The constructor still makes an instance of its own."""
    assert ScaledFwdOp(2.0) is not ScaledFwdOp.shared(2.0)


def test_an_instance_that_nobody_holds_is_let_go() -> None:
    """Sharing keeps nothing alive."""
    key = ScaledFwdOp.shared(5.0)._instance_key
    gc.collect()

    assert ScaledFwdOp.shared(5.0)._instance_key != key


def test_threads_get_one_instance() -> None:
    """16 threads that ask at once share one instance."""
    barrier = threading.Barrier(16)

    def ask(_: int) -> ScaledFwdOp:
        barrier.wait()
        return ScaledFwdOp.shared(7.0)

    with ThreadPoolExecutor(16) as pool:
        assert len({id(op) for op in list(pool.map(ask, range(16)))}) == 1


def test_wrong_arguments_are_refused_as_by_the_constructor() -> None:
    """A typo or a wrong parameter has the constructor's error, and nothing is kept."""
    with pytest.raises(ArgumentError, match=r"ScaledFwdOp: factr: expected parameters .* did you mean factor"):
        ScaledFwdOp.shared(factr=2.0)
    with pytest.raises(ParameterTypeError, match="ScaledFwdOp: factor: expected float, received 'two'"):
        ScaledFwdOp.shared("two")
    with pytest.raises(ArgumentError) as caught:
        ScaledFwdOp.shared({})
    assert str(caught.value) == (
        "ScaledFwdOp: shared: expected arguments that compare by value, received {'factor': {}, 'target': None}; "
        "construct the op with ScaledFwdOp(...) and hand the instance around"
    )


def test_twelve_layers_compile_once() -> None:
    """Layers compiled one by one that share an instance share a graph."""

    class Layer(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = ScaledFwdOp.shared(2.0)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.norm(x) + 1  # type: ignore[no-any-return]

    torch._dynamo.reset()
    counter = CompileCounter()
    layers = [Layer() for _ in range(12)]
    for layer in layers:
        layer.compile(fullgraph=True, backend=counter)
        assert torch.equal(layer(torch.ones(2)), torch.full((2,), 3.0))

    assert counter.frame_count == 1
