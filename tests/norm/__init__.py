"""Tests of the norm family."""
