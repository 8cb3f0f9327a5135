"""Building programs: naming, compiling, keeping on disk and loading them, for CPU and for CUDA."""
