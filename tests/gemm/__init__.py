"""Tests of the gemm family."""
