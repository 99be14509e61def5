"""Loading a kernel's file. Runs only in a confined child process: this executes the file."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType
from typing import Any

_MODULE = "accelopt_kernel"
_ENTRY_POINTS = ("kernel", "optimized_kernel")


def load_kernel(path: str) -> Any:
    """The function `kernel`, else `optimized_kernel`, of the file. Raises ValueError for neither."""
    module = _load(path)
    for name in _ENTRY_POINTS:
        if hasattr(module, name):
            return getattr(module, name)
    raise ValueError(f"{path} defines neither {' nor '.join(_ENTRY_POINTS)}")


def _load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module
    spec.loader.exec_module(module)
    return module
