"""TileLang kernels for deep-learning inference: call specs, kernel types, selection, entries."""
