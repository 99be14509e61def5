"""AccelOpt makes AI-accelerator kernels faster, by itself."""

__version__ = "0.1.0"
