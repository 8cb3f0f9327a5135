"""What of torch may stand between a call and its operator: where nothing does, an eager call needs no operator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor
from torch.autograd import forward_ad

if TYPE_CHECKING:
    from tileops.manifest.plan import SignaturePlan

PLAIN: Final = frozenset({Tensor, torch.nn.Parameter})
"""The classes of tensors whose operations no `__torch_dispatch__` and no `__torch_function__` of theirs sees."""

_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_mode = torch._C._is_torch_function_mode_enabled
_transform = torch._C._functorch.peek_interpreter_stack
_trace = torch._C._get_tracing_state
_profiled = torch._C._autograd._profiler_enabled


def watched() -> bool:
    """Whether a function mode, forward mode, a profiler or a transform would see an operator called now.

    Within a transform tensors may be batches of nested ones, which torch ends the process for comparing.
    Dynamo is not among them: it traces the caller, and its graph holds the operator.
    """
    return forward_ad._current_level >= 0 or _function_mode() or _profiled() or _transform() is not None


def transformed() -> bool:
    """Whether a dispatch mode or a trace would see an operator called now.

    Dispatch keys that are active on this thread tell of each.
    """
    return _dispatch_modes() > 0 or _trace() is not None


def plain(name: str) -> str:
    """Source of the condition that the tensor `name` is of no class of its own, and can be compared with others."""
    return f"type({name}) in PLAIN and not {name}.is_nested"


def as_is(plan: SignaturePlan, name: str) -> str:
    """Source of the condition that an operator would be given the plain tensor `name` as it is.

    Torch's dispatcher materialises negated views first, and conjugated ones.
    """
    text = f"{name}.layout is strided and not {name}.is_neg()"
    return f"{text} and not {name}.is_conj()" if _takes_complex(plan) else text


def _takes_complex(plan: SignaturePlan) -> bool:
    signature = plan.entry.signature
    stated = [*map(str, signature.forall.values()), *(tensor.dtype.text for tensor in signature.inputs)]
    return any("complex" in text for text in stated)
