"""Instructions of nki.isa on the Tensor engine, and transposes."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from accelopt.algorithm.linear import reshaped_strides
from accelopt.sim import dtypes
from accelopt.sim.affine import Affine, LoopVariable
from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.builder import check, emit, fail, generation, refuse, tile
from accelopt.sim.dialects.neuronxcc.isa.checks import check_stationary, check_tiling, double_rows
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.dialects.nki.call_conventions import (
    check_mixed_float32,
    destination,
    instruction,
    member,
    on_engine,
)
from accelopt.sim.dialects.nki.isa import enums
from accelopt.sim.dialects.nki.python_loops import Condition
from accelopt.sim.errors import KernelTypeError, KernelValueError
from accelopt.sim.isa import matrix, movement
from accelopt.sim.isa.limits import SHARING_TENSOR
from accelopt.sim.program import Engine
from accelopt.sim.rules import operands
from accelopt.sim.rules.dependencies import never_written
from accelopt.sim.tracer import current

MOST_COMPARED = 1 << 18
"""Pairs of places of two products whose overlap is looked for."""


@instruction
def nc_matmul(
    dst: Any,
    stationary: Any,
    moving: Any,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    accumulate: Any = None,
    tile_position: Any = (),
    tile_size: Any = (),
    perf_mode: Any = enums.matmul_perf_mode.none,
) -> None:
    """dst (M, N) = or += stationary (K, M).T @ moving (K, N), in PSUM."""
    left, right = tile(stationary, "stationary"), tile(moving, "moving")
    target = destination(dst, sbuf=False)
    _check_result_format(target, left, bool(is_transpose))
    double = member(enums.matmul_perf_mode, perf_mode, "perf_mode") is not (
        enums.matmul_perf_mode.none
    )
    rows, columns = left.tile_shape[1:], right.tile_shape[1:]
    if double:
        rows, columns = _double_row(left, right)
    else:
        check("nc_matmul", stationary=left, moving=right)
        check_mixed_float32("nc_matmul", stationary=left, moving=right)
    check_stationary(left)
    check_tiling(tuple(tile_position or ()), tuple(tile_size or ()), left, tiling_problem)
    given = (target.tile_shape[0], target.free_elements)
    if given != (math.prod(rows), math.prod(columns)):
        wanted = (math.prod(rows), math.prod(columns))
        said = f"nc_matmul writes {wanted}, and dst is {target.tile_shape}."
        fail(KernelValueError("destination_shape", said))
    if not double and columns != target.tile_shape[1:]:
        target = with_columns(target, columns)
    left, right, target = map(_of_tensor_engine, (left, right, target))
    if tuple(tile_position or ()) not in ((), (0, 0)) and any(
        item.group for view in (left, right, target) for item in view.gathered
    ):
        said = f"tile_position {tuple(tile_position)} beside tensor indirection."
        fail(KernelValueError("tile_position", said, "Leave it out."))
    attributes: dict[str, Any] = {
        "is_stationary_onezero": bool(is_stationary_onezero),
        "is_moving_onezero": bool(is_moving_onezero),
        "is_transpose": bool(is_transpose),
    }
    if double:
        attributes["perf_mode"] = "double_row_gen3"
    if accumulates(target, accumulate):
        attributes["accumulate"] = True
    emit(matrix.MATMUL, result=target, inputs={"stationary": left, "moving": right},
         attributes=attributes)  # fmt: skip


def _of_tensor_engine(view: TensorView) -> TensorView:
    """An operand of tensor indirection, whose indices this engine finds in other partitions."""
    items = [replace(i, group=SHARING_TENSOR) if i.group else i for i in view.gathered]
    return view.replaced(gathered=tuple(items)) if items else view


def with_columns(view: TensorView, columns: tuple[int, ...]) -> TensorView:
    """The tile with other free axes, where its layout allows it."""
    shape = (view.tile_shape[0], *columns)
    strides = reshaped_strides(view.tile_shape, view.strides, shape)
    return view if strides is None else view.replaced(shape=shape, strides=strides)


def _check_result_format(target: TensorView, data: TensorView, transposes: bool) -> None:
    """float32 up to NeuronCore-v3; a transpose keeps the format of its data."""
    if target.dtype == dtypes.FLOAT32 or (transposes and target.dtype == data.dtype):
        return
    if generation() >= 4 and target.dtype == dtypes.BFLOAT16:
        return
    given = dtypes.name_of(target.dtype)
    refuse(operands.unsupported_format("nc_matmul", "dst", given, "float32"))


def accumulates(target: TensorView, wanted: Any) -> bool:
    """True when a product is added to what the tile holds. Left open, the first product that writes
    a place overwrites, the next ones add (nisa.nc_matmul, "Accumulation mode"). What is said to add to
    a tile that nothing has written reads what PSUM held before."""
    tracer = current()
    if wanted is None and target.gathered:
        said = "a product that scatters says accumulate=True or False: where it writes is not known here."
        fail(KernelValueError("accumulate", said))
    places = tracer.products.setdefault(target.storage, set())
    access = target.access()
    place = (access.offset, access.shape, access.strides)
    first = not any(_overlap(place, known) for known in places)
    places.add(place)
    if wanted is None:
        return not first or _repeats(target)
    if isinstance(wanted, Condition):
        loop = wanted.holds_after_first()
        if loop is not None and _fresh_in(target, loop):
            return True  # the first iteration overwrites, as every first product does
    if wanted and target.storage.fill is None and target.storage not in tracer.written:
        refuse(never_written(target.storage))
    return bool(wanted)


def _overlap(one: Any, other: Any) -> bool:
    """True when two places of a tile, as (offset, shape, strides), may share elements: those of loops that
    have no index in common in any of their iterations, those of one loop where they are the same."""
    if one == other:
        return True
    if one[0].loop_variables & other[0].loop_variables or one[1][0] == 0:
        return False
    offsets = [_offsets(place[0]) for place in (one, other)]
    if math.prod(map(len, offsets)) > MOST_COMPARED or not all(map(len, offsets)):
        return False
    ranges = []
    for found, (_, shape, strides) in zip(offsets, (one, other), strict=True):
        row = strides[0] or 1
        first = found % row if len(shape) > 1 else found
        width = sum((n - 1) * s for n, s in zip(shape[1:], strides[1:], strict=True))
        ranges.append((found // row, shape[0], first, first + width))
    (top, rows, left, right), (top2, rows2, left2, right2) = ranges
    apart = (top[:, None] >= top2 + rows2) | (top2 >= top[:, None] + rows)
    apart |= (left[:, None] > right2) | (left2 > right[:, None])
    return not apart.all()


def _offsets(offset: Affine) -> np.ndarray:
    """All values of an offset; none where what is not a loop's index is in it, or where there are too many."""
    found = np.array([offset.constant])
    for term, coefficient in offset.terms:
        if not isinstance(term, LoopVariable) or len(found) * term.trips > MOST_COMPARED:
            return found[:0]
        found = (found[:, None] + coefficient * np.array(term.values)).ravel()
    return found


def _repeats(target: TensorView) -> bool:
    """True when a loop around here writes the same place in each of its iterations."""
    tracer = current()
    home = tracer.home.get(target.storage)
    inside = tracer.bodies[tracer.bodies.index(home) + 1 :] if home in tracer.bodies else []
    moving = target.offset.loop_variables
    return any(body.variable is not None and body.variable not in moving for body in inside)


def _fresh_in(target: TensorView, loop: LoopVariable) -> bool:
    """True when the tile was made just outside of the loop: fresh whenever the loop begins."""
    tracer = current()
    home = tracer.home.get(target.storage)
    if home not in tracer.bodies:
        return False
    inside = [b for b in tracer.bodies[tracer.bodies.index(home) + 1 :] if b.variable is not None]
    still = [b for b in inside if b.variable not in target.offset.loop_variables]
    return [body.variable for body in still] == [loop]


def _double_row(left: TensorView, right: TensorView) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if generation() < 3:
        mend = "Leave perf_mode out."
        fail(KernelValueError("perf_mode", "double_row needs NeuronCore-v3.", mend))
    builder.check_same_partitions(stationary=left, moving=right)
    for name, view in (("stationary", left), ("moving", right)):
        if view.dtype not in (dtypes.FLOAT8_E4M3, dtypes.FLOAT8_E5M2):
            allowed = "float8_e4m3, float8_e5m2"
            given = dtypes.name_of(view.dtype)
            refuse(operands.unsupported_format("nc_matmul double_row", name, given, allowed))
    return double_rows(left.tile_shape[1:], right.tile_shape[1:])


def tiling_problem(position: tuple[Any, ...], size: tuple[Any, ...]) -> str:
    """What is wrong with where a tile of processing elements begins; empty when nothing is."""
    off = any(int(at) % int(step) for at, step in zip(position[:2], size[:2], strict=True))
    return f"tile_position {position} is no multiple of tile_size {size}" if off else ""


@instruction
def nc_transpose(dst: Any, data: Any, engine: Any = enums.engine.unknown) -> None:
    """dst (F, P) = data (P, F).T: the Tensor engine from SBUF to PSUM up to 128 by 128, the Vector
    engine up to 32 by 32."""
    target, source = destination(dst), tile(data, "data")
    rows, columns = source.tile_shape[0], source.free_elements
    small = rows <= 32 and columns <= 32
    chosen = on_engine(engine)
    if chosen is None:
        chosen = Engine.TENSOR if target.in_psum and not source.in_psum else Engine.VECTOR
    if chosen is Engine.TENSOR:
        check("nc_transpose on Tensor engine", data=source)
        if not target.in_psum:
            mend = "Transpose into a tile in PSUM and copy it with nisa.tensor_copy."
            refuse(operands.wrong_memory("dst", repr(target), "PSUM", mend))
    elif not small:
        said = f"the Vector engine transposes up to (32, 32), not {(rows, columns)}."
        mend = "Transpose into PSUM with nisa.engine.tensor."
        refuse(KernelValueError("transpose_size", said, mend))
    if target.dtype != source.dtype and not _fp32_on_gen2(target, source):
        given, allowed = dtypes.name_of(target.dtype), dtypes.name_of(source.dtype)
        refuse(KernelTypeError("transpose_format", f"dst is {given}, data is {allowed}.",
                               "dst must have the format of data."))  # fmt: skip
    if target.tile_shape[0] != columns or target.free_elements != rows:
        said = f"nc_transpose of {source.tile_shape} into {target.tile_shape}."
        fail(KernelValueError("destination_shape", said))
    flat = with_columns(source, (columns,))
    emit(movement.TRANSPOSE, result=target, inputs={"data": flat}, engine=chosen)


def _fp32_on_gen2(target: TensorView, source: TensorView) -> bool:
    """NeuronCore-v2 writes float32 from the Tensor engine."""
    return generation() < 3 and target.dtype == dtypes.FLOAT32
