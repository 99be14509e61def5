"""Kernels of spec files, in CUDA or Triton: as solutions of a definition, and judged one at a time."""
