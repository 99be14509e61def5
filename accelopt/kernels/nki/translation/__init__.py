"""Kernels from one dialect of NKI to the other: source in, source out, and what proves it."""
