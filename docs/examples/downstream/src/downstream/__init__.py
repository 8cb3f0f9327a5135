"""A project that uses the kernels of tileops-kernels, and adds one of its own, without the ops."""
