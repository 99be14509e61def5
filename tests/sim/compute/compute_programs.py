"""Small Programs written by hand: tensors, accesses, one instruction, one call to run it."""

from collections.abc import Sequence
from itertools import count
from typing import Any

import numpy as np
from one_road import execute

from accelopt.sim import dtypes
from accelopt.sim.access import Access, Indirect
from accelopt.sim.affine import Affine, LoopVariable, TileAxis, variable
from accelopt.sim.errors import SourceLine
from accelopt.sim.instruction_set import OPCODES
from accelopt.sim.mask import Mask
from accelopt.sim.program import (
    Buffer,
    Engine,
    Instruction,
    Loop,
    LoopKind,
    Program,
    ProgramNode,
    Tensor,
)

_numbers = count(1)
_RNG = np.random.default_rng(7)
HERE = SourceLine("kernel.py", 7)


def tensor(shape: Sequence[int], dtype: Any = np.float32, buffer: Buffer = Buffer.SBUF,
           blocks: int = 0, **fields: Any) -> Tensor:  # fmt: skip
    number = next(_numbers)
    return Tensor(number, f"t{number}", tuple(shape), dtypes.parse(dtype), buffer, blocks, **fields)


def hbm(shape: Sequence[int], dtype: Any = np.float32, **fields: Any) -> Tensor:
    return tensor(shape, dtype, Buffer.HBM, **fields)


def normal(*shape: int) -> np.ndarray:
    return _RNG.standard_normal(shape, dtype=np.float32)


def loop_variable(trips: int, start: int = 0, step: int = 1) -> LoopVariable:
    return LoopVariable(next(_numbers), start, step, trips)


def affine(value: Affine | LoopVariable | int) -> Affine:
    if isinstance(value, LoopVariable):
        return variable(value)
    return Affine(value) if isinstance(value, int) else value


def axis(position: int, extent: int) -> Affine:
    return variable(TileAxis(position, extent))


def tile(
    of: Tensor,
    *index: Any,
    indirect: tuple[Indirect, ...] = (),
    mask: Mask | None = None,
) -> Access:
    """A tile by slices: per dimension an int, an expression, or (start, size); blocks come first
    as expressions. Dimensions left out are taken whole."""
    blocks = tuple(affine(i) for i in index[: of.block_rank])
    given = list(index[of.block_rank :])
    given += [(0, n) for n in of.tile_shape[len(given) :]]
    row_major = [int(np.prod(of.tile_shape[n + 1 :])) for n in range(len(of.tile_shape))]
    offset, shape, strides = Affine(), [], []
    for item, stride in zip(given, row_major, strict=True):
        start, size = item if isinstance(item, tuple) else (item, 1)
        offset = offset + affine(start) * stride
        shape.append(size)
        strides.append(stride)
    return Access(of, tuple(shape), blocks, offset, tuple(strides), of.dtype, indirect,
                  mask or Mask())  # fmt: skip


def plane(of: Tensor, offset: Affine, shape: Sequence[int]) -> Access:
    """Rows that follow one another from this offset on."""
    return Access(of, tuple(shape), (), offset, (shape[1], 1), of.dtype)


def instruction(
    opcode: str,
    result: Access | None,
    inputs: dict[str, Access] | None = None,
    mask: Mask | None = None,
    engine: Engine = Engine.UNASSIGNED,
    outputs: dict[str, Access] | None = None,
    **attributes: Any,
) -> Instruction:
    written = {} if result is None else {"result": result}
    return Instruction(OPCODES[opcode], engine, written | (outputs or {}), inputs or {}, attributes,
                       mask or Mask(), HERE)  # fmt: skip


def copy_in(to: Access, source: Access, **more: Any) -> Instruction:
    return instruction("dma_copy", to, {"source": source}, engine=Engine.DMA, **more)


def loop(over: LoopVariable, body: Sequence[ProgramNode], tensors: Sequence[Tensor] = (),
         kind: LoopKind = LoopKind.AFFINE) -> Loop:  # fmt: skip
    return Loop(over, kind, tuple(body), tuple(tensors), HERE)


def program(arguments: Sequence[Tensor], results: Sequence[Tensor], body: Sequence[ProgramNode],
            tensors: Sequence[Tensor] = ()) -> Program:  # fmt: skip
    return Program("kernel", tuple(arguments), tuple(results), tuple(body), tuple(tensors))


def run_one(
    opcode: str,
    arrays: dict[str, np.ndarray],
    shape: Sequence[int],
    dtype: Any = np.float32,
    *,
    old: np.ndarray | None = None,
    more: dict[str, tuple[Sequence[int], Any]] | None = None,
    buffer: Buffer = Buffer.SBUF,
    rounding: str | None = None,
    **fields: Any,
) -> Any:
    """Loads arrays into SBUF, runs one instruction into a result (whose memory holds `old` before,
    when given) and stores it; `more` declares further outputs by name. One array, or a list."""
    arguments, body, tensors, inputs = [], [], [], {}
    for name, array in arrays.items():
        source, on_chip = hbm(array.shape, array.dtype), tensor(array.shape, array.dtype)
        arguments.append(source)
        tensors.append(on_chip)
        body.append(copy_in(tile(on_chip), tile(source)))
        inputs[name] = tile(on_chip)
    made = {"result": tensor(shape, dtype, buffer)}
    for name, (more_shape, more_dtype) in (more or {}).items():
        made[name] = tensor(more_shape, more_dtype)
    values = list(arrays.values())
    if old is not None:
        source = hbm(old.shape, old.dtype)
        arguments.append(source)
        values.append(old)
        body.append(copy_in(tile(made["result"]), tile(source)))
    if rounding is not None:
        fields["dtype"] = rounding
    extra = {name: tile(t) for name, t in made.items() if name != "result"}
    body.append(instruction(opcode, tile(made["result"]), inputs, outputs=extra, **fields))
    results = []
    for on_chip in made.values():
        results.append(hbm(on_chip.shape, on_chip.dtype))
        body.append(copy_in(tile(results[-1]), tile(on_chip)))
    tensors += [*made.values(), *results]
    outcome = execute(program(arguments, results, body, tensors), values)
    return outcome[0] if len(outcome) == 1 else list(outcome)
