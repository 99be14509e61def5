"""Copies whose engine is open, shared out between Vector and Scalar engine.

Where the two engines may reach PSUM at the same time, the compiler gives each of them about half of
the tiles that leave it: bmm (trn2_kernels.csv) counts as many instructions on one as on the other,
where its source names neither; on trn1, where they may not, all of NKIBench's are ScalarE's. Copies
from SBUF to SBUF are shared out there as well (a convolution that does little else was predicted 1.6
times too slow with all of them on one engine). The next copy goes to the engine that has had less to
do so far.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from accelopt.hardware import Hardware
from accelopt.sim.program import Buffer, Engine
from accelopt.sim.timing.machine.pricing import price
from accelopt.sim.timing.stream.operation import Decisions, Operation, Queue
from accelopt.sim.timing.stream.stream import Stream


def balance_copies(stream: Stream, spec: Hardware, decisions: Decisions) -> None:
    """Moves copies from the Scalar to the Vector engine, in place."""
    open_kinds = {
        kind: item.operation
        for kind, item in enumerate(stream.instances)
        if _is_open(item.operation, spec)
    }
    if not open_kinds:
        return
    twins: dict[int, int] = {}
    for kind, operation in open_kinds.items():
        twin = replace(operation, queue=Queue.VECTOR)
        twins[kind] = len(stream.instances)
        stream.instances.append(stream.instances[kind]._replace(operation=twin, form=twin))
    prices = [
        0.0 if item.form.is_dma else price(item.form, spec).issue_ns for item in stream.instances
    ]
    queues = [item.form.queue for item in stream.instances]
    busy = dict.fromkeys(Queue, 0.0)
    moved = Counter(dict.fromkeys(open_kinds, 0))
    for at, kind in enumerate(stream.kind):
        chosen = kind
        other = twins.get(kind)
        if other is not None:
            vector, scalar = busy[Queue.VECTOR] + prices[other], busy[Queue.SCALAR] + prices[kind]
            if vector < scalar:
                chosen = stream.kind[at] = other
                moved[kind] += 1
        busy[queues[chosen]] += prices[chosen]
    stream.tell(decisions, "copies go to the Vector engine as well", moved.elements())


def _is_open(operation: Operation, spec: Hardware) -> bool:
    """True for a copy on the Scalar engine that nobody put there but the compiler."""
    instruction = operation.instruction
    if not operation.opcode.copied or operation.queue is not Queue.SCALAR:
        return False
    in_sbuf = all(access.tensor.buffer is Buffer.SBUF for access in operation.accesses)
    if not in_sbuf and spec.vector_scalar_psum_exclusive:
        return False
    return instruction is None or instruction.engine is Engine.UNASSIGNED
