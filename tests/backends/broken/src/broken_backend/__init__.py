"""Backends that fail to load."""
