"""AlibiFwdOp and SinusoidalFwdOp: values, where a call without tensors runs, and what it is while tracing."""

from __future__ import annotations

import math
import pickle

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from tileops.elementwise import AlibiFwdOp, SinusoidalFwdOp
from tileops.errors import NoCallError, ParameterError, ParameterTypeError
from tileops_kernels.errors import OpNotAvailableError
from tileops_testing.inputs import poisoned_allocations
from tileops_testing.numerics import assert_close
from tileops_testing.references.elementwise import alibi_fwd, sinusoidal_fwd

pytestmark = pytest.mark.op("AlibiFwdOp", "SinusoidalFwdOp")

DTYPES = (torch.float16, torch.bfloat16, torch.float32)
CPU = torch.device("cpu")


@pytest.mark.parametrize(("num_heads", "seq_len"), [(1, 1), (8, 7), (12, 64), (5, 300), (3, 50)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_alibi_agrees_with_the_reference(
    num_heads: int, seq_len: int, dtype: torch.dtype, tileops_device: torch.device
) -> None:
    """Any number of heads and positions, even or odd, gives the reference's values, each rounded once."""
    op = AlibiFwdOp(seq_len=seq_len, num_heads=num_heads, out_dtype=dtype, device=tileops_device)
    with poisoned_allocations():
        bias = op()
    assert_close(bias, alibi_fwd(seq_len=seq_len, num_heads=num_heads, device=tileops_device), dtype=dtype)
    assert (bias.shape, bias.is_contiguous(), bias.device.type) == (
        (num_heads, seq_len, seq_len),
        True,
        tileops_device.type,
    )


@pytest.mark.parametrize(
    ("num_heads", "exponents"),
    [
        (1, [8]),
        (8, [1, 2, 3, 4, 5, 6, 7, 8]),
        (12, [1, 2, 3, 4, 5, 6, 7, 8, 0.5, 1.5, 2.5, 3.5]),
        (3, [4, 8, 2]),
    ],
)
def test_alibi_slopes(num_heads: int, exponents: list[float], tileops_device: torch.device) -> None:
    """The first slope of n heads is 2 ** (-8 / n); a number that is no power of two takes from two series."""
    bias = AlibiFwdOp(seq_len=2, num_heads=num_heads, device=tileops_device)()
    assert bias[:, 0, 1].tolist() == pytest.approx([-(2.0**-exponent) for exponent in exponents], rel=2.0**-23)
    assert torch.equal(bias, bias.transpose(1, 2))


def test_alibi_is_zero_at_distance_zero(tileops_device: torch.device) -> None:
    """A position's bias to itself is zero, and not negative zero."""
    diagonal = AlibiFwdOp(seq_len=5, num_heads=2, device=tileops_device)().diagonal(dim1=1, dim2=2)
    assert diagonal.eq(0).all()
    assert not torch.signbit(diagonal).any()


@pytest.mark.parametrize(("seq_len", "d_model"), [(1, 64), (5, 2), (3, 6), (33, 130), (300, 512)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_sinusoidal_agrees_with_the_reference(
    seq_len: int, d_model: int, dtype: torch.dtype, tileops_device: torch.device
) -> None:
    """Any length and even width gives the reference's values, each rounded once."""
    op = SinusoidalFwdOp(seq_len=seq_len, d_model=d_model, out_dtype=dtype, device=tileops_device)
    with poisoned_allocations():
        table = op()
    assert_close(table, sinusoidal_fwd(seq_len=seq_len, d_model=d_model, device=tileops_device), dtype=dtype)
    assert (table.shape, table.is_contiguous(), table.device.type) == ((seq_len, d_model), True, tileops_device.type)


def test_far_positions_are_right(tileops_device: torch.device) -> None:
    """The angle of position 100 003 is formed exactly enough: float32's would be off in the third digit."""
    table = SinusoidalFwdOp(seq_len=100_004, d_model=2, device=tileops_device)()
    assert table[100_003].tolist() == pytest.approx([math.sin(100_003), math.cos(100_003)], abs=1e-7)


@pytest.mark.parametrize("op", [AlibiFwdOp, SinusoidalFwdOp])
def test_no_positions(op: type[AlibiFwdOp | SinusoidalFwdOp], tileops_device: torch.device) -> None:
    """A length of 0 gives an empty tensor and builds nothing."""
    width = {"num_heads": 4} if op is AlibiFwdOp else {"d_model": 4}
    made = op(seq_len=0, **width, device=tileops_device)  # type: ignore[arg-type]
    assert made().numel() == 0
    assert list(made.iter_kernels()) == []


def test_record(tileops_device: torch.device) -> None:
    """The record holds the output and the device, and the cost is its bytes written once."""
    op = AlibiFwdOp(seq_len=16, num_heads=4, out_dtype=torch.float16, device=tileops_device)
    op()
    assert {name: facts.shape for name, facts in op.last_call.tensors.items()} == {"bias": (4, 16, 16)}
    assert op.last_call.device is not None
    assert op.last_call.device.type == tileops_device.type
    assert (op.eval_roofline().bytes, op.eval_roofline().flops) == (2 * 4 * 16 * 16, 2 * 4 * 16 * 16)


def test_each_call_gives_a_new_tensor(tileops_device: torch.device) -> None:
    """Writing into one result does not show in the next: what an entry keeps is never handed out."""
    op = SinusoidalFwdOp(seq_len=4, d_model=4, device=tileops_device)
    first = op()
    expected = first.clone()
    first.zero_()
    assert torch.equal(op(), expected)
    assert len(list(op.iter_kernels())) == 1


def test_a_device_may_be_spelled() -> None:
    """A device is taken as torch takes it: by name too."""
    assert AlibiFwdOp(seq_len=2, num_heads=1, device="cpu")().device == CPU


def test_without_a_device_and_without_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to run on: the call is refused, names device=, and the next one may select again."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    op = AlibiFwdOp(seq_len=2, num_heads=1)
    with pytest.raises(OpNotAvailableError) as failure:
        op()
    assert str(failure.value) == (
        "AlibiFwdOp.alibi: in-tree kernels do not run on an unknown device; expected a device among ['cpu', 'cuda'], "
        "received an unknown device (alibi: runs on cuda; alibi_cpu: runs on cpu); this process has no accelerator to "
        "run on: pass device= to the op, or state the call spec's device"
    )
    assert op.serving_target is None
    with pytest.raises(NoCallError):
        _ = op.last_call


def test_a_process_default_target_serves_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A target that was asked for by name needs no device to be selected by."""
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: None)
    op = AlibiFwdOp(seq_len=2, num_heads=1, target="reference")
    assert_close(op(), alibi_fwd(seq_len=2, num_heads=1), dtype=torch.float32)
    assert op.serving_target == "reference"


def test_meta_device() -> None:
    """On the meta device the signature answers, and nothing is built."""
    op = SinusoidalFwdOp(seq_len=4, d_model=6, out_dtype=torch.float16, device="meta")
    table = op()
    assert (table.shape, table.dtype, table.is_meta) == ((4, 6), torch.float16, True)
    assert (list(op.iter_kernels()), op.last_call.tensors["table"].shape) == ([], (4, 6))


def test_neither_has_an_operator() -> None:
    """Without a tensor input there is no compile boundary."""
    assert (AlibiFwdOp.compile_op_names, SinusoidalFwdOp.compile_op_names) == ((), ())


def test_under_a_fake_mode(tileops_device: torch.device) -> None:
    """Where fakes are made, the call gives a fake of what it promises; it builds and keeps nothing."""
    op = AlibiFwdOp(seq_len=4, num_heads=2, device=tileops_device)
    with FakeTensorMode():
        fake = op()
    assert (type(fake).__name__, fake.shape, fake.device.type) == ("FakeTensor", (2, 4, 4), tileops_device.type)
    assert (list(op.iter_kernels()), op.serving_target, op._running.last_call) == ([], None, None)
    assert_close(op(), alibi_fwd(seq_len=4, num_heads=2, device=tileops_device), dtype=torch.float32)


def test_compiled_code_calls_it_outside_the_graph(tileops_device: torch.device) -> None:
    """Without fullgraph the call breaks the graph and computes; its checks and record are those of an eager call."""
    torch.compiler.reset()
    op = AlibiFwdOp(seq_len=4, num_heads=2, device=tileops_device)
    scores = torch.ones(2, 4, 4, device=tileops_device)
    compiled = torch.compile(lambda scores: scores + op())
    expected = 1 + alibi_fwd(seq_len=4, num_heads=2, device=tileops_device)
    assert_close(compiled(scores), expected, dtype=torch.float32, terms=torch.full_like(expected, 4))


def test_fullgraph_says_what_to_do(tileops_device: torch.device) -> None:
    """With fullgraph=True the error says that the op is called before, and its result passed in."""
    torch.compiler.reset()
    op = SinusoidalFwdOp(seq_len=4, d_model=6, device=tileops_device)
    with pytest.raises(Exception, match="takes no tensor is no node of a graph: call it before, pass its result in"):
        torch.compile(lambda x: x + op(), fullgraph=True)(torch.ones(6, device=tileops_device))


def test_a_recorded_graph_never_holds_an_empty_table(tileops_device: torch.device) -> None:
    """Where a graph is recorded from fakes, the call is refused: the graph would keep a tensor without values."""
    op = SinusoidalFwdOp(seq_len=4, d_model=6, device=tileops_device)
    with pytest.raises(OpNotAvailableError) as failure:
        make_fx(lambda x: x + op(), tracing_mode="fake")(torch.ones(6, device=tileops_device))
    assert str(failure.value) == (
        "SinusoidalFwdOp: a call without tensor inputs is no node of a graph; expected a call outside, received one "
        "while tracing; call SinusoidalFwdOp before and pass its result in"
    )


def test_a_copy_computes_the_same(tileops_device: torch.device) -> None:
    """A pickled op keeps its parameters, a device among them."""
    op = AlibiFwdOp(seq_len=3, num_heads=2, out_dtype=torch.bfloat16, device=tileops_device)
    copy = pickle.loads(pickle.dumps(op))  # noqa: S301 - made here
    assert torch.equal(copy(), op())


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"seq_len": -1, "num_heads": 2}, "AlibiFwdOp: seq_len: expected at least 0, received -1;"),
        ({"seq_len": 2, "num_heads": 0}, "AlibiFwdOp: num_heads: expected at least 1, received 0;"),
    ],
)
def test_numbers_out_of_range_are_refused(parameters: dict[str, int], message: str) -> None:
    """A negative length and no heads are refused at construction, naming the rule."""
    with pytest.raises(ParameterError) as failure:
        AlibiFwdOp(**parameters)  # type: ignore[arg-type]
    assert str(failure.value).startswith(message)


def test_an_odd_width_is_refused() -> None:
    """A sine without its cosine is refused at construction."""
    with pytest.raises(ParameterError, match=r"^SinusoidalFwdOp: d_model: expected a multiple of 2, received 5"):
        SinusoidalFwdOp(seq_len=2, d_model=5)


def test_other_types_are_refused() -> None:
    """A dtype beyond the three, and a length that is no integer, are refused at construction."""
    with pytest.raises((ParameterError, ParameterTypeError), match=r"^AlibiFwdOp: out_dtype: expected .*float32"):
        AlibiFwdOp(seq_len=2, num_heads=1, out_dtype=torch.float64)
    with pytest.raises(ParameterTypeError, match=r"^AlibiFwdOp: seq_len: expected int, received 2\.5;"):
        AlibiFwdOp(seq_len=2.5, num_heads=1)  # type: ignore[arg-type]
