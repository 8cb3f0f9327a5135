"""TileLang builders of the gemm family."""
