"""Tests of the pool family."""
