"""Tests of the op layer."""
