"""Tests of the manifest: its language, its registry, its validator and what is generated from an entry."""
