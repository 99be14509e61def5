"""Reductions, products and what is composed of them."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from typing import Any

from accelopt.sim import dtypes
from accelopt.sim.affine import LoopVariable
from accelopt.sim.call_sites import call_chain, running_line
from accelopt.sim.dialects.neuronxcc import builder
from accelopt.sim.dialects.neuronxcc.builder import api, emit, fail, mask_of, tile
from accelopt.sim.dialects.neuronxcc.index import LoopIndex, TileIndex
from accelopt.sim.dialects.neuronxcc.isa import reductions as instructions
from accelopt.sim.dialects.neuronxcc.isa.products import matmul as product
from accelopt.sim.dialects.neuronxcc.isa.shared_calls import Result
from accelopt.sim.dialects.neuronxcc.language import elementwise, movement
from accelopt.sim.dialects.neuronxcc.operation_names import op_name
from accelopt.sim.dialects.neuronxcc.tensor import TensorView, whole
from accelopt.sim.errors import KernelTypeError, Unsupported
from accelopt.sim.isa.reductions import LOOP_REDUCE
from accelopt.sim.operators import COMBINATIONS, REDUCTIONS
from accelopt.sim.program import Buffer
from accelopt.sim.tracer import Reduction, current


def reduced(
    op: str, source: TensorView, axis: Any, dtype: Any, mask: Any, keepdims: bool = False
) -> TensorView:
    """The reduction of a tile over free axes in a new one, as `nisa.tensor_reduce`."""
    return instructions.reduce(Result(None, dtype, mask), op, source, axis, keepdims)


def _reduce_function(name: str, op: str) -> Callable[..., TensorView]:
    def function(
        x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False
    ) -> TensorView:
        return reduced(op, tile(x, "x"), axis, dtype, mask, keepdims)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"`{op}` over free axes; a 2-D tile gives (P, 1)."
    return api(function)


sum = _reduce_function("sum", "add")
max = _reduce_function("max", "maximum")
min = _reduce_function("min", "minimum")
prod = _reduce_function("prod", "multiply")


@api
def mean(
    x: Any, axis: Any, *, dtype: Any = None, mask: Any = None, keepdims: bool = False
) -> TensorView:
    """The average over free axes; float32 for integers."""
    source = tile(x, "x")
    default = dtypes.FLOAT32 if dtypes.is_integer(source.dtype) else source.dtype
    return reduced("mean", source, axis, dtype or default, mask, keepdims)


@api
def var(x: Any, axis: Any, *, dtype: Any = None, mask: Any = None) -> TensorView:
    """The variance over free axes; without keepdims, as the real function."""
    return reduced("variance", tile(x, "x"), axis, dtype, mask)


@api
def all(x: Any, axis: Any, *, dtype: Any = bool, mask: Any = None) -> TensorView:
    """True where every element over the axes is not zero."""
    return reduced("logical_and", tile(x, "x"), axis, dtype, mask)


@api
def matmul(x: Any, y: Any, *, transpose_x: bool = False, mask: Any = None) -> TensorView:
    """x (M, K) times y (K, N), K on the partitions of y; with transpose_x, x is (K, M)."""
    return product(x, y, bool(transpose_x), mask)


@api
def loop_reduce(
    x: Any, op: Any, loop_indices: Any, *, dtype: Any = None, mask: Any = None
) -> TensorView:
    """The running reduction of x over the named loops; the first iteration assigns (S14)."""
    source = tile(x, "x")
    name = op_name(op, COMBINATIONS)
    indices = loop_indices if isinstance(loop_indices, (list, tuple)) else [loop_indices]
    variables: set[LoopVariable] = set()
    unrolled: set[int] = set()
    for index in indices:
        if isinstance(index, TileIndex):
            variables |= index.affine.loop_variables
            unrolled |= index.loops
        elif isinstance(index, LoopIndex):
            unrolled.add(index.loop)
        elif not isinstance(index, int):
            mend = "Name the loops by their indices."
            fail(KernelTypeError("loop_indices", f"a {type(index).__name__} is no loop.", mend))
    tracer = current()
    outside = tracer.depth_outside(variables, unrolled)
    inner = {b.variable for b in tracer.bodies[outside:] if b.variable is not None} - variables
    if unrolled and inner:
        tracer.demand(frozenset(inner))  # each of their iterations has a reduction of its own
    key = (call_chain(sys._getframe(1)), tracer.iterations_besides(unrolled))
    storage = tracer.accumulators.get(key) if unrolled else None
    first = storage is None
    if storage is None:
        body = tracer.bodies[outside - 1]
        element = builder.parse_dtype(dtype or source.dtype)
        storage = tracer.declare(source.tile_shape, element, Buffer.SBUF, temporary=True, body=body)
        tracer.accumulators[key] = storage
    result = whole(storage)
    tracer.reductions[storage] = Reduction(name, source, mask_of(mask))
    if not first:
        return builder.of_two(name, result, result, source, mask_of(mask))
    return emit(
        LOOP_REDUCE,
        result=result,
        inputs={"data": source},
        attributes={"op": name, "loops": tuple(sorted(v.id for v in variables))},
        mask=mask_of(mask),
    )


@api
def all_reduce(
    x: Any,
    op: Any,
    program_axes: Any,
    *,
    dtype: Any = None,
    mask: Any = None,
    parallel_reduce: bool = True,
    asynchronous: bool = False,
) -> TensorView:
    """The reduction of x over the programs of a launch: of one program, x itself."""
    source = tile(x, "x")
    op_name(op, REDUCTIONS)
    programs = math.prod(current().grid_shape)
    if programs > 1:
        raise Unsupported(
            f"nl.all_reduce over {programs} programs, which run one after the other here",
            "Let each program store its tile into its own part of a tensor in nl.shared_hbm, and "
            "reduce that in a second kernel; or launch one program that loops over the work.",
            running_line(),
        )
    return movement.copy(source, dtype=dtype, mask=mask)


# Compositions.


@api
def softmax(
    x: Any, axis: Any, *, dtype: Any = None, compute_dtype: Any = None, mask: Any = None
) -> TensorView:
    """exp(x - max) / sum(exp(x - max)) over free axes."""
    source = tile(x, "x")
    element = builder.parse_dtype(dtype or compute_dtype or source.dtype)
    largest = reduced("maximum", source, axis, dtypes.FLOAT32, mask, True)
    shifted = elementwise.subtract(source, largest, dtype=dtypes.FLOAT32, mask=mask)
    grown = elementwise.exp(shifted, mask=mask)
    total = reduced("add", grown, axis, dtypes.FLOAT32, mask, True)
    inverse = elementwise.reciprocal(total)
    return elementwise.multiply(grown, inverse, dtype=element, mask=mask)


@api
def rms_norm(
    x: Any,
    w: Any,
    axis: Any,
    n: Any,
    epsilon: float = 1e-6,
    *,
    dtype: Any = None,
    compute_dtype: Any = None,
    mask: Any = None,
) -> TensorView:
    """x / sqrt(sum(x * x) / n + epsilon) * w."""
    source = tile(x, "x")
    element = builder.parse_dtype(dtype or compute_dtype or source.dtype)
    squares = elementwise.square(source, dtype=dtypes.FLOAT32, mask=mask)
    total = reduced("add", squares, axis, dtypes.FLOAT32, mask, True)
    scaled = elementwise.multiply(total, 1.0 / float(n), dtype=dtypes.FLOAT32)
    inverse = elementwise.rsqrt(elementwise.add(scaled, float(epsilon), dtype=dtypes.FLOAT32))
    normal = elementwise.multiply(source, inverse, dtype=dtypes.FLOAT32, mask=mask)
    return elementwise.multiply(normal, tile(w, "w"), dtype=element, mask=mask)


@api
def dropout(x: Any, rate: Any, *, dtype: Any = None, mask: Any = None) -> TensorView:
    """x with elements zeroed at random with probability `rate`."""
    source = tile(x, "x")
    if isinstance(rate, TensorView) and math.prod(rate.tile_shape) == 1:
        rate = rate.broadcast_to((source.tile_shape[0], 1))
    return instructions.dropout(source, rate, dtype=dtype, mask=mask)
