"""Mixture-of-experts ops, and the layouts of grouped rows that they share."""
