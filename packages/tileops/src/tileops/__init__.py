"""Operators for deep-learning inference: one manifest entry, one op, one node under `torch.compile`."""


def __getattr__(name: str) -> object:
    from tileops.lazy import missing  # noqa: PLC0415 - for an error alone

    raise missing(__name__, name)
