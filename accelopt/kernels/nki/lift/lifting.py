"""From a traced kernel to its algorithm: `lift(program)`."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from accelopt.algorithm.algorithm import Algorithm, Array, expressions_of, walk
from accelopt.algorithm.value_nodes import Undefined, Value
from accelopt.kernels.nki.lift.axis_joining import joined, output_axes, row_major
from accelopt.kernels.nki.lift.definitions import DefinedOutput, algorithm_of
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.loop_results import settled, whole
from accelopt.kernels.nki.lift.reaching_values import KeptArray, Reaching
from accelopt.sim.dtypes import name_of
from accelopt.sim.program import Program, Tensor
from accelopt.time_limits import LIFT_SECONDS

DEEPEST = 20_000
"""Python frames that composing may take: a few for each instruction between input and output."""
LEAST_KEPT = 100
"""Expressions from which on a kernel is lifted by way of its arrays in HBM, too."""
LEAST_SHORTER = 1.5
"""Times as many expressions as by way of arrays are too many: they compute elements again."""


def lift(program: Program, seconds: float = LIFT_SECONDS) -> Algorithm:
    """What a kernel computes, exactly, as a function of real numbers.

    Copies, layouts, tiles, loops and memories are composed away; reductions over pieces become
    whole ones; what kernels write out gets its name. Two kernels of one problem give the same
    Algorithm, or nearly. Raises NotLifted, with the source line and the reason, for a kernel that
    has none: run-time indices, random numbers, sorting, bits; and for one that would take more
    than so many `seconds`.
    """
    with _deep():
        try:
            whole = _lifted(program, seconds)
            kept = _handed_on(program) if _parts(whole) > LEAST_KEPT else frozenset()
            if not kept:
                return whole
            by_arrays = _lifted(program, seconds, kept)
            return by_arrays if _parts(by_arrays) * LEAST_SHORTER < _parts(whole) else whole
        except RecursionError:
            raise NotLifted("too many instructions build on each other", program.source) from None
        except (LookupError, ArithmeticError, AssertionError) as error:
            # A fault of ours on a kernel that nobody has seen must not end the search for it.
            said = (
                f"lifting it fails with {type(error).__name__}: {error}; please report the kernel"
            )
            raise NotLifted(said, program.source) from error


def _lifted(program: Program, seconds: float, kept: frozenset[Tensor] = frozenset()) -> Algorithm:
    reaching = Reaching(program, seconds, kept)
    outputs: list[DefinedOutput] = []
    names = {array.name for array in _inputs(program)}
    for number, tensor in enumerate(program.results):
        shape = program.shape_of_result(number)
        if tensor is not None and shape is not None:
            name = _free_name(tensor, names)
            outputs.append(_defined(reaching, program, tensor, shape, name))
    if not outputs:
        raise NotLifted("the kernel returns nothing", program.source)
    found: dict[KeptArray, DefinedOutput] = {}
    while asked := [array for array in reaching.arrays if array not in found]:
        for array in asked:
            found[array] = _defined(reaching, program, array.tensor, array.tensor.shape, array)
    between = [found[array] for array in sorted(found, key=lambda array: array.writer)]
    return algorithm_of(reaching.values, program.name, _inputs(program), outputs, between)


def _defined(
    reaching: Reaching, program: Program, tensor: Tensor, shape: tuple[int, ...],
    which: str | KeptArray,
) -> DefinedOutput:  # fmt: skip
    """What a tensor holds at the end, by a name, or where it is kept."""
    axes = output_axes(program, tensor, shape)
    if isinstance(which, KeptArray):
        name, value = reaching.arrays[which], reaching.left_by(which, row_major(axes))
    else:
        name, value = which, reaching.at_end(tensor, row_major(axes))
    roll = not reaching.kept  # neighbours in an array of several dimensions are no row of it
    value = whole(reaching.values, settled(reaching, value), roll)
    _refuse_leftovers(reaching, value, tensor)
    axes, value = joined(reaching.values, axes, value)
    value = reaching.values.under(whole(reaching.values, value, roll), ())
    axes = tuple(axis for axis in axes if axis.extent > 1) or axes[:1]
    return DefinedOutput(name, axes, value, name_of(tensor.dtype), shape)


def _handed_on(program: Program) -> frozenset[Tensor]:
    """Tensors in HBM that the kernel writes and reads again."""
    read = {access.tensor for _, i in program.walk() for access in i.inputs.values()}
    own = {*program.arguments, *program.results}
    return frozenset(t for t in read - own if not t.buffer.on_chip and t.data is None)


def _parts(algorithm: Algorithm) -> int:
    """How many expressions an Algorithm is made of."""
    return sum(
        sum(1 for _ in walk(expression))
        for definition in algorithm.definitions
        for expression in expressions_of(definition)
    )


def _refuse_leftovers(reaching: Reaching, value: Value, tensor: Tensor) -> None:
    """Raises NotLifted for a value that is made of what has no form, or of nothing."""
    for part in reaching.values.carried(value):
        raise NotLifted(
            "the iterations of this loop use what earlier ones left in a way that is neither a "
            "running sum nor a scan",
            reaching.loop_at(part.loop).source,
        )
    if isinstance(value, Undefined):
        raise NotLifted("an output is made of memory that nothing has written", tensor.source)


def _inputs(program: Program) -> list[Array]:
    return [
        Array(tensor.name or f"argument{n}", tensor.shape, name_of(tensor.dtype), tensor.shape)
        for n, tensor in enumerate(program.arguments)
    ]


def _free_name(tensor: Tensor, taken: set[str]) -> str:
    """A name for an output that no other array has."""
    given = tensor.name.isidentifier() and not re.fullmatch(r"t\d+", tensor.name)
    wanted = tensor.name if given else "out"
    name, number = wanted, 1
    while name in taken:
        number += 1
        name = f"{wanted}{number}" if wanted == "out" else f"{wanted}_out{number - 1}"
    taken.add(name)
    return name


@contextmanager
def _deep() -> Iterator[None]:
    """Lets composition go as deep as long kernels need."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, DEEPEST))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)
