"""Checking a target of another distribution: a right one passes, and each wrong one is caught with the reason."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from tileops.backend import BackendRegistry, Discovery, TensorSpec
from tileops.op import Op
from tileops_testing.conformance import check_target
from tileops_testing.errors import CheckFailedError

from .kernels import few_cases, rms_norm


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> Discovery:
    """Backends of the test's own, which every op uses."""
    fresh = Discovery(BackendRegistry(), find=lambda: ())
    monkeypatch.setattr(Op, "_backends", fresh)
    return fresh


def serve(backends: Discovery, compute: Callable[..., Any]) -> None:
    """Register the target `acme`, whose kernels run `compute(x, weight, n, eps)`."""

    def build(
        *specs: TensorSpec | None, normalized_shape: Sequence[int], eps: float | None
    ) -> Callable[[Tensor, Tensor | None], Any]:
        offset = torch.finfo(torch.float32).eps if eps is None else eps
        return lambda x, weight: compute(x, weight, math.prod(normalized_shape), offset)

    backends.load().register_kernel_builder("RMSNormFwdOp", "acme", build)


def test_a_right_target_passes(backends: Discovery) -> None:
    """Detection on devices of every kind, and every case of the op."""
    serve(backends, rms_norm)
    findings = check_target("acme", cases=few_cases, backends=backends)

    assert [found.outcome for found in findings] == ["passed"] * 7
    assert [found.case for found in findings][-2:] == [
        "RMSNormFwdOp-odd-rows-float16",
        "RMSNormFwdOp-two-axes-bfloat16",
    ]


@pytest.mark.parametrize(
    ("compute", "reason"),
    [
        (lambda x, w, n, eps: rms_norm(x, w, n, eps + 0.1), "output: output 0: "),
        (lambda x, w, n, eps: rms_norm(x, None, n, eps), "output: output 0: "),
        (lambda x, w, n, eps: (rms_norm(x, w, n, eps), x.mul_(2))[0], "input x, which the call must not write"),
    ],
)
def test_a_wrong_target_is_caught(compute: Callable[..., Any], reason: str, backends: Discovery) -> None:
    """Wrong values, an input ignored and an input written: the error names target, case and check."""
    serve(backends, compute)
    with pytest.raises(CheckFailedError) as caught:
        check_target("acme", cases=few_cases, backends=backends)

    assert str(caught.value).startswith("target acme on cpu: ")
    assert reason in str(caught.value)


def test_what_the_base_refuses_comes_through(backends: Discovery) -> None:
    """A result of another dtype is refused by the op itself, with a note that names the case."""
    serve(backends, lambda x, w, n, eps: rms_norm(x.double(), w, n, eps))
    with pytest.raises(RuntimeError, match="RMSNormFwdOp: y: expected float16") as caught:
        check_target("acme", cases=few_cases, backends=backends)

    assert caught.value.__notes__ == ["while target acme was checked on RMSNormFwdOp-odd-rows-float16"]


def test_a_detector_that_raises_is_caught(backends: Discovery) -> None:
    """It answers for every device, False for those that are not its own."""

    def detect(device: torch.device) -> bool:
        if device.type == "meta":
            raise RuntimeError("no driver for meta")
        return False

    serve(backends, rms_norm)
    backends.load().register_detector("acme", detect)
    with pytest.raises(CheckFailedError, match=r"detection on meta: detector of target 'acme' .*no driver for meta"):
        check_target("acme", cases=few_cases, backends=backends)


def test_two_targets_that_claim_a_device_are_caught(backends: Discovery) -> None:
    """A device that another target claims too is ambiguous."""
    serve(backends, rms_norm)
    for name in ("acme", "bolt"):
        backends.load().register_detector(name, lambda device: device.type == "xpu")
    with pytest.raises(
        CheckFailedError, match="detection on xpu: conformance: target: expected one target to claim xpu"
    ):
        check_target("acme", cases=few_cases, backends=backends)


def test_an_unknown_target_is_named(backends: Discovery) -> None:
    """With the registered ones."""
    serve(backends, rms_norm)
    with pytest.raises(CheckFailedError) as caught:
        check_target("acne", backends=backends)
    assert str(caught.value) == ("acne: expected a registered target, one of ['acme']; install its distribution")


def test_a_target_that_serves_nothing_is_named(backends: Discovery) -> None:
    """A detector alone serves no op."""
    backends.load().register_detector("acme", lambda _: False)
    for ops in ((), ("RMSNormFwdOp",)):
        with pytest.raises(CheckFailedError, match=r"acme: expected it to serve .*, found no builder; register one"):
            check_target("acme", ops=ops, backends=backends)
