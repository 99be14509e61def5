"""Instructions of the Tensor engine, and transposes."""

from __future__ import annotations

import math
from typing import Any

from accelopt.sim import dtypes
from accelopt.sim.affine import Affine, Term, TileAxis, variable
from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.isa.checks import check_stationary, check_tiling, double_rows
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.errors import KernelValueError
from accelopt.sim.isa import matrix, movement
from accelopt.sim.mask import EVERYTHING, Mask
from accelopt.sim.program import Buffer, Engine
from accelopt.sim.rules import indexing, operands
from accelopt.sim.tracer import current

DOUBLE_ROW = "double_row_gen3"


@builder.api
def nc_matmul(
    stationary: Any,
    moving: Any,
    *,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    tile_position: Any = (),
    tile_size: Any = (),
    perf_mode: Any = None,
    mask: Any = None,
) -> TensorView:
    """stationary (K, M).T @ moving (K, N) into a PSUM tile (M, N). With perf_mode
    "double_row_gen3" both operands are (K, 2, ...) and both rows are summed. Results are float32
    always: `is_transpose` and the onezero flags are hints (SDK 2.26.1, nki.isa.nc_matmul)."""
    left, right = builder.tile(stationary, "stationary"), builder.tile(moving, "moving")
    left, right = _movable(left), _movable(right)
    mode = getattr(perf_mode, "name", perf_mode) or None
    rows, columns = left.tile_shape[1:], right.tile_shape[1:]
    if mode == DOUBLE_ROW:
        builder.check_same_partitions(stationary=left, moving=right)
        rows, columns = _double_row(rows, columns)
    else:
        builder.check("nc_matmul", stationary=left, moving=right)
        if mode is not None:
            mend = f'Leave perf_mode out, or pass "{DOUBLE_ROW}".'
            builder.fail(
                KernelValueError("perf_mode", f"perf_mode {mode!r:.40} is not simulated.", mend)
            )
    check_stationary(left)
    check_tiling(tuple(tile_position), tuple(tile_size), left, _tiling_problem)
    attributes: dict[str, Any] = {
        "is_stationary_onezero": bool(is_stationary_onezero),
        "is_moving_onezero": bool(is_moving_onezero),
        "is_transpose": bool(is_transpose),
    }
    if mode is not None:
        attributes["perf_mode"] = DOUBLE_ROW
    return builder.emit(
        matrix.MATMUL,
        result=builder.new_tile((math.prod(rows), *columns), dtypes.FLOAT32, Buffer.PSUM),
        inputs={"stationary": left, "moving": right},
        attributes=attributes,
        mask=builder.mask_of(mask),
    )


def _double_row(
    rows: tuple[int, ...], columns: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if current().target == "trn1":
        mend = "Compile with platform_target='trn2' or leave perf_mode out."
        builder.fail(KernelValueError("perf_mode", f"{DOUBLE_ROW} needs NeuronCore-v3.", mend))
    return double_rows(rows, columns)


def _tiling_problem(_: tuple[Any, ...], size: tuple[Any, ...]) -> str:
    small = size == (32, 32) and current().target == "trn1"
    return "tile_size (32, 32) is not possible on NeuronCore-v2" if small else ""


@builder.api
def nc_transpose(
    data: Any, *, mask: Any = None, dtype: Any = None, engine: Any = None
) -> TensorView:
    """(P, F) to (F, P): the Tensor engine from SBUF to PSUM up to 128 by 128, the Vector engine
    up to 32 by 32. Free axes are taken as one. `engine` chooses for tiles that both can take (isa);
    larger ones go to the Tensor engine whatever it says: a public history of kernels timed on trn1
    (autocomp, sd_attention) has some that ask the Vector engine for 128 by 64."""
    source = builder.tile(data, "data")
    rows, columns = source.tile_shape[0], source.free_elements
    small = rows <= 32 and columns <= 32
    chosen = builder.engine_of(engine)
    if not small:
        chosen = Engine.TENSOR
    elif chosen is None:
        chosen = Engine.VECTOR
    tensor = chosen is Engine.TENSOR
    if tensor:
        builder.check("nc_transpose on Tensor engine", data=source)
    result = builder.new_tile(
        (columns, rows), dtype or source.dtype, Buffer.PSUM if tensor else Buffer.SBUF
    )
    if tensor:
        current().unplaced.add(result.storage)
    condition = builder.mask_of(mask) & source.mask
    source.access(condition)  # bounds are checked before the axes turn
    flat = source
    if source.ndim > 2 or source.bounds or source.mask.constraints:
        flat = source.replaced(bounds=(), mask=EVERYTHING).reshape((rows, columns))
    return builder.emit(
        movement.TRANSPOSE,
        result=result,
        inputs={"data": flat},
        mask=_turned(condition, source.tile_shape),
        engine=chosen,
    )


def _turned(mask: Mask, shape: tuple[int, ...]) -> Mask:
    """A mask over the axes of a tile as one over (free axes as one, partitions)."""
    if not mask.constraints:
        return mask
    long = [at for at, size in enumerate(shape) if at and size > 1]
    moved: dict[Term, Affine] = {TileAxis(-len(shape), shape[0]): variable(TileAxis(-1, shape[0]))}
    if len(long) == 1:
        size = shape[long[0]]
        moved[TileAxis(long[0] - len(shape), size)] = variable(TileAxis(-2, size))
    for constraint in mask.constraints:
        if not constraint.axes <= moved.keys():
            problem = f"a mask constrains several free axes of a tile {shape} that is transposed."
            builder.fail(indexing.unsupported_mask(problem))
    return Mask(tuple(constraint.substitute(moved) for constraint in mask.constraints))


def _movable(view: TensorView) -> TensorView:
    """The result of a transpose is in SBUF for whoever reads it there: the compiler copies it."""
    return in_sbuf(view) if view.storage in current().unplaced else view


def matmul(x: Any, y: Any, transpose_x: bool, mask: Any) -> TensorView:
    """x (M, K) @ y (K, N), or x (K, M).T @ y with transpose_x: what nl.matmul becomes."""
    left, right = builder.tile(x, "x"), builder.tile(y, "y")
    if not transpose_x:
        if len(left.tile_shape) > 2:
            builder.refuse(operands.too_many_dimensions("matmul", "x", left.tile_shape, 2))
        left = in_sbuf(nc_transpose(in_sbuf(left), engine=Engine.TENSOR))
    return nc_matmul(in_sbuf(left), in_sbuf(right), mask=mask)


def in_sbuf(view: TensorView) -> TensorView:
    """The tile itself, or a copy of what was written of it when it lies in PSUM."""
    if not view.in_psum:
        return view
    return builder.copied(
        builder.new_tile(view.tile_shape, view.dtype), view, mask=view.written_mask
    )
