"""The example model: a Llama decoder whose norms and rotations are ops gives the same logits, in one graph a layer."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch._dynamo.testing import CompileCounter

from tileops_testing.graphs import RecordingBackend

pytest.importorskip("transformers", reason="needs transformers, which docs/examples/llama runs on")

from tileops_llama import with_ops
from tileops_llama.__main__ import compared, main
from tileops_llama.decoding import Decoding, captured, make_model

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def inference() -> Any:
    """Everything here runs without gradients."""
    with torch.no_grad():
        yield


@pytest.fixture
def original() -> Any:
    """The smallest model, as transformers makes it."""
    return make_model("tiny", CPU, torch.float32)


def layer_inputs(model: Any, length: int) -> dict[str, torch.Tensor]:
    """Return what a decoder layer is called with."""
    return {
        "hidden_states": torch.randn(2, length, model.config.hidden_size),
        "position_ids": torch.arange(length)[None],
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_the_logits_are_the_same(dtype: torch.dtype) -> None:
    """Two sequences of 33 tokens give the original's logits, or in half precision none farther from float32's."""
    model = make_model("tiny", CPU, dtype)
    prompt = torch.randint(256, (2, 33))
    replaced = with_ops(model)
    apart, problem = compared({"original": model, "with ops": replaced}, prompt)
    assert replaced(input_ids=prompt).logits.dtype == dtype
    assert problem == ""
    assert re.fullmatch(
        r"largest (difference|error) of logits: \d\.\de-\d\d of the largest logit(, with ops .*)?", apart
    )


def test_decoding_gives_the_same_tokens(original: Any) -> None:
    """Eight steps on a cache of fixed length give the original's tokens and logits, each step on the one before."""
    prompt = torch.randint(256, (2, 7))
    expected, found = Decoding(original, prompt, 8), Decoding(with_ops(original), prompt, 8)
    for _ in range(8):
        expected.step()
        found.step()
        assert torch.equal(expected.tokens, found.tokens)
        torch.testing.assert_close(expected.logits, found.logits, rtol=0, atol=1e-5)
    assert int(found.position) == 15


def test_decoding_anew_takes_the_same_tensors_and_compiles_nothing(original: Any) -> None:
    """After `restart` a compiled step decodes the same tokens again, in the same places and by the same code."""
    decoding = Decoding(with_ops(original), torch.randint(256, (2, 7)), 4)
    places = decoding.tokens.data_ptr(), decoding.position.data_ptr()
    torch.compiler.reset()
    counter, found = CompileCounter(), []
    for _ in range(2):
        step = torch.compile(decoding.step, backend=counter, fullgraph=True)
        for _ in range(4):
            step()
            found.append(decoding.tokens.tolist())
        decoding.restart()
    assert found[:4] == found[4:]
    assert (int(decoding.position), counter.frame_count) == (7, 1)
    assert (decoding.tokens.data_ptr(), decoding.position.data_ptr()) == places


def test_the_original_is_left_as_it_was(original: Any) -> None:
    """The copy holds the same weights under the same names, and the original its own modules."""
    names = [name for name, _ in original.named_parameters()]
    before = [type(module) for module in original.modules()]
    copied = dict(with_ops(original).named_parameters())
    assert list(copied) == names
    assert all(copied[name] is weight for name, weight in original.named_parameters())
    assert [type(module) for module in original.modules()] == before


def test_a_layer_is_one_graph(original: Any) -> None:
    """A decoder layer compiled with fullgraph=True is one graph, with a node for each norm and each rotation."""
    layer = with_ops(original).model.layers[0]
    inputs = layer_inputs(original, 9)
    recording = RecordingBackend(inner="eager")
    compiled: Any = torch.compile(layer, backend=recording, fullgraph=True)
    assert torch.equal(compiled(**inputs), layer(**inputs))
    assert len(recording.graphs) == 1
    assert [name for name in recording.names() if name.startswith("tileops::")] == [
        "tileops::norm_rms_norm_fwd",
        "tileops::rope_neox_position_ids_fwd",
        "tileops::rope_neox_position_ids_fwd",
        "tileops::norm_rms_norm_fwd",
    ]


def test_layers_share_their_compiled_code(original: Any) -> None:
    """Layers hold shared ops, so that compiling each of them compiles once."""
    model = with_ops(original)
    inputs = layer_inputs(original, 9)
    torch.compiler.reset()
    counter = CompileCounter()
    for layer in model.model.layers:
        layer.compile(backend=counter, fullgraph=True)
        layer(**inputs)
    assert (len(model.model.layers), counter.frame_count) == (2, 1)


def test_a_whole_step_is_one_graph(original: Any) -> None:
    """A decoding step, from token to token, compiles with fullgraph=True and decodes as the plain step does."""
    model, prompt = with_ops(original), torch.randint(256, (1, 5))
    plain, compiled = Decoding(model, prompt, 4), Decoding(model, prompt, 4)
    recording = RecordingBackend(inner="eager")
    step = torch.compile(compiled.step, backend=recording, fullgraph=True)
    for _ in range(3):
        plain.step()
        step()
        assert torch.equal(plain.tokens, compiled.tokens)
    assert sum(name.startswith("tileops::") for name in recording.names()) == 9


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_captured_step_decodes_as_the_plain_one() -> None:
    """A step replayed as a CUDA graph gives the tokens of plain steps."""
    device = torch.device("cuda")
    model = with_ops(make_model("tiny", device, torch.bfloat16))
    prompt = torch.randint(256, (2, 7), device=device)
    plain, replayed = Decoding(model, prompt, 12), Decoding(model, prompt, 12)
    replay = captured(replayed.step)
    for _ in range(2):
        plain.step()
    for _ in range(8):
        plain.step()
        replay()
        assert torch.equal(plain.tokens, replayed.tokens)


def test_scaled_frequencies_are_refused(original: Any) -> None:
    """A model that the op cannot turn for is refused, with what to do."""
    original.config.rope_parameters["rope_type"] = "llama3"
    with pytest.raises(ValueError, match="rope_type: expected 'default', received 'llama3'; use a config without scal"):
        with_ops(original)


def test_the_command_reports_both_rates(capsys: pytest.CaptureFixture[str]) -> None:
    """The command compares the logits, then prints tokens per second of both models for each way of running."""
    arguments = ["--size", "tiny", "--device", "cpu", "--dtype", "float32", "--prompt", "8", "--steps", "2"]
    assert main([*arguments, "--no-compile"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Llama tiny, float32 on cpu, ")
    assert lines[2].split() == ["tokens", "per", "second", "original", "with", "ops", "ratio"]
    for line, way in zip(lines[3:], ("prefill of 1 x 8", "decode"), strict=True):
        rates = [float(word) for word in line.removeprefix(way).split()]
        assert line.startswith(way)
        assert len(rates) == 3
        assert min(rates) > 0


@pytest.mark.parametrize(
    ("dtype", "bound", "problem"),
    [
        ("float32", "ALLOWED", r"expected at most -1e\+00: the models disagree"),
        ("bfloat16", "FARTHER", r"expected at most -\d\.\de-\d\d with ops: the models disagree"),
    ],
)
def test_models_that_disagree_are_not_measured(
    dtype: str, bound: str, problem: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the logits differ by more than is allowed, the command says so and ends with status 1."""
    monkeypatch.setattr(f"tileops_llama.__main__.{bound}", -1.0 if dtype == "float32" else -100.0)
    assert main(["--size", "tiny", "--device", "cpu", "--dtype", dtype, "--prompt", "4"]) == 1
    assert re.search(problem, capsys.readouterr().out.splitlines()[-1])
