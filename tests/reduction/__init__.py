"""Tests of the reduction family."""
