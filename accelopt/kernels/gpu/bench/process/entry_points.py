"""The calling convention of a solution's entry point: outputs to fill, or outputs returned.

Data sets of 2025 lack the flag and return values; FlashInfer-Bench 0.1.2 assumes destination
passing when it is absent. The number of parameters decides instead, and an explicit option wins.
"""

from __future__ import annotations

import ast

from accelopt.kernels.gpu.bench.files.tracefiles import Definition, Solution
from accelopt.parsing import tree_of

PYTHON = ("triton", "python")


def passes_destination(
    solution: Solution, definition: Definition, explicit: bool | None = None
) -> bool:
    """Whether the entry point takes its outputs as trailing arguments.

    An explicit choice wins, unless the parameters make it impossible; then the parameters decide.
    With `*args` alone, and in compiled languages, the parameters say nothing, and what the solution
    states counts; a compiled one that states nothing passes them, as FlashInfer-Bench has it.
    """
    inputs, both = len(definition.inputs), len(definition.inputs) + len(definition.outputs)
    limits = parameter_limits(solution)
    stated = explicit if explicit is not None else solution.spec.destination_passing_style
    if limits is None:
        return stated if stated is not None else solution.spec.language not in PYTHON
    fewest, most = limits
    takes_both, takes_inputs = fewest <= both <= most, fewest <= inputs <= most
    if takes_both and takes_inputs:
        return bool(stated)
    return takes_both


def parameter_limits(solution: Solution) -> tuple[int, float] | None:
    """Fewest and most positional arguments of the entry point, or None when it is not Python.

    None also when the entry point is not a plain function of the file.
    """
    if solution.spec.language not in PYTHON:
        return None
    symbol = solution.spec.entry_point.split("::")[-1]
    for node in reversed(tree_of(solution.main_source).body):
        if isinstance(node, ast.FunctionDef) and node.name == symbol:
            return _limits(node.args)
    return None


def _limits(arguments: ast.arguments) -> tuple[int, float] | None:
    named = len(arguments.posonlyargs) + len(arguments.args)
    if arguments.vararg is not None:
        return None if named == 0 else (named - len(arguments.defaults), float("inf"))
    return named - len(arguments.defaults), named
