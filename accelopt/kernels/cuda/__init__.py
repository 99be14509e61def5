"""CUDA kernels: compiled by nvcc or NVRTC, started by the driver."""
