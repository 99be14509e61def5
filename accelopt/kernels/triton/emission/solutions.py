"""Kernels written anew for a solution, beside those that it has: for other sizes, formats and numbers than
those of the workload the solution does what it did."""

from __future__ import annotations

import ast
import re
from typing import NamedTuple

from accelopt.algorithm.deep_recursion import deep_recursion
from accelopt.algorithm.ir import Algorithm, with_names
from accelopt.algorithm.traced_array import NotTraced
from accelopt.hardware.gpus import GPU
from accelopt.kernels.gpu.bench.files.tracefiles import Definition, Solution, Workload
from accelopt.kernels.triton.emission.module_text import KernelsText, kernels_text
from accelopt.kernels.triton.emission.planning import plans
from accelopt.kernels.triton.emission.rounding import rounded
from accelopt.kernels.triton.emission.schedule import NotEmitted, Schedule
from accelopt.kernels.triton.lift.confined import lift_reference, lift_solution
from accelopt.parsing import parse_python


class Candidate(NamedTuple):
    """A solution's main source with kernels written anew, how they compute, and the milliseconds that they
    are expected to take."""

    source: str
    schedule: Schedule
    milliseconds: float


def candidates(
    solution: Solution, definition: Definition, workload: Workload, gpu: GPU, most: int
) -> list[Candidate]:
    """Write the solution's kernels anew from what they compute: definitions joined into kernels, tiles,
    warps and stages by a closed form of their time.

    The solution's file is kept, its function is called for everything but the workload's sizes, formats and
    numbers. Raises NotTraced where neither the solution nor its reference is lifted, NotEmitted where it is not
    written.
    """
    algorithm = _algorithm(solution, definition, workload)
    numbers = {name: one.value for name, one in workload.inputs.items() if one.value is not None}
    with deep_recursion():
        ways = [(algorithm, plan) for plan in plans(algorithm, gpu, most)]
        if (narrow := rounded(algorithm)) != algorithm:
            rest = most - max(1, most // 3)
            ways = [(narrow, p) for p in plans(narrow, gpu, rest)] + ways[: most - rest]
        made: list[Candidate] = []
        for computed, plan in ways:
            text = kernels_text(computed, plan.schedule)
            source = beside(solution.main_source, solution.spec.entry_point.rpartition("::")[2],
                            algorithm, text, [*definition.inputs], numbers)  # fmt: skip
            made.append(Candidate(source, plan.schedule, plan.seconds * 1e3))
    return made


def _algorithm(solution: Solution, definition: Definition, workload: Workload) -> Algorithm:
    """What a solution computes, or what its reference does where that alone is lifted, over the solution's
    parameters."""
    try:
        found = lift_solution(solution, definition, workload).algorithm
    except NotTraced as refusal:
        try:
            found = lift_reference(definition, workload).algorithm
        except NotTraced:
            raise refusal from None
    function = _function(solution.main_source, solution.spec.entry_point.rpartition("::")[2])
    parameters = zip(
        _parameters(function, [*definition.inputs]), definition.inputs.values(), strict=False
    )
    tensors = [own for own, given in parameters if given.shape is not None]
    inputs = (array.name for array in found.inputs)
    return with_names(found, dict(zip(inputs, tensors, strict=False)))


def _function(source: str, entry: str) -> ast.FunctionDef:
    body = parse_python(source).body
    found = [node for node in body if isinstance(node, ast.FunctionDef) and node.name == entry]
    if not found:
        raise NotEmitted(f"{entry} is no function of the solution's file")
    return found[-1]


def _parameters(function: ast.FunctionDef, given: list[str]) -> list[str]:
    """The names of a function's parameters; those of the arguments where it takes any."""
    own = function.args
    if own.vararg or own.kwarg or own.kwonlyargs:
        return given
    return [one.arg for one in (*own.posonlyargs, *own.args)]


def beside(
    source: str, entry: str, algorithm: Algorithm, text: KernelsText, given: list[str],
    numbers: dict[str, float],
) -> str:  # fmt: skip
    """A file with kernels more, which its function `entry` launches where they are for what it is given. `given`
    are the arguments in their order, `numbers` what some of them are. Raises NotEmitted where the file has no
    such function."""
    tree, function = parse_python(source), _function(source, entry)
    parameters = _parameters(function, given)
    plain = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
    signature = ast.unparse(function.args) if parameters == plain else ", ".join(parameters)
    taken = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    taken |= {n.name for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef))}
    taken |= {a.asname or a.name for n in ast.walk(tree)
              if isinstance(n, (ast.Import, ast.ImportFrom)) for a in n.names}  # fmt: skip
    before = _free(f"{entry}_for_other_sizes", taken)
    tests = [_same(array.name, array.given, array.dtype) for array in algorithm.inputs]
    tests += [f"{own} == {numbers[name]!r}" for name, own in zip(given, parameters, strict=False)
              if name in numbers]  # fmt: skip
    called = f"{before}({', '.join(parameters)})"
    lines = [f"def {entry}({signature}):"]
    lines += [f"    if not ({' and '.join(tests)}):", f"        return {called}"]
    lines += [f"    {line}" for line in text.launches]
    own = "\n\n".join([*text.kernels, "\n".join(lines) + "\n"])
    for name in re.findall(r"^def (\w+)\(", "\n".join(text.kernels), re.MULTILINE):
        if name in taken:
            own = re.sub(rf"\b{name}\b", _free(name, taken), own)
    rows = source.splitlines()
    head = rows[function.lineno - 1].replace(f"def {entry}", f"def {before}", 1)
    rows[function.lineno - 1] = head
    imports = [
        line
        for line in text.imports
        if not re.search(rf"^{re.escape(line)}\s*$", source, re.MULTILINE)
    ]
    return "\n".join([*rows, "", "", *imports, "", own])


def _free(name: str, taken: set[str]) -> str:
    return next(n for n in (name, *(f"{name}_{k}" for k in range(2, 99))) if n not in taken)


def _same(name: str, shape: tuple[int, ...], dtype: str) -> str:
    """Whether a tensor is as the kernels need it."""
    return f"tuple({name}.shape) == {shape!r} and {name}.dtype == torch.{dtype} and {name}.is_contiguous()"
