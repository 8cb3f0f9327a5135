"""Tests of the conformance checks and of the reference target."""
