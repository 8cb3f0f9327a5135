"""Tests of `python -m tileops`."""
