"""Tests of the moe family."""
