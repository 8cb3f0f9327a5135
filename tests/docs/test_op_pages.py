"""An op's page holds what its entry, its class, its kernel types and the committed results say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from op_sections import Page, index_of, page_of

from tileops.manifest import registry
from tileops.norm import RMSNormFwdOp

FACTS = {
    "device": "cuda:0",
    "device_name": "NVIDIA H200",
    "versions": {"torch": "2.11.0"},
    "commit": "0123456789abcdef",
}


@pytest.fixture(scope="module")
def page() -> Page:
    """The page of RMSNormFwdOp with no results committed."""
    return page_of("RMSNormFwdOp", Path("nowhere"))


def text_of(page: Page, title: str) -> str:
    """Return the Markdown under one heading."""
    return next(section.text for section in page.sections if section.title == title)


def write(folder: Path, name: str, content: dict[str, object]) -> None:
    """Write one file of results."""
    (folder / name).write_text(json.dumps({**FACTS, **content}))


def test_sections_stand_in_order(page: Page) -> None:
    """The meaning comes first, then example, signature, kernel types, workloads, operators, sources."""
    assert page.meaning.startswith("`y = x * rsqrt(mean(x ** 2) + eps) * weight`")
    expected = ["Example", "Signature", "Kernel types", "Workloads", "Compiled operators", "Sources"]
    assert [section.title for section in page.sections] == expected


def test_the_example_shows_what_it_printed(page: Page) -> None:
    """The example constructs and calls the op, and its output follows it."""
    example = text_of(page, "Example")
    assert (
        "op = RMSNormFwdOp(normalized_shape=(4096,))\ny = op(x, weight)\nprint(y)\n```\n\n```text\ntensor([[" in example
    )


def test_an_op_without_outputs_shows_what_it_wrote() -> None:
    """The example of an op that gives nothing prints the tensor that it writes; its cost follows from the ids."""
    page = page_of("IndexedExpertMLPFwdOp", Path("nowhere"))
    example = text_of(page, "Example")
    assert "\nop(output, hidden_states, w_gate_up, w_down, topk_weights, topk_ids)\nprint(output)\n```" in example
    assert "```text\ntensor([[" in example
    assert "qwen3-235b-1-bfloat16" in text_of(page, "Workloads")


def test_the_signature_types_every_name(page: Page) -> None:
    """Each parameter, input and output has a row, and the accepted dtypes are said in words."""
    signature = text_of(page, "Signature")
    for name in ("normalized_shape", "eps", "x", "weight", "y"):
        assert f"* - `{name}`" in signature
    assert "- `T`: float16, bfloat16 or float32, the same for `x` and `weight`." in signature
    assert "- `weight` may be left out, which is the same as passing `None`." in signature


def test_every_kernel_type_is_listed(page: Page) -> None:
    """Each kernel type has a row with its key and its device."""
    listed = text_of(page, "Kernel types")
    for key, kernel_type in RMSNormFwdOp.kernel_types.items():
        assert f"* - `{key}`\n  - {min(kernel_type.devices)}" in listed


def test_every_workload_has_its_cost(page: Page) -> None:
    """Each case of the manifest has a row with its inputs, arithmetic and traffic."""
    workloads = text_of(page, "Workloads")
    assert [case.id for case in registry.cases("RMSNormFwdOp") if f"* - {case.id}\n" not in workloads] == []
    row = "* - llama-8b-decode-float32\n  - x float32 [1, 4096], weight float32 [4096]\n  - 0.0164\n  - 0.0492\n"
    assert row in workloads


def test_operators_have_their_schemas(page: Page) -> None:
    """The operator's schema stands as torch knows it."""
    schema = "tileops::norm_rms_norm_fwd(Tensor x, Tensor? weight, str instance_key) -> Tensor"
    assert schema in text_of(page, "Compiled operators")


def test_support_counts_the_cases_that_were_run(tmp_path: Path) -> None:
    """The support matrix counts passed of run cases by dtype and suite, and a suite that was not run says so."""
    rows = [
        {"op": "RMSNormFwdOp", "case": "a-float16", "outcome": "passed"},
        {"op": "RMSNormFwdOp", "case": "b-float16", "outcome": "failed"},
        {"op": "RMSNormFwdOp", "case": "a-bfloat16", "outcome": "passed"},
        {"op": "OtherFwdOp", "case": "a-float16", "outcome": "failed"},
    ]
    write(tmp_path, "eager-cuda.json", {"suite": "eager", "rows": rows})
    support = text_of(page_of("RMSNormFwdOp", tmp_path), "Support")
    assert "* - float16\n  - NVIDIA H200 (CUDA)\n  - 1 of 2\n  - not run\n  - not run\n" in support
    assert "* - bfloat16\n  - NVIDIA H200 (CUDA)\n  - 1 of 1\n  - not run\n  - not run\n" in support
    assert "Taken on NVIDIA H200 (CUDA) with torch 2.11.0 at commit `0123456789ab`." in support


@pytest.mark.parametrize(
    ("case", "dtype"), [("odd-rows-int16", "int16"), ("odd-rows-uint8", "uint8"), ("one-position", "of the row")]
)
def test_the_dtype_of_a_case_stands_in_its_name_or_in_its_row(case: str, dtype: str, tmp_path: Path) -> None:
    """Results of a case of any dtype, and of one that names none, have a row of their own."""
    rows = [{"op": "SumFwdOp", "case": case, "outcome": "passed"}]
    write(tmp_path, "eager-cuda.json", {"suite": "eager", "rows": rows})
    support = text_of(page_of("SumFwdOp", tmp_path), "Support")
    assert f"* - {dtype}\n  - NVIDIA H200 (CUDA)\n  - 1 of 1\n" in support


def test_measured_times_join_the_workloads(tmp_path: Path) -> None:
    """A measured case shows its time, its share of a copy and its ratio to the best peer; the others show nothing."""
    own = {"name": "tileops", "seconds": 12.3e-6, "share_of_copy": 0.97, "ratio_to_best_peer": 0.88}
    peer = {"name": "inductor", "seconds": 14e-6, "share_of_copy": 0.85, "ratio_to_best_peer": None}
    result = {"op": "RMSNormFwdOp", "case": "llama-8b-prefill-float16", "measurements": [peer, own]}
    write(tmp_path, "RMSNormFwdOp-cuda.json", {"results": [result]})
    workloads = text_of(page_of("RMSNormFwdOp", tmp_path), "Workloads")
    bar = '<span class="bar"><span style="width: 97%"></span></span> 0.97'
    assert f"[4096]\n  - 12.3\n  - {bar}\n  - 0.88\n  - 33.6\n  - 33.6\n  - 1.00\n" in workloads
    assert "* - llama-8b-prefill-bfloat16\n" in workloads


def test_a_family_s_index_lists_its_ops() -> None:
    """The index of a family has a row per implemented op: link, meaning, dtypes."""
    index = index_of("norm")
    assert "* - [RMSNormFwdOp](RMSNormFwdOp.md)\n  - `y = x * rsqrt(" in index
    assert "  - float16, bfloat16 and float32\n" in index
