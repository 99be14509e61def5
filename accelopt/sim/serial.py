"""Programs as bytes: a ZIP archive with one JSON document and one .npy file a constant.

The process that runs a kernel's Python is not to be trusted with data, and the process that holds
the data is not to run the kernel's Python. What passes from the first to the second is these bytes,
so `loads` believes nothing: every number, name and reference is checked, no pickle is read, and the
caller still runs `rules.check` on the result before it executes it.
"""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.access import Access, Indirect
from accelopt.sim.affine import Affine, Axis, LoopVariable, Quotient, Remainder, Term
from accelopt.sim.errors import SourceLine
from accelopt.sim.instruction_set import OPCODES
from accelopt.sim.mask import Mask
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

VERSION = 1
DOCUMENT = "program.json"
MAX_INTEGER = 1 << 62
MAX_BYTES = 1 << 31
"""Archives that unpack to more are refused (the largest real Program is a few megabytes)."""


class MalformedProgram(ValueError):
    """Bytes that are not a Program."""


def dumps(program: Program) -> bytes:
    """The Program as bytes that `loads` reads back. The same Program gives the same bytes."""
    document = {
        "version": VERSION,
        "name": program.name,
        "target": program.target,
        "source": _source(program.source),
        "returns_sequence": program.returns_sequence,
        "arguments": [_tensor(tensor) for tensor in program.arguments],
        "tensors": [_tensor(tensor) for tensor in program.tensors],
        "results": [None if tensor is None else tensor.id for tensor in program.results],
        "body": [_node(node) for node in program.body],
    }
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        _add(archive, DOCUMENT, json.dumps(document, separators=(",", ":")).encode())
        for tensor in program.all_tensors():
            if tensor.data is not None:
                _add(archive, f"{tensor.id}.npy", _array_bytes(tensor.data))
    return buffer.getvalue()


def loads(data: bytes) -> Program:
    """The Program in these bytes. Raises MalformedProgram for anything `dumps` could not have
    written; whether addresses lie inside of their tensors is for `rules.check` to say."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            if sum(item.file_size for item in archive.infolist()) > MAX_BYTES:
                raise MalformedProgram("the archive unpacks to more than 2 GiB")
            return _Reader(archive).program()
    except MalformedProgram:
        raise
    except (KeyError, IndexError, TypeError, ValueError, OSError, RecursionError) as error:
        raise MalformedProgram(f"{type(error).__name__}: {error}") from None
    except (zipfile.BadZipFile, NotImplementedError, EOFError, AttributeError) as error:
        raise MalformedProgram(f"{type(error).__name__}: {error}") from None


# Writing.


def _add(archive: zipfile.ZipFile, name: str, content: bytes) -> None:
    archive.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)


def _array_bytes(array: np.ndarray) -> bytes:
    """The raw bytes as .npy; the dtype stands in the document, since .npy knows no bfloat16."""
    buffer = io.BytesIO()
    raw = np.ascontiguousarray(array).view(np.uint8) if array.ndim else array
    np.save(buffer, raw, allow_pickle=False)
    return buffer.getvalue()


def _source(source: SourceLine) -> list[Any]:
    return [source.file, source.line]


def _affine(affine: Affine) -> Any:
    if not affine.terms:
        return affine.constant
    return [affine.constant, *([_term(term), factor] for term, factor in affine.terms)]


def _term(term: Term) -> Any:
    if isinstance(term, LoopVariable):
        return term.id
    if isinstance(term, Axis):
        return ["axis", term.position, term.extent]
    kind = "quotient" if isinstance(term, Quotient) else "remainder"
    return [kind, _affine(term.inner), term.divisor]


def _mask(mask: Mask) -> list[Any]:
    return [_affine(constraint) for constraint in mask.constraints]


def _tensor(tensor: Tensor) -> dict[str, Any]:
    placement = tensor.placement
    return {
        "id": tensor.id,
        "name": tensor.name,
        "shape": list(tensor.shape),
        "dtype": dtypes.name_of(tensor.dtype),
        "buffer": tensor.buffer.value,
        "block_rank": tensor.block_rank,
        "fill": tensor.fill,
        "lazy_fill": tensor.lazy_fill,
        "constant": tensor.data is not None,
        "placement": placement and [placement.partitions.tolist(), placement.addresses.tolist()],
        "temporary": tensor.temporary,
        "source": _source(tensor.source),
    }


def _access(access: Access) -> list[Any]:
    return [
        access.tensor.id,
        list(access.shape),
        [_affine(index) for index in access.block],
        _affine(access.offset),
        list(access.strides),
        dtypes.name_of(access.dtype),
        [[_access(item.index), item.stride, item.size] for item in access.indirect],
        _mask(access.mask),
    ]


def _attribute(value: AttributeValue) -> Any:
    if isinstance(value, Affine):
        return {"affine": _affine(value)}
    if isinstance(value, Mask):
        return {"mask": _mask(value)}
    return list(value) if isinstance(value, tuple) else value


def _node(node: Node) -> list[Any]:
    if isinstance(node, Loop):
        variable = node.variable
        return [
            "loop",
            node.kind.value,
            [variable.id, variable.start, variable.step, variable.trips],
            [_tensor(tensor) for tensor in node.tensors],
            [_node(child) for child in node.body],
            _source(node.source),
        ]
    return [
        node.opcode,
        node.engine.value,
        {name: _access(access) for name, access in node.outputs.items()},
        {name: _access(access) for name, access in node.inputs.items()},
        {name: _attribute(value) for name, value in node.attributes.items()},
        _mask(node.mask),
        _source(node.source),
    ]


# Reading.


class _Reader:
    """One archive being read. Tensors and loop variables must be known before they are used."""

    def __init__(self, archive: zipfile.ZipFile) -> None:
        self.archive = archive
        self.tensors: dict[int, Tensor] = {}
        self.variables: dict[int, LoopVariable] = {}

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
        return Program(
            _text(document["name"]),
            arguments,
            results,
            tuple(self.node(node) for node in document["body"]),
            tensors,
            _truth(document["returns_sequence"]),
            _text(document["target"]),
            _source_line(document["source"]),
        )

    def tensor(self, item: dict[str, Any]) -> Tensor:
        number = _integer(item["id"])
        if number in self.tensors:
            raise MalformedProgram(f"two tensors have the number {number}")
        shape = _naturals(item["shape"])
        block_rank = _natural(item["block_rank"])
        buffer = Buffer(item["buffer"])
        if block_rank > len(shape) or (block_rank and not buffer.on_chip):
            raise MalformedProgram(f"{block_rank} block dimensions for shape {shape}")
        dtype = dtypes.parse(_text(item["dtype"]))
        fill = item["fill"]
        if fill is not None and not isinstance(fill, (bool, int, float)):
            raise MalformedProgram(f"fill {fill!r} is not a number")
        tensor = Tensor(
            number,
            _text(item["name"]),
            shape,
            dtype,
            buffer,
            block_rank,
            fill,
            _truth(item["lazy_fill"]),
            self.constant(number, shape, dtype) if _truth(item["constant"]) else None,
            _placement(item["placement"], shape[:block_rank]),
            _truth(item["temporary"]),
            _source_line(item["source"]),
        )
        self.tensors[number] = tensor
        return tensor

    def constant(self, number: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        raw = np.load(io.BytesIO(self.archive.read(f"{number}.npy")), allow_pickle=False)
        size = dtypes.stored(dtype).itemsize
        if raw.dtype != np.uint8 or raw.size != size * int(np.prod(shape, dtype=np.int64)):
            raise MalformedProgram(f"constant {number} does not have shape {shape}")
        return np.ascontiguousarray(raw).reshape(-1).view(dtypes.stored(dtype)).reshape(shape)

    def affine(self, item: Any) -> Affine:
        if isinstance(item, int):
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
        mask = Mask(tuple(self.affine(constraint) for constraint in item))
        for constraint in mask.constraints:
            if rank is not None and any(-axis.position > rank for axis in constraint.axes):
                raise MalformedProgram("a mask has more axes than its tile")
        return mask

    def access(self, item: Any) -> Access:
        number, shape, block, offset, strides, dtype, indirect, mask = item
        tensor = self.tensors[_integer(number)]
        sizes = _naturals(shape)
        access = Access(
            tensor,
            sizes,
            tuple(self.affine(index) for index in block),
            self.affine(offset),
            tuple(_integer(stride) for stride in strides),
            dtypes.parse(_text(dtype)),
            tuple(
                Indirect(self.access(index), _integer(stride), _natural(size))
                for index, stride, size in indirect
            ),
            self.mask(mask, len(sizes)),
        )
        if len(access.strides) != len(sizes) or len(access.block) != tensor.block_rank:
            raise MalformedProgram(f"an access of '{tensor.name}' does not fit the tensor")
        if access.offset.axes or any(index.axes for index in access.block):
            raise MalformedProgram("an address depends on a tile axis outside of its strides")
        return access

    def attribute(self, value: Any) -> AttributeValue:
        if isinstance(value, dict):
            ((kind, content),) = value.items()
            if kind not in ("affine", "mask"):
                raise MalformedProgram(f"unknown attribute {kind!r}")
            return self.affine(content) if kind == "affine" else self.mask(content)
        if isinstance(value, list):
            return tuple(_scalar(item) for item in value)
        return _scalar(value)

    def node(self, item: Any) -> Node:
        if item[0] == "loop":
            return self.loop(item)
        opcode, engine, outputs, inputs, attributes, mask, source = item
        row = OPCODES[_text(opcode)]
        result = {name: self.access(access) for name, access in outputs.items()}
        operands = {name: self.access(access) for name, access in inputs.items()}
        if not set(result) <= set(row.outputs) or not set(operands) <= set(row.inputs):
            raise MalformedProgram(f"{opcode} does not have these operands")
        return Instruction(
            opcode,
            Engine(engine),
            result,
            operands,
            {_text(name): self.attribute(value) for name, value in attributes.items()},
            self.mask(mask),
            _source_line(source),
        )

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
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_INTEGER:
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
