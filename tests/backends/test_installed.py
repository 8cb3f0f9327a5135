"""The example of a backend installed as a distribution: its kernel type and its target, found by its entry point."""

from __future__ import annotations

from .conftest import Run

PLAIN = """
import torch
from tileops.backend import load_failures, registered_targets, OpNotAvailableError
from tileops.manifest.parse import parse_entry
from tileops.norm import RMSNormFwdOp
from tileops.op import Op
import warnings
warnings.simplefilter("error")
"""

COUNTED = """
from plain_torch import target
BUILT, build = [], target.build_rms_norm
def counted(*specs, **parameters):
    BUILT.append(specs)
    return build(*specs, **parameters)
target.build_rms_norm = counted
"""


def test_a_kernel_type_is_preferred_on_short_rows(run: Run) -> None:
    """Short rows go to the added kernel type, longer ones to the in-tree one, with right values."""
    program = """
op = RMSNormFwdOp((8,))
y = op(torch.full((2, 8), 3.0))
print(torch.allclose(y, torch.ones(2, 8)), [type(kernel).__name__ for kernel in op.iter_kernels()])
long = RMSNormFwdOp((512,))
long(torch.ones(2, 512))
print([type(kernel).__name__ for kernel in long.iter_kernels()], load_failures())
call = next(long.iter_kernels()).call
print(long.kernel_table("rms_norm").explain(call).passed_over["rms_norm_short_rows"])
"""
    assert run(PLAIN + program, "plain_torch") == [
        "True ['RMSNormShortRowsKernel']",
        "['RMSNormCPUKernel'] ()",
        "serves rows of at most 256 elements; n=512",
    ]


def test_without_it_nothing_changes(run: Run) -> None:
    """The process of this test sees the in-tree kernel types alone."""
    assert run(PLAIN + "print(sorted(RMSNormFwdOp((8,)).kernel_table('rms_norm').types))\n") == [
        "['rms_norm', 'rms_norm_clustered', 'rms_norm_cpu', 'rms_norm_on_chip', 'rms_norm_streaming']"
    ]


def test_a_target_serves_its_device_type(run: Run) -> None:
    """Tensors of the device that it claims reach it without being asked for; its kernel is built once per shape."""
    program = """
from tests.backends.lab import LabTensor
op = RMSNormFwdOp((4,))
for _ in range(2):
    y = op(LabTensor(torch.full((2, 4), 3.0)), LabTensor(torch.ones(4)))
print(type(y).__name__, y.held.mean().item() > 0.99, op.serving_target, op.last_call.device)
print(len(BUILT), BUILT[0][0])
other = RMSNormFwdOp((4,))
other(torch.ones(1, 4))
print(other.serving_target)
"""
    assert run(PLAIN + COUNTED + program, "plain_torch") == [
        "LabTensor True plain_torch privateuseone:0",
        ("1 TensorSpec(device=device(type='privateuseone', index=0), dtype=torch.float32, shape=(2, 4))"),
        "builtin",
    ]


def test_a_selected_target_serves_calls_from_other_devices(run: Run) -> None:
    """What the first call selected stays, in both directions; kernels that do not run there say so."""
    program = """
from tests.backends.lab import LabTensor
op = RMSNormFwdOp((4,))
op(LabTensor(torch.ones(1, 4)))
print(op(torch.full((1, 4), 3.0)).mean().item() > 0.99, op.serving_target)
other = RMSNormFwdOp((4,))
other(torch.ones(1, 4))
try:
    other(LabTensor(torch.ones(1, 4)))
except OpNotAvailableError as error:
    print(str(error).partition(";")[0], "/", other.serving_target)
"""
    assert run(PLAIN + program, "plain_torch") == [
        "True plain_torch",
        "RMSNormFwdOp.rms_norm: in-tree kernels do not run on privateuseone:0 / builtin",
    ]


def test_an_input_declared_for_the_cpu_stays_there(run: Run) -> None:
    """Of a call on another device, the builder is told the device of each input, and the kernel gets them there."""
    program = """
from tests.backends.lab import LabTensor
from tests.spec import toys
from tileops.backend import BackendRegistry, Discovery
registry = BackendRegistry(lambda: ("GatherFwdOp",))
toys.ToyOp._backends = Discovery(registry, find=lambda: ())
registry.register_detector("lab", lambda device: device.type == "privateuseone")
def build(x, places):
    print(x.device, places.device)
    return lambda x, places: print(x.device, places.device) or LabTensor(x.held[..., places].contiguous())
registry.register_kernel_builder("GatherFwdOp", "lab", build)
op = toys.GatherFwdOp()
print(op(LabTensor(torch.arange(6.0).reshape(2, 3)), torch.tensor([2])).held.tolist(), op.serving_target)
try:
    op(LabTensor(torch.ones(2, 3)), LabTensor(torch.tensor([2])))
except RuntimeError as error:
    print(error)
"""
    assert run(PLAIN + program, "plain_torch") == [
        "privateuseone:0 cpu",
        "privateuseone:0 cpu",
        "[[2.0], [5.0]] lab",
        "GatherFwdOp: places: expected device cpu, received device privateuseone:0; move places with .to('cpu')",
    ]


def test_a_second_card_builds_again(run: Run) -> None:
    """One instance on two cards, alternating: a kernel for each, and results where the inputs are."""
    program = """
from tests.backends.lab import LabTensor
op = RMSNormFwdOp((4,))
devices = [op(LabTensor(torch.ones(1, 4), index)).device.index for index in (0, 1, 0, 1)]
print(devices, [spec.device.index for spec, _ in BUILT], op.last_call.device)
try:
    op(LabTensor(torch.ones(1, 4), 0), LabTensor(torch.ones(4), 1))
except RuntimeError as error:
    print(error)
"""
    assert run(PLAIN + COUNTED + program, "plain_torch") == [
        "[0, 1, 0, 1] [0, 1] privateuseone:1",
        (
            "RMSNormFwdOp: weight: expected device privateuseone:0, as x has, received device privateuseone:1; move "
            "weight with .to('privateuseone:0')"
        ),
    ]


def test_a_target_may_be_asked_for_on_any_device(run: Run) -> None:
    """By the constructor, or as the process default."""
    program = """
from tileops.backend import set_default_target, default_target
print(registered_targets(), registered_targets("RMSNormFwdOp"), registered_targets("AddFwdOp"))
op = RMSNormFwdOp((4,), target="plain_torch")
print(op(torch.full((2, 4), 3.0)).mean().item() > 0.99, op.serving_target)
set_default_target("plain_torch")
other = RMSNormFwdOp((4,))
other(torch.ones(1, 4))
print(other.serving_target, default_target())
"""
    assert run(PLAIN + program, "plain_torch") == [
        "('plain_torch', 'reference') ('plain_torch', 'reference') ()",
        "True plain_torch",
        "plain_torch plain_torch",
    ]


def test_a_target_does_not_serve_other_ops(run: Run) -> None:
    """On its device an op that it has no builder for is not available, and does not fall back."""
    program = """
from tests.backends.lab import LabTensor
text = '''
signature:
  forall: {S: Shape, T: "DType[float32]"}
  inputs: {x: {dtype: T, shape: "[*S]"}}
  outputs: {y: {dtype: T, shape: "[*S]"}}
'''
class CopyFwdOp(Op, entry=parse_entry(text, "CopyFwdOp", family="toy")):
    def forward(self, x):
        raise AssertionError("no fall-back")
op = CopyFwdOp()
try:
    op(LabTensor(torch.ones(2)))
except OpNotAvailableError as error:
    print(error)
print(op.serving_target)
"""
    assert run(PLAIN + program, "plain_torch") == [
        (
            "CopyFwdOp: target: expected a target that serves this op, one of ['builtin'], received 'plain_torch', "
            "which registered no builder for it; construct the op with target='builtin' to run the in-tree kernels"
        ),
        "None",
    ]


def test_a_compiled_call_does_not_change_with_the_target(run: Run) -> None:
    """One node whatever serves it, and the first compiled call honours the target."""
    program = """
from tests.spec.capture import Capture
for target in ("builtin", "plain_torch", "reference"):
    op, capture = RMSNormFwdOp((8,), target=target), Capture()
    y = torch.compile(op, fullgraph=True, backend=capture)(torch.full((2, 8), 3.0))
    print(capture.operators(), op.serving_target, torch.allclose(y, torch.ones(2, 8)))
"""
    node = "['tileops.norm_rms_norm_fwd.default']"
    assert run("import torch\nfrom tileops.norm import RMSNormFwdOp\n" + program, "plain_torch") == [
        f"{node} builtin True",
        f"{node} plain_torch True",
        f"{node} reference True",
    ]
