"""An op's page holds what its entry, its class, its kernel types and the committed results say."""

from __future__ import annotations

import json
import re
from pathlib import Path

import op_sections
import pytest
from op_results import runs_of
from op_sections import Page, index_of, page_of
from op_signature import in_code

from tests.docs.pages import ROOT
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
    """The meaning comes first, then each section in its place, also without results."""
    assert page.meaning.startswith("`y = x * rsqrt(mean(x ** 2) + eps) * weight`")
    middle = ["Kernel types", "Support", "Workloads", "Measured"]
    expected = ["Example", "Signature", *middle, "Compiled operators", "Sources"]
    assert [section.title for section in page.sections] == expected


def test_a_page_without_results_says_so(page: Page, tmp_path: Path) -> None:
    """An op of which no results are committed, or none from a CUDA device, says so, and what the tests do with it."""
    assert (
        "No results of this op are committed yet. The repository's tests run it on a CPU. Its kernels for CUDA are "
        "compiled by the tests, which need no device.\n"
    ) in text_of(page, "Support")
    assert "Not measured on a CUDA device yet" in text_of(page, "Measured")
    rows = [{"op": "RMSNormFwdOp", "case": "a-float16", "outcome": "passed"}]
    write(tmp_path, "eager-cpu.json", {"suite": "eager", "device": "cpu", "rows": rows})
    support = text_of(page_of("RMSNormFwdOp", tmp_path), "Support")
    assert "No results of this op on a CUDA device are committed yet." in support
    assert "* - float16\n  - CPU\n  - 1 of 1\n  - not run\n  - needs CUDA\n" in support


def test_an_op_without_kernels_for_cuda_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An op that has kernels for a CPU alone does not wait for results of a CUDA device."""
    monkeypatch.setattr(op_sections, "devices_of", lambda _: ["cpu"])
    support = text_of(page_of("RMSNormFwdOp", tmp_path), "Support")
    assert "The repository's tests run it on a CPU. It has no kernels for CUDA.\n" in support
    rows = [{"op": "RMSNormFwdOp", "case": "a-float16", "outcome": "passed"}]
    write(tmp_path, "eager-cpu.json", {"suite": "eager", "device": "cpu", "rows": rows})
    support = text_of(page_of("RMSNormFwdOp", tmp_path), "Support")
    assert ":::{note}\nIt has no kernels for CUDA.\n:::" in support
    assert "committed yet" not in support


def test_the_example_shows_what_it_printed(page: Page) -> None:
    """The example constructs and calls the op, and its output follows it."""
    example = text_of(page, "Example")
    call = "op = RMSNormFwdOp(normalized_shape=(4096,))\ny = op(x, weight)\nprint(tuple(y.shape), y.flatten()[:4])\n"
    assert f"{call}```\n\n```text\n(1, 4096) tensor([" in example


def test_an_op_without_outputs_shows_what_it_wrote() -> None:
    """The example of an op that gives nothing prints the tensor that it writes; its cost follows from the ids."""
    page = page_of("IndexedExpertMLPFwdOp", Path("nowhere"))
    example = text_of(page, "Example")
    shown = "print(tuple(output.shape), output.flatten()[:4])"
    assert f"\nop(output, hidden_states, w_gate_up, w_down, topk_weights, topk_ids)\n{shown}\n```" in example
    assert "```text\n(1, 16) tensor([" in example
    assert "qwen3-235b-1-bfloat16" in text_of(page, "Workloads")


def test_the_signature_types_every_name(page: Page) -> None:
    """Each parameter, input and output has a row, and the accepted dtypes are said in words."""
    signature = text_of(page, "Signature")
    for name in ("normalized_shape", "eps", "x", "weight", "y"):
        assert f"* - `{name}`" in signature
    assert "- `T`: float16, bfloat16 or float32." in signature
    assert (
        "- Together: `T` float16, `W` float16 or float32; `T` bfloat16, `W` bfloat16 or float32; "
        "`T` float32, `W` float32." in signature
    )
    assert signature.count("Together") == 1
    shared = text_of(page_of("FusedAddRMSNormFwdOp", Path("nowhere")), "Signature")
    assert "- `T`: float16, bfloat16 or float32, the same for `x` and `residual`." in shared
    assert "- `weight` may be left out, which is the same as passing `None`." in signature
    positions = text_of(page_of("RoPENeoxPositionIdsFwdOp", Path("nowhere")), "Signature")
    assert "- `L`: whole numbers that workloads state, from which the contents of their tensors follow." in positions


def test_the_signature_lists_what_a_composite_may_be_given() -> None:
    """Constructor arguments beyond the entry have a row each, with type, default and the docstring's words."""
    for name in ("FusedMoEFwdOp", "FusedMoESharedExpertFwdOp"):
        signature = text_of(page_of(name, Path("nowhere")), "Signature")
        row = "* - `prepare_finalize`\n  - parameter\n  - `PrepareFinalize | None`\n  -\n  - `None`\n"
        assert re.sub(r" +\n", "\n", signature).count(f"{row}  - how tokens reach the experts\n") == 1
        assert "* - `experts`\n" in signature
        assert "* - `num_experts`\n" in signature


def test_names_in_a_docstring_are_in_code_style() -> None:
    """Names before a colon, those with an underscore and None are code; words that are names as well are not."""
    text = "weight, bias: `[C]` in x's dtype, or None for ones. use_stats: as `use_stats`; input: any."
    shown = "`weight`, `bias`: `[C]` in x's dtype, or `None` for ones. `use_stats`: as `use_stats`; `input`: any."
    assert in_code(text, ["x", "weight", "bias", "use_stats", "input"]) == shown
    assert in_code("The input_size of an input.", ["input"]) == "The input_size of an input."


def test_every_kernel_type_is_listed(page: Page) -> None:
    """Each kernel type has a row with its key and its device."""
    listed = text_of(page, "Kernel types")
    for key, kernel_type in RMSNormFwdOp.kernel_types.items():
        assert f"* - `{key}`\n  - {min(kernel_type.devices)}" in listed


def test_every_workload_has_its_cost(page: Page) -> None:
    """Each case of the manifest has a row with its bound, arithmetic, traffic and inputs."""
    workloads = text_of(page, "Workloads")
    assert [case.id for case in registry.cases("RMSNormFwdOp") if f"* - {case.id}\n" not in workloads] == []
    row = "* - llama-8b-decode-float32\n  - memory, 0.0117 µs\n  - 0.0164\n  - 0.0492\n  - 0.33\n"
    assert f"{row}  - x float32 [1, 4096], weight float32 [4096]\n" in workloads


def test_small_numbers_are_written_out() -> None:
    """A bound far below a microsecond has no exponent, and nothing is 0."""
    workloads = text_of(page_of("FusedTopKFwdOp", Path("nowhere")), "Workloads")
    assert "- qwen3-235b-1-bfloat16\n  - memory, 0.0000762 µs\n" in workloads
    workloads = text_of(page_of("MoEPermuteAlignFwdOp", Path("nowhere")), "Workloads")
    assert "- kimi-k2-1\n  - memory, 0.00586 µs\n  - 0\n" in workloads


def test_a_product_of_large_matrices_is_bound_by_arithmetic() -> None:
    """The bound is that of the slower of memory and arithmetic."""
    workloads = text_of(page_of("GemmFwdOp", Path("nowhere")), "Workloads")
    assert "* - deepseek-v3-prefill-4096x7168-bfloat16\n  - arithmetic, 304 µs\n" in workloads
    assert "* - decode-1-float16\n  - memory, 7.99 µs\n" in workloads


def test_shapes_by_cases_are_said_in_words() -> None:
    """A type family is spelled out, and an input's condition and effects are told with what decides them."""
    gemm = text_of(page_of("GemmFwdOp", Path("nowhere")), "Signature")
    assert "`Mat[transposed, rows, columns]` is `[rows, columns]` where `transposed` is `False`; `[columns" in gemm
    batch_norm = text_of(page_of("BatchNormFwdOp", Path("nowhere")), "Signature")
    assert "- `running_var` is passed exactly where `running_mean` is passed." in batch_norm
    assert "  - written where `training` is `True`\n" in batch_norm


def test_kernel_types_are_ranked_within_their_interface() -> None:
    """An op with several interfaces names each kernel type's, and ranks it among that interface's alone."""
    listed = text_of(page_of("BatchNormFwdOp", Path("nowhere")), "Kernel types")
    assert "* - `batch_norm_train_cpu`\n  - `batch_norm_train`\n  - cpu\n" in listed
    assert "serves what the others refuse" not in listed


def test_sources_are_linked_with_their_lines(page: Page) -> None:
    """Entry, class, each kernel type and reference are links to the line where they stand."""
    listed = text_of(page, "Sources")
    files = [line.partition("{source}`")[2].rstrip("`") for line in listed.splitlines() if "{source}" in line]
    assert len(files) == 3 + len(RMSNormFwdOp.kernel_types)
    for file, _, line in (found.rpartition(":") for found in files):
        text = (ROOT / file).read_text().splitlines()[int(line) - 1]
        assert text.startswith(("RMSNormFwdOp:", "class RMSNorm", "def rms_norm_fwd")), f"{file}:{line}"


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
    ("case", "dtype"),
    [
        ("odd-rows-int16", "int16"),
        ("odd-rows-uint8", "uint8"),
        ("odd-rows-complex64", "complex64"),
        ("one-position", "of the row"),
    ],
)
def test_the_dtype_of_a_case_stands_in_its_name_or_in_its_row(case: str, dtype: str, tmp_path: Path) -> None:
    """Results of a case of any dtype, and of one that names none, have a row of their own."""
    rows = [{"op": "SumFwdOp", "case": case, "outcome": "passed"}]
    write(tmp_path, "eager-cuda.json", {"suite": "eager", "rows": rows})
    support = text_of(page_of("SumFwdOp", tmp_path), "Support")
    assert f"* - {dtype}\n  - NVIDIA H200 (CUDA)\n  - 1 of 1\n" in support


def test_measured_times_are_shown_against_the_roofline(tmp_path: Path) -> None:
    """A measured case shows roofline, time, share and best peer, and is a point of the plot; others are left out."""
    own = {"name": "tileops", "seconds": 12.3e-6, "share_of_copy": 0.97, "ratio_to_best_peer": 0.88}
    peer = {"name": "inductor", "seconds": 14e-6, "share_of_copy": 0.85, "ratio_to_best_peer": None}
    result = {"op": "RMSNormFwdOp", "case": "llama-8b-prefill-float16", "measurements": [peer, own]}
    write(tmp_path, "RMSNormFwdOp-cuda.json", {"results": [result]})
    measured = text_of(page_of("RMSNormFwdOp", tmp_path), "Measured")
    bar = '<span class="bar"><span style="width: 97%"></span></span> 0.97'
    row = f"* - llama-8b-prefill-float16\n  - 11.9\n  - 12.3\n  - {bar}\n  - inductor 14.0\n  - 0.88\n"
    assert row in measured
    assert "<title>llama-8b-prefill-float16: 12.3 µs, roofline 11.9 µs</title>" in measured
    assert "llama-8b-prefill-bfloat16" not in measured
    assert "Not measured" not in measured


@pytest.mark.parametrize(
    ("product", "least"), [({}, "304"), ({"product_rate": 481.036e12, "flops": 240518168576}, "500")]
)
def test_a_product_is_held_to_its_arithmetic(product: dict[str, float], least: str, tmp_path: Path) -> None:
    """Where a product was timed in the same run its rate counts, else the card's."""
    own = {"name": "tileops", "seconds": 600e-6, "share_of_copy": 0.1, "ratio_to_best_peer": None}
    result = {"op": "GemmFwdOp", "case": "deepseek-v3-prefill-4096x7168-bfloat16", "measurements": [own], **product}
    write(tmp_path, "GemmFwdOp-cuda.json", {"results": [result]})
    measured = text_of(page_of("GemmFwdOp", tmp_path), "Measured")
    assert f"* - deepseek-v3-prefill-4096x7168-bfloat16\n  - {least}\n  - 600\n" in measured


def test_a_family_s_times_stand_by_run(tmp_path: Path) -> None:
    """Each device and commit gives a table with a row per case: the op's time, its share of a copy, the best peer's."""
    own = {"name": "tileops", "seconds": 12e-6, "share_of_copy": 0.97, "ratio_to_best_peer": 0.8}
    peers = [{**own, "name": name, "seconds": seconds} for name, seconds in (("torch", 18e-6), ("inductor", 15e-6))]
    copy = {**own, "name": "copy", "seconds": 11e-6}
    told = {"op": "RMSNormFwdOp", "traffic_bytes": 33.6e6}
    results = [{**told, "case": "b", "measurements": [own, *peers, copy]}, {**told, "case": "a", "measurements": [own]}]
    others = [{**told, "op": "SumFwdOp", "case": "c", "measurements": [own]}]
    write(tmp_path, "a-cpu.json", {"device": "cpu", "device_name": "x86_64", "results": results[:1]})
    write(tmp_path, "b-cuda.json", {"results": [*results, *others]})
    cuda, cpu = runs_of(["RMSNormFwdOp", "LayerNormFwdOp"], tmp_path)
    assert cuda.circumstances == "Taken on NVIDIA H200 (CUDA) with torch 2.11.0 at commit `0123456789ab`."
    assert cuda.headings == ["op", "case", "MB", "µs", "of copy", "best peer", "its µs", "to best peer"]
    assert cuda.rows == [
        ["RMSNormFwdOp", "a", "33.6", "12.0", "0.97", "", "", ""],
        ["RMSNormFwdOp", "b", "33.6", "12.0", "0.97", "inductor", "15.0", "0.80"],
    ]
    assert (cpu.circumstances.split()[2], len(cpu.rows)) == ("CPU", 1)


def test_a_family_s_index_lists_its_ops() -> None:
    """The index of a family has a row per implemented op: link, meaning, dtypes, devices, where it was tested."""
    index = index_of(["norm"], Path("nowhere"))
    assert "* - [RMSNormFwdOp](RMSNormFwdOp.md)\n  - `y = x * rsqrt(" in index
    assert "  - float16, bfloat16, float32\n  - cpu, cuda\n  - no results yet\n" in index


def test_the_index_names_the_one_dtype_of_an_op_without_a_choice() -> None:
    """An op whose inputs have a dtype that is fixed shows it, so that no cell is empty."""
    ops = index_of(["moe"], Path("nowhere")).partition("* - [MoEPermuteAlignFwdOp]")[2]
    assert "  - int32\n  - cpu, cuda\n" in ops.partition("* - [")[0]


def test_the_filters_read_columns_that_the_index_has() -> None:
    """The script above the table names its columns by their headings."""
    script = (ROOT / "docs" / "_static" / "ops.js").read_text()
    named = re.findall(r'\w+: "([^"]+)"', next(line for line in script.splitlines() if "const columns" in line))
    index = index_of(["moe", "norm"], ROOT / "docs" / "data")
    assert len(named) == 3
    assert [name for name in named if f"- {name}\n" not in index.partition("* - [")[0]] == []


def test_the_index_of_all_ops_names_families(tmp_path: Path) -> None:
    """The index of all ops links into families; a composite runs where its stages do."""
    rows = [{"op": "MoEExpertMLPFwdOp", "case": "a-float16", "outcome": "passed"}]
    write(tmp_path, "eager-cuda.json", {"suite": "eager", "rows": rows})
    index = index_of(["moe", "norm"], tmp_path)
    assert "* - [RMSNormFwdOp](norm/RMSNormFwdOp.md)\n  - norm\n" in index
    assert "  - float16, bfloat16\n  - cpu, cuda\n  - NVIDIA H200\n" in index
