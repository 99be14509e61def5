"""Kernels described by a file: their source, their arguments, and how they are launched."""
