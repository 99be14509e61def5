"""Kernels of spec files as problems of a FlashInfer-Trace folder, so that one referee judges both.

A Triton kernel gets a function `run` of its input tensors that launches it, below its own text: from
then on it is a solution like any other. A CUDA kernel gets a line that says its launch, and is started
by our own binding. Without a reference the spec's own kernel is the reference, in the referee's process.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from math import ceil
from pathlib import Path

from accelopt.contract.spec import Argument, KernelSpec, LaunchConfig
from accelopt.errors import ConfigError
from accelopt.evaluation import Case
from accelopt.kernels.cuda.launch_pragma import ExecutionConfiguration, signature_of, with_launch
from accelopt.kernels.gpu.bench.files.tracefiles import (
    Definition,
    DefinitionAxis,
    DefinitionTensor,
    InputSource,
    Solution,
    Trace,
    Workload,
)
from accelopt.kernels.gpu.cases import one_file, written_case
from accelopt.kernels.triton.configurations.source import JitFunction, Source
from accelopt.parsing import parse_python
from accelopt.store import content_key, read_text

ENTRY = "run"
DRIVER = "driver"
OPTIONS = ("num_warps", "num_stages")
_OWN = """
import json
import tempfile
from pathlib import Path

from accelopt.kernels.gpu.bench.files.tracefiles import Definition, Solution
from accelopt.kernels.gpu.bench.process.solution_loading import load_entry

run = load_entry(
    Solution.model_validate(json.loads({solution!r})),
    Path(tempfile.mkdtemp(prefix="reference-", dir=".")),
    Definition.model_validate(json.loads({definition!r})),
)
"""
_GIVEN = """


def {entry}(*tensors):
    return _reference(*tensors)
"""


def case_of_spec(spec: KernelSpec, folder: Path, near: Path) -> Case:
    """The case of a spec, its problem written into `folder`; `near` is where its reference may lie.

    Raises ConfigError for a contract that the kernel does not fit.
    """
    solution = solution_of(spec)
    definition = definition_of(spec, solution, near)
    return written_case(definition, solution, workload_of(spec), folder)


def definition_of(spec: KernelSpec, solution: Solution, near: Path) -> Definition:
    """What is to be computed: the input tensors in their order, the outputs, and the reference."""
    io = spec.kernel.io
    tensors = [*io.inputs, *io.outputs]
    sizes = {size for argument in tensors for size in argument.tensor.shape}
    given = spec.reference
    made = Definition(
        name=spec.safe_name,
        op_type="spec",
        axes={f"n{size}": DefinitionAxis(type="const", value=size) for size in sorted(sizes)},
        inputs={argument.name: _tensor(argument) for argument in io.inputs},
        outputs={_output(argument): _tensor(argument) for argument in io.outputs},
        reference="",
    )
    if given is None:
        text = _OWN.format(
            solution=solution.model_dump_json(exclude_unset=True),
            definition=made.model_dump_json(exclude_unset=True),
        )
        return made.model_copy(update={"reference": text})
    source = given.source or read_text(near / given.module)
    if given.function != ENTRY:
        source = f"{source}\n\n_reference = {given.function}\n" + _GIVEN.format(entry=ENTRY)
    tolerance = {"rtol": given.rtol, "atol": given.atol}
    return made.model_copy(update={"reference": source, "tolerance": tolerance})


def workload_of(spec: KernelSpec) -> Trace:
    """One workload: how each input is drawn."""
    sources = {
        argument.name: InputSource(type="random", tensor=argument.tensor.model_dump(mode="json"))
        for argument in spec.kernel.io.inputs
    }
    uuid = content_key(spec.model_dump_json())
    workload = Workload(axes={}, inputs=sources, uuid=uuid)
    return Trace(definition=spec.safe_name, workload=workload)


def solution_of(spec: KernelSpec) -> Solution:
    """The spec's own kernel as a solution. Raises ConfigError where kernel and contract do not fit."""
    kernel = spec.kernel
    if not kernel.io.outputs:
        raise ConfigError(f"{spec.name} has no output: give an argument the role output or inout")
    if kernel.kernel_type == "triton":
        return _one_file(spec, f"main.py::{ENTRY}", triton_module(spec))
    signature = signature_of(kernel.source_code, kernel.name)
    numbers = sum(not parameter.pointer for parameter in signature.parameters)
    given = sum(not argument.is_tensor for argument in kernel.io.args)
    if len(signature.parameters) != len(kernel.io.args) or numbers != given:
        raise ConfigError(
            f"{spec.name}: {signature.name} takes {len(signature.parameters)} arguments, {numbers} of "
            f"them numbers; the contract gives {len(kernel.io.args)}, {given} of them numbers"
        )
    source = with_launch(kernel.source_code, launch_of_contract(kernel.io.launch))
    made = _one_file(spec, f"kernel.cu::{signature.instance}", source)
    arguments = [argument.model_dump(mode="json") for argument in kernel.io.args]
    build = made.spec.model_copy(update={"binding": DRIVER, "arguments": arguments})
    return made.model_copy(update={"spec": build})


def launch_of_contract(said: LaunchConfig) -> ExecutionConfiguration:
    """The launch that a contract states."""
    grid, block = ((three.x, three.y, three.z) for three in (said.grid, said.block))
    return ExecutionConfiguration(grid, block, said.shared)


def triton_module(spec: KernelSpec) -> str:
    """The kernel's text with `run` below it: outputs are made, the kernel is launched with the
    contract's numbers, `num_warps`, `num_stages` and constants by name.

    Raises ConfigError where the text has no such kernel, or another number of parameters.
    """
    kernel, io = spec.kernel, spec.kernel.io
    function = jit_function(kernel.source_code, kernel.name)
    parameters, constants = function.parameters, function.constants
    if len(io.args) > len(parameters):
        raise ConfigError(
            f"{spec.name}: {function.name} takes {len(parameters)} arguments, the contract gives "
            f"{len(io.args)}"
        )
    by_name = {argument.name: argument for argument in io.args}
    in_order = dict(zip(parameters, io.args, strict=False))
    named = by_name if set(by_name) <= set(parameters) else in_order
    values = {name: kernel.metadata[name] for name in parameters if name in kernel.metadata}
    values |= {p: a.value for p, a in named.items() if not a.is_tensor}
    missing = [p for p in parameters if function.default(p) is None and p not in {*values, *named}]
    if missing:
        raise ConfigError(
            f"{spec.name}: {function.name} needs {', '.join(missing)}, which neither the contract "
            "nor the metadata gives"
        )
    words = [
        named[p].name if p in named and named[p].is_tensor else repr(values[p])
        for p in parameters
        if (p in named or p in values) and p not in constants
    ]
    words += [f"{p}={p}" for p in parameters if p in constants and p in values]
    words += [f"{o}={kernel.metadata[o]!r}" for o in OPTIONS if o in kernel.metadata]
    grid = _grid(function, io.launch, values, io.args)
    lines = [f"def {ENTRY}({', '.join(argument.name for argument in io.inputs)}):"]
    lines += [f"    {argument.name} = {_made(argument, io.inputs)}" for argument in io.outputs]
    lines += [f"    {p} = {values[p]!r}" for p in parameters if p in constants and p in values]
    lines += [f"    {function.name}[{grid}]({', '.join(words)})"]
    lines += [f"    return {', '.join(argument.name for argument in io.outputs)}"]
    text = kernel.source_code.rstrip("\n")
    imported = {
        alias.asname or alias.name
        for node in ast.walk(parse_python(text))
        if isinstance(node, ast.Import)
        for alias in node.names
    }
    above = [f"import {name}" for name in ("torch", "triton") if name not in imported]
    return "\n".join([*above, text, "", "", *lines]) + "\n"


def jit_function(source: str, name: str = "") -> JitFunction:
    """The function under `@triton.jit` of that name, or the only one. Raises ConfigError."""
    try:
        kernels = Source(source).kernels
    except SyntaxError as error:
        raise ConfigError(f"the kernel's source is not Python: {error}") from None
    chosen = [kernel for own, kernel in kernels.items() if own == name or not name]
    if len(chosen) != 1:
        there = ", ".join(kernels) or "none"
        wanted = f"a @triton.jit function {name}" if name else "one @triton.jit function"
        raise ConfigError(f"the source should define {wanted}; there are {there}")
    return chosen[0]


def _grid(
    function: JitFunction,
    launch: LaunchConfig,
    values: Mapping[str, object],
    args: Sequence[Argument],
) -> str:
    """The grid, with a division in the place of a number where the kernel steps by a constant along
    that axis and the division gives the number: then it follows when the constant is changed."""
    extents = [launch.grid.x, launch.grid.y, launch.grid.z]
    while len(extents) > 1 and extents[-1] == 1:
        extents.pop()
    lengths = dict.fromkeys(
        int(str(length))
        for length in (
            *(a.value for a in args if a.type == "int" and a.name not in function.constants),
            *(size for a in args if a.is_tensor for size in a.tensor.shape),
        )
    )
    words = []
    for axis, extent in enumerate(extents):
        step = _step(function, axis)
        tile = values.get(step) if step else None
        fits = [n for n in lengths if isinstance(tile, int) and ceil(n / tile) == extent]
        words.append(f"triton.cdiv({fits[0]}, {step})" if fits else str(extent))
    return f"({', '.join(words)},)"


def _step(function: JitFunction, axis: int) -> str | None:
    """The constant by which the number of the program along an axis is multiplied."""
    numbers = {f"tl.program_id({axis})", f"tl.program_id(axis={axis})"}
    named = {
        target.id
        for node in ast.walk(function.node)
        if isinstance(node, ast.Assign) and ast.unparse(node.value) in numbers
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(function.node):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            sides = {ast.unparse(node.left), ast.unparse(node.right)}
            if sides & (numbers | named) and (found := sides & function.constants):
                return min(found)
    return None


def _made(argument: Argument, inputs: Sequence[Argument]) -> str:
    """The expression that makes an output before the kernel runs."""
    if argument.is_input:
        return f"{argument.name}.clone()"
    spec = argument.tensor
    shape = f"({', '.join(map(str, spec.shape))}{',' if len(spec.shape) == 1 else ''})"
    device = f"{inputs[0].name}.device" if inputs else '"cuda"'
    where = f"dtype=torch.{spec.dtype}, device={device}"
    if argument.filled is None:
        return f"torch.empty({shape}, {where})"
    return f"torch.full({shape}, {argument.filled!r}, {where})"


def _output(argument: Argument) -> str:
    return f"{argument.name}_out" if argument.is_input else argument.name


def _tensor(argument: Argument) -> DefinitionTensor:
    spec = argument.tensor
    return DefinitionTensor(shape=[f"n{size}" for size in spec.shape], dtype=spec.dtype)


def _one_file(spec: KernelSpec, entry: str, text: str) -> Solution:
    name, language = spec.safe_name, spec.kernel.kernel_type
    return one_file(name, name, "spec", entry, text, language)
