"""The suites over every implemented op."""
