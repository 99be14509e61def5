"""From a traced kernel to its algorithm: `lift(program)`."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from accelopt.algorithm.axis_joining import joined, row_major
from accelopt.algorithm.canonical_rewriting import rewritten, whole
from accelopt.algorithm.choice_cells import by_fewest_cuts
from accelopt.algorithm.deep_recursion import deep_recursion
from accelopt.algorithm.definitions import DefinedOutput, UndefinedOutput, algorithm_of
from accelopt.algorithm.index import Axis
from accelopt.algorithm.ir import Algorithm, Array, expressions_of, walk
from accelopt.algorithm.loop_results import settled
from accelopt.algorithm.value_nodes import Undefined, Value
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.reaching_values import KeptArray, Reaching
from accelopt.sim.dtypes import name_of
from accelopt.sim.errors import SourceLine
from accelopt.sim.program import Loop, Program, ProgramNode, Tensor
from accelopt.time_limits import LIFT_SECONDS

LEAST_KEPT = 40
"""Expressions from which on a kernel is lifted by way of its arrays in HBM, too."""
LEAST_SHORTER = 1.5
"""Times as many expressions as by way of arrays are too many: they compute elements again."""


class LiftedProgram(NamedTuple):
    """What a kernel computes, and the source lines of its definitions as far as they are known."""

    algorithm: Algorithm
    lines: Mapping[str, SourceLine]


def lift(program: Program, seconds: float = LIFT_SECONDS, *, strict: bool = False) -> Algorithm:
    """What a kernel computes: the `algorithm` of `lift_with_lines`."""
    return lift_with_lines(program, seconds, strict=strict).algorithm


def lift_with_lines(
    program: Program, seconds: float = LIFT_SECONDS, *, strict: bool = False
) -> LiftedProgram:
    """What a kernel computes, exactly, as a function of real numbers.

    Copies, layouts, tiles, loops and memories are composed away; reductions over pieces become
    whole ones; what kernels write out gets its name. Two kernels of one problem give the same
    Algorithm, or nearly. Raises NotLifted, with the source line and the reason, for a kernel that
    has none: run-time indices, random numbers, sorting, bits; and for one that would take more
    than so many `seconds`; with `strict` also for one whose outputs may have elements that nothing has
    written.
    """
    if program.ranks:
        raise NotLifted("it passes elements between ranks", program.source)
    with deep_recursion():
        try:
            # What would be computed where it is looked up would be computed once for each that does.
            looked_up = _handed_on(program, looked_up=True)
            found = _lifted(program, seconds, strict, looked_up)
            size = _parts(found.algorithm)
            kept = _handed_on(program)
            if size <= LEAST_KEPT or kept == looked_up:
                return found
            by_arrays = _lifted(program, seconds, strict, kept, roll=False)
            return by_arrays if _parts(by_arrays.algorithm) * LEAST_SHORTER < size else found
        except RecursionError:
            raise NotLifted("too many instructions build on each other", program.source) from None
        except TimeoutError:
            said = f"what it computes was not found within the {seconds:g} s of lifting"
            raise NotLifted(said, program.source) from None
        except UndefinedOutput as refusal:
            raise NotLifted(str(refusal), program.source) from None
        except (LookupError, ArithmeticError, AssertionError, ValueError) as error:
            # A fault of ours on a kernel that nobody has seen must not end the search for it.
            said = (
                f"lifting it fails with {type(error).__name__}: {error}; please report the kernel"
            )
            raise NotLifted(said, program.source) from error


def _lifted(
    program: Program, seconds: float, strict: bool, kept: frozenset[Tensor], *, roll: bool = True
) -> LiftedProgram:
    """With the `kept` arrays as definitions, and terms that are alike to `roll` into sums: neighbours in an array
    of several dimensions are no row of it."""
    reaching = Reaching(program, seconds, strict, kept)
    outputs: list[DefinedOutput] = []
    lines: dict[str, Hashable] = {}
    names = {array.name for array in _inputs(program)}
    for number, tensor in enumerate(program.results):
        shape = program.shape_of_result(number)
        if tensor is not None and shape is not None:
            name = _free_name(tensor, names)
            for line in _writers(program.body, tensor):
                lines[name] = line
            made = _scattered(reaching, program, tensor, shape, name, roll, names)
            outputs += made or [_defined(reaching, program, tensor, shape, name, roll)]
    if not outputs:
        raise NotLifted("the kernel returns nothing", program.source)
    arrays: dict[KeptArray, DefinedOutput] = {}
    while asked := [array for array in reaching.arrays if array not in arrays]:
        for array in asked:
            shape = array.tensor.shape
            arrays[array] = _defined(reaching, program, array.tensor, shape, array, roll)
    stages = [arrays[array] for array in sorted(arrays, key=lambda array: array.writer)]
    found = algorithm_of(
        reaching.values, program.name, _inputs(program), outputs, stages, reaching.origins, lines
    )
    return LiftedProgram(
        found, {name: line for name, line in lines.items() if isinstance(line, SourceLine)}
    )


def _defined(
    reaching: Reaching, program: Program, tensor: Tensor, shape: tuple[int, ...],
    which: str | KeptArray, roll: bool, before: int | None = None,
) -> DefinedOutput:  # fmt: skip
    """What a tensor holds at the end, or `before` a node of the Program's body, by a name, or where it is kept."""
    axes = _output_axes(program, tensor, shape)
    if isinstance(which, KeptArray):
        name, value = reaching.arrays[which], reaching.left_by(which, row_major(axes))
    else:
        name, value = which, reaching.at_end(tensor, row_major(axes), before)
    axes, value = _composed(reaching, axes, value, tensor, roll)
    return DefinedOutput(name, axes, value, name_of(tensor.dtype), shape)


def _composed(
    reaching: Reaching, axes: tuple[Axis, ...], value: Value, tensor: Tensor, roll: bool
) -> tuple[tuple[Axis, ...], Value]:
    """What a tensor holds, over axes as long as they can be."""
    value = whole(reaching.values, settled(reaching, value), roll)
    _refuse_leftovers(reaching, value, tensor)
    axes, value = joined(reaching.values, axes, value)
    if reaching.values.strict:
        value = rewritten(reaching.values, value, partial(by_fewest_cuts, reaching.values))
    value = reaching.values.under(whole(reaching.values, value, roll), ())
    return tuple(axis for axis in axes if axis.extent > 1) or axes[:1], value


def _scattered(
    reaching: Reaching, program: Program, tensor: Tensor, shape: tuple[int, ...], name: str, roll: bool,
    names: set[str],
) -> list[DefinedOutput]:  # fmt: skip
    """What a kernel puts into rows of what it returns, with what that is before; nothing where it puts nothing."""
    found = reaching.put_at(tensor)
    if found is None:
        return []
    axes, value = _composed(reaching, found.axes, found.value, tensor, roll)
    before, updates = list[DefinedOutput](), ""
    if found.whole:
        updates = f"{name}_before"
        names.add(updates)
        before = [_defined(reaching, program, tensor, shape, updates, roll, found.whole)]
    elif tensor in program.arguments:
        updates = _inputs(program)[program.arguments.index(tensor)].name
    dtype = name_of(tensor.dtype)
    return [*before, DefinedOutput(name, axes, value, dtype, shape, updates, found.row)]


def _handed_on(program: Program, *, looked_up: bool = False) -> frozenset[Tensor]:
    """Tensors in HBM that the kernel writes and reads again, or only those read by run-time indices."""
    reads = [access for _, i in program.walk() for access in i.inputs.values()]
    read = {access.tensor for access in reads if access.indirect or not looked_up}
    own = {*program.arguments, *program.results}
    return frozenset(t for t in read - own if not t.buffer.on_chip and t.data is None)


def _parts(algorithm: Algorithm) -> int:
    """How many expressions an Algorithm is made of."""
    return sum(
        sum(1 for _ in walk(expression))
        for definition in algorithm.definitions
        for expression in expressions_of(definition)
    )


def _output_axes(program: Program, tensor: Tensor, shape: Sequence[int]) -> tuple[Axis, ...]:
    """The digits of an output's row-major numbers: its dimensions, cut as the kernel's writes cut
    them where those are digits, too."""
    size = 1
    strides: list[int] = []
    for extent in reversed(shape):
        strides.append(size)
        size *= extent
    chain = sorted({s for s in strides if s < size} | {1})
    for stride in sorted(_written_strides(program.body, tensor)):
        longer = sorted({*chain, stride})
        steps = zip(longer, [*longer[1:], size], strict=True)
        if 0 < stride < size and all(high % low == 0 for low, high in steps):
            chain = longer
    ends = [*chain[1:], size]
    extents = [high // low for low, high in zip(chain, ends, strict=True)][::-1]
    return tuple(Axis(f"o{n}", extent) for n, extent in enumerate(extents))


def _written_strides(nodes: Iterable[ProgramNode], tensor: Tensor) -> set[int]:
    found: set[int] = set()
    for node in nodes:
        if isinstance(node, Loop):
            found |= _written_strides(node.body, tensor)
            continue
        for access in node.outputs.values():
            if access.tensor is tensor:
                steps = [c * getattr(t, "step", 1) for t, c in access.offset.terms]
                found |= {abs(s) for s in (*steps, *access.strides) if s}
    return found


def _writers(nodes: Iterable[ProgramNode], tensor: Tensor) -> Iterator[SourceLine]:
    """The lines of a Program that write a tensor."""
    for node in nodes:
        if isinstance(node, Loop):
            yield from _writers(node.body, tensor)
        elif any(access.tensor is tensor for access in node.outputs.values()):
            yield node.source


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
