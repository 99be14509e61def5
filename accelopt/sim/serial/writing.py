"""Programs to bytes."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Hashable
from typing import Any

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.access import Access, Buffer
from accelopt.sim.affine import Affine, LoopVariable, Quotient, Term, TileAxis
from accelopt.sim.errors import SourceLine
from accelopt.sim.garbage_collection import collector_paused
from accelopt.sim.mask import Mask
from accelopt.sim.program import AttributeValue, Instruction, Loop, Program, ProgramNode, Tensor
from accelopt.sim.serial.layout import DOCUMENT, VERSION


def dumps(program: Program, *, moved: bool = False) -> bytes:
    """The Program as bytes that `loads` reads back. The same Program gives the same bytes, and where it
    may be `moved`, one whose directly allocated tiles of SBUF all lie as many bytes further."""
    placed = [t.placement for t in program.all_tensors() if t.buffer is Buffer.SBUF]
    first = min((int(p.addresses.min()) for p in placed if moved and p), default=0)
    with collector_paused():
        document = json.dumps(_Writer(first).document(program), separators=(",", ":")).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        _add(archive, DOCUMENT, document)
        for tensor in program.all_tensors():
            if tensor.data is not None:
                _add(archive, f"{tensor.id}.npy", _array_bytes(tensor.data))
    return buffer.getvalue()


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)


def _array_bytes(array: np.ndarray) -> bytes:
    """The raw bytes as .npy; the dtype stands in the document, since .npy knows no bfloat16."""
    buffer = io.BytesIO()
    raw = np.ascontiguousarray(array).view(np.uint8) if array.ndim else array
    np.save(buffer, raw, allow_pickle=False)
    return buffer.getvalue()


class _Writer:
    """One Program being written. Forms that were written before have numbers, by what tells them
    apart; text stands for numbers among them that are equal, but not alike (1, 1.0 and True). Places in
    SBUF are counted from the byte `first`."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.tensors: dict[Hashable, int] = {}
        self.instructions: dict[Hashable, int] = {}
        self.accesses: dict[Hashable, int] = {}

    def document(self, program: Program) -> dict[str, Any]:
        return {
            "version": VERSION,
            "name": program.name,
            "target": program.target,
            "dialect": program.dialect,
            "source": _source(program.source),
            "returns_sequence": program.returns_sequence,
            "arguments": [self.tensor(tensor) for tensor in program.arguments],
            "tensors": [self.tensor(tensor) for tensor in program.tensors],
            "results": [None if tensor is None else tensor.id for tensor in program.results],
            "result_shapes": program.result_shapes,
            "body": [self.node(node) for node in program.body],
        }

    def tensor(self, tensor: Tensor) -> list[Any]:
        name = None if tensor.name == f"t{tensor.id}" else tensor.name
        unique = tensor.data is not None or tensor.placement is not None
        form = _tensor_form(tensor, self.first)
        key = (tensor.id if unique else None, repr(form))
        known = self.tensors.setdefault(key, number := len(self.tensors))
        return [tensor.id, name, form if known == number else known]

    def node(self, node: ProgramNode) -> list[Any]:
        return self.loop(node) if isinstance(node, Loop) else self.instruction(node)

    def loop(self, loop: Loop) -> list[Any]:
        variable = loop.variable
        return [
            "loop",
            loop.kind.value,
            [variable.id, variable.start, variable.step, variable.trips],
            [self.tensor(tensor) for tensor in loop.tensors],
            [self.node(child) for child in loop.body],
            _source(loop.source),
        ]

    def instruction(self, instruction: Instruction) -> list[Any]:
        key = (
            instruction.opcode,
            instruction.engine,
            tuple(instruction.outputs),
            tuple(instruction.inputs),
            repr(instruction.attributes),
            instruction.mask,
            instruction.source,
            instruction.core,
        )
        known = self.instructions.setdefault(key, number := len(self.instructions))
        return [
            _instruction_form(instruction) if known == number else known,
            *map(self.access, instruction.outputs.values()),
            *map(self.access, instruction.inputs.values()),
        ]

    def access(self, access: Access) -> list[Any]:
        key = (access.shape, access.strides, access.dtype, access.mask)
        known = self.accesses.setdefault(key, number := len(self.accesses))
        item = [
            access.tensor.id,
            _access_form(access) if known == number else known,
            _affine(access.offset),
        ]
        if access.block or access.indirect:
            item.append([_affine(index) for index in access.block])
            item.append(
                [
                    [self.access(i.index), i.stride, i.size, *[i.group] * bool(i.group)]
                    for i in access.indirect
                ]
            )
        return item


def _tensor_form(tensor: Tensor, first: int) -> list[Any]:
    placement, before = tensor.placement, first if tensor.buffer is Buffer.SBUF else 0
    return [
        tensor.shape,
        dtypes.name_of(tensor.dtype),
        tensor.buffer.value,
        tensor.block_rank,
        tensor.fill,
        tensor.lazy_fill,
        tensor.data is not None,
        placement
        and [
            placement.partitions.tolist(),
            (placement.addresses - before).tolist(),
            placement.core,
        ],
        tensor.temporary,
        _source(tensor.source),
    ]


def _instruction_form(instruction: Instruction) -> list[Any]:
    return [
        instruction.opcode,
        instruction.engine.value,
        list(instruction.outputs),
        list(instruction.inputs),
        {name: _attribute(value) for name, value in instruction.attributes.items()},
        _mask(instruction.mask),
        _source(instruction.source),
        *([instruction.core] if instruction.core else []),
    ]


def _access_form(access: Access) -> list[Any]:
    return [access.shape, access.strides, dtypes.name_of(access.dtype), _mask(access.mask)]


def _source(source: SourceLine) -> list[Any]:
    return [source.file, source.line]


def _affine(affine: Affine) -> Any:
    if not affine.terms:
        return affine.constant
    return [affine.constant, *([_term(term), factor] for term, factor in affine.terms)]


def _term(term: Term) -> Any:
    if isinstance(term, LoopVariable):
        return term.id
    if isinstance(term, TileAxis):
        return ["axis", term.position, term.extent]
    kind = "quotient" if isinstance(term, Quotient) else "remainder"
    return [kind, _affine(term.inner), term.divisor]


def _mask(mask: Mask) -> list[Any]:
    return [_affine(constraint) for constraint in mask.constraints]


def _attribute(value: AttributeValue) -> Any:
    if isinstance(value, Affine):
        return {"affine": _affine(value)}
    if isinstance(value, Mask):
        return {"mask": _mask(value)}
    return list(value) if isinstance(value, tuple) else value
