"""A solution's sources as a function: written to a folder, imported, or built by the package."""

from __future__ import annotations

import importlib
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accelopt.kernels.gpu.bench.files.tracefiles import Definition, Solution
from accelopt.kernels.gpu.bench.process.installed_flashinfer_bench import without_shared_locks

# Of our own; all others are FlashInfer-Bench's.
BINDINGS = {"driver": "accelopt.kernels.cuda.launcher:load"}


def load_entry(solution: Solution, folder: Path, definition: Definition) -> Callable[..., Any]:
    """Write the sources below `folder`, import the entry file, and return the entry function."""
    for source in solution.sources:
        relative = Path(source.path)
        if relative.is_absolute() or ".." in relative.parts:
            raise ValueError(f"source path {source.path} leaves its folder")
        path = folder / relative
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(source.content)
    if solution.spec.binding in BINDINGS:
        place, _, name = BINDINGS[solution.spec.binding].partition(":")
        load: Callable[..., Callable[..., Any]] = getattr(importlib.import_module(place), name)
        return load(solution, folder)
    if solution.spec.language not in ("triton", "python"):
        return _build_with_package(solution, definition)
    entry, symbol = solution.spec.entry_point.split("::")
    if len(solution.sources) > 1:
        sys.path.insert(0, str(folder))
    spec = importlib.util.spec_from_file_location("candidate_source", folder / entry)
    if spec is None or spec.loader is None:
        raise ImportError(f"{entry} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["candidate_source"] = module
    spec.loader.exec_module(module)
    function = getattr(module, symbol, None)
    if not callable(function):
        raise ImportError(f"{entry} has no function {symbol}")
    return function  # type: ignore[no-any-return]


def _build_with_package(solution: Solution, definition: Definition) -> Callable[..., Any]:
    """Compiled languages are built by FlashInfer-Bench itself, for the GPU at hand."""
    import torch

    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        architecture = f"{major}.{minor}{'a' if major >= 9 else ''}"
        for builder in ("TVM_FFI", "TORCH"):
            os.environ.setdefault(f"{builder}_CUDA_ARCH_LIST", architecture)
    with without_shared_locks():
        from flashinfer_bench import Definition as PackageDefinition
        from flashinfer_bench import Solution as PackageSolution
        from flashinfer_bench.compile import BuilderRegistry

    built = BuilderRegistry.get_instance().build(
        PackageDefinition.model_validate_json(definition.model_dump_json(exclude_unset=True)),
        PackageSolution.model_validate_json(solution.model_dump_json(exclude_unset=True)),
    )
    return built  # type: ignore[no-any-return]
