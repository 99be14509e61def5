"""Bytes to Programs, believing nothing: what a document holds is what it must be, or MalformedProgram."""

from __future__ import annotations

import contextlib
import io
import json
import math
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from accelopt.hardware import TARGETS
from accelopt.sim import dtypes
from accelopt.sim.access import Access, Indirect
from accelopt.sim.affine import Affine, LoopVariable, Quotient, Remainder, Term, TileAxis
from accelopt.sim.attribute_kinds import is_line, is_number
from accelopt.sim.errors import NOWHERE, SourceLine
from accelopt.sim.garbage_collection import collector_paused
from accelopt.sim.instruction_set import OPCODES, fault
from accelopt.sim.isa.limits import CORES
from accelopt.sim.mask import EVERYTHING, Mask
from accelopt.sim.program import (
    AttributeValue,
    Buffer,
    Engine,
    Instruction,
    Loop,
    LoopKind,
    Placement,
    Program,
    ProgramNode,
    Tensor,
)
from accelopt.sim.serial.layout import (
    DIALECTS,
    DOCUMENT,
    MAX_BYTES,
    MAX_DEPTH,
    MAX_DOCUMENT_BYTES,
    MAX_INTEGER,
    MAX_RANK,
    MAX_TERMS,
    MAX_VALUES,
    VERSION,
    MalformedProgram,
    ProgramTooLarge,
)


def integer(value: Any) -> int:
    """An integer that addresses can be made of."""
    if type(value) is not int or abs(value) > MAX_INTEGER:
        raise MalformedProgram(f"{value!r} is not an integer")
    return value


def natural(value: Any) -> int:
    """An integer of 0 or more."""
    if integer(value) < 0:
        raise MalformedProgram(f"{value!r} is negative")
    return int(value)


def positive(value: Any) -> int:
    """An integer of 1 or more."""
    if natural(value) == 0:
        raise MalformedProgram("a length or divisor is 0")
    return int(value)


def shape_of(values: Any) -> tuple[int, ...]:
    """A shape: of a rank and a number of elements that addresses can count."""
    if not isinstance(values, list) or len(values) > MAX_RANK:
        raise MalformedProgram(f"{str(values)[:40]} is not a shape")
    shape = tuple(positive(value) for value in values)
    integer(math.prod(shape))
    return shape


def one_of(value: Any, known: Iterable[str]) -> str:
    """A name out of those that are known."""
    text = text_of(value)
    if text not in known:
        raise MalformedProgram(f"{text[:40]!r} is none of {', '.join(known)}")
    return text


def text_of(value: Any) -> str:
    """One line of printable text, of a bounded length."""
    if not is_line(value):
        raise MalformedProgram(f"{str(value)[:40]!r} is not printable text of a line")
    return str(value)


def format_of(value: Any) -> np.dtype:
    """A number format by its NKI name."""
    if text_of(value) not in dtypes.FORMATS:
        raise MalformedProgram(f"{value!r} is no number format")
    return dtypes.FORMATS[value]


def truth(value: Any) -> bool:
    """True or False."""
    if not isinstance(value, bool):
        raise MalformedProgram(f"{value!r} is neither true nor false")
    return value


def scalar(value: Any) -> int | float | str | bool | None:
    """A plain attribute."""
    if isinstance(value, str):
        return text_of(value)
    if value is not None and not is_number(value):
        raise MalformedProgram(f"{str(value)[:40]} is not a plain value")
    return value  # type: ignore[no-any-return]


def source_line(item: Any) -> SourceLine:
    """A place in the kernel's file."""
    file, line = item
    return SourceLine(text_of(file), natural(line))


def placement_of(item: Any, blocks: tuple[int, ...]) -> Placement | None:
    """A direct allocation for tensors with these block dimensions, or None."""
    if item is None:
        return None
    partitions, addresses = (np.asarray(part) for part in item[:2])
    [core] = item[2:]
    for part in (partitions, addresses):
        if part.shape != blocks or (part.size and part.dtype.kind != "i") or (part < 0).any():
            raise MalformedProgram("a direct allocation does not fit its block dimensions")
    partitions, addresses = partitions.astype(np.int64), addresses.astype(np.int64)
    return Placement(partitions, addresses, None if core is None else natural(core))


def loads(data: bytes, file: str | None = None) -> Program:
    """The Program in these bytes. Raises MalformedProgram for anything `dumps` could not have
    written; whether addresses lie inside of their tensors is for `rules.check` to say.

    With `file`, the kernel's, lines of other files are nowhere: what people and models are shown of
    a line must not be whatever file the writer names.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive, collector_paused():
            if sum(item.file_size for item in archive.infolist()) > MAX_BYTES:
                raise ProgramTooLarge("the archive unpacks to more than 2 GiB")
            return _Reader(archive, file).program()
    except MalformedProgram:
        raise
    except (MemoryError, RecursionError, OverflowError) as error:
        raise MalformedProgram(f"it is too large or too deep: {type(error).__name__}") from None
    except Exception as error:  # whatever another shape of the document runs into
        raise MalformedProgram(f"{type(error).__name__}: {error}"[:200]) from None


Form = tuple[Any, ...]
"""Fields of what is written once and meant by number again, in the order of its class."""


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

    def __init__(self, archive: zipfile.ZipFile, file: str | None) -> None:
        self.archive = archive
        self.file = file
        self.tensors: dict[int, Tensor] = {}
        self.variables: dict[int, LoopVariable] = {}  # of the loops around what is being read
        self.numbers: set[int] = set()  # of all loops
        self.depth = 0
        self.tensor_forms: list[Form] = []
        self.instruction_forms: list[Form] = []
        self.access_forms: list[Form] = []

    def program(self) -> Program:
        document = self.document()
        if document["version"] != VERSION:
            raise MalformedProgram(f"version {document['version']!r} is not {VERSION}")
        arguments = tuple(self.tensor(item) for item in document["arguments"])
        tensors = tuple(self.tensor(item) for item in document["tensors"])
        if any(tensor.buffer.on_chip for tensor in arguments):
            raise MalformedProgram("an argument lies on-chip")
        results = tuple(
            None if number is None else self.tensors[integer(number)]
            for number in document["results"]
        )
        if any(tensor is not None and tensor.buffer.on_chip for tensor in results):
            raise MalformedProgram("a result lies on-chip")
        shapes = tuple(item and shape_of(item) for item in document["result_shapes"])
        for result, shape in zip(results, shapes, strict=True) if shapes else ():
            if shape and (result is None or math.prod(shape) != math.prod(result.shape)):
                raise MalformedProgram(f"a result cannot have shape {shape}")
        return Program(
            text_of(document["name"]),
            arguments,
            results,
            tuple(map(self.node, document["body"])),
            tensors,
            truth(document["returns_sequence"]),
            one_of(document["target"], TARGETS),
            self.source(document["source"]),
            shapes,
            one_of(document["dialect"], DIALECTS),
        )

    def document(self) -> Any:
        """The JSON document, of a bounded number of values: each takes far more memory than text."""
        if self.archive.getinfo(DOCUMENT).file_size > MAX_DOCUMENT_BYTES:
            raise ProgramTooLarge(f"its document is larger than {MAX_DOCUMENT_BYTES >> 20} MiB")
        text = self.archive.read(DOCUMENT)
        values = sum(map(text.count, (b",", b"[", b"{")))
        if values > MAX_VALUES:
            raise ProgramTooLarge(f"its document has {values} values, more than {MAX_VALUES}")
        return json.loads(text)

    def source(self, item: Any) -> SourceLine:
        line = source_line(item)
        return line if self.file in (None, line.file) else NOWHERE

    # Tensors.

    def tensor(self, item: Any) -> Tensor:
        number, name, written = item
        if integer(number) in self.tensors:
            raise MalformedProgram(f"two tensors have the number {number}")
        form = _form(written, self.tensor_forms, self.tensor_form)
        shape, dtype, before, constant, after = form
        title = f"t{number}" if name is None else text_of(name)
        data = self.constant(number, shape, dtype) if constant else None
        fields = (number, title, shape, dtype, *before, data, *after)
        tensor = Tensor(*fields)
        self.tensors[number] = tensor
        return tensor

    def tensor_form(self, item: Any) -> Form:
        sizes, dtype, where, rank, fill, lazy_fill, constant, placement, temporary, source = item
        shape, block_rank, buffer = shape_of(sizes), natural(rank), Buffer(where)
        if block_rank > len(shape) - buffer.on_chip or (block_rank and not buffer.on_chip):
            raise MalformedProgram(f"{block_rank} block dimensions for shape {shape}")
        if fill is not None and not is_number(fill):
            raise MalformedProgram(f"fill {fill!r} is not a number")
        before = buffer, block_rank, fill, truth(lazy_fill)
        place = placement_of(placement, shape[:block_rank])
        after = place, truth(temporary), self.source(source)
        return shape, format_of(dtype), before, truth(constant), after

    def constant(self, number: int, shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
        raw = np.load(io.BytesIO(self.archive.read(f"{number}.npy")), allow_pickle=False)
        size = dtypes.stored(dtype).itemsize
        if raw.dtype != np.uint8 or raw.size != size * int(np.prod(shape, dtype=np.int64)):
            raise MalformedProgram(f"constant {number} does not have shape {shape}")
        return np.ascontiguousarray(raw).reshape(-1).view(dtypes.stored(dtype)).reshape(shape)

    # Addresses.

    def affine(self, item: Any) -> Affine:
        if type(item) is int:
            return Affine(integer(item))
        constant, *terms = item
        if len(terms) > MAX_TERMS:
            raise MalformedProgram(f"an address has {len(terms)} terms, more than {MAX_TERMS}")
        made = Affine(
            integer(constant),
            tuple((self.term(term), integer(factor)) for term, factor in terms),
        )
        if len({term for term, _ in made.terms}) < len(terms):
            raise MalformedProgram("an address names a term twice")
        for bound in made.bounds:
            integer(bound)
        return made

    def term(self, item: Any) -> Term:
        if type(item) is int:
            if item not in self.variables:
                raise MalformedProgram(f"there is no loop {item} around here")
            return self.variables[item]
        kind, first, second = item
        if kind == "axis":
            position, extent = integer(first), positive(second)
            if position >= 0:
                raise MalformedProgram("tile axes count from the last")
            return TileAxis(position, extent)
        if kind not in ("quotient", "remainder"):
            raise MalformedProgram(f"unknown term {kind!r}")
        divisor = positive(second)
        with self.deeper():
            inner = self.affine(first)
        return Quotient(inner, divisor) if kind == "quotient" else Remainder(inner, divisor)

    @contextlib.contextmanager
    def deeper(self) -> Iterator[None]:
        """One level further inside."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise MalformedProgram(f"it is nested deeper than {MAX_DEPTH} levels")
        yield
        self.depth -= 1

    def mask(self, item: Any, shape: tuple[int, ...] | None = None) -> Mask:
        if not item and isinstance(item, list):
            return EVERYTHING
        mask = Mask(tuple(self.affine(constraint) for constraint in item))
        if shape is not None:
            _check_axes(mask.constraints, [shape])
        return mask

    def access(self, item: Any) -> Access:
        number, written, start, *more = item
        tensor = self.tensors[integer(number)]
        shape, strides, dtype, mask = _form(written, self.access_forms, self.access_form)
        offset = self.affine(start)
        indices, runtime = more or ((), ())
        block = tuple(map(self.affine, indices))
        if len(block) != tensor.block_rank:
            raise MalformedProgram(f"an access of '{tensor.name}' does not fit the tensor")
        if offset.axes or any(index.axes for index in block):
            raise MalformedProgram("an address depends on a tile axis outside of its strides")
        with self.deeper():
            indirect = tuple(
                Indirect(
                    self.access(index), integer(stride), positive(size), *map(positive, group[:1])
                )
                for index, stride, size, *group in runtime
            )
        return Access(tensor, shape, block, offset, strides, dtype, indirect, mask)

    def access_form(self, item: Any) -> Form:
        sizes, steps, dtype, mask = item
        shape, strides = shape_of(sizes), tuple(map(integer, steps))
        if len(strides) != len(shape):
            raise MalformedProgram(f"a tile of shape {shape} has strides {strides}")
        return shape, strides, format_of(dtype), self.mask(mask, shape)

    # Instructions and loops.

    def node(self, item: Any) -> ProgramNode:
        if item[0] == "loop":
            with self.deeper():
                return self.loop(item)
        opcode, engine, outputs, inputs, *more = _form(
            item[0], self.instruction_forms, self.instruction_form
        )
        accesses = tuple(map(self.access, item[1:]))
        split = len(outputs)
        written = dict(zip(outputs, accesses[:split], strict=True))
        read = dict(zip(inputs, accesses[split:], strict=True))
        instruction = Instruction(opcode, engine, written, read, *more)
        self.check(instruction)
        return instruction

    def check(self, instruction: Instruction) -> None:
        """What a form cannot tell: the tiles that its axes run over, the loops around it."""
        accesses = (*instruction.outputs.values(), *instruction.inputs.values())
        shapes = [access.shape for access in accesses]
        for value in (instruction.mask, *instruction.attributes.values()):
            if isinstance(value, Affine):
                _check_axes([value], shapes)
            elif isinstance(value, Mask):
                _check_axes(value.constraints, shapes)
        loops = instruction.attributes.get("loops")
        if isinstance(loops, tuple) and not set(loops) <= set(self.variables):
            raise MalformedProgram(f"{instruction.opcode} counts loops that are not around it")
        axes = instruction.attributes.get("axes")
        if isinstance(axes, tuple):
            rank = len(instruction.inputs["data"].shape)
            if not set(axes) <= set(range(rank)):
                raise MalformedProgram(f"{instruction.opcode} has no axes {axes}")

    def instruction_form(self, item: Any) -> Form:
        opcode, engine, outputs, inputs, written, mask, source, *core = item
        names = (tuple(map(text_of, outputs)), tuple(map(text_of, inputs)))
        attributes = {text_of(name): self.attribute(value) for name, value in written.items()}
        if wrong := fault(text_of(opcode), *names, attributes):
            raise MalformedProgram(wrong)
        if core not in ([], *([n] for n in range(1, max(CORES.values())))):
            raise MalformedProgram(f"a chip has no core {core}")
        form = OPCODES[opcode], Engine(engine), *names, attributes, self.mask(mask)
        return (*form, self.source(source), core[0] if core else 0)

    def attribute(self, value: Any) -> AttributeValue:
        if isinstance(value, dict):
            ((kind, content),) = value.items()
            if kind not in ("affine", "mask"):
                raise MalformedProgram(f"unknown attribute {kind!r}")
            return self.affine(content) if kind == "affine" else self.mask(content)
        if isinstance(value, list):
            return tuple(scalar(item) for item in value)
        return scalar(value)

    def loop(self, item: Any) -> Loop:
        _, kind, (number, start, step, trips), tensors, body, source = item
        if integer(number) in self.numbers:
            raise MalformedProgram(f"two loops have the number {number}")
        if step == 0:
            raise MalformedProgram("a loop makes steps of 0")
        variable = LoopVariable(number, integer(start), integer(step), natural(trips))
        for bound in variable.bounds:
            integer(bound)
        self.numbers.add(number)
        self.variables[number] = variable
        own = tuple(self.tensor(tensor) for tensor in tensors)
        nodes = tuple(self.node(node) for node in body)
        del self.variables[number]
        return Loop(variable, LoopKind(kind), nodes, own, self.source(source))


def _check_axes(expressions: Iterable[Affine], shapes: Sequence[tuple[int, ...]]) -> None:
    """Every axis must be one of a tile: as long, and at its place."""
    for axis in {axis for expression in expressions for axis in expression.axes}:
        if not any(axis.position >= -len(s) and s[axis.position] == axis.extent for s in shapes):
            raise MalformedProgram(f"no tile has an axis {axis.position} of {axis.extent}")
