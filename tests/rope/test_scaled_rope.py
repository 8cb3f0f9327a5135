"""RoPELlama31FwdOp and YaRNFwdOp: pairs that turn seldom are slowed down, the others stay."""

from __future__ import annotations

import math

import pytest
import torch

from tileops.errors import ParameterError
from tileops.rope import RoPELlama31FwdOp, YaRNFwdOp
from tileops_testing.fakes import assert_facts, fake_outputs
from tileops_testing.graphs import RecordingBackend

from .checking import DTYPES, SHAPES, check, expected, layout_of, make

pytestmark = pytest.mark.op("RoPELlama31FwdOp", "YaRNFwdOp")


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"base": 500000.0},
        {"scale_factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 1.5},
        {"scale_factor": -2.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0},
        {"original_max_position": 1},
        {"base": math.inf},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_llama31_agrees_with_the_reference(
    shape: tuple[int, ...], parameters: dict[str, float], tileops_device: torch.device
) -> None:
    """Any factors and any shape give the reference's values."""
    x = make(*shape, dtype=torch.float32, device=tileops_device)
    op = RoPELlama31FwdOp(**parameters, input_layout=layout_of(shape))  # type: ignore[arg-type]
    check(op(x), expected("RoPELlama31FwdOp", x, **parameters, input_layout=layout_of(shape)))


def test_llama31_bands(tileops_device: torch.device) -> None:
    """Of four pairs the first stays, the second is a mixture and the others turn 8 times slower."""
    x = torch.zeros(2, 8, dtype=torch.float32, device=tileops_device)
    x[:, :4] = 1
    # Wavelengths are 2 pi times 1, 16, 256 and 4096; a context of 64 pi holds 32, 2, 1/8 and 1/128 of them.
    op = RoPELlama31FwdOp(base=16.0**4, original_max_position=201)
    kept = (201 / (32 * math.pi) - 1) / 3
    angles = [1.0, (kept + (1 - kept) / 8) / 16, 1 / 2048, 1 / 32768]
    assert op(x)[1, 4:].tolist() == pytest.approx([math.sin(angle) for angle in angles], rel=1e-6)


def test_llama31_without_a_scale_is_rope(tileops_device: torch.device) -> None:
    """A scale of 1 leaves all pairs as they are, up to the rounding of a mixture."""
    x = make(33, 64, dtype=torch.float32, device=tileops_device)
    check(RoPELlama31FwdOp(scale_factor=1.0)(x), expected("RoPEFwdOp", x))


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"scale": 40.0, "attn_factor": 0.5, "base": 500000.0},
        {"scale": 0.25},
        {"beta_fast": 1.0, "beta_slow": 32.0},
        {"beta_fast": 8.0, "beta_slow": 8.0, "attn_factor": -1.0},
        {"original_max_position": 1},
        {"base": 0.5},
        {"base": math.inf},
    ],
    ids=str,
)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_yarn_agrees_with_the_reference(
    shape: tuple[int, ...], parameters: dict[str, float], tileops_device: torch.device
) -> None:
    """Any ramp, scale and shape give the reference's values."""
    x = make(*shape, dtype=torch.float32, device=tileops_device)
    op = YaRNFwdOp(**parameters, input_layout=layout_of(shape))  # type: ignore[arg-type]
    check(op(x), expected("YaRNFwdOp", x, **parameters, input_layout=layout_of(shape)))


def test_yarn_ramp_and_amplitude(tileops_device: torch.device) -> None:
    """Pairs before the ramp stay, behind it they turn 16 times slower; lengths grow by 1 + log(16) / 10."""
    x = torch.zeros(2, 128, dtype=torch.float32, device=tileops_device)
    x[:, :64] = 1
    turned = YaRNFwdOp()(x)[1]
    angles = torch.atan2(turned[64:].double(), turned[:64].double())
    plain = 10000.0 ** (-torch.arange(64, dtype=torch.float64, device=tileops_device) / 64)
    # 64 log(4096 / (2 pi 32)) / log(10000) = 20.9 and 64 log(4096 / (2 pi)) / log(10000) = 45.03
    slower = ((torch.arange(64, device=tileops_device).double() - 20) / 26).clamp(0, 1)
    torch.testing.assert_close(angles, plain * (1 - slower + slower / 16), rtol=1e-6, atol=0)
    lengths = torch.hypot(turned[64:], turned[:64])
    torch.testing.assert_close(lengths, torch.full_like(lengths, 1 + math.log(16) / 10), rtol=1e-6, atol=0)


def test_yarn_without_a_scale_is_rope(tileops_device: torch.device) -> None:
    """A scale of 1 leaves all pairs as they are, up to the rounding of a mixture."""
    x = make(33, 64, dtype=torch.float32, device=tileops_device)
    check(YaRNFwdOp(scale=1.0)(x), expected("RoPEFwdOp", x))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", ["RoPELlama31FwdOp", "YaRNFwdOp"])
def test_every_dtype_and_far_positions(op: str, dtype: torch.dtype, tileops_device: torch.device) -> None:
    """Scaled frequencies keep their digits at position 100 003, in every dtype."""
    x = make(100_004, 4, dtype=dtype, device=tileops_device)
    made = RoPELlama31FwdOp() if op == "RoPELlama31FwdOp" else YaRNFwdOp()
    check(made(x), expected(op, x))


@pytest.mark.parametrize(
    ("op", "parameters", "rule"),
    [
        (RoPELlama31FwdOp, {"base": 0.0}, "base: expected more than 0"),
        (RoPELlama31FwdOp, {"scale_factor": 0.0}, "scale_factor: expected another value than 0"),
        (RoPELlama31FwdOp, {"low_freq_factor": 0.0}, "low_freq_factor: expected another value than 0"),
        (RoPELlama31FwdOp, {"high_freq_factor": 0.0}, "high_freq_factor: expected another value than 0"),
        (
            RoPELlama31FwdOp,
            {"high_freq_factor": 1.0},
            "low_freq_factor: expected another value than 1.0 for high",
        ),
        (RoPELlama31FwdOp, {"original_max_position": 0}, "original_max_position: expected at least 1"),
        (YaRNFwdOp, {"base": 1.0}, "base: expected another value than 1"),
        (YaRNFwdOp, {"base": -1.0}, "base: expected more than 0"),
        (YaRNFwdOp, {"scale": 0.0}, "scale: expected more than 0"),
        (YaRNFwdOp, {"scale": math.nan}, "scale: expected more than 0"),
        (YaRNFwdOp, {"original_max_position": 0}, "original_max_position: expected at least 1"),
        (YaRNFwdOp, {"beta_fast": 0.0}, "beta_fast: expected more than 0"),
        (YaRNFwdOp, {"beta_slow": -1.0}, "beta_slow: expected more than 0"),
    ],
    ids=str,
)
def test_parameters_without_frequencies_are_refused(
    op: type[RoPELlama31FwdOp | YaRNFwdOp], parameters: dict[str, float], rule: str
) -> None:
    """What a formula divides by, or takes the logarithm of, is refused at construction, naming the rule."""
    with pytest.raises(ParameterError, match=rf"^{op.__name__}: .*{rule}"):
        op(**parameters)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("op", "name"),
    [(RoPELlama31FwdOp(), "tileops::rope_llama31_fwd"), (YaRNFwdOp(input_layout="2d"), "tileops::rope_yarn_fwd")],
    ids=["llama31", "yarn"],
)
def test_one_node_for_every_length(op: RoPELlama31FwdOp | YaRNFwdOp, name: str, tileops_device: torch.device) -> None:
    """A compiled call is one node, compiled once for all lengths, and equals eager bit for bit."""
    torch.compiler.reset()
    backend = RecordingBackend()
    compiled = torch.compile(lambda x: op(x) + 1, fullgraph=True, backend=backend)
    axis = 0 if op.input_layout == "1d" else 1
    for length in (16, 17, 300):
        shape = (length, 8) if axis == 0 else (2, length, 3, 8)
        x = make(*shape, dtype=torch.float16, device=tileops_device, layout="transposed")
        torch._dynamo.mark_dynamic(x, axis)
        assert torch.equal(compiled(x), op(x) + 1)
        assert_facts(fake_outputs(op, (x,)), [op(x)])
    assert [graph.names[0] for graph in backend.graphs] == [name]
