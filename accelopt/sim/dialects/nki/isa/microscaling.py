"""Instructions of nki.isa on microscaling formats (NeuronCore-v4): groups of 32 elements, 8 partitions
by 4, with one scale."""

from __future__ import annotations

from typing import Any

from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.isa.checks import check_tiling
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.dialects.nki.call_conventions import destination, instruction
from accelopt.sim.dialects.nki.isa.products import accumulates, tiling_problem, with_columns
from accelopt.sim.errors import KernelValueError
from accelopt.sim.isa import matrix
from accelopt.sim.microscaling import PACKED, QUADRANT, SCALE_STARTS, SCALES
from accelopt.sim.rules import operands
from accelopt.sim.tracer import current


@instruction
def quantize_mx(dst: Any, src: Any, dst_scale: Any) -> None:
    """dst (P, F / 4), packed, and dst_scale = src (P, F) in groups of 32, on the Vector engine."""
    _check_generation("nisa.quantize_mx")
    source = builder.tile(src, "src")
    target = destination(dst, psum=False)
    codes = destination(dst_scale, "dst_scale", psum=False)
    builder.check(matrix.QUANTIZE_MX, src=source, dst=target, dst_scale=codes)
    builder.check_same_partitions(src=source, dst=target)
    if source.free_elements != PACKED * target.free_elements:
        shapes = {"dst": target.tile_shape, "src": source.tile_shape}
        builder.fail(operands.different_shapes(matrix.QUANTIZE_MX, shapes))
    builder.emit(matrix.QUANTIZE_MX, result=target, inputs={"data": source},
         outputs=_quadrants("scale", target, codes))  # fmt: skip


@instruction
def nc_matmul_mx(
    dst: Any,
    stationary: Any,
    moving: Any,
    stationary_scale: Any,
    moving_scale: Any,
    tile_position: Any = None,
    tile_size: Any = None,
    accumulate: Any = None,
) -> None:
    """dst (M, N) = or += stationary (K, M).T @ moving (K, N), packed, times their scales, in PSUM; the
    sum is over K and the four elements of each."""
    _check_generation("nisa.nc_matmul_mx")
    left, right = builder.tile(stationary, "stationary"), builder.tile(moving, "moving")
    target = destination(dst, sbuf=False)
    scales = {"stationary": builder.tile(stationary_scale, "stationary_scale"),
              "moving": builder.tile(moving_scale, "moving_scale")}  # fmt: skip
    builder.check("nc_matmul_mx", stationary=left, moving=right)
    builder.check("nc_matmul_mx scale", **scales)
    builder.check_same_partitions(stationary=left, moving=right)
    builder.check("nc_matmul_mx result", dst=target)
    if left.free_elements % 2:
        said = f"the stationary tile {left.tile_shape} has an odd number of columns."
        builder.refuse(KernelValueError("mx_size", said, "Make the number even."))
    check_tiling(tuple(tile_position or ()), tuple(tile_size or ()), left, _tiling_problem)
    made = (left.free_elements, right.free_elements)
    if (target.tile_shape[0], target.free_elements) != made:
        said = f"nc_matmul_mx writes {made}, and dst is {target.tile_shape}."
        builder.fail(KernelValueError("destination_shape", said))
    inputs = {"stationary": left, "moving": right}
    for name, view in tuple(inputs.items()):
        inputs |= _quadrants(f"{name}_scale", view, scales[name])
    adds = accumulates(target, accumulate)
    target = with_columns(target, right.tile_shape[1:])
    builder.emit(
        matrix.MATMUL, result=target, inputs=inputs, attributes={"accumulate": True} if adds else {}
    )


def _check_generation(name: str) -> None:
    if builder.generation() < 4:
        builder.refuse(operands.needs_microscaling(name, current().target))


def _tiling_problem(position: tuple[Any, ...], size: tuple[Any, ...]) -> str:
    if int(position[1]) != 0 or int(size[1]) != 128:
        return "nc_matmul_mx has row tiles only: start_column is 0 and column_size 128"
    return tiling_problem(position, size)


def _quadrants(name: str, data: TensorView, scale: TensorView) -> dict[str, TensorView]:
    """The parts of a tile of scales that belong to each 32 partitions of the data: (4, F) each, 32
    partitions apart (mxfp-matmul.rst, "Scale Tensor")."""
    partitions = data.tile_shape[0]
    if partitions % QUADRANT:
        mend = "Pad them with zeros."
        builder.fail(
            KernelValueError("mx_size", f"{partitions} partitions are no multiple of 32.", mend)
        )
    count = partitions // QUADRANT
    wanted = (QUADRANT * (count - 1) + SCALES, data.free_elements)
    if scale.tile_shape[0] < wanted[0] or scale.free_elements != wanted[1]:
        said = f"{name} {scale.tile_shape} does not hold the scales of {data.tile_shape}."
        mend = f"They take {wanted}: four partitions of every 32, a column a packed element."
        builder.fail(KernelValueError("mx_scale_shape", said, mend))
    _check_start(name, data, scale)
    step = QUADRANT * scale.strides[0]
    shape = (SCALES, *scale.tile_shape[1:])
    return {
        f"{name}{n}": scale.replaced(shape=shape, offset=scale.offset + n * step)
        for n in range(count)
    }


def _check_start(name: str, data: TensorView, scale: TensorView) -> None:
    """Scales begin at partition 0, 4, 8 or 12 of a quadrant; in a tile that spans several, of the one in
    which their data begin."""
    first, start = (_first_partition(view) for view in (data, scale))
    if start is None or first is None:
        return
    if start % QUADRANT not in SCALE_STARTS:
        said = f"{name} starts at partition {start % QUADRANT} of a quadrant."
        builder.refuse(KernelValueError("mx_scale_start", said, f"Start at one of {SCALE_STARTS}."))
    elif scale.storage.tile_shape[0] > QUADRANT and start // QUADRANT != first // QUADRANT:
        said = f"{name} starts in quadrant {start // QUADRANT}, its data in {first // QUADRANT}."
        builder.refuse(KernelValueError("mx_scale_start", said, "Put scales where their data are."))


def _first_partition(view: TensorView) -> int | None:
    """None where loops decide it."""
    row = view.storage.partition_bytes
    low, high = (at * view.dtype.itemsize // row for at in view.offset.bounds)
    return low if low == high else None
