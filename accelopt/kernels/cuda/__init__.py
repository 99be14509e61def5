"""CUDA kernels: compiled by nvcc or NVRTC, started through CuPy or the driver."""
