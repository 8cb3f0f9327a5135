"""Checking a target of another distribution: a right one passes, and each wrong one is caught with the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

import pytest
import torch
from torch import Tensor

from plain_torch import target
from tileops.backend import BackendRegistry, Discovery, OpNotAvailableError, TargetKernel, TensorSpec
from tileops.op import Op
from tileops_testing.cases import Case
from tileops_testing.conformance import check_target
from tileops_testing.errors import CheckFailedError

from .kernels import few_cases, labelled

Change: TypeAlias = Callable[..., Any]
"""Calls a right kernel, given first, in a wrong way."""

BUILDERS: Mapping[str, Callable[..., TargetKernel]] = {
    "RMSNormFwdOp": target.build_rms_norm,
    "ReluFwdOp": target.build_relu,
}


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> Discovery:
    """Backends of the test's own, which every op uses."""
    fresh = Discovery(BackendRegistry(), find=lambda: ())
    monkeypatch.setattr(Op, "_backends", fresh)
    return fresh


def plainly(kernel: TargetKernel, *tensors: Tensor | None) -> Any:
    """Call a kernel as it is."""
    return kernel(*tensors)


def serve(backends: Discovery, change: Change = plainly, op: str = "RMSNormFwdOp") -> None:
    """Register the target `acme` for an op: a kernel of the example of a backend, called by `change`."""

    def build(*specs: TensorSpec | None, **parameters: Any) -> TargetKernel:
        return partial(change, BUILDERS[op](*specs, **parameters))

    backends.load().register_kernel_builder(op, "acme", build)


def caught_in(backends: Discovery, cases: Callable[[str], Sequence[Case]] = few_cases) -> str:
    """What the check of the target says is wrong."""
    with pytest.raises(CheckFailedError) as caught:
        check_target("acme", cases=cases, backends=backends)
    return str(caught.value)


def test_a_right_target_passes(backends: Discovery) -> None:
    """Detection on devices of every kind, and every case of the op."""
    serve(backends)
    findings = check_target("acme", cases=few_cases, backends=backends)

    assert [found.outcome for found in findings] == ["passed"] * 7
    assert [found.case for found in findings][-2:] == [
        "RMSNormFwdOp-odd-rows-float16",
        "RMSNormFwdOp-two-axes-bfloat16",
    ]


def in_columns(y: Tensor) -> Tensor:
    """The same elements, the axes in storage in the opposite order."""
    return y.new_empty(y.shape[::-1]).permute(*range(y.dim() - 1, -1, -1)).copy_(y)


class KeepsFirst:
    """Computes from the first input of each shape ever after."""

    def __init__(self) -> None:
        self.kept: dict[tuple[int, ...], Tensor] = {}

    def __call__(self, kernel: TargetKernel, x: Tensor, weight: Tensor | None) -> Any:
        return kernel(self.kept.setdefault(tuple(x.shape), x.clone()), weight)


class ReusesOutput:
    """Returns one buffer for each shape from every call."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[int, ...], Tensor] = {}

    def __call__(self, kernel: TargetKernel, x: Tensor, weight: Tensor | None) -> Any:
        y = kernel(x, weight)
        return self.buffers.setdefault(tuple(x.shape), y.clone()).copy_(y)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda kernel, x, w: kernel(x, w) * 1.25, "  output: output 0: "),
        (lambda kernel, x, w: kernel(x, None), "  output: output 0: "),
        (lambda kernel, x, w: kernel(x[..., :5].contiguous(), w[..., :5]), "y: expected float16 [3, 7] on cpu"),
        (lambda kernel, x, w: kernel(x, w).double(), "y: expected float16 [3, 7] on cpu, contiguous, received float64"),
        (lambda kernel, x, w: in_columns(kernel(x, w)), "received float16 [3, 7] on cpu, strides [1, 3]"),
        (lambda kernel, x, w: None, "y: expected float16 [3, 7] on cpu, contiguous, received NoneType"),
        (lambda kernel, x, w: x, "y: expected a new tensor, received memory of x; the kernel of target 'acme'"),
        (lambda kernel, x, w: (kernel(x, w), x.mul_(2))[0], "  effect: input x, which the call must not write: "),
        (KeepsFirst(), "  second call: output 0: "),
        (ReusesOutput(), "  second call: output 0 of the second call lies in the storage of the first call's"),
    ],
)
def test_a_wrong_kernel_is_caught(change: Change, reason: str, backends: Discovery) -> None:
    """The error names the target, the case, and the check or the output that is wrong."""
    serve(backends, change)
    found = caught_in(backends)

    assert found.startswith("target acme on cpu: 2 of 7 findings failed\n  RMSNormFwdOp-odd-rows-float16: ")
    assert reason in found


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda kernel, x: torch.relu(x), "output: expected the caller's own input, received another tensor"),
        (
            lambda kernel, x: (kernel(x.contiguous()), x)[1],
            "  layouts: transposed inputs: input against dense inputs: ",
        ),
        (
            lambda kernel, x: (kernel(x.as_strided(x.shape, torch.empty(x.shape, device="meta").stride())), x)[1],
            "  layouts: sliced inputs: input against dense inputs: ",
        ),
    ],
)
def test_a_wrong_kernel_that_writes_is_caught(change: Change, reason: str, backends: Discovery) -> None:
    """It writes the caller's own tensor, wherever its elements lie."""
    serve(backends, change, "ReluFwdOp")

    assert reason in caught_in(backends, lambda op: labelled(op, "inplace-beside-an-access-float32"))


def test_a_builder_that_refuses_is_caught(backends: Discovery) -> None:
    """A target serves an op as a whole: each case that it refuses is a finding, and so is one that gets no kernel."""

    def build(x: TensorSpec, weight: TensorSpec | None, **parameters: Any) -> Any:
        if x.dtype is torch.bfloat16:
            raise OpNotAvailableError("acme: no bfloat16")
        return None

    backends.load().register_kernel_builder("RMSNormFwdOp", "acme", build)
    found = caught_in(backends)

    assert "-odd-rows-float16: RMSNormFwdOp: target 'acme': expected its builder to return a callable" in found
    assert "-two-axes-bfloat16: acme: no bfloat16" in found


def test_a_builder_that_ignores_a_parameter_is_caught(backends: Discovery) -> None:
    """A target serves every call that the signature allows."""

    def build(x: TensorSpec, *, dim: int | None, dtype: torch.dtype | None) -> TargetKernel:
        return target.build_softmax(x, dim=dim, dtype=None)

    backends.load().register_kernel_builder("SoftmaxFwdOp", "acme", build)
    found = caught_in(backends, lambda op: labelled(op, "odd-rows-float32", "narrower-float32"))

    assert found.splitlines()[0] == "target acme on cpu: 1 of 7 findings failed"
    assert "-narrower-float32: SoftmaxFwdOp: y: expected float16 [4, 16] on cpu, contiguous, received float32" in found


def test_what_a_kernel_raises_comes_through(backends: Discovery) -> None:
    """With a note that names the target and the case."""
    serve(backends, lambda kernel, x, w: 1 // 0)
    with pytest.raises(ZeroDivisionError) as caught:
        check_target("acme", cases=few_cases, backends=backends)

    assert caught.value.__notes__ == ["while target acme was checked on RMSNormFwdOp-odd-rows-float16"]


def test_a_detector_that_raises_is_caught(backends: Discovery) -> None:
    """It answers for every device, False for those that are not its own."""

    def detect(device: torch.device) -> bool:
        if device.type == "meta":
            raise RuntimeError("no driver for meta")
        return False

    serve(backends)
    backends.load().register_detector("acme", detect)
    with pytest.raises(CheckFailedError, match=r"detection on meta: detector of target 'acme' .*no driver for meta"):
        check_target("acme", cases=few_cases, backends=backends)


def test_two_targets_that_claim_a_device_are_caught(backends: Discovery) -> None:
    """A device that another target claims too is ambiguous."""
    serve(backends)
    for name in ("acme", "bolt"):
        backends.load().register_detector(name, lambda device: device.type == "xpu")
    with pytest.raises(
        CheckFailedError, match="detection on xpu: conformance: target: expected one target to claim xpu"
    ):
        check_target("acme", cases=few_cases, backends=backends)


def test_an_unknown_target_is_named(backends: Discovery) -> None:
    """With the registered ones."""
    serve(backends)
    with pytest.raises(CheckFailedError) as caught:
        check_target("acne", backends=backends)
    assert str(caught.value) == ("acne: expected a registered target, one of ['acme']; install its distribution")


def test_a_target_that_serves_nothing_is_named(backends: Discovery) -> None:
    """A detector alone serves no op."""
    backends.load().register_detector("acme", lambda _: False)
    for ops in ((), ("RMSNormFwdOp",)):
        with pytest.raises(CheckFailedError, match=r"acme: expected it to serve .*, found no builder; register one"):
            check_target("acme", ops=ops, backends=backends)
