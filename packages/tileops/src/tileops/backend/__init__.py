"""Backends: how another distribution serves an op or adds a kernel type to it."""

from __future__ import annotations

from tileops.backend.discovery import Discovery
from tileops.backend.process import (
    default_target,
    load_failures,
    register_detector,
    register_kernel_builder,
    register_kernel_type,
    registered_targets,
    set_default_target,
)
from tileops.backend.registry import BUILTIN, BackendRegistry
from tileops.backend.specs import BuildKernel, DetectTarget, TargetKernel, TensorSpec
from tileops.errors import AmbiguousTargetError, BackendLoadWarning, RegistrationError, UnknownTargetError
from tileops_kernels.errors import BackendError, OpNotAvailableError

__all__ = [
    "BUILTIN",
    "AmbiguousTargetError",
    "BackendError",
    "BackendLoadWarning",
    "BackendRegistry",
    "BuildKernel",
    "DetectTarget",
    "Discovery",
    "OpNotAvailableError",
    "RegistrationError",
    "TargetKernel",
    "TensorSpec",
    "UnknownTargetError",
    "default_target",
    "load_failures",
    "register_detector",
    "register_kernel_builder",
    "register_kernel_type",
    "registered_targets",
    "set_default_target",
]
