"""Operators for deep-learning inference: one manifest entry, one op, one node under `torch.compile`."""
