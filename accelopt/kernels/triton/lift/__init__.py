"""Triton kernels, traced with the launch that calls them: what they compute, as an Algorithm."""
