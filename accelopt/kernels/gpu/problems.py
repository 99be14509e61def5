"""Problems for Triton kernels: FlashInfer-Bench definitions, and KernelBench-style PyTorch modules."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from accelopt.errors import ConfigError, require
from accelopt.evaluation import Case, Row
from accelopt.kernels.gpu.bench.files.tracefiles import (
    Definition,
    DefinitionAxis,
    DefinitionTensor,
    InputSource,
    Trace,
    Workload,
)
from accelopt.kernels.gpu.cases import case_of, one_file, written_case
from accelopt.parsing import tree_of
from accelopt.sandbox.workers import Call, Fault, perform
from accelopt.store import content_key, read_text
from accelopt.time_limits import PROBLEM_SECONDS

PARTS = {"Model", "get_inputs", "get_init_inputs"}
ENTRY = "main.py::kernel_function"
DESCRIBE = "accelopt.kernels.gpu.problems:describe_job"
BYTES = 32 << 30
_RUN = """

_MODEL = Model(*get_init_inputs())


def run({parameters}):
    return _MODEL({parameters})
"""


class Problem(NamedTuple):
    """A problem as FlashInfer-Bench has it: what is to be computed, and on which inputs."""

    definition: Definition
    workload: Trace


class ModelValue(Row):
    """An input or output of a model: a tensor's shape and dtype, or a number."""

    name: str
    shape: tuple[int, ...] | None = None
    dtype: str = ""
    number: float | int | bool | None = None


class Description(Row):
    """What a model takes and gives; `refusal` says why it cannot be a problem."""

    inputs: tuple[ModelValue, ...] = ()
    outputs: tuple[ModelValue, ...] = ()
    refusal: str = ""


def is_torch_problem(path: Path) -> bool:
    """Whether a Python file defines `Model`, `get_inputs` and `get_init_inputs`."""
    kinds = (ast.ClassDef, ast.FunctionDef)
    return {node.name for node in tree_of(read_text(path)).body if isinstance(node, kinds)} >= PARTS


def case_of_problem(problem: Path, kernel: Path, workload: Path | None, folder: Path) -> Case:
    """The case of a Triton kernel for a definition with its workload, or for a PyTorch module, which is
    written as both into `folder`; its kernels define `kernel_function`.

    Raises ConfigError for a problem that cannot be used.
    """
    if problem.suffix == ".json":
        if workload is None:
            raise ConfigError("a FlashInfer-Bench definition needs the option `workload`")
        return case_of(problem.resolve(), kernel.resolve(), workload.resolve())
    definition, trace = definition_of(problem)
    solution = one_file(kernel.stem, definition.name, "AccelOpt", ENTRY, read_text(kernel))
    return written_case(definition, solution, trace, folder)


def definition_of(path: Path) -> Problem:
    """The problem in a KernelBench-style file: `Model`, `get_inputs`, `get_init_inputs`.

    Raises ConfigError for a model with parameters (a kernel would have to be given them), and for a
    file that does not run; MissingExtra without torch.
    """
    require("flashinfer", torch="torch")
    found = perform(
        Call(DESCRIBE, {"path": str(path.resolve())}, PROBLEM_SECONDS, BYTES), Description
    )
    if isinstance(found, Fault):
        lines = found.output.strip().splitlines()
        raise ConfigError(f"{path} does not run: {lines[-1] if lines else found.message}")
    if found.refusal:
        raise ConfigError(f"{path} {found.refusal}")
    text = read_text(path)
    axes = {
        f"n{size}": DefinitionAxis(type="const", value=size)
        for value in (*found.inputs, *found.outputs)
        for size in value.shape or ()
    }
    definition = Definition(
        name=path.stem,
        op_type="kernelbench",
        axes=axes,
        inputs={value.name: _spec(value) for value in found.inputs},
        outputs={value.name: _spec(value) for value in found.outputs},
        reference=text + _RUN.format(parameters=", ".join(v.name for v in found.inputs)),
    )
    sources = {value.name: _source(value) for value in found.inputs}
    workload = Workload(axes={}, inputs=sources, uuid=content_key(text))
    return Problem(definition, Trace(definition=path.stem, workload=workload))


def _spec(value: ModelValue) -> DefinitionTensor:
    shape = None if value.shape is None else [f"n{size}" for size in value.shape]
    return DefinitionTensor(shape=shape, dtype=value.dtype)


def _source(value: ModelValue) -> InputSource:
    if value.shape is None:
        return InputSource(type="scalar", value=value.number)
    return InputSource(type="random")


def describe_job(payload: Mapping[str, Any]) -> Description:
    """Build the model on the CPU and look at what it takes and gives; in a child process."""
    spec = importlib.util.spec_from_file_location("problem", payload["path"])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.Model(*module.get_init_inputs())
    count = sum(parameter.numel() for parameter in model.parameters())
    if count:
        return Description(
            refusal=f"has a model with {count} parameters: a kernel takes inputs alone; make them "
            "inputs of forward"
        )
    given = module.get_inputs()
    names = list(inspect.signature(model.forward).parameters)
    if len(names) != len(given) or not all(name.isidentifier() for name in names):
        names = [f"input{place}" for place in range(len(given))]
    results = model(*given)
    results = results if isinstance(results, (tuple, list)) else [results]
    return Description(
        inputs=tuple(_value(name, one) for name, one in zip(names, given, strict=True)),
        outputs=tuple(_value(f"output{place}", one) for place, one in enumerate(results)),
    )


def _value(name: str, one: Any) -> ModelValue:
    if hasattr(one, "shape") and hasattr(one, "dtype"):
        dtype = str(one.dtype).removeprefix("torch.")
        return ModelValue(name=name, shape=tuple(one.shape), dtype=dtype)
    dtype = {"bool": "bool", "int": "int32"}.get(type(one).__name__, "float32")
    json.dumps(one)  # anything but a number cannot travel
    return ModelValue(name=name, dtype=dtype, number=one)
