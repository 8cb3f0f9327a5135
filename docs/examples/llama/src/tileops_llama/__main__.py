"""`python -m tileops_llama`: tokens per second of a Llama as it comes, and with its norms and rotations as ops."""

from __future__ import annotations

import argparse
import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from rich.console import Console
from torch import Tensor
from transformers.utils import logging

from tileops_llama.decoding import SIZES, WARM_STEPS, Decoding, captured, make_model, seconds
from tileops_llama.replacing import with_ops

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
ALLOWED = 1e-5
"""How far logits in float32 may differ, as a share of the largest."""
FARTHER = 1.5
"""So much farther than the original's may logits in half precision be from those of the same weights in float32."""
PASSES = ("original", "with ops", "with ops", "original")
"""The order of measuring, so that a drift of the clock rate falls on both alike; the better pass of each counts."""

Models = Mapping[str, Any]
Run = Callable[[], object]
Way = tuple[str, Mapping[str, Run], int, int]
"""A way of running: its name, what runs of each model, the tokens of one run, and how often it runs in a pass."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the logits, measure both models, and return 1 where the logits differ."""
    chosen = _parser().parse_args(arguments)
    device, dtype = torch.device(chosen.device), DTYPES[chosen.dtype]
    console = Console(highlight=False)
    logging.set_verbosity_error()  # what transformers warns of concerns weights that are loaded; these are random
    with torch.inference_mode():
        with shown(f"making a Llama of size {chosen.size}"):
            original = make_model(chosen.size, device, dtype)
            models = {"original": original, "with ops": with_ops(original)}
        prompt = torch.randint(original.config.vocab_size, (chosen.batch, chosen.prompt), device=device)
        with shown("comparing logits; what the ops run is compiled, once for this machine"):
            apart, problem = compared(models, prompt)
        console.print(f"Llama {chosen.size}, {chosen.dtype} on {_name(device)}, {torch.get_num_threads()} threads")
        console.print(apart)
        if problem:
            console.print(problem)
            return 1
        for line in _measured(models, prompt, chosen):
            console.print(line, soft_wrap=True)
    return 0


def _parser() -> argparse.ArgumentParser:
    cuda = torch.cuda.is_available()
    parser = argparse.ArgumentParser(prog="python -m tileops_llama", description=__doc__)
    parser.add_argument("--size", choices=tuple(SIZES), default="small")
    parser.add_argument("--device", default="cuda" if cuda else "cpu")
    parser.add_argument("--dtype", choices=tuple(DTYPES), default="bfloat16" if cuda else "float32")
    parser.add_argument("--batch", type=int, default=1, help="sequences decoded together")
    parser.add_argument("--prompt", type=int, default=256, help="tokens of the prompt")
    parser.add_argument("--steps", type=int, default=32, help="tokens decoded in a pass")
    parser.add_argument("--no-compile", action="store_true", help="leave torch.compile out, which takes longest")
    return parser


@contextmanager
def shown(work: str) -> Iterator[None]:
    """Say on the error output what is being done: while it lasts on a terminal, else as a line."""
    console = Console(stderr=True, highlight=False)
    if console.is_terminal:
        with console.status(work):
            yield
    else:
        console.print(work)
        yield


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else str(device)


def compared(models: Models, prompt: Tensor) -> tuple[str, str]:
    """What the models' logits are apart, in words, and what is wrong with that, or nothing.

    In half precision both round, each in places of its own, so both are held against the same weights in float32.
    """
    original, replaced = (model(input_ids=prompt).logits for model in models.values())
    if original.dtype == torch.float32:
        difference = _apart(replaced, original)
        apart = f"largest difference of logits: {difference:.1e} of the largest logit"
        return apart, "" if difference <= ALLOWED else f"expected at most {ALLOWED:.0e}: the models disagree"
    exact = copy.deepcopy(models["original"]).float()(input_ids=prompt).logits
    before, after = _apart(original, exact), _apart(replaced, exact)
    apart = f"largest error of logits: {before:.1e} of the largest logit, with ops {after:.1e}"
    allowed = FARTHER * before + torch.finfo(original.dtype).eps
    return apart, "" if after <= allowed else f"expected at most {allowed:.1e} with ops: the models disagree"


def _apart(logits: Tensor, others: Tensor) -> float:
    """The largest difference, as a share of the largest of the others."""
    return float((logits.float() - others.float()).abs().max() / others.float().abs().max())


def _measured(models: Models, prompt: Tensor, chosen: argparse.Namespace) -> Iterator[str]:
    """Yield tokens per second of both models and their ratio, a line per way of running as soon as it is measured."""
    yield f"{'tokens per second':<30}" + "".join(f"{name:>10}" for name in (*models, "ratio"))
    for way, runs, tokens, times in _ways(models, prompt, chosen):
        with shown(f"measuring {way}"):
            found = _best(runs, prompt.device, times)
        rates = {name: tokens / found[name] for name in models}
        figures = "".join(f"{rate:>10.0f}" for rate in rates.values())
        yield f"{way:<30}{figures}{rates['with ops'] / rates['original']:>10.2f}"


def _ways(models: Models, prompt: Tensor, chosen: argparse.Namespace) -> Iterator[Way]:
    """Yield what is measured, each made when its turn comes."""
    batch, length = prompt.shape
    prefill = {name: _prefill(model, prompt) for name, model in models.items()}
    yield f"prefill of {batch} x {length}", prefill, batch * length, 3
    kinds: dict[str, Callable[[Run], Run]] = {"decode": lambda step: step}
    if not chosen.no_compile:
        kinds["decode, compiled"] = lambda step: torch.compile(step, fullgraph=True)
    if prompt.is_cuda:
        kinds["decode, CUDA graph"] = captured
        if not chosen.no_compile:
            kinds["decode, compiled, CUDA graph"] = lambda step: captured(torch.compile(step, fullgraph=True))
    taken = 2 * WARM_STEPS + 1 + 2 * chosen.steps
    decodings = {name: Decoding(model, prompt, taken) for name, model in models.items()}
    for way, prepare in kinds.items():
        for decoding in decodings.values():
            decoding.restart()
        yield way, {name: prepare(decoding.step) for name, decoding in decodings.items()}, batch, chosen.steps


def _prefill(model: Any, prompt: Tensor) -> Run:
    return lambda: model(input_ids=prompt, logits_to_keep=1)


def _best(runs: Mapping[str, Run], device: torch.device, times: int) -> dict[str, float]:
    """Seconds of one run of each model, after warming both."""
    for run in runs.values():
        seconds(run, device, WARM_STEPS)
    passes = [(name, seconds(runs[name], device, times)) for name in PASSES]
    return {name: min(taken for other, taken in passes if other == name) for name in runs}


if __name__ == "__main__":
    sys.exit(main())
