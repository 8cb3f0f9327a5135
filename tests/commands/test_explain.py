"""`python -m tileops explain`: which kernel type it names for calls of every op, and its errors, none needing a GPU."""

from __future__ import annotations

import shlex
import subprocess
import sys

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from tests.docs.pages import ROOT, blocks_of
from tileops.__main__ import main
from tileops.backend import BUILTIN
from tileops.commands.explain import read_call
from tileops.errors import NoCallError
from tileops.moe import MaskedLayout, MoEExpertMLPFwdOp
from tileops.norm import RMSNormFwdOp
from tileops.op.explaining import Explanation, explain_call, kernel_request
from tileops_kernels.errors import OpNotAvailableError
from tileops_testing.cases import Case
from tileops_testing.catalog import implemented_ops
from tileops_testing.workload_cases import cases_of

ROW = ["x=2048x4096:float16@cuda:sm90", "weight=4096:float16", "eps=1e-6"]


def words(case: Case, device: str) -> list[str]:
    """Return a case as a command line states it, on `device`."""
    stated = []
    for name, value in case.parameters.items():
        if isinstance(value, torch.Tensor):
            stated.append(f"{name}={'x'.join(map(str, value.shape))}:{str(value.dtype).removeprefix('torch.')}")
        elif hasattr(value, "kind"):
            stated.append(f"{name}={{kind: {value.kind}, {_fields(value)}}}")
        else:
            stated.append(f"{name}={str(value).removeprefix('torch.')}")
    if case.device_parameter is not None:
        stated.append(f"{case.device_parameter}={device}")
    for name, spec in case.inputs(case.sizes).items():
        if spec is not None:
            shape = "x".join(map(str, spec.shape))
            stated.append(f"{name}={shape}:{str(spec.dtype).removeprefix('torch.')}@{device}")
    return stated


def _fields(value: object) -> str:
    names = [name for name in getattr(value, "__dataclass_fields__", ()) if name != "kind"]
    return ", ".join(f"{name}: {getattr(value, name)}" for name in names)


def first_cases() -> list[Case]:
    """Return the first case of each implemented op, and those of its rows that pass other tensors."""
    found: dict[tuple[str, tuple[bool, ...]], Case] = {}
    for op in implemented_ops():
        for case in cases_of(op, small=True):
            passed = tuple(spec is not None for spec in case.inputs(case.sizes).values())
            found.setdefault((case.op_name, passed), case)
    return list(found.values())


def served(explained: Explanation) -> list[str]:
    """Return the keys of the kernel types that serve, those of stages after the op's own."""
    own = [] if explained.kernel is None else [explained.kernel.selection.key]
    return [*own, *(key for calls in explained.stages.values() for call in calls for key in served(call))]


def leaves(explained: Explanation) -> list[Explanation]:
    """Return what is no composite: the op itself, or its stages and theirs."""
    stages = [call for calls in explained.stages.values() for call in calls]
    return [leaf for stage in stages for leaf in leaves(stage)] or [explained]


@pytest.mark.parametrize("case", first_cases(), ids=lambda case: case.id)
@pytest.mark.parametrize("device", ["cuda:sm80", "cuda:sm90", "cpu"])
def test_every_op_is_explained(case: Case, device: str) -> None:
    """Each op's case, stated in words, is served by a kernel type of the device; every other type has a reason."""
    explained = read_call(case.op_name, words(case, device)).explain()
    for leaf in leaves(explained):
        assert leaf.kernel is not None
        choice = leaf.kernel
        assert device.partition(":")[0] in choice.types[choice.selection.key].devices
        assert choice.types.keys() == {choice.selection.key, *choice.selection.passed_over}
        assert all(choice.selection.passed_over.values())
    assert explained.target == BUILTIN


@pytest.mark.parametrize("name", ["RMSNormFwdOp", "MoEExpertMLPFwdOp"])
def test_what_is_explained_is_what_a_call_builds(name: str) -> None:
    """On a CPU the kernel types that a call builds are those that the explanation of the same call names."""
    case = next(case for case in first_cases() if case.op_name == name)
    explained = read_call(name, words(case, "cpu")).explain()
    op = case.construct()
    op(*case.tensors(torch.device("cpu")))
    choices = [explained, *(call for calls in explained.stages.values() for call in calls)]
    named = [each.kernel.types[each.kernel.selection.key] for each in choices if each.kernel is not None]
    assert [type(kernel) for kernel in op.iter_kernels()] == named


def test_the_page_names_each_kernel_type_and_its_reason(capsys: pytest.CaptureFixture[str]) -> None:
    """The command prints the call, the machine, what serves it, and a line for each other kernel type."""
    assert main(["explain", "RMSNormFwdOp", *ROW]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert lines == [
        "normalized_shape=(4096,) is assumed, from the shape of weight",
        "RMSNormFwdOp(normalized_shape=(4096,), eps=1e-06)",
        "  on      cuda:sm90: 132 multiprocessors, 232448 bytes of shared memory for a block",
        "  takes   x float16 [2048, 4096], weight float16 [4096]",
        "  returns y float16 [2048, 4096]",
        "  served by rms_norm_on_chip, asked for rms_norm(n=4096, eps=1e-06, dtype=torch.float16)",
        "",
        "key                 kernel type             outcome",
        "rms_norm_on_chip    RMSNormOnChipKernel     serves",
        "rms_norm            RMSNormKernel           not: ranks below rms_norm_on_chip",
        "rms_norm_clustered  RMSNormClusteredKernel  not: a cluster holds rows of 65544",
        " " * 44 + "to 262144 elements; n=4096",
        "rms_norm_cpu        RMSNormCPUKernel        not: runs on cpu",
        "rms_norm_streaming  RMSNormStreamingKernel  not: rms_norm_on_chip is preferred",
    ]


def test_the_guide_shows_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    """The guide's command for `explain` is followed by exactly what it prints."""
    blocks = blocks_of(ROOT / "docs" / "guides" / "command_line.md")
    place = next(place for place, block in enumerate(blocks) if " explain " in block.text)
    assert main(shlex.split(blocks[place].text)[3:]) == 0
    printed = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert blocks[place + 1].text.splitlines() == printed


def test_stages_of_a_composite_are_explained_each(capsys: pytest.CaptureFixture[str]) -> None:
    """A composite's page has a part for each stage, with the shapes that the stage is called with."""
    layout = "layout={kind: masked, max_m: 32}"
    inputs = ["expert_input=8x32x256:bfloat16@cuda:sm80", "w_gate_up=8x512x256:bfloat16", "w_down=8x256x256:bfloat16"]
    assert main(["explain", "MoEExpertMLPFwdOp", layout, *inputs, "layout_metadata=8:int32"]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line.startswith("stage")] == ["stage gate_up", "stage down"]
    assert "    takes   a bfloat16 [8, 32, 256], b bfloat16 [8, 512, 256], layout_metadata int32 [8]" in lines


def test_a_target_that_serves_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """With --target a backend's builder serves, and no kernel type is asked."""
    assert main(["explain", "RMSNormFwdOp", "x=8x4:float32", "--target", "reference"]) == 0
    printed = capsys.readouterr().out
    assert "  served by target reference: the kernel that its builder returns" in printed
    assert "kernel type" not in printed


def test_a_call_that_computes_nothing_needs_no_kernel(capsys: pytest.CaptureFixture[str]) -> None:
    """Where the call would build no kernel, the page says so."""
    assert main(["explain", "GroupNormFwdOp", "x=0x4x3:float32", "num_groups=2"]) == 0
    assert "served by no kernel: there is nothing to compute" in capsys.readouterr().out


def test_lengths_are_assumed_from_the_last_axis() -> None:
    """Without a weight, the lengths that end x's shape are its last one; a stated value stands."""
    assumed = read_call("RMSNormFwdOp", ["x=2x3x4:float32"])
    stated = read_call("RMSNormFwdOp", ["x=2x3x4:float32", "normalized_shape=3x4"])
    assert (assumed.parameters, assumed.assumed) == (
        {"normalized_shape": (4,)},
        ["normalized_shape=(4,) is assumed, from the shape of x"],
    )
    assert (stated.parameters, stated.assumed) == ({"normalized_shape": [3, 4]}, [])


def test_an_error_says_what_was_assumed(capsys: pytest.CaptureFixture[str]) -> None:
    """Where a call cannot be and a length was not stated, the error says that it is an assumption, and from what."""
    tensors = ["x=2x3x4:float16", "weight=5:float16"]
    assert main(["explain", "RMSNormFwdOp", *tensors]) == 1
    refused = (
        "RMSNormFwdOp: x: expected shape [*B, 5] for normalized_shape=(5,), received [2, 3, 4]; "
        "pass x whose last axis is 5"
    )
    assumption = "; normalized_shape=(5,) is assumed, from the shape of weight: state it where it is another"
    assert capsys.readouterr().err == f"{refused}{assumption}\n"
    assert main(["explain", "RMSNormFwdOp", *tensors, "normalized_shape=5"]) == 1
    assert capsys.readouterr().err == f"{refused}\n"


def test_the_op_that_is_asked_about_stays_as_it_is() -> None:
    """An explanation selects nothing, builds nothing and records nothing on the instance, nor on a composite's."""
    op, mode = RMSNormFwdOp((8,)), FakeTensorMode()
    experts = MoEExpertMLPFwdOp(MaskedLayout(max_m=4))
    with mode:
        x = torch.empty(2, 8)
        shapes = [(2, 4, 16), (2, 32, 16), (2, 16, 16)]
        tensors = [*(torch.empty(shape, dtype=torch.bfloat16) for shape in shapes), torch.empty(2, dtype=torch.int32)]
    assert served(explain_call(op, [x, None], mode=mode)) == ["rms_norm_cpu"]
    assert len(served(explain_call(experts, tensors, mode=mode))) == 2
    assert kernel_request(op, [torch.ones(2, 8), None]) is not None
    for asked in (op, experts, *experts.held_delegates()):
        assert asked.serving_target is None
        assert list(asked.iter_kernels()) == []
        assert "kernel_for" not in asked.__dict__
        with pytest.raises(NoCallError):
            asked.last_call  # noqa: B018 - reading it raises


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["RMSNromFwdOp", "x=4:float16"], "no op is named 'RMSNromFwdOp'; did you mean 'RMSNormFwdOp'?"),
        (
            ["AddFwdOp", "input=4:float16"],
            (
                "AddFwdOp: expected an op that is implemented, received one that the manifest only specifies; choose "
                "another op"
            ),
        ),
        (
            ["RMSNormFwdOp", "wieght=3:float16"],
            "RMSNormFwdOp: expected one of x, weight, normalized_shape, eps, received 'wieght'; did you mean weight?",
        ),
        (
            ["RMSNormFwdOp", "zzz=3:float16"],
            (
                "RMSNormFwdOp: expected one of x, weight, normalized_shape, eps, received 'zzz'; "
                "`python -m tileops.manifest show RMSNormFwdOp` shows its type"
            ),
        ),
        (["RMSNormFwdOp", "x"], "RMSNormFwdOp: expected NAME=VALUE, received 'x'; write = between the two"),
        (
            ["RMSNormFwdOp", "x=4:float16", "x=5:float16"],
            "RMSNormFwdOp: x: expected one value, received a second, '5:float16'; leave one out",
        ),
        (
            ["RMSNormFwdOp", "eps=1e-6"],
            (
                "RMSNormFwdOp: x: expected SHAPE:DTYPE, with @DEVICE behind it where that is not the first tensor's, "
                "received nothing; add it as in x=2048x4096:float16@cuda:sm90"
            ),
        ),
        (
            ["GroupNormFwdOp", "x=2x4x3:float16"],
            "GroupNormFwdOp: num_groups: expected int, received nothing; add num_groups=VALUE",
        ),
        (
            ["RMSNormFwdOp", "x=8x4:float16@cuda:sm90", "weight=4:float16@cuda:sm80"],
            "RMSNormFwdOp: expected one CUDA device, received cuda:sm80 and cuda:sm90; state the same for all",
        ),
        (
            ["RMSNormFwdOp", "x=8x4:float16@cuda:sm90", "weight=4:float16@cpu"],
            (
                "RMSNormFwdOp: weight: expected device cuda:0, as x has, received device cpu; move weight with "
                ".to('cuda:0')"
            ),
        ),
        (
            ["RMSNormFwdOp", "x=8x4:float16", "weight=5:float16", "normalized_shape=4"],
            (
                "RMSNormFwdOp: weight: expected shape [4] for normalized_shape=(4,), received [5]; pass weight of "
                "shape [4]"
            ),
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A wrong statement ends the command with status 1 and one line; the call's own errors are those of a real call."""
    assert main(["explain", *arguments]) == 1
    printed = capsys.readouterr()
    assert (printed.out, printed.err) == ("", f"{message}\n")


def test_a_device_that_no_kernel_type_runs_on_is_refused_with_reasons() -> None:
    """Where nothing serves, the error is the call's own, and lists each kernel type's reason."""
    call = read_call("ReluFwdOp", ["input=4:float16@xpu:0"])
    with pytest.raises(OpNotAvailableError, match=r"do not run on xpu:0.*relu: runs on cuda; relu_cpu: runs on cpu"):
        call.explain()


def test_a_reader_may_stop_reading() -> None:
    """A command whose output is read no further ends without a word."""
    command = [sys.executable, "-m", "tileops", "explain", "RMSNormFwdOp", *ROW]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
        status = process.wait()
    assert (said, status) == (b"", 0)


@pytest.mark.parametrize(("own", "kernel"), [("False", "batch_norm_infer"), ("True", "instance_norm_train")])
def test_a_norm_with_running_statistics_is_explained_with_half_precision_weights(own: str, kernel: str) -> None:
    """What the op does before it asks for a kernel needs no device either."""
    statistics = dict.fromkeys(("running_mean", "running_var"), "4:float32")
    tensors = {"x": "2x4x8x8:bfloat16", **statistics, "weight": "4:bfloat16", "bias": "4:bfloat16"}
    stated = [f"{name}={text}@cuda:sm90" for name, text in tensors.items()]
    explained = read_call("InstanceNormFwdOp", [f"use_input_stats={own}", *stated]).explain()
    assert served(explained) == [kernel]


def test_an_op_alone_is_required(capsys: pytest.CaptureFixture[str]) -> None:
    """Without an op the error asks for it, and for no statement: what a call needs depends on the op."""
    with pytest.raises(SystemExit):
        main(["explain"])
    assert capsys.readouterr().err.endswith("error: the following arguments are required: op\n")
