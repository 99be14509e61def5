"""CUDA kernels as programs: read on a parser, and written anew for another shape of their threads."""
