"""The names of all ops as a type; written by `python -m tileops.manifest names`."""

from typing import Literal, TypeAlias

OpName: TypeAlias = Literal["RMSNormFwdOp",]
