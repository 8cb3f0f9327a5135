"""What every test runs under."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("tileops", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tileops")
"""Property tests measure no time: a machine that compiles something else meanwhile must not fail them."""
