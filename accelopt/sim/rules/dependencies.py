"""Rules of order: what parallel iterations may write, and what may be read when.

Source of the first: SDK 2.26.1 `nki.errors.rst`, err_unexpected_output_dependencies. The iterations
of an affine_range, and the programs of a launch, may run in any order, so each must write its own
elements, or accumulate into shared ones.
"""

from __future__ import annotations

from collections.abc import Iterator

from accelopt.sim.access import Access
from accelopt.sim.affine import LoopVariable
from accelopt.sim.errors import NOWHERE, KernelError, KernelSyntaxError, SourceLine
from accelopt.sim.mask import Mask
from accelopt.sim.program import Buffer, Instruction, Loop, LoopKind, Program, ProgramNode, Tensor

PARALLEL = frozenset({LoopKind.AFFINE, LoopKind.PROGRAM})
ASSOCIATIVE = frozenset("add subtract multiply maximum minimum bitwise_and bitwise_or".split())


def missing_indices(
    tensor: str, source: SourceLine, loop: Loop, where: SourceLine
) -> KernelSyntaxError:
    """A parallel loop's iterations all write the same elements."""
    kind = "program" if loop.kind is LoopKind.PROGRAM else "affine_range iteration"
    at = "the launch grid" if loop.kind is LoopKind.PROGRAM else f"the loop at {loop.source}"
    return KernelSyntaxError(
        "err_unexpected_output_dependencies",
        f"every {kind} of {at} writes the same elements of '{tensor}' (made at {source}).",
        "Index the destination with that loop's index, declare it inside of the loop, or use "
        "nl.sequential_range.",
        where,
    )


def output_dependencies(program: Program) -> Iterator[KernelError]:
    """err_unexpected_output_dependencies, once a line and tensor."""
    if not any(isinstance(node, Loop) for node in program.body):
        return
    seen: set[tuple[SourceLine, Tensor]] = set()
    told_apart = used_variables(program)
    for loops, instruction in program.walk():
        for access in instruction.outputs.values() if loops else ():
            loop = _unindexed(loops, instruction, access, told_apart)
            if loop is not None and (instruction.source, access.tensor) not in seen:
                seen.add((instruction.source, access.tensor))
                tensor = access.tensor
                yield missing_indices(tensor.name, tensor.source, loop, instruction.source)


def used_variables(program: Program) -> frozenset[LoopVariable]:
    """Loop variables that some address or mask depends on. Programs of a launch that do not ask
    for their number all do the same, which public kernels make use of."""
    used: set[LoopVariable] = set()
    for _, instruction in program.walk():
        for access in (*instruction.inputs.values(), *instruction.outputs.values()):
            if not access.stands_still:
                used |= access.loop_variables
        for constraint in instruction.mask.constraints:
            used |= constraint.loop_variables
    return frozenset(used)


def _unindexed(
    loops: tuple[Loop, ...],
    instruction: Instruction,
    access: Access,
    told_apart: frozenset[LoopVariable],
) -> Loop | None:
    """The outermost parallel loop whose index the destination lacks, if that is an error."""
    variables = access.loop_variables
    for at, loop in enumerate(loops):
        if any(access.tensor in inner.tensors for inner in loops[at:]):
            return None  # made inside of this loop: every iteration has its own
        if loop.kind not in PARALLEL or loop.variable.trips < 2 or loop.variable in variables:
            continue
        if loop.kind is LoopKind.PROGRAM and loop.variable not in told_apart:
            continue
        if accumulates(instruction, access, loop) or _once(instruction.mask, loop.variable):
            continue
        if any(i.index.tensor in inner.tensors for i in access.indirect for inner in loops[at:]):
            continue  # at rows that every iteration finds for itself
        return loop
    return None


def accumulates(instruction: Instruction, access: Access, loop: Loop) -> bool:
    """True when the order of iterations does not change the sum."""
    attributes = instruction.attributes
    if attributes.get("accumulate"):
        return True
    loops = attributes.get("loops")
    if isinstance(loops, tuple):
        return loop.variable.id in loops
    ops = {attributes.get(name) for name in ("op", "op0", "op1")} & ASSOCIATIVE
    if ops and instruction.opcode.elementwise:
        return any(access.same_elements(data) for data in instruction.inputs.values())
    return access is not instruction.result and attributes.get("reduce_cmd") == "reduce"


def _once(mask: Mask, variable: LoopVariable) -> bool:
    """True when the mask lets through one value of the variable."""
    low, high = variable.bounds
    for constraint in mask.constraints:
        factor = constraint.coefficient(variable)
        rest = constraint.bounds[1] - max(factor * low, factor * high)
        if factor > 0:  # factor * v + rest >= 0
            low = max(low, -(rest // factor))
        elif factor < 0:
            high = min(high, rest // -factor)
    return low >= high


# Reading what was never written.


def unwritten_reads(program: Program) -> Iterator[KernelError]:
    """Tensors that are read before any instruction has written them, once a tensor."""
    written: set[Tensor] = set(program.arguments)
    reported: set[Tensor] = set()

    def visit(nodes: tuple[ProgramNode, ...]) -> Iterator[KernelError]:
        for node in nodes:
            if isinstance(node, Loop):
                if node.variable.trips:
                    yield from visit(node.body)
                continue
            for tensor in _read_tensors(node):
                if tensor in written or tensor in reported:
                    continue
                if tensor.fill is not None or tensor.data is not None:
                    continue
                reported.add(tensor)
                yield never_written(tensor, node.source)
            for access in node.outputs.values():
                written.add(access.tensor)

    yield from visit(program.body)


def never_written(tensor: Tensor, where: SourceLine = NOWHERE) -> KernelError:
    """A read of fresh memory."""
    memory = "HBM" if not tensor.buffer.on_chip else tensor.buffer.value.upper()
    return KernelError(
        "uninitialised_read",
        f"'{tensor.name}' (made at {tensor.source}) is read before anything is written to it; "
        f"fresh {memory} holds garbage.",
        "Write it first, or make it with nl.zeros.",
        where,
    )


def _read_tensors(instruction: Instruction) -> Iterator[Tensor]:
    constraints = instruction.mask.constraints
    if constraints and any(constraint.loop_variables for constraint in constraints):
        return  # may be masked out in the iterations that come before the first write
    for access in instruction.inputs.values():
        yield access.tensor
        for item in access.indirect:
            yield item.index.tensor
    result = instruction.outputs.get("result")
    in_psum = result is not None and result.tensor.buffer is Buffer.PSUM
    if result is not None and instruction.attributes.get("accumulate") and not in_psum:
        yield result.tensor
