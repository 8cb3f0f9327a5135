"""Every program that a CUDA kernel type would build for the workload rows, found without a GPU."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

import torch

from tileops.op.base import Op
from tileops.op.explaining import kernel_request
from tileops_kernels.build.program import Program
from tileops_kernels.calls import CallSpec
from tileops_kernels.devices import STATED_FACTS, DeviceFacts
from tileops_kernels.kernel import KernelType
from tileops_kernels.norm import GroupNormCall
from tileops_kernels.products import ProductCall
from tileops_testing.cases import Case
from tileops_testing.catalog import implemented_ops
from tileops_testing.workload_cases import cases_of

ARCHS: Final[Mapping[int, DeviceFacts]] = MappingProxyType({arch: STATED_FACTS[arch] for arch in (80, 89, 90)})
"""The architectures that programs are compiled for, each with the facts of a device that has it."""

LARGE_PRODUCTS: Final = ((128, 2112, 7168), (1024, 1024, 1024), (4096, 2112, 7168), (4096, 4096, 7168))
"""Rows, columns and terms of products that take different tiles."""

LARGE_CHANNEL: Final = 1 << 20
"""Elements of a channel whose groups have blocks that share them."""

FIRST_AND_LAST: Final = (80, 90)
"""The architectures that stand for the ones between."""


@dataclass(frozen=True)
class Target:
    """One program for one architecture, and who would build it."""

    op: str
    key: str
    arch: int
    dtype: str
    program: Program


def asked_for(op: Op, case: Case) -> tuple[str, CallSpec] | None:
    """Return the interface and the call spec of the first kernel that a case's `forward` asks for.

    None for a case without elements, for which an op may need no kernel.
    """
    tensors = case.tensors(torch.device("cpu"))
    asked = kernel_request(op, tensors)
    if asked is not None:
        return asked
    if all(tensor is None or tensor.numel() for tensor in tensors):
        raise LookupError(f"{case.id}: forward asked for no kernel")
    return None


def no_cuda_types(ops: Sequence[type[Op]]) -> str | None:
    """Return the error for ops none of which has a kernel type for CUDA, None when one has."""
    types = {key: kernel_type for op in ops for key, kernel_type in op.kernel_types.items()}
    if any("cuda" in kernel_type.devices for kernel_type in types.values()):
        return None
    names = ", ".join(op.__name__ for op in ops)
    return (
        f"cross_compile: expected an op with a kernel type for CUDA, received {names} with the kernel types "
        f"{sorted(types)}; choose another op, or leave the names out to compile every program"
    )


def targets() -> list[Target]:
    """Return every distinct program of every CUDA kernel type on every architecture that it declares.

    A composite has no kernels but its sub-ops'.
    """
    found: dict[tuple[str, int, Program], Target] = {}
    for op_class in implemented_ops():
        if op_class.delegate_types:
            continue
        for case in cases_of(op_class, small=True):
            op: Any = case.on(torch.device("cpu")).construct()
            asked = asked_for(op, case)
            if asked is None:
                continue
            interface, call = asked
            dtype = str(_dtype(case))
            for key, kernel_type in op.kernel_table(interface).types.items():
                for program, arch in chain.from_iterable(_programs(kernel_type, one) for one in _as_large(call)):
                    found.setdefault((key, arch, program), Target(op_class.__name__, key, arch, dtype, program))
    return list(found.values())


def one_dtype_each(all_targets: list[Target]) -> list[Target]:
    """Return targets of one dtype and one row: each op's variants on the last architecture, a program on the first.

    On the last architecture they are chosen for each op, kernel type and builder, on the first for each kernel type and
    builder.
    """
    first, last = FIRST_AND_LAST
    chosen: dict[tuple[str, str, str], list[Target]] = {}
    for target in all_targets:
        if target.arch == last:
            group = chosen.setdefault((target.op, target.key, target.program.builder), [])
            if not group or (target.dtype == group[0].dtype and _alike(target, group[0])):
                group.append(target)
        elif target.arch == first:
            chosen.setdefault(("", target.key, target.program.builder), [target])
    return [target for group in chosen.values() for target in group]


def _programs(kernel_type: KernelType, call: CallSpec) -> Iterator[tuple[Program, int]]:
    if "cuda" not in kernel_type.devices:
        return
    for arch, facts in ARCHS.items():
        if kernel_type.supported_archs is not None and arch not in kernel_type.supported_archs:
            continue
        placed = replace(call, device=torch.device("cuda", 0), facts=facts)
        if kernel_type.refusal(placed) is None:
            kernel = kernel_type(placed)  # its factory may put tables on the device
            yield from ((program, arch) for program in kernel.programs())


def _as_large(call: CallSpec) -> Iterator[CallSpec]:
    """Yield the call of a small case, and where kernel types or tiles depend on extents also those of large ones."""
    yield call
    if isinstance(call, GroupNormCall):
        yield replace(call, n=call.span * LARGE_CHANNEL)
    if isinstance(call, ProductCall) and call.most_rows:
        for rows, n, k in LARGE_PRODUCTS:
            yield replace(call, most_rows=rows, n=n, k=k, handful=False, few_rows=False, vectors=True)


def _dtype(case: Case) -> torch.dtype:
    made = case.parameters.get("out_dtype", torch.float32)
    assert isinstance(made, torch.dtype)
    return next((spec.dtype for spec in case.inputs(case.sizes).values() if spec is not None), made)


def _alike(target: Target, other: Target) -> bool:
    """Whether two programs differ in booleans alone: the variants of one row."""
    mine, theirs = dict(target.program.arguments), dict(other.program.arguments)
    fixed = [name for name, value in mine.items() if not isinstance(value, bool)]
    return target.program.builder == other.program.builder and all(mine[name] == theirs.get(name) for name in fixed)
