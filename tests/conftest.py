"""What every test runs under."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("explore", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeat", settings.get_profile("explore"), derandomize=True)
settings.load_profile("repeat")
"""Property tests measure no time: a machine that compiles something else meanwhile must not fail them.

They take the same examples in every run, so that a change is judged by what it changed; `--hypothesis-profile=explore`
takes new ones, and what it finds becomes a test of its own.
"""
