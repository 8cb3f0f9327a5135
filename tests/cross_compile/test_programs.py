"""Every CUDA program compiles for each architecture that its kernel type declares; nvcc is needed, a GPU is not.

Here one dtype and row stand for each kernel type, on the first and above all on the last architecture;
`nox -s cross_compile` compiles all of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable

import pytest

from tests.cross_compile.programs import ARCHS, FIRST_AND_LAST, Target, no_cuda_types, one_dtype_each, targets
from tileops_kernels.build.cuda import cross_compile, target_arch
from tileops_testing.catalog import implemented_ops, op_class

ALL = targets()
FEW = dict.fromkeys(one_dtype_each(ALL))


def parameters(chosen: Iterable[Target]) -> list[object]:
    """Return targets as test parameters, each marked with its op and named by what it compiles."""
    return [
        pytest.param(target, marks=pytest.mark.op(target.op), id=f"{target.key}-sm{target.arch}-{number}")
        for number, target in enumerate(chosen)
    ]


@pytest.fixture(scope="module", autouse=True)
def _nvcc() -> None:
    """Without nvcc there is nothing to test with."""
    if shutil.which("nvcc") is None:
        pytest.skip("no nvcc on PATH: install a CUDA toolkit, or pip install tileops-kernels[cuda]")


def check(target: Target) -> None:
    """Compile one program and look at the text that nvcc was given."""
    text = cross_compile(target.program, arch=target.arch, owner=target.key)
    assert "__global__" in text
    assert target_arch(target.arch) in {"sm_80", "sm_89", "sm_90a"}


@pytest.mark.parametrize("target", parameters(FEW))
def test_compiles(target: Target) -> None:
    """One dtype of each kernel type compiles for the first and the last architecture."""
    check(target)


@pytest.mark.full
@pytest.mark.parametrize("target", parameters(target for target in ALL if target not in FEW))
def test_compiles_in_full(target: Target) -> None:
    """Every dtype and every workload row's program compiles for each architecture."""
    check(target)


def test_every_cuda_kernel_type_is_reached() -> None:
    """Each CUDA kernel type has a program to compile for each architecture."""
    expected = {
        (key, arch)
        for op_class in implemented_ops()
        for key, kernel_type in op_class.kernel_types.items()
        if "cuda" in kernel_type.devices
        for arch in kernel_type.supported_archs or ARCHS
    }
    assert {(target.key, target.arch) for target in ALL} == expected
    assert {(target.key, target.arch) for target in FEW} == {found for found in expected if found[1] in FIRST_AND_LAST}


def test_ops_without_cuda_kernel_types_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A selection with no CUDA kernel type is named with the types that it has; one that has any is accepted."""
    op = op_class("RMSNormFwdOp")
    assert no_cuda_types([op]) is None
    monkeypatch.setattr(op, "kernel_types", {"rms_norm_cpu": op.kernel_types["rms_norm_cpu"]})
    assert no_cuda_types([op]) == (
        "cross_compile: expected an op with a kernel type for CUDA, received RMSNormFwdOp with the kernel types "
        "['rms_norm_cpu']; choose another op, or leave the names out to compile every program"
    )
