"""What every call of the `nki` package needs: strict keywords, a destination first, and operands that
hold the same elements in other shapes brought to one."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from typing import Any, TypeVar

import numpy as np

from accelopt.algorithm.linear import reshaped_strides
from accelopt.hardware import TARGETS
from accelopt.sim import dtypes
from accelopt.sim.dialects.neuronxcc import assignment, builder
from accelopt.sim.dialects.neuronxcc.builder import fail, refuse
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.dialects.nki import versions
from accelopt.sim.errors import KernelTypeError, KernelValueError
from accelopt.sim.program import Engine
from accelopt.sim.rules import operands
from accelopt.sim.tracer import current


def element_of(dtype: Any) -> np.dtype:
    """A number format; those of microscaling begin with NeuronCore-v4."""
    element = builder.parse_dtype(dtype)
    if element == dtypes.FLOAT8_E8M0FNU:
        versions.use("nki.language.float8_e8m0fnu")
    target = current().target
    if dtypes.is_packed(element) and TARGETS[target].generation < 4:
        refuse(operands.needs_microscaling(f"a tensor of {dtypes.name_of(element)}", target))
    return element


Function = TypeVar("Function", bound=Callable[..., Any])

MENDS = {
    "mask": "There are no masks in this dialect: end the slices early, as in "
    "x[p0:min(p0 + 128, rows)].",
    "dtype": "The result has the format of dst.",
    "dst_rmw_op": "Use nisa.dma_compute(dst, srcs, reduce_op) (NKI 0.3).",
    "unique_indices": "Use nisa.dma_compute (NKI 0.3).",
    "imm": "Pass it as src (NKI 0.3).",
    "use_gpsimd_dma": "Pass dma_engine=nisa.dma_engine.gpsimd_dma (NKI 0.3).",
    "precise_schedule": "The option is gone: leave it out (NKI 0.3).",
    "lazy_initialization": "Write the tensor with nisa.memset.",
}
"""What stands in the place of keywords that other dialects and releases have."""


REPEATED = (
    "Give them as many elements in each partition: .broadcast repeats an axis of length 1, and "
    "nisa.tensor_scalar takes one value a partition."
)
"""Nothing is repeated by itself (SDK 2.33, nisa.tensor_tensor)."""


class Issued:
    """What an instruction returns: something to order others after."""

    def depends_on(self, *producers: Issued) -> Issued:
        """Itself. The simulated core keeps the order of the program anyway."""
        for producer in producers:
            if not isinstance(producer, Issued):
                kind = type(producer).__name__
                said = f"depends_on takes what instructions return, not {kind}."
                fail(KernelTypeError("depends_on", said))
        return self


ISSUED = Issued()


def call(function: Function) -> Function:
    """A call of nki.language: unknown keywords are refused."""
    return builder.api(function, frozenset(), MENDS)


def instruction(function: Function) -> Function:
    """A call of nki.isa: also takes `name`, and returns a handle."""
    inner = builder.api(function, frozenset({"name"}), MENDS)

    @functools.wraps(function)
    def issue(*args: Any, **kwargs: Any) -> Issued:
        inner(*args, **kwargs)
        if "name" in kwargs:
            named = current().named
            named[str(kwargs["name"])] = len(named)
        return ISSUED

    return issue  # type: ignore[return-value]


def member(kind: type[Enum], value: Any, name: str) -> Any:
    """`value`, when it is a member of an enumeration: numbers are not (NKI 0.3)."""
    if isinstance(value, kind):
        return value
    first = next(iter(kind)).name
    said = f"{name}={value!r} is no nki.isa.{kind.__name__}."
    fail(KernelTypeError("enumeration", said, f"Write nisa.{kind.__name__}.{first} and so on."))


def destination(dst: Any, name: str = "dst", *, psum: bool = True, sbuf: bool = True) -> TensorView:
    """A tile on-chip that an instruction writes."""
    view = builder.tile(dst, name)
    memories = " or ".join(m for m, ok in (("SBUF", sbuf), ("PSUM", psum)) if ok)
    if (view.in_psum and not psum) or (not view.in_psum and not sbuf):
        refuse(operands.wrong_memory(name, repr(view), memories, f"Make it in {memories}."))
    assignment.check_writable(view)
    builder.check_partitions(view.tile_shape)
    return view


def on_engine(engine: Any, **tiles: TensorView) -> Engine | None:
    """The engine asked for; GpSimd cannot reach PSUM."""
    from accelopt.sim.dialects.nki.isa import enums

    chosen = builder.engine_of(member(enums.engine, engine, "engine"))
    if chosen is Engine.GPSIMD:
        builder.in_reach_of_gpsimd("Use nisa.engine.vector, or copy the operand to SBUF.", **tiles)
    return chosen


# Shapes.


def alike(name: str, dst: TensorView, **given: TensorView) -> tuple[TensorView, ...]:
    """dst and the operands with one shape: the same partitions, and as many elements in each. Free
    axes are split or merged where they are grouped differently; nothing is repeated."""
    views = (dst, *given.values())
    if all(view.tile_shape == dst.tile_shape for view in views):
        return views
    builder.check_same_partitions(dst=dst, **given)
    counts = {view.free_elements for view in views}
    if len(counts) > 1:
        shapes = {"dst": dst.tile_shape} | {n: view.tile_shape for n, view in given.items()}
        fail(operands.different_shapes(name, shapes, REPEATED))
    return _in_one_shape(name, views, keep=1)


def in_shape(name: str, dst: TensorView, shape: tuple[int, ...], wanted: str) -> TensorView:
    """dst in the shape of what is written, called `wanted`, where its layout allows it."""
    if dst.tile_shape == shape:
        return dst
    if math.prod(dst.tile_shape) != math.prod(shape) or dst.tile_shape[0] != shape[0]:
        fail(operands.different_shapes(name, {"dst": dst.tile_shape, wanted: shape}))
    return dst.reshape(shape)


def transferred(name: str, dst: TensorView, src: TensorView) -> tuple[TensorView, TensorView]:
    """Both sides of a transfer with one shape: as many elements, in the same order."""
    if dst.shape == src.shape:
        return dst, src
    if math.prod(dst.shape) != math.prod(src.shape):
        fail(operands.different_shapes(name, {"dst": dst.shape, "src": src.shape}))
    for one, other in ((src, dst), (dst, src)):
        if one.on_chip and not other.on_chip:
            continue  # what lies on-chip keeps its partition axis where the other can follow
        strides = _strides_in(one, other.shape)
        if strides is not None:
            fitted = one.replaced(shape=other.shape, strides=strides)
            return (dst, fitted) if one is src else (fitted, src)
    found = _in_one_shape(name, (dst, src), keep=0)
    return found[0], found[1]


def _strides_in(view: TensorView, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    if view.gathered:
        return None
    return reshaped_strides(view.shape, view.strides, shape)


def _in_one_shape(name: str, views: tuple[TensorView, ...], keep: int) -> tuple[TensorView, ...]:
    """All views with the coarsest shape that each can be split into; the first `keep` axes stay."""
    merged = [_merged(view.shape, view.strides, keep) for view in views]
    steps = sorted({step for pairs in merged for step in _products(pairs)})
    if any(large % small for small, large in itertools.pairwise(steps)):
        shapes = {f"operand {n}": view.shape for n, view in enumerate(views)}
        fail(operands.different_shapes(name, shapes))
    return tuple(
        _split(view, pairs, steps, keep) for view, pairs in zip(views, merged, strict=True)
    )


Pairs = list[tuple[int, int]]
"""Length and stride of axes."""


def _merged(shape: tuple[int, ...], strides: tuple[int, ...], keep: int) -> Pairs:
    """Axes of length 1 gone, and axes that follow one another as one."""
    out: Pairs = []
    for size, stride in list(zip(shape, strides, strict=True))[keep:]:
        if size == 1:
            continue
        if out and out[-1][1] == size * stride:
            out[-1] = (out[-1][0] * size, stride)
        else:
            out.append((size, stride))
    return out


def _products(pairs: Pairs) -> Iterator[int]:
    """Sizes of everything from each axis to the last, the smallest first."""
    total = 1
    for size, _ in reversed(pairs):
        total *= size
        yield total


def _split(view: TensorView, pairs: Pairs, steps: Iterable[int], keep: int) -> TensorView:
    """The view with an axis for each step between the sorted products."""
    sizes, strides = [], []
    axis, done, inner = len(pairs) - 1, 1, 1
    for step in steps:
        size = step // done
        sizes.append(size)
        strides.append(pairs[axis][1] * inner if pairs else 0)
        done, inner = step, inner * size
        if axis >= 0 and inner == pairs[axis][0]:
            axis, inner = axis - 1, 1
    shape = (*view.shape[:keep], *reversed(sizes))
    steps_out = (*view.strides[:keep], *reversed(strides))
    if len(shape) < 2:
        shape, steps_out = (*shape, 1), (*steps_out, 0)
    return view.replaced(shape=shape, strides=steps_out, gathered=_moved(view, shape))


def _moved(view: TensorView, shape: tuple[int, ...]) -> Any:
    """Run-time indices of a view whose free axes were regrouped: one a partition, or one."""
    import dataclasses

    found = []
    for item in view.gathered:
        if item.group:  # of free elements in their order
            found.append(item)
            continue
        rows = item.index.shape[0]
        if rows not in (1, shape[0]):
            fail(KernelValueError("access_pattern", "a gathered operand cannot be regrouped."))
        index = dataclasses.replace(
            item.index,
            shape=(rows, *(1,) * (len(shape) - 1)),
            strides=(item.index.strides[0], *(0,) * (len(shape) - 1)),
        )
        found.append(dataclasses.replace(item, index=index))
    return tuple(found)


# Values.


def scalar_or_column(value: Any, name: str, like: TensorView) -> Any:
    """A number, or a tile of one element a partition as (P, 1)."""
    if builder.is_number(value):
        return value
    view = builder.tile(value, name)
    elements = view.free_elements
    if elements != 1:
        fail(operands.not_a_vector(name, elements))
    builder.check_same_partitions(data=like, **{name: view})
    return (
        view
        if view.ndim == 2
        else view.replaced(shape=(*view.shape[:1], 1), strides=(*view.strides[:1], 0))
    )


def check_mixed_float32(name: str, **given: TensorView) -> None:
    """If one operand of a product is float32, so is the other (nisa.nc_matmul)."""
    wide = {dtypes.FLOAT32, dtypes.TFLOAT32}
    kinds = {view.dtype in wide for view in given.values()}
    if len(kinds) > 1:
        shown = ", ".join(f"{n} is {dtypes.name_of(v.dtype)}" for n, v in given.items())
        mend = "Convert one of them: float32 goes with float32 only."
        refuse(KernelTypeError("operand_formats", f"{name}: {shown}.", mend))
