"""Loading a kernel's file. Runs only in a confined child process: this executes the file."""

from __future__ import annotations

import functools
import importlib.util
import linecache
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

from accelopt.kernels.nki.devices.absent_modules import AbsentImporter
from accelopt.kernels.nki.devices.kernel_folder import importer_of
from accelopt.kernels.nki.kernel_function import NoKernel, chosen, host_launch
from accelopt.sim.trace import AWAITED, AbstractTensor, HostLaunch

_MODULE = "accelopt_kernel"
ALONE: Mapping[str, object] = {"package": "", "modules": {}}
"""The folder of a file that imports nothing of it."""


class KernelCall(NamedTuple):
    """A kernel with all that it is called with."""

    kernel: Any
    arguments: list[Any]
    keywords: dict[str, Any]


def load_kernel(path: str, folder: Mapping[str, object] = ALONE) -> Any:
    """The kernel of a file, as `kernel_function` says; `folder` is what its folder has for it, as
    plain data of `KernelFolder`.

    Raises NoKernel where there is none, and whatever the file's own Python raises.
    """
    return chosen(vars(_load(path, folder)), Path(path).read_bytes().decode("utf-8-sig", "replace"))


def call_of(kernel: Any, arguments: Sequence[Any]) -> KernelCall:
    """What a trace calls for these arguments without data: of a functools.partial its function, of a
    plain function that launches a grid the kernel that it launches. Raises NoKernel where the launch
    is not with these arguments, and whatever the function raises."""
    if isinstance(kernel, functools.partial):
        return KernelCall(kernel.func, [*kernel.args, *arguments], dict(kernel.keywords))
    if not isinstance(kernel, FunctionType) or not host_launch(_text_of(kernel), kernel.__name__):
        return KernelCall(kernel, list(arguments), {})
    awaited = AWAITED.set(True)
    try:
        kernel(*arguments)
    except HostLaunch as launch:
        given = [a for a in arguments if isinstance(a, AbstractTensor)]
        passed = [*launch.arguments, *launch.keywords.values()]
        if [id(a) for a in passed if isinstance(a, AbstractTensor)] == list(map(id, given)):
            return KernelCall(launch.kernel, list(launch.arguments), dict(launch.keywords))
    finally:
        AWAITED.reset(awaited)
    raise NoKernel(
        f"{kernel.__name__} does not launch a kernel with its own tensors in their order: write a line "
        "`kernel = name[grid]`, with numbers in the grid"
    )


def _text_of(function: FunctionType) -> str:
    """The text of the file that a function is in."""
    return "".join(linecache.getlines(function.__code__.co_filename))


def _load(path: str, folder: Mapping[str, object]) -> ModuleType:
    importer, package = importer_of(folder), str(folder["package"])
    files = {path, *(module.file for module in importer.modules.values())}
    sys.meta_path.insert(0, importer)
    sys.meta_path.append(AbsentImporter(frozenset(files)))
    name = f"{package}.{_MODULE}" if package else _MODULE
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
