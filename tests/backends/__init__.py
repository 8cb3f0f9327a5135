"""Backends of other distributions: two that work, and those that fail, installed as distributions of their own."""
