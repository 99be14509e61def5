"""Instructions to hardware operations: engines chosen, broadcasts and fills made explicit, results
placed in PSUM where that makes their reader faster.

Each pass is a function from a tree of operations to a tree of operations and the list of what it
did. The rules are those that the active times of NKIBench's engines show (`reference/timing.md`,
1.5); the Neuron compiler documents none of them.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import count

import numpy as np

from accelopt.hardware import TRN1
from accelopt.sim.access import Access
from accelopt.sim.affine import Affine
from accelopt.sim.errors import SourceLine
from accelopt.sim.isa import elementwise, movement
from accelopt.sim.isa.opcode import Opcode
from accelopt.sim.program import Buffer, Engine, Instruction, Loop, Program, ProgramNode, Tensor
from accelopt.sim.timing.machine.pricing import opcode_label
from accelopt.sim.timing.stream.operation import (
    ARRIVE,
    BROADCAST,
    QUEUE_NAMES,
    RECEIVE,
    SEND,
    WAIT,
    Decisions,
    Nest,
    Operation,
    Queue,
    copied,
    own_tile,
    transferred,
    whole,
)

QUEUE_OF = {Engine[queue.name]: queue for queue in Queue}
SCALAR_OPS = frozenset({"multiply", "add", "subtract"})
GPSIMD_ONLY = frozenset({"power"})


def lower(
    program: Program, decisions: Decisions | None = None, *, choose_engines: bool = True
) -> Nest:
    """The tree of operations as written, nothing merged. Instructions that leave the engine open
    get the one that the compiler would choose, or the first they may run on."""
    chosen: Counter[tuple[str, Queue, SourceLine]] = Counter()
    body = tuple(_lower_nodes(program.body, chosen, choose_engines))
    body = rewrite(Nest(None, body), functools.partial(_by_identity, _identity_tiles(program))).body
    if decisions is not None:
        for (opcode, queue, source), count in chosen.items():
            decisions.add(f"{opcode} on {QUEUE_NAMES[queue]}", source, count)
    return Nest(None, _identities(Nest(None, body)) + _fills(program.tensors) + body)


def _identities(nest: Nest) -> tuple[Operation, ...]:
    """Transposing on the Tensor engine is multiplying by the identity, which comes from HBM: the
    bytes that add_rmsnorm_matmul (NKIBench) reads hold it once."""
    loads: dict[np.dtype, Operation] = {}
    for _, operation in walk(nest):
        if operation.opcode.transposes and operation.queue is Queue.TENSOR:
            data = operation.reads[0]
            if data.dtype not in loads:
                loads[data.dtype] = _identity(data.dtype, operation.source, len(loads))
    return tuple(loads.values())


def _identity_tiles(program: Program) -> frozenset[Tensor]:
    """The tiles that nothing but a load of an identity matrix ever writes."""
    loaded: set[Tensor] = set()
    spoiled: set[Tensor] = set()
    for _, instruction in program.walk():
        for access in instruction.outputs.values():
            source = instruction.inputs.get("source")
            data = None if source is None else source.tensor.data
            if (
                instruction.opcode.transfers
                and data is not None
                and data.ndim == 2
                and np.array_equal(data, np.eye(*data.shape))
                and source is not None
                and source.shape == data.shape == access.shape
                and not instruction.mask.constraints
            ):
                loaded.add(access.tensor)
            else:
                spoiled.add(access.tensor)
    return frozenset(loaded - spoiled)


def _by_identity(identities: frozenset[Tensor], operation: Operation) -> tuple[Operation, ...]:
    """Marks transposes, which a generation may have a mode for. That the source says `is_transpose`
    does not make a product one."""
    if operation.queue is not Queue.TENSOR:
        return (operation,)
    proven = operation.attributes.get("is_transpose") and operation.reads[-1].tensor in identities
    return (replace(operation, by_identity=operation.opcode.transposes or bool(proven)),)


IDENTITY_ID = -1_000_000


def _identity(dtype: np.dtype, source: SourceLine, number: int) -> Operation:
    shape = (128, 128)
    constant = Tensor(
        IDENTITY_ID - 2 * number, "identity", shape, dtype, Buffer.HBM,
        data=np.identity(128, dtype=dtype), source=source,
    )  # fmt: skip
    tile = Tensor(
        IDENTITY_ID - 2 * number - 1, "identity", shape, dtype, Buffer.SBUF, source=source
    )
    return replace(transferred(whole(constant), whole(tile), source, "load identity"), kept=True)


def _lower_nodes(
    nodes: tuple[ProgramNode, ...], chosen: Counter[tuple[str, Queue, SourceLine]], choose: bool
) -> Iterator[Nest | Operation]:
    """The nodes as operations. Counts the engines that it chooses."""
    multiplied = {
        node.source for node in nodes if isinstance(node, Instruction) and node.opcode.product
    }
    for node in nodes:
        if isinstance(node, Loop):
            inner = tuple(_lower_nodes(node.body, chosen, choose))
            yield Nest(node, _fills(node.tensors) + inner)
        elif node.opcode.meets:
            yield from _barrier(node)
        elif node.opcode.transfers and not (node.inputs and node.outputs):
            yield _half_of_exchange(node)
        elif node.outputs:
            queue = choose_queue(node) if choose else first_queue(node)
            if choose and node.engine is Engine.UNASSIGNED:
                chosen[node.opcode, queue, node.source] += 1
            moves = node.opcode.transposes or (node.opcode.copied and not node.opcode.transfers)
            inside = bool(moves) and node.source in multiplied
            yield _lower_instruction(node, queue, inside)


def _barrier(node: Instruction) -> Iterator[Operation]:
    """Telling the other core, and waiting for it (nisa.core_barrier: a "remote semaphore update" and a
    "local semaphore wait", of one engine). What a core sends must be there before it tells."""
    queue = first_queue(node)
    for opcode, reads in ((ARRIVE, tuple(node.inputs.values())), (WAIT, ())):
        yield Operation(opcode, queue, reads, (), source=node.source, label=opcode, kept=True)


def _half_of_exchange(node: Instruction) -> Operation:
    """What one of two cores sees of a copy from its SBUF to the other's, or from there."""
    reads, writes = tuple(node.inputs.values()), tuple(node.outputs.values())
    opcode = SEND if reads else RECEIVE
    return Operation(opcode, Queue.DMA, reads, writes, source=node.source, label=opcode, kept=True)


def _fills(tensors: tuple[Tensor, ...]) -> tuple[Operation, ...]:
    """`nl.zeros` in SBUF is a memset; in PSUM the first accumulating write does it."""
    return tuple(
        Operation(
            movement.MEMSET,
            Queue.VECTOR,
            (),
            (whole(tensor),),
            source=tensor.source,
            label=movement.MEMSET,
        )
        for tensor in tensors
        if tensor.fill is not None
        and not tensor.lazy_fill
        and tensor.buffer is Buffer.SBUF
        and tensor.block_rank == 0
    )


def _stays_in_engine(instruction: Instruction) -> bool:
    """True when an instruction adds to the engine's accumulation registers and a later one reads
    them: nothing says so but the order."""
    adds = instruction.attributes.get("reduce_cmd") in ("reset", "reduce", "reset_reduce")
    return adds and "reduce_result" not in instruction.outputs


def _lower_instruction(
    instruction: Instruction, queue: Queue, belongs_to_matmul: bool
) -> Operation:
    opcode = instruction.opcode
    accumulate = bool(instruction.attributes.get("accumulate"))
    reads = tuple(instruction.inputs.values())
    writes = tuple(instruction.outputs.values())
    for access in (*reads, *writes):
        if access.indirect:
            reads += tuple(item.index for item in access.indirect)
    if "loops" in instruction.attributes or (opcode.transfers and accumulate):
        reads += (instruction.result,)
    if opcode.product:  # first the stationary operand, last the moving one
        scales = [n for n in instruction.inputs if n not in ("stationary", "moving")]
        reads = tuple(instruction.inputs[n] for n in ("stationary", *scales, "moving"))
    return Operation(
        opcode,
        queue,
        reads,
        writes,
        instruction,
        accumulates=opcode.product and accumulate,
        source=instruction.source,
        label=opcode_label(instruction),
        kept=queue is Queue.SYNC
        or ("reduce_cmd" in instruction.attributes and _stays_in_engine(instruction)),
        belongs_to_matmul=belongs_to_matmul,
    )


def first_queue(instruction: Instruction) -> Queue:
    """The engine that the source names, or the first that the instruction may run on."""
    engine = instruction.engine
    if engine is Engine.UNASSIGNED:
        engine = instruction.opcode.engines[0]
    return QUEUE_OF[engine]


def choose_queue(instruction: Instruction) -> Queue:
    """The engine the compiler gives an instruction whose source leaves the choice open."""
    if instruction.engine is not Engine.UNASSIGNED:
        return QUEUE_OF[instruction.engine]
    opcode = instruction.opcode
    if opcode.transposes:
        data = instruction.inputs["data"]
        small = data.partitions <= 32 and data.free_elements <= 32
        return Queue.VECTOR if small and data.tensor.buffer is Buffer.PSUM else Queue.TENSOR
    if opcode.cost.two_tiles:
        return _two_tile_queue(instruction)
    ops = {str(instruction.attributes.get(name)) for name in ("op0", "op1")} - {"None"}
    if ops and Engine.SCALAR in opcode.engines:
        reduces = "reduce_result" in instruction.outputs
        return Queue.SCALAR if ops <= SCALAR_OPS and not reduces else Queue.VECTOR
    return QUEUE_OF[opcode.engines[0]]


def _two_tile_queue(instruction: Instruction) -> Queue:
    op = str(instruction.attributes.get("op"))
    if op in GPSIMD_ONLY or (op in SCALAR_OPS and _on_integers(instruction)):
        return Queue.GPSIMD
    column = _column_operand(instruction)
    return Queue.SCALAR if column and op in SCALAR_OPS else Queue.VECTOR


def _on_integers(instruction: Instruction) -> bool:
    if instruction.result.dtype.kind not in "iu":
        return False
    accesses = (*instruction.inputs.values(), instruction.result)
    return all(a.dtype.kind in "iu" and a.dtype.itemsize == 4 for a in accesses)


def _column_operand(instruction: Instruction) -> bool:
    """True when one operand is a (P, 1) column broadcast over the other's free axes: an
    activation with scale or bias does it."""
    columns = [a for a in instruction.inputs.values() if _is_column(a.shape, a.strides)]
    return bool(columns) and instruction.result.free_elements > 1


@functools.lru_cache(maxsize=1 << 16)
def _is_column(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    return all(n == 1 or stride == 0 for n, stride in zip(shape[1:], strides[1:], strict=True))


OperationRewrite = Callable[[Operation], tuple[Operation, ...]]


def rewrite(nest: Nest, change: OperationRewrite) -> Nest:
    """The tree with every operation replaced by those that `change` makes of it."""
    body: list[Nest | Operation] = []
    for node in nest.body:
        if isinstance(node, Nest):
            body.append(rewrite(node, change))
        else:
            body.extend(change(node))
    return Nest(nest.loop, tuple(body))


def with_declarations(
    nest: Nest, change: Callable[[tuple[Tensor, ...]], tuple[Tensor, ...]]
) -> Nest:
    """The tree with other tensors declared in the place of each loop's."""
    loop = nest.loop
    if loop and (declared := change(loop.tensors)) != loop.tensors:
        loop = replace(loop, tensors=declared)
    nodes = (with_declarations(n, change) if isinstance(n, Nest) else n for n in nest.body)
    return Nest(loop, tuple(nodes))


def walk(nest: Nest) -> Iterator[tuple[tuple[Loop, ...], Operation]]:
    """Every operation with the loops around it, in program order."""

    def visit(node: Nest, loops: tuple[Loop, ...]) -> Iterator[tuple[tuple[Loop, ...], Operation]]:
        inside = (*loops, node.loop) if node.loop else loops
        for child in node.body:
            if isinstance(child, Nest):
                yield from visit(child, inside)
            else:
                yield inside, child

    yield from visit(nest, ())


def broadcast_partitions(nest: Nest, decisions: Decisions) -> Nest:
    """An operand repeated over partitions is made by the Tensor engine, ones times row, in PSUM;
    wider than a PSUM bank it is copied to SBUF by the Scalar engine (mamba tutorial v2 and v3,
    reference/timing.md 1.4)."""
    made: dict[int, Tensor] = {}

    def change(operation: Operation) -> tuple[Operation, ...]:
        if operation.is_dma or operation.queue is Queue.TENSOR:
            return (operation,)
        if not any(map(_repeats_partition, operation.reads)):
            return (operation,)
        before: list[Operation] = []
        reads: list[Access] = []
        for access in operation.reads:
            if not _repeats_partition(access):
                reads.append(access)
                continue
            tile, steps = _broadcast(access, operation.source, len(made))
            made[len(made)] = tile.tensor
            before += steps
            reads.append(tile)
            decisions.add("a row is spread by the Tensor engine", operation.source, len(steps))
        return (*before, replace(operation, reads=tuple(reads)))

    return rewrite(nest, change)


def _repeats_partition(access: Access) -> bool:
    return access.tensor.buffer.on_chip and access.shape[0] > 1 and access.strides[0] == 0


def _broadcast(access: Access, source: SourceLine, number: int) -> tuple[Access, list[Operation]]:
    partitions, width = access.shape[0], access.free_elements
    row = replace(access, shape=(1, *access.shape[1:]))
    if width == 1 or all(
        s == 0 or n == 1 for n, s in zip(access.shape[1:], access.strides[1:], strict=True)
    ):
        row = replace(row, shape=(1, 1), strides=(0, 0))
        width = 1
    chunk = TRN1.psum_bank_bytes // 4
    wide = width > chunk
    psum = Tensor(
        -2 * number - 1, "broadcast", (-(-width // chunk), partitions, min(width, chunk)),
        access.dtype, Buffer.PSUM, 1, temporary=True, source=source,
    )  # fmt: skip
    tile = own_tile(
        -2 * number - 2, "broadcast", (partitions, width), access.dtype, Buffer.SBUF, source
    )
    steps: list[Operation] = []
    for at in range(0, width, chunk):
        n = min(chunk, width - at)
        part = _flat_part(row, at, n)
        landing = Access(
            psum, (partitions, n), (Affine(at // chunk),), Affine(), (min(width, chunk), 1),
            access.dtype,
        )  # fmt: skip
        steps.append(
            Operation(BROADCAST, Queue.TENSOR, (part, part), (landing,), source=source,
                      label="broadcast")
        )  # fmt: skip
        if wide:
            place = replace(tile, shape=(partitions, n), offset=Affine(at))
            steps.append(copied(landing, place, source, "copy.broadcast"))
    if not wide:
        tile = steps[0].writes[0]
    if width == 1 and access.free_elements > 1:
        tile = replace(tile, shape=access.shape, strides=(1, *(0 for _ in access.shape[1:])))
    return tile, steps


def _flat_part(row: Access, start: int, count: int) -> Access:
    """`count` elements of a row that is contiguous in its free axes, or all of it."""
    if len(row.shape) == 2 and row.strides[1] in (0, 1):
        return replace(row, shape=(1, count), offset=row.offset + start * row.strides[1])
    return row


FIRST_ID = -2_000_000


def write_out_variances(nest: Nest, decisions: Decisions) -> Nest:
    """The tree with every reduction to a variance written out: no engine reduces to one by itself.

    `nl.var` becomes the mean, what is left of each element, its square, and the sum of those. Two versions of
    a layernorm (trn1_variants.csv: i1_c03 and i1_c07) that call it take 0.5 ms longer than one that takes the
    mean of the squares (s00): what one more reduction and one more subtraction of every element take."""
    numbers = count()

    def change(operation: Operation) -> tuple[Operation, ...]:
        if operation.attributes.get("op") != "variance" or operation.queue is not Queue.VECTOR:
            return (operation,)
        decisions.add("a variance is four instructions", operation.source)
        return _written_out(operation, next(numbers))

    return rewrite(nest, change)


def _written_out(operation: Operation, number: int) -> tuple[Operation, ...]:
    data, result = operation.reads[0], operation.writes[0]
    mean, rest, square = (
        own_tile(
            FIRST_ID - 3 * number - at, "variance", (data.partitions, width), data.dtype, Buffer.SBUF,
            operation.source,
        )
        for at, width in enumerate((1, data.free_elements, data.free_elements))
    )  # fmt: skip

    def step(
        opcode: Opcode, queue: Queue, reads: tuple[Access, ...], target: Access, label: str
    ) -> Operation:
        return Operation(
            opcode, queue, reads, (target,), source=operation.source, label=f"{label} of variance"
        )

    return (
        step(operation.opcode, Queue.VECTOR, (data,), mean, "mean"),
        step(elementwise.TENSOR_SCALAR, Queue.SCALAR, (data, mean), rest, "subtraction"),
        step(elementwise.ACTIVATION, Queue.SCALAR, (rest,), square, "square"),
        replace(operation, reads=(square, *operation.reads[1:]), writes=(result,)),
    )
