"""The version of tileops."""

from __future__ import annotations

from importlib.metadata import version

__version__ = version("tileops")
