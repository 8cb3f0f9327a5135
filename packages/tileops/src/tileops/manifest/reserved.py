"""Names that a signature cannot use, since the call, the constructor or the op class has them already."""

from __future__ import annotations

import keyword
import re
from typing import Final

_CALL: Final = frozenset(
    {
        "BUILTIN",
        "ForwardOnly",
        "MISSING",
        "PLAIN",
        "Tensor",
        "branch",
        "copies",
        "differentiate",
        "excess",
        "exporting",
        "in_forward_mode",
        "instance",
        "instance_key",
        "is_dynamo_compiling",
        "is_grad_enabled",
        "isinstance",
        "len",
        "observing",
        "out",
        "refuse_arguments",
        "refuse_tangents",
        "record",
        "repeat",
        "report",
        "result",
        "run_operator",
        "run_repeatable",
        "self",
        "strided",
        "transformed",
        "tuple",
        "type",
        "unknown",
        "watched",
    }
)
_NUMBERED: Final = re.compile(r"(?:absent|operator|ForwardOnly)_[0-9]+")
_MEMBERS: Final = frozenset(
    {
        "built_entries",
        "collective",
        "assembled",
        "compile_op_names",
        "computation",
        "delegate_for",
        "delegate_types",
        "eval_roofline",
        "forward",
        "held_delegates",
        "injected_parameters",
        "interfaces",
        "iter_kernels",
        "kernel_config",
        "kernel_for",
        "kernel_table",
        "kernel_types",
        "key_for",
        "last_call",
        "parameter_on",
        "request_tune",
        "roof_key",
        "self",
        "serving_target",
        "shared",
        "signature_source",
        "target",
    }
)
_OP: Final = re.compile(r"[A-Z][A-Za-z0-9]*(?:Fwd|Bwd)Op")
_LOWER: Final = re.compile(r"[a-z][a-z0-9_]*")
ROW_FIELDS: Final = ("label", "some", "dtype_cases")
"""What a workload row has besides the values of parameters and indices."""
SUM_FIELDS: Final = frozenset({"kind", "value"})
"""What every value of a sum type, or of a nullable kind, is asked for."""


def taken_by_call(name: str) -> bool:
    """Whether an input of that name would stand for something else in the generated call."""
    return name in _CALL or _NUMBERED.fullmatch(name) is not None


def taken_by_op(name: str) -> bool:
    """Whether a parameter of that name would replace a member of the op class."""
    return name in _MEMBERS


def is_op_name(name: str) -> bool:
    """Whether a class may have the name: words in capitals, then FwdOp or BwdOp."""
    return _OP.fullmatch(name) is not None


def is_lower_name(name: str) -> bool:
    """Whether a family or a stage may have the name."""
    return _LOWER.fullmatch(name) is not None and not keyword.iskeyword(name)
