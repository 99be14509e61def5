"""Loops that follow each other become one when SBUF cannot hold what lies between them.

swiglu (NKIBench) transposes its input in two loop nests and leaves 384 KiB a partition from the first
to the second. The counters show every tile transposed once and none of those 384 KiB spilled: the
compiler has made one nest of the two.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from accelopt.hardware import Hardware
from accelopt.sim.access import Access
from accelopt.sim.affine import Affine, LoopVariable, Term
from accelopt.sim.program import Buffer, LoopKind, Tensor
from accelopt.sim.timing.compiler.lowering import rewrite, walk
from accelopt.sim.timing.stream.operation import Decisions, Nest, Operation

BodyItem = Nest | Operation


def fuse_loops(nest: Nest, spec: Hardware, decisions: Decisions) -> Nest:
    """The tree in which an affine loop joins the one right before it if it reads, iteration by
    iteration, an array made there that is larger than SBUF. Inside of the two, loops that use the
    same data join as well, where the order allows it."""
    body: list[BodyItem] = []
    for node in nest.body:
        if isinstance(node, Nest):
            node = fuse_loops(node, spec, decisions)
            before = body[-1] if body else None
            if isinstance(before, Nest) and _left(before, node) > spec.sbuf_usable_bytes:
                fused = _fused(before, node)
                if fused is not None and node.loop is not None:
                    decisions.add("becomes one loop with that before it", node.loop.source)
                    body[-1] = fused
                    continue
        body.append(node)
    return Nest(nest.loop, tuple(body))


def _left(first: Nest, second: Nest) -> int:
    """Bytes per partition of the largest array in SBUF that one nest leaves for the next."""
    read = {access.tensor for _, operation in walk(second) for access in operation.reads}
    largest = 0
    for loops, operation in walk(first):
        for access in operation.writes:
            tensor = access.tensor
            if tensor in read and tensor.buffer is Buffer.SBUF:
                indices = {v for index in access.block for v in index.loop_variables}
                tiles = prod(loop.variable.trips for loop in loops if loop.variable in indices)
                largest = max(largest, tiles * tensor.partition_bytes)
    return largest


def _fused(first: Nest, second: Nest) -> Nest | None:
    """One loop for two; None when an iteration of the second may need more than the iterations of
    the first up to the same, or when the forms differ."""
    a, b = first.loop, second.loop
    if a is None or b is None or a.kind is not LoopKind.AFFINE or b.kind is not LoopKind.AFFINE:
        return None
    if (a.variable.start, a.variable.step, a.variable.trips) != (
        b.variable.start, b.variable.step, b.variable.trips,
    ):  # fmt: skip
        return None
    if not _is_plain(second) or not _stays_in_iteration(first, second, a.variable, b.variable):
        return None
    body = list(first.body)
    open_ends = [node for node in body if isinstance(node, Nest)]
    for node in _with_variable(second, b.variable, a.variable).body:
        joined = isinstance(node, Nest) and _join(body, open_ends, node)
        if not joined:
            body.append(node)
    return Nest(replace(a, tensors=(*a.tensors, *b.tensors)), tuple(body))


def _join(body: list[BodyItem], open_ends: list[Nest], node: Nest) -> bool:
    """Fuses a nest, in place, with one of the open ones that uses some of its data: there, if
    nothing in between keeps it from moving up, or at the end, if that one can move down."""
    for other in open_ends:
        if not {a.tensor for a in _accesses(other)} & {a.tensor for a in _accesses(node)}:
            continue
        at = body.index(other)
        between = body[at + 1 :]
        up = not any(_conflict(node, passed) for passed in between)
        down = not any(_conflict(other, passed) for passed in between)
        fused = _fused(other, node) if up or down else None
        if fused is None:
            continue
        body[at:] = [*between, fused] if down else [fused, *between]
        open_ends.remove(other)
        return True
    return False


def _operations(node: BodyItem) -> list[Operation]:
    return [node] if isinstance(node, Operation) else [operation for _, operation in walk(node)]


def _accesses(node: BodyItem) -> list[Access]:
    return [a for operation in _operations(node) for a in operation.accesses]


def _written(node: BodyItem) -> set[Tensor]:
    return {access.tensor for operation in _operations(node) for access in operation.writes}


def _conflict(first: BodyItem, second: BodyItem) -> bool:
    """True when one writes what the other touches: their order matters."""
    touched, other = ({a.tensor for a in _accesses(node)} for node in (first, second))
    return bool(_written(first) & other or _written(second) & touched)


def _stays_in_iteration(first: Nest, second: Nest, one: LoopVariable, other: LoopVariable) -> bool:
    """True when what both touch and one writes consists of tiles, by iteration: the loop's index
    selects the tile, in the same place everywhere."""
    written = _written(first) | _written(second)
    places: dict[Tensor, set[int]] = {}
    users: list[set[Tensor]] = []
    for nest, variable in ((first, one), (second, other)):
        index = Affine(0, ((variable, 1),))
        users.append({access.tensor for access in _accesses(nest)} & written)
        for access in _accesses(nest):
            found = {at for at, block in enumerate(access.block) if block == index}
            places[access.tensor] = places.get(access.tensor, found) & found
    return all(places[tensor] for tensor in users[0] & users[1])


def _is_plain(nest: Nest) -> bool:
    """True when loop indices appear in addresses alone."""
    for operation in _operations(nest):
        instruction = operation.instruction
        if instruction and (
            instruction.mask.constraints
            or any(isinstance(value, Affine) for value in instruction.attributes.values())
        ):
            return False
    return not any(a.indirect or a.mask.constraints for a in _accesses(nest))


def _with_variable(nest: Nest, old: LoopVariable, new: LoopVariable) -> Nest:
    """The nest with one loop's index in the place of another's."""
    values: dict[Term, Affine] = {old: Affine(0, ((new, 1),))}

    def moved(access: Access) -> Access:
        block = tuple(index.substitute(values) for index in access.block)
        return replace(access, block=block, offset=access.offset.substitute(values))

    def change(operation: Operation) -> tuple[Operation, ...]:
        reads, writes = tuple(map(moved, operation.reads)), tuple(map(moved, operation.writes))
        return (replace(operation, reads=reads, writes=writes),)

    return rewrite(nest, change)
