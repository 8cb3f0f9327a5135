"""CUDA programs, compiled on a machine without a GPU."""
