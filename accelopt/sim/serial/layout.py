"""What stands where in `program.json`.

    document     {version, name, target, dialect, source, returns_sequence, arguments: [tensor],
                  tensors: [tensor], results: [tensor number or null],
                  result_shapes: [] or [shape or null], body: [node]}
    tensor       [number, name, form]        name: null for `t<number>`
      its form   [shape, dtype, buffer, block rank, fill, lazy fill, is constant, placement,
                  is temporary, source]
    node         ["loop", kind, [variable, start, step, trips], [tensor], [node], source]
                 or an instruction, [form, access, ...]
      its form   [opcode, engine, [output name], [input name], {attribute}, mask, source]
    access       [tensor number, form, offset], or with block indices and run-time indices
                 [tensor number, form, offset, [index], [[access, stride, size]]]; of partitions in groups
                 [access, stride, size, group]
      its form   [shape, strides, dtype, mask]
    affine       constant, or [constant, [term, factor], ...]
    term         a loop's variable, ["axis", position, extent], ["quotient" | "remainder", affine,
                 divisor]
    mask         [affine]

Unrolled loops repeat their forms, so a form is written where it first occurs, and afterwards its
number stands for it: forms of each kind count from 0 in the order in which they are written.
"""

from __future__ import annotations

from accelopt.sim.attribute_kinds import MAX_INTEGER as MAX_INTEGER
from accelopt.sim.attribute_kinds import MAX_TEXT as MAX_TEXT

DIALECTS = ("neuronxcc", "nki")
VERSION = 4
DOCUMENT = "program.json"
MAX_TERMS = 64
MAX_DEPTH = 64
"""Of quotients in quotients, run-time indices and loops: what walks a Program recurses."""
MAX_RANK = 16
MAX_BYTES = 1 << 31
"""Archives that unpack to more are refused."""
MAX_DOCUMENT_BYTES = 128 << 20
MAX_VALUES = 12_000_000
"""Values in the document, which take up to 64 bytes each in memory; some 20 an instruction, so that
six hundred thousand unrolled instructions fit."""


class MalformedProgram(ValueError):
    """Bytes that are not a Program."""


class ProgramTooLarge(MalformedProgram):
    """Bytes that would take more memory than a Program may."""
