"""Bytes to Programs, believing nothing."""

from __future__ import annotations

import io
import json
import math
import zipfile
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.access import Access, Indirect
from accelopt.sim.affine import Affine, Axis, LoopVariable, Quotient, Remainder, Term
from accelopt.sim.collector import collector_paused
from accelopt.sim.errors import SourceLine
from accelopt.sim.instruction_set import OPCODES
from accelopt.sim.mask import EVERYTHING, Mask
from accelopt.sim.program import (
    AttributeValue,
    Buffer,
    Engine,
    Instruction,
    Loop,
    LoopKind,
    Node,
    Placement,
    Program,
    Tensor,
)
from accelopt.sim.serial.layout import (
    DOCUMENT,
    MAX_BYTES,
    MAX_INTEGER,
    VERSION,
    MalformedProgram,
)


def loads(data: bytes) -> Program:
    """The Program in these bytes. Raises MalformedProgram for anything `dumps` could not have
    written; whether addresses lie inside of their tensors is for `rules.check` to say."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive, collector_paused():
            if sum(item.file_size for item in archive.infolist()) > MAX_BYTES:
                raise MalformedProgram("the archive unpacks to more than 2 GiB")
            return _Reader(archive).program()
    except MalformedProgram:
        raise
    except (KeyError, IndexError, TypeError, ValueError, OSError, RecursionError) as error:
        raise MalformedProgram(f"{type(error).__name__}: {error}") from None
    except (zipfile.BadZipFile, NotImplementedError, EOFError, AttributeError) as error:
        raise MalformedProgram(f"{type(error).__name__}: {error}") from None


class _TensorForm(NamedTuple):
    shape: tuple[int, ...]
    dtype: np.dtype
    buffer: Buffer
    block_rank: int
    fill: float | int | None
    lazy_fill: bool
    constant: bool
    placement: Placement | None
    temporary: bool
    source: SourceLine


class _InstructionForm(NamedTuple):
    opcode: str
    engine: Engine
    outputs: tuple[str, ...]
    inputs: tuple[str, ...]
    attributes: Mapping[str, AttributeValue]
    mask: Mask
    source: SourceLine


class _AccessForm(NamedTuple):
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: np.dtype
    mask: Mask


Form = TypeVar("Form")


def _form(item: Any, known: list[Form], read: Callable[[Any], Form]) -> Form:
    """The form that is written here, or the one that a number stands for."""
    if type(item) is not int:
        known.append(read(item))
        return known[-1]
    if not 0 <= item < len(known):
        raise MalformedProgram(f"there is no form {item}")
    return known[item]


class _Reader:
    """One archive being read. Tensors and loop variables must be known before they are used."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.tensors: dict[int, Tensor] = {}
        self.variables: dict[int, LoopVariable] = {}
        self.tensor_forms: list[_TensorForm] = []
        self.instruction_forms: list[_InstructionForm] = []
        self.access_forms: list[_AccessForm] = []

    def program(self) -> Program:
        document = json.loads(self.archive.read(DOCUMENT))
        if document["version"] != VERSION:
            raise MalformedProgram(f"version {document['version']!r} is not {VERSION}")
        arguments = tuple(self.tensor(item) for item in document["arguments"])
        tensors = tuple(self.tensor(item) for item in document["tensors"])
        if any(tensor.buffer.on_chip for tensor in arguments):
            raise MalformedProgram("an argument lies on-chip")
        results = tuple(
            None if number is None else self.tensors[_integer(number)]
            for number in document["results"]
        )
        if any(tensor is not None and tensor.buffer.on_chip for tensor in results):
            raise MalformedProgram("a result lies on-chip")
        shapes = tuple(item and _naturals(item) for item in document["result_shapes"])
        for result, shape in zip(results, shapes, strict=True) if shapes else ():
            if shape and (result is None or math.prod(shape) != math.prod(result.shape)):
                raise MalformedProgram(f"a result cannot have shape {shape}")
        return Program(
            _text(document["name"]),
            arguments,
            results,
            tuple(map(self.node, document["body"])),
            tensors,
            _truth(document["returns_sequence"]),
            _text(document["target"]),
            _source_line(document["source"]),
            shapes,
        )

    # Tensors.

    def tensor(self, item: Any) -> Tensor:
        number, name, written = item
        if _integer(number) in self.tensors:
            raise MalformedProgram(f"two tensors have the number {number}")
        form = _form(written, self.tensor_forms, self.tensor_form)
        tensor = Tensor(
            number,
            f"t{number}" if name is None else _text(name),
            form.shape,
            form.dtype,
            form.buffer,
            form.block_rank,
            form.fill,
            form.lazy_fill,
            self.constant(number, form.shape, form.dtype) if form.constant else None,
            form.placement,
            form.temporary,
            form.source,
        )
        self.tensors[number] = tensor
        return tensor

    def tensor_form(self, item: Any) -> _TensorForm:
        sizes, dtype, where, rank, fill, lazy_fill, constant, placement, temporary, source = item
        shape, block_rank, buffer = _naturals(sizes), _natural(rank), Buffer(where)
        if block_rank > len(shape) or (block_rank and not buffer.on_chip):
            raise MalformedProgram(f"{block_rank} block dimensions for shape {shape}")
        if fill is not None and not isinstance(fill, (bool, int, float)):
            raise MalformedProgram(f"fill {fill!r} is not a number")
        return _TensorForm(
            shape,
            dtypes.parse(_text(dtype)),
            buffer,
            block_rank,
            fill,
            _truth(lazy_fill),
            _truth(constant),
            _placement(placement, shape[:block_rank]),
            _truth(temporary),
            _source_line(source),
        )

    def constant(self, number: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        raw = np.load(io.BytesIO(self.archive.read(f"{number}.npy")), allow_pickle=False)
        size = dtypes.stored(dtype).itemsize
        if raw.dtype != np.uint8 or raw.size != size * int(np.prod(shape, dtype=np.int64)):
            raise MalformedProgram(f"constant {number} does not have shape {shape}")
        return np.ascontiguousarray(raw).reshape(-1).view(dtypes.stored(dtype)).reshape(shape)

    # Addresses.

    def affine(self, item: Any) -> Affine:
        if type(item) is int:
            return Affine(_integer(item))
        constant, *terms = item
        return Affine(
            _integer(constant),
            tuple((self.term(term), _integer(factor)) for term, factor in terms),
        )

    def term(self, item: Any) -> Term:
        if isinstance(item, int):
            return self.variables[item]
        kind, first, second = item
        if kind == "axis":
            position, extent = _integer(first), _natural(second)
            if position >= 0:
                raise MalformedProgram("tile axes count from the last")
            return Axis(position, extent)
        if kind not in ("quotient", "remainder") or _natural(second) == 0:
            raise MalformedProgram(f"unknown term {kind!r} by {second}")
        inner = self.affine(first)
        return Quotient(inner, second) if kind == "quotient" else Remainder(inner, second)

    def mask(self, item: Any, rank: int | None = None) -> Mask:
        if not item and isinstance(item, list):
            return EVERYTHING
        mask = Mask(tuple(self.affine(constraint) for constraint in item))
        for constraint in mask.constraints:
            if rank is not None and any(-axis.position > rank for axis in constraint.axes):
                raise MalformedProgram("a mask has more axes than its tile")
        return mask

    def access(self, item: Any) -> Access:
        number, written, start, *more = item
        tensor = self.tensors[_integer(number)]
        form = _form(written, self.access_forms, self.access_form)
        offset = self.affine(start)
        indices, runtime = more or ((), ())
        block = tuple(map(self.affine, indices))
        if len(block) != tensor.block_rank:
            raise MalformedProgram(f"an access of '{tensor.name}' does not fit the tensor")
        if offset.axes or any(index.axes for index in block):
            raise MalformedProgram("an address depends on a tile axis outside of its strides")
        indirect = tuple(
            Indirect(self.access(index), _integer(stride), _natural(size))
            for index, stride, size in runtime
        )
        return Access(
            tensor, form.shape, block, offset, form.strides, form.dtype, indirect, form.mask
        )

    def access_form(self, item: Any) -> _AccessForm:
        sizes, steps, dtype, mask = item
        shape, strides = _naturals(sizes), tuple(map(_integer, steps))
        if len(strides) != len(shape):
            raise MalformedProgram(f"a tile of shape {shape} has strides {strides}")
        return _AccessForm(shape, strides, dtypes.parse(_text(dtype)), self.mask(mask, len(shape)))

    # Instructions and loops.

    def node(self, item: Any) -> Node:
        if item[0] == "loop":
            return self.loop(item)
        form = _form(item[0], self.instruction_forms, self.instruction_form)
        accesses = tuple(map(self.access, item[1:]))
        split = len(form.outputs)
        return Instruction(
            form.opcode,
            form.engine,
            dict(zip(form.outputs, accesses[:split], strict=True)),
            dict(zip(form.inputs, accesses[split:], strict=True)),
            form.attributes,
            form.mask,
            form.source,
        )

    def instruction_form(self, item: Any) -> _InstructionForm:
        opcode, engine, outputs, inputs, attributes, mask, source = item
        row = OPCODES[_text(opcode)]
        names = (tuple(map(_text, outputs)), tuple(map(_text, inputs)))
        if not set(names[0]) <= set(row.outputs) or not set(names[1]) <= set(row.inputs):
            raise MalformedProgram(f"{opcode} does not have these operands")
        return _InstructionForm(
            opcode,
            Engine(engine),
            *names,
            {_text(name): self.attribute(value) for name, value in attributes.items()},
            self.mask(mask),
            _source_line(source),
        )

    def attribute(self, value: Any) -> AttributeValue:
        if isinstance(value, dict):
            ((kind, content),) = value.items()
            if kind not in ("affine", "mask"):
                raise MalformedProgram(f"unknown attribute {kind!r}")
            return self.affine(content) if kind == "affine" else self.mask(content)
        if isinstance(value, list):
            return tuple(_scalar(item) for item in value)
        return _scalar(value)

    def loop(self, item: Any) -> Loop:
        _, kind, (number, start, step, trips), tensors, body, source = item
        if number in self.variables:
            raise MalformedProgram(f"two loops have the number {number}")
        variable = LoopVariable(_integer(number), _integer(start), _integer(step), _natural(trips))
        self.variables[variable.id] = variable
        own = tuple(self.tensor(tensor) for tensor in tensors)
        return Loop(
            variable,
            LoopKind(kind),
            tuple(self.node(node) for node in body),
            own,
            _source_line(source),
        )


def _integer(value: Any) -> int:
    if type(value) is not int or abs(value) > MAX_INTEGER:
        raise MalformedProgram(f"{value!r} is not an integer")
    return value


def _natural(value: Any) -> int:
    if _integer(value) < 0:
        raise MalformedProgram(f"{value!r} is negative")
    return int(value)


def _naturals(values: Any) -> tuple[int, ...]:
    return tuple(_natural(value) for value in values)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise MalformedProgram(f"{value!r} is not text")
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise MalformedProgram(f"{value!r} is neither true nor false")
    return value


def _scalar(value: Any) -> int | float | str | bool | None:
    if value is not None and not isinstance(value, (bool, int, float, str)):
        raise MalformedProgram(f"{value!r} is not a plain value")
    return value


def _source_line(item: Any) -> SourceLine:
    file, line = item
    return SourceLine(_text(file), _integer(line))


def _placement(item: Any, blocks: tuple[int, ...]) -> Placement | None:
    if item is None:
        return None
    partitions, addresses = (np.asarray(part, dtype=np.int64) for part in item)
    if partitions.shape != blocks or addresses.shape != blocks:
        raise MalformedProgram("a direct allocation does not fit its block dimensions")
    return Placement(partitions, addresses)
