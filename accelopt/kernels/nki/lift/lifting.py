"""From a traced kernel to its algorithm: `lift(program)`."""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from accelopt.algorithm.axis_joining import joined, row_major
from accelopt.algorithm.canonical_rewriting import rewritten, whole
from accelopt.algorithm.choice_cells import by_fewest_cuts
from accelopt.algorithm.deep_recursion import deep_recursion
from accelopt.algorithm.definitions import DefinedOutput, UndefinedOutput, algorithm_of
from accelopt.algorithm.element_work import (
    LEAST_COMPUTED_AGAIN,
    LEAST_SHORTER,
    element_work,
    expressions,
)
from accelopt.algorithm.index import Axis, Index, index_of
from accelopt.algorithm.ir import Algorithm, Array, reads_in
from accelopt.algorithm.loop_results import settled
from accelopt.algorithm.value_nodes import REMAINING, Application, Element, Undefined, Value, every
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.reaching_values import KeptArray, Reaching
from accelopt.sim.access import Access
from accelopt.sim.dtypes import name_of
from accelopt.sim.errors import SourceLine
from accelopt.sim.program import Loop, Program, ProgramNode, Tensor
from accelopt.time_limits import LIFT_SECONDS

LEAST_KEPT = 40
"""Expressions from which on a kernel is lifted by way of its arrays in HBM, too."""
MOST_APART = 8
"""Iterations of a loop whose reads of a tile are compared."""


class LiftedProgram(NamedTuple):
    """What a kernel computes, and the source lines of its definitions as far as they are known."""

    algorithm: Algorithm
    lines: Mapping[str, SourceLine]
    tiles: frozenset[Tensor] = frozenset()
    """Those on the chip that are definitions which others read at several places."""


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
    has none: loops that the device counts, random numbers, sorting, bits; and for one that would take more
    than so many `seconds`; with `strict` also for one whose outputs may have elements that nothing has
    written.
    """
    if program.ranks:
        raise NotLifted("it passes elements between ranks", program.source)
    for _, instruction in program.walk():
        if instruction.opcode.ends_loop:
            raise NotLifted("the device decides how often this loop runs", instruction.source)
    with deep_recursion():
        try:
            # What would be computed where it is looked up would be computed once for each that does.
            looked_up = _handed_on(program, looked_up=True)
            found = _lifted(program, seconds, strict, looked_up)
            size, roll = expressions(found.algorithm), True
            kept = _handed_on(program)
            if size > LEAST_KEPT and kept != looked_up:
                by_arrays = _lifted(program, seconds, strict, kept, roll=False)
                if expressions(by_arrays.algorithm) * LEAST_SHORTER < size:
                    found, looked_up, roll = by_arrays, kept, False
            return found if strict else _with_tiles(program, seconds, found, looked_up, roll)
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


def _with_tiles(
    program: Program, seconds: float, found: LiftedProgram, kept: frozenset[Tensor], roll: bool
) -> LiftedProgram:
    """What a Program was found to be, or that with definitions for tiles that are read at several places, if much
    less is computed then."""
    tiles = _read_shifted(program)
    while tiles:
        try:
            made = _lifted(program, seconds, False, kept, tiles, roll=roll)
        except (NotLifted, UndefinedOutput, RecursionError, TimeoutError):
            return found  # what is not read of a tile may be anything
        if element_work(made.algorithm) * LEAST_COMPUTED_AGAIN >= element_work(found.algorithm):
            return found
        if tiles == made.tiles:
            return made
        tiles = made.tiles
    return found


def _read_shifted(program: Program) -> frozenset[Tensor]:
    """Tiles of which several reads take the same elements at other places of their own."""
    reads, computed = defaultdict[Tensor, list[Access]](list), set[Tensor]()
    for _, instruction in program.walk():
        own = {access.tensor for access in instruction.outputs.values()}
        computed |= set() if instruction.opcode.transfers else own
        for access in instruction.inputs.values():
            if access.tensor.buffer.on_chip and access.tensor not in own and not access.indirect:
                reads[access.tensor].append(access)
    return frozenset(t for t in computed & reads.keys() if _overlap(reads[t]))


def _overlap(reads: Sequence[Access]) -> bool:
    """Whether some reads of a tile, or one in iterations of a loop, take the same elements at other places."""
    offsets = defaultdict[tuple[object, tuple[int, ...], tuple[int, ...]], set[int]](set)
    for read in reads:
        start, terms = read.offset.constant, read.offset.terms
        found = offsets[(read.block, terms), read.shape[1:], read.strides[1:]]
        sizes = [(step, getattr(term, "size", 2)) for term, step in terms]
        found |= {start, *(start + n * s for s, e in sizes for n in range(min(e, MOST_APART)))}
    for (_, shape, strides), starts in offsets.items():
        places = np.zeros(1, int)
        for extent, step in zip(shape, strides, strict=True):
            places = np.add.outer(places, np.arange(extent) * step).ravel()
        steps = {abs(a - b) for a, b in itertools.combinations(starts, 2)}
        if any(len(np.intersect1d(places, places + step)) for step in steps):
            return True
    return False


def _lifted(
    program: Program, seconds: float, strict: bool, kept: frozenset[Tensor],
    tiles: frozenset[Tensor] = frozenset(), *, roll: bool = True,
) -> LiftedProgram:  # fmt: skip
    """With the `kept` arrays and `tiles` as definitions, and terms that are alike to `roll` into sums: neighbours in an array
    of several dimensions are no row of it."""
    reaching = Reaching(program, seconds, strict, kept, tiles)
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
            shape = (*reaching.extents(array), *array.tensor.shape)
            arrays[array] = _defined(reaching, program, array.tensor, shape, array, roll)
    stages = [
        arrays[array] for array in sorted(arrays, key=lambda array: (*array.block, array.writer))
    ]
    found = algorithm_of(
        reaching.values, program.name, _inputs(program), outputs, stages, reaching.origins, lines
    )
    several = _read_at_several_places(found)
    left = frozenset(a.tensor for a, name in reaching.arrays.items() if name in several)
    known = {name: line for name, line in lines.items() if isinstance(line, SourceLine)}
    return LiftedProgram(found, known, left & tiles)


def _read_at_several_places(algorithm: Algorithm) -> set[str]:
    """The arrays of which one element of a definition takes several."""
    found = defaultdict[tuple[str, str], set[tuple[Index, ...]]](set)
    summed = set[str]()
    for definition in algorithm.definitions:
        for read in reads_in(definition):
            found[definition.out, read.array].add(read.indices)
            axes = frozenset().union(*(index.axes for index in read.indices))
            summed |= set() if axes <= {*definition.axes} else {read.array}
    return summed | {array for (_, array), places in found.items() if len(places) > 1}


def _defined(
    reaching: Reaching, program: Program, tensor: Tensor, shape: tuple[int, ...],
    which: str | KeptArray, roll: bool, before: int | None = None,
) -> DefinedOutput:  # fmt: skip
    """What a tensor holds at the end, or `before` a node of the Program's body, by a name, or where it is kept."""
    axes = _output_axes(program, tensor, shape)
    if isinstance(which, KeptArray):
        loops = len(which.block)
        axes = tuple(Axis(f"o{n}", extent) for n, extent in enumerate(shape)) if loops else axes
        trips = tuple(map(index_of, axes[:loops]))
        name = reaching.arrays[which]
        value = reaching.left_by(which, row_major(axes[loops:]), trips)
    else:
        name, value = which, reaching.at_end(tensor, row_major(axes), before)
    axes, value = _composed(reaching, axes, value, tensor, roll, name)
    return DefinedOutput(name, axes, value, name_of(tensor.dtype), shape)


def _composed(
    reaching: Reaching, axes: tuple[Axis, ...], value: Value, tensor: Tensor, roll: bool, name: str = ""
) -> tuple[tuple[Axis, ...], Value]:  # fmt: skip
    """What a tensor holds, over axes as long as they can be where it is read by its `name`."""
    value = whole(reaching.values, settled(reaching, value), roll)
    _refuse_leftovers(reaching, value, tensor)
    element = Element(name, 0, "", row_major(axes))
    axes, both = joined(reaching.values, axes, Application("copy", (value, element)))
    assert isinstance(both, Application)
    value = both.arguments[0]
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
    if any(isinstance(part, Application) and part.function in REMAINING for part in every(value)):
        said = "what is left when the largest elements are replaced is read otherwise than for its largest"
        raise NotLifted(said, tensor.source)
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
