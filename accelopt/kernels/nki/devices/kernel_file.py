"""Loading a kernel's file. Runs only in a confined child process: this executes the file."""

from __future__ import annotations

import functools
import importlib.util
import sys
from types import ModuleType
from typing import Any

from accelopt.kernel_source import KERNEL_NAMES

_MODULE = "accelopt_kernel"


class NoKernel(ValueError):
    """A file in which it is not clear which function is the kernel."""


def load_kernel(path: str) -> Any:
    """The function `kernel`, else `optimized_kernel`, else the only decorated one of the file.

    Raises NoKernel where there is none, and whatever the file's own Python raises.
    """
    names = vars(_load(path))
    for name in KERNEL_NAMES:
        if name in names:
            return names[name]
    decorated = [value for value in names.values() if _is_decorated(value)]
    if len(decorated) != 1:
        raise NoKernel(
            f"the file defines no function named {' or '.join(KERNEL_NAMES)}, and "
            f"{len(decorated) or 'none'} with @nki.jit"
        )
    return decorated[0]


def _is_decorated(value: object) -> bool:
    """True for what nki.jit made of a function of this file: it keeps that function as `func`."""
    own = getattr(getattr(value, "func", None), "__module__", "") == _MODULE
    return own and callable(value) and not isinstance(value, functools.partial)


def _load(path: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module
    spec.loader.exec_module(module)
    return module
