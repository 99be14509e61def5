"""The two dialects of NKI: what kernels of each import, and which one a kernel is written in."""
