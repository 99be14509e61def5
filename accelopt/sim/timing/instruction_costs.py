"""What each instruction of a kernel costs, as it was lowered: engine, size, cycles, how often."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace

from accelopt.sim.access import Access
from accelopt.sim.errors import SourceLine
from accelopt.sim.program import Buffer
from accelopt.sim.timing.machine.pricing import bytes_apart, has_dynamic_address, price
from accelopt.sim.timing.profile import KernelProfile
from accelopt.sim.timing.stream.operation import QUEUE_NAMES, Operation

SPILLS = {"spill_save": "SBUF > HBM", "spill_reload": "HBM > SBUF"}


@dataclass(frozen=True)
class _Form:
    """What instructions have in common that share a row of the list."""

    source: SourceLine
    instruction: str
    engine: str
    partitions: int
    elements: int
    memories: str
    apart: int
    dynamic: bool


@dataclass(frozen=True)
class Priced(_Form):
    """All instructions of one line that are alike. `elements` are those of a partition (of the moving
    operand on the Tensor engine; bytes of what is spilled), `apart` the bytes from one to the next where
    they are so far apart that an engine takes longer, and `dynamic` is true where a place is read at
    run time, which takes an engine longer as well. On the Tensor engine `partitions` are the rows of the
    array. An engine is taken for `cycles` of its clock each time; a transfer takes `nanoseconds` on
    each DMA engine that it uses, and moves `bytes` in pieces of `piece` bytes. `busy_ms` is the mean of
    two cores; counts and bytes are those of both."""

    count: int
    cycles: float
    nanoseconds: float
    busy_ms: float
    bytes: int = 0
    piece: int = 0


def bill(found: KernelProfile) -> list[Priced]:
    """The instructions of a kernel, those first that take their engine longest."""
    run, spec = found.run, found.run.spec
    forms = [_form(item.operation) for item in run.stream.instances]
    spills = [item.operation.opcode in SPILLS for item in run.stream.instances]
    count: dict[_Form, int] = defaultdict(int)
    busy_ns: dict[_Form, float] = defaultdict(float)
    moved: dict[_Form, int] = defaultdict(int)
    entries: dict[_Form, int] = defaultdict(int)
    issue = [price(item.form, spec).issue_ns for item in run.stream.instances]
    for kind, cost in zip(run.stream.kind, run.costs, strict=True):
        form = forms[kind]
        if spills[kind] and cost:
            each = cost.bytes // cost.descriptors
            form = replace(form, partitions=cost.descriptors, elements=each)
        count[form] += 1
        busy_ns[form] += cost.engine_ns if cost else issue[kind]
        if cost:
            moved[form] += cost.moved
            entries[form] += cost.descriptors
    rows = [
        Priced(
            **vars(form),
            count=n,
            cycles=0.0 if form.engine == "dma" else busy_ns[form] / n * spec.ghz(form.engine),
            nanoseconds=busy_ns[form] / n,
            busy_ms=busy_ns[form] * 1e-6 / run.stream.cores,
            bytes=moved[form],
            piece=round(moved[form] / entries[form]) if entries[form] else 0,
        )
        for form, n in count.items()
    ]
    return sorted(rows, key=lambda row: -row.busy_ms)


def _form(operation: Operation) -> _Form:
    engine = QUEUE_NAMES[operation.queue]
    lanes = engine not in ("dma", "tensor")
    wide, partitions = operation.wide, operation.partitions
    if engine == "tensor" and operation.reads:
        partitions = operation.reads[0].partitions
        wide = operation.reads[-1].free_elements if operation.width is None else wide
    return _Form(
        operation.source,
        operation.label or operation.opcode,
        engine,
        partitions,
        wide,
        _memories(operation),
        bytes_apart(operation) if lanes else 0,
        lanes and has_dynamic_address(operation),
    )


def _memories(operation: Operation) -> str:
    """`SBUF SBUF > PSUM`: where the operands lie that are as long as the longest, and the result."""
    if operation.opcode in SPILLS:
        return SPILLS[operation.opcode]
    longest = max((access.free_elements for access in operation.reads), default=1)
    reads = [_memory(a) for a in operation.reads if a.free_elements == longest]
    return f"{' '.join(reads)} > {' '.join(dict.fromkeys(map(_memory, operation.writes or operation.reads)))}"


def _memory(access: Access) -> str:
    return {Buffer.SBUF: "SBUF", Buffer.PSUM: "PSUM", Buffer.REGISTER: "register"}.get(
        access.tensor.buffer, "HBM"
    )
