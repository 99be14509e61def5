"""Instructions of nki.isa that move data by DMA."""

from __future__ import annotations

import math
from typing import Any

from accelopt.sim import dtypes
from accelopt.sim.dialects.neuronxcc import assignment, builder
from accelopt.sim.dialects.neuronxcc.builder import fail, generation, refuse, transfer
from accelopt.sim.dialects.neuronxcc.isa.checks import TRANSPOSED, endpoint
from accelopt.sim.dialects.neuronxcc.operation_names import op_name
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.dialects.nki import versions
from accelopt.sim.dialects.nki.call_conventions import (
    destination,
    instruction,
    member,
    on_engine,
    transferred,
)
from accelopt.sim.dialects.nki.isa import enums
from accelopt.sim.dialects.nki.isa.enums import oob_mode as out_of_bounds
from accelopt.sim.errors import KernelTypeError, KernelValueError
from accelopt.sim.isa import movement

COPY_FIRST = "Copy it to SBUF with nisa.tensor_copy first (NKI 0.3)."
NUMBERED = {mode.value: mode for mode in (enums.dge_mode.unknown, enums.dge_mode.none)}
"""The numbers that are taken for members: the vendor's library writes them (norm_tkg_utils.py,
mlp_tkg_down_projection.py)."""


def _mode(dge_mode: Any) -> enums.dge_mode:
    if type(dge_mode) is int and dge_mode in NUMBERED:
        return NUMBERED[dge_mode]
    return member(enums.dge_mode, dge_mode, "dge_mode")  # type: ignore[no-any-return]


def descriptors(dge_mode: Any, engine: Any = enums.engine.unknown) -> dict[str, Any]:
    """The attribute that says who makes a transfer's descriptors; none where the compiler chooses."""
    mode = _mode(dge_mode)
    if mode is enums.dge_mode.hwdge:
        return {"descriptors": "scalar" if engine is enums.engine.scalar else "sync"}
    named = {enums.dge_mode.none: "static", enums.dge_mode.swdge: "software"}
    return {"descriptors": named[mode]} if mode in named else {}


def check_descriptors(dge_mode: Any, target: TensorView, source: TensorView) -> None:
    """Hardware descriptor generation begins with NeuronCore-v3 and converts nothing (NKI 0.3)."""
    mode = _mode(dge_mode)
    for view in (target, source):
        _check_addresses(mode, view)
    if mode is not enums.dge_mode.hwdge:
        return
    if generation() < 3:
        mend = "Use nisa.dge_mode.swdge."
        refuse(KernelValueError("dge_mode", "hwdge needs NeuronCore-v3.", mend))
    if target.dtype != source.dtype:
        given = f"{dtypes.name_of(source.dtype)} to {dtypes.name_of(target.dtype)}"
        mend = "Use .view to reinterpret, or dge_mode.swdge to convert."
        refuse(KernelTypeError("dge_mode", f"hwdge moves bytes and cannot convert {given}.", mend))


def _check_addresses(mode: enums.dge_mode, view: TensorView) -> None:
    """Descriptors that are made before the run know no index of the run; the hardware takes a run-time
    start address, and only software a list of them (vendor's nki.isa.dma_copy)."""
    chosen = math.prod(math.prod(item.index.shape) for item in view.gathered)
    mend = "Use nisa.dge_mode.swdge, or leave dge_mode out."
    if view.gathered and mode is enums.dge_mode.none:
        said = f"{view!r} is indexed at run time, and dge_mode.none makes descriptors before."
        refuse(KernelValueError("dge_mode", said, mend))
    if chosen > 1 and mode is enums.dge_mode.hwdge:
        said = f"{view!r} has {chosen} run-time indices, and hwdge takes one start address."
        refuse(KernelValueError("dge_mode", said, mend))


@instruction
def dma_copy(
    dst: Any,
    src: Any,
    priority: Any = None,
    oob_mode: Any = out_of_bounds.error,
    dge_mode: Any = enums.dge_mode.unknown,
    engine: Any = enums.engine.unknown,
) -> None:
    """dst = src by DMA, between HBM and SBUF in any direction, converting; as many elements."""
    target, source = endpoint(dst, "dst", COPY_FIRST), endpoint(src, "src", COPY_FIRST)
    assignment.check_writable(target)
    behaviour = member(out_of_bounds, oob_mode, "oob_mode")
    check_descriptors(dge_mode, target, source)
    target, source = transferred(movement.DMA_COPY, target, source)
    transfer(target, source, oob_mode=behaviour.name, **descriptors(dge_mode, engine))


@instruction
def dma_compute(
    dst: Any,
    srcs: Any,
    reduce_op: Any,
    scales: Any = None,
    unique_indices: bool = True,
    oob_mode: Any = out_of_bounds.error,
) -> None:
    """dst = the sum of the sources, by DMA. Where one of them is dst itself, the others are added to
    it; with a run-time index that is a gather or scatter that accumulates."""
    target = endpoint(dst, "dst", COPY_FIRST)
    assignment.check_writable(target)
    if isinstance(reduce_op, (list, tuple)):
        mend = "Since NKI 0.3: dma_compute(dst, srcs, reduce_op, scales=None, unique_indices=True)."
        fail(KernelTypeError("arguments", "dma_compute() has its scales in third place.", mend))
    op_name(reduce_op, frozenset({"add"}))
    sources = [endpoint(source, f"srcs[{n}]", COPY_FIRST) for n, source in enumerate(srcs)]
    if not 1 <= len(sources) <= 16:
        said = f"dma_compute takes 1 to 16 sources, not {len(sources)}."
        fail(KernelValueError("dma_compute", said))
    if scales is not None and any(float(scale) != 1.0 for scale in scales):
        fail(KernelValueError("dma_compute", "all scales must be 1.0."))
    if not unique_indices:
        fail(KernelValueError("dma_compute", "unique_indices must be True."))
    behaviour = member(out_of_bounds, oob_mode, "oob_mode")
    own = [source for source in sources if _same(source, target)]
    others = [source for source in sources if not _same(source, target)]
    if target.gathered and len(own) != 1:
        said = "a scatter adds to dst, which must be one of the sources."
        fail(KernelValueError("dma_compute", said))
    for number, source in enumerate(others):
        into, moved = transferred("dma_compute", target, source)
        adds = "add" if own or number else None
        made = "software" if target.gathered or moved.gathered else "static"
        transfer(into, moved, oob_mode=behaviour.name, accumulate=adds, descriptors=made)
    if not others:
        fail(KernelValueError("dma_compute", "every source is dst itself."))


def _same(source: TensorView, target: TensorView) -> bool:
    return source.access().same_elements(target.access())


@instruction
def dma_transpose(
    dst: Any,
    src: Any,
    axes: Any = None,
    priority: Any = None,
    dge_mode: Any = enums.dge_mode.unknown,
    oob_mode: Any = out_of_bounds.error,
) -> None:
    """dst = src with its axes turned: (1, 0), (2, 1, 0) or (3, 1, 2, 0)."""
    target, source = endpoint(dst, "dst", COPY_FIRST), endpoint(src, "src", COPY_FIRST)
    assignment.check_writable(target)
    hardware = _mode(dge_mode) is enums.dge_mode.hwdge
    _check_addresses(_mode(dge_mode), source)
    if source.itemsize != 2 and generation() >= 3 and hardware:
        said = f"a hardware DMA transpose moves elements of two bytes, not {source.dtype}."
        refuse(KernelTypeError("dma_transpose_dtype", said))
    if source.dtype != target.dtype:
        said = f"dst is {target.dtype}, src is {source.dtype}; they must be alike."
        refuse(KernelTypeError("dma_transpose_dtype", said))
    rank = source.ndim
    if rank not in TRANSPOSED or (
        axes is not None and tuple(int(n) for n in axes) != TRANSPOSED[rank]
    ):
        mend = f"The axes of a {rank}-D tile are {TRANSPOSED.get(rank, 'none')}."
        fail(KernelTypeError("transpose_axes", f"dma_transpose cannot permute by {axes}.", mend))
    shape = tuple(source.shape[axis] for axis in TRANSPOSED[rank])
    if target.ndim < rank and target.shape == tuple(n for n in shape if n != 1):
        versions.use("nisa.dma_transpose into a dst of lower rank")
        target = target.replaced(shape=shape, strides=_padded(target, shape))
    if target.shape != shape:
        said = f"dst {target.shape} is not the transposed shape {shape} (NKI 0.4)."
        fail(KernelValueError("destination_shape", said))
    turned = source.replaced(
        shape=shape,
        strides=tuple(source.strides[axis] for axis in TRANSPOSED[rank]),
        gathered=_turned(source, TRANSPOSED[rank]),
    )
    mode = member(out_of_bounds, oob_mode, "oob_mode").name
    transfer(target, turned, oob_mode=mode, transpose=True, **descriptors(dge_mode))


def _padded(view: TensorView, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides of a view in a shape with more axes of length 1."""
    steps = iter(view.strides)
    return tuple(0 if n == 1 else next(steps) for n in shape)


def _turned(source: TensorView, axes: tuple[int, ...]) -> Any:
    """Run-time indices, with their axes turned too."""
    from dataclasses import replace

    return tuple(
        replace(
            item,
            index=replace(
                item.index,
                shape=tuple(item.index.shape[axis] for axis in axes),
                strides=tuple(item.index.strides[axis] for axis in axes),
            ),
        )
        for item in source.gathered
    )


@instruction
def sendrecv(
    src: Any, dst: Any, send_to_rank: Any, recv_from_rank: Any, pipe_id: Any,
    dma_engine: Any = enums.dma_engine.dma,
) -> None:  # fmt: skip
    """Two cores of a logical core exchange tiles."""
    from accelopt.sim.dialects.nki import cores

    source, target = builder.tile(src, "src"), destination(dst, psum=False)
    if source.dtype != target.dtype or math.prod(source.shape) != math.prod(target.shape):
        said = f"src {source!r} and dst {target!r} are not alike."
        fail(KernelValueError("sendrecv", said))
    cores.exchange(source, target, int(send_to_rank), int(recv_from_rank), pipe_id)


@instruction
def core_barrier(data: Any, cores: Any, engine: Any = enums.engine.gpsimd) -> None:
    """Two cores of a logical core wait for each other."""
    from accelopt.sim.dialects.nki import cores as logical

    logical.meet(tuple(int(core) for core in cores), data, on_engine(engine))
