"""AccelOpt makes AI-accelerator kernels faster, by itself. `accelopt.optimize` is its function;
`accelopt.write` writes one from its NumPy reference, `accelopt.translate` one in today's NKI from an older one."""

from importlib import import_module
from typing import Any

__version__ = "0.24.0"


def __getattr__(name: str) -> Any:
    """The functions of `accelopt.api`, imported on use: who wants a part loads no more."""
    if name not in ("optimize", "translate", "write"):
        raise AttributeError(f"module 'accelopt' has no attribute {name!r}")
    return getattr(import_module("accelopt.api"), name)
