"""From what a kernel computes to kernels by schedule in its place, in its author's module."""
