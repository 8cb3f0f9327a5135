"""Gemm kernels: call specs, interfaces, and tables of the kernel types that ship with this package."""
