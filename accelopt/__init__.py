"""AccelOpt makes AI-accelerator kernels faster, by itself. `accelopt.optimize` is its function."""

from importlib import import_module
from typing import Any

__version__ = "0.3.0"


def __getattr__(name: str) -> Any:
    """`accelopt.optimize`, imported on use: who wants a part loads no more."""
    if name != "optimize":
        raise AttributeError(f"module 'accelopt' has no attribute {name!r}")
    return import_module("accelopt.api").optimize
