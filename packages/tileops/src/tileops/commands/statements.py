"""Statements of a command line: tensors, devices and parameters as words, and what is wrong with a word."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

import torch

from tileops.errors import ExpressionError, StatementError
from tileops.manifest.document import Document
from tileops.manifest.kinds import FloatKind, Kind, SequenceKind, ShapeKind, UnionKind
from tileops.manifest.model import SumType
from tileops.manifest.primitives import DTYPES
from tileops.manifest.values import accepts, from_manifest
from tileops_kernels.devices import STATED_FACTS

TENSOR_FORM: Final = "SHAPE:DTYPE, with @DEVICE behind it where that is not the first tensor's"
EXAMPLE: Final = "2048x4096:float16@cuda:sm90"
MOST_BYTES: Final = 1 << 63
"""What no tensor has, whose places are counted in 64 bits."""
_SHAPE: Final = re.compile(r"\d+(?:[x,]\d+)*,?", re.ASCII)
_ARCH: Final = re.compile(r"(?:cuda:)?sm_?(\d+)a?", re.ASCII)
_SPELLINGS: Final = {
    "fp16": "float16",
    "f16": "float16",
    "half": "float16",
    "bf16": "bfloat16",
    "fp32": "float32",
    "f32": "float32",
    "float": "float32",
    "fp64": "float64",
    "f64": "float64",
    "double": "float64",
    "int": "int32",
    "long": "int64",
}
"""What other places call a dtype, for the suggestion in an error."""


@dataclass(frozen=True, slots=True)
class StatedDevice:
    """A device, and the CUDA architecture that was stated for it in place of an index."""

    device: torch.device
    arch: int | None = None

    def __str__(self) -> str:
        return str(self.device) if self.arch is None else f"cuda:sm{self.arch}"


@dataclass(frozen=True, slots=True)
class StatedTensor:
    """A tensor in words; no device where none was stated."""

    shape: tuple[int, ...]
    dtype: torch.dtype
    place: StatedDevice | None


def read_tensor(owner: str, name: str, text: str) -> StatedTensor:
    """The tensor that `SHAPE:DTYPE[@DEVICE]` states; extents stand between `x` or commas, none is a scalar.

    Raises StatementError for a text of another form, and for an unknown dtype or device.
    """
    typed, at, device = text.partition("@")
    shape, colon, dtype = typed.partition(":")
    if not colon:
        raise StatementError(
            f"{owner}: {name}: expected {TENSOR_FORM}, received {text!r}; write it as in {name}={EXAMPLE}"
        )
    if shape and not _SHAPE.fullmatch(shape):
        raise StatementError(
            f"{owner}: {name}: expected extents with x between them, received {shape!r}; write it as in "
            f"{name}={EXAMPLE}, and leave them out for a scalar"
        )
    extents = tuple(int(extent) for extent in re.split("[x,]", shape) if extent)
    stated = StatedTensor(extents, read_dtype(owner, name, dtype), read_device(owner, name, device) if at else None)
    if math.prod(max(extent, 1) for extent in extents) * stated.dtype.itemsize >= MOST_BYTES:
        raise StatementError(
            f"{owner}: {name}: expected fewer than 2 ** 63 bytes, received extents {shape}; state a smaller tensor"
        )
    return stated


def read_dtype(owner: str, name: str, text: str) -> torch.dtype:
    """The dtype of a name that manifests use. Raises StatementError for any other word."""
    if text in DTYPES:
        return DTYPES[text]
    near = [_SPELLINGS.get(text.lower(), ""), *get_close_matches(text.lower(), DTYPES, n=1)]
    raise StatementError(
        f"{owner}: {name}: expected a dtype as torch names it, received {text!r}; "
        + (f"did you mean {word}?" if (word := next(filter(None, near), "")) else "write one such as float16")
    )


def read_device(owner: str, name: str, text: str) -> StatedDevice:
    """The device of a word: `cpu`, `cuda`, `cuda:1`, or `cuda:sm90` for a machine that is not there.

    Raises StatementError for a word that names no device, an unknown architecture, and a CUDA device that this machine
    does not have.
    """
    stated = _ARCH.fullmatch(text)
    if stated:
        arch = int(stated[1])
        if arch not in STATED_FACTS:
            known = ", ".join(f"sm{known}" for known in STATED_FACTS)
            raise StatementError(
                f"{owner}: {name}: expected an architecture among {known}, received sm{arch}; "
                "state one of these, or run the command on the machine and name its device"
            )
        return StatedDevice(torch.device("cuda", 0), arch)
    try:
        device = torch.device(text)
    except RuntimeError:
        raise StatementError(
            f"{owner}: {name}: expected a device, received {text!r}; write cpu, cuda:0, or cuda:sm90 to ask about "
            "another machine"
        ) from None
    if device.type == "cuda":
        index: int | None = device.index
        count = torch.cuda.device_count()
        if (index or 0) >= count:
            raise StatementError(
                f"{owner}: {name}: expected a device of this machine, which has {count or 'no'} CUDA "
                f"device{'' if count == 1 else 's'}, received {text!r}; state an architecture, such as cuda:sm90"
            )
        return StatedDevice(torch.device("cuda", torch.cuda.current_device() if index is None else index))
    return StatedDevice(device)


def read_parameter(owner: str, name: str, kind: Kind, text: str, sums: Mapping[str, SumType]) -> object:
    """The value that a text states for a parameter, as a workload row of the manifest would.

    Words, numbers, `true`, `null`, `[1, 2]` and `{kind: masked, max_m: 32}`; also as Python and shapes are written:
    `True`, `None`, `(1, 2)`, `64x64`. A single number stands for a sequence of one.

    Raises StatementError for a text that is no value of the parameter's kind.
    """
    members = kind.members if isinstance(kind, UnionKind) else (kind,)
    document = Document(_as_yaml(text, members), "command line")
    value = document.value
    if document.problems:
        raise StatementError(
            f"{owner}: {name}: expected {kind}, received {text!r}: {document.problems[0].message}; write {name} as a "
            "workload row of the manifest does"
        )
    try:
        built = from_manifest(kind, value, sums)
    except ExpressionError as error:
        raise StatementError(
            f"{owner}: {name}: expected {kind}, received {text!r}: {error}; write {name} as a workload row of the "
            "manifest does"
        ) from None
    if not accepts(kind, built, sums) and any(isinstance(member, SequenceKind | ShapeKind) for member in members):
        built = (built,)
    if not accepts(kind, built, sums):
        raise StatementError(f"{owner}: {name}: expected {kind}, received {text!r}; write {name}=VALUE of that kind")
    return built


def _as_yaml(text: str, members: tuple[Kind, ...]) -> str:
    """The text with Python's spellings and those of shapes as YAML has them."""
    if text == "None":
        return "null"
    if text.startswith("(") and text.endswith(")"):
        return f"[{text[1:-1]}]"
    sequences = any(isinstance(member, SequenceKind | ShapeKind) for member in members)
    if sequences and re.fullmatch(r"\d+(?:x\d+)+", text, re.ASCII):
        return f"[{text.replace('x', ', ')}]"
    if any(isinstance(member, FloatKind) for member in members) and re.fullmatch(r"[-+]?inf", text):
        return text.replace("inf", ".inf")
    return text
