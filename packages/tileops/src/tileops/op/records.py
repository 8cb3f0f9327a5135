"""What a recorded call costs at the least."""

from __future__ import annotations

from typing import NamedTuple

from tileops.manifest import roofline
from tileops.manifest.record import SignatureCall


class CallCost(NamedTuple):
    """The least work of one call: floating-point operations, and bytes moved between memory and the chip."""

    flops: int
    bytes: int


def cost_of(call: SignatureCall) -> CallCost:
    """The cost of a recorded call, from the manifest's roofline and each tensor's traffic."""
    return CallCost(roofline.flops(call), roofline.bytes_moved(call))
