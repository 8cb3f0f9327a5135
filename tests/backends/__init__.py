"""Backends of other distributions: the example, and those that fail, installed as distributions of their own."""
