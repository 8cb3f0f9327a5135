"""The rules of op calls, one module per table: construction, entry points, steps, targets, kernels, failure."""
