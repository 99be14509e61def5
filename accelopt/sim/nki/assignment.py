"""`dst[...] = value` and `dst += value`: assignments as instructions that may fold into others."""

from __future__ import annotations

from typing import Any

from accelopt.sim.errors import KernelError, KernelTypeError, KernelValueError
from accelopt.sim.folding import ASSIGN
from accelopt.sim.nki import builder
from accelopt.sim.nki.tensor import TensorView
from accelopt.sim.trace import current


def assign(target: TensorView, value: Any) -> None:
    """Copies a tile or number into a view. HBM is written by nl.store only."""
    if not target.on_chip:
        raise KernelError(
            "err_unsupported_memory",
            f"{target!r} lies in HBM and cannot be assigned to.",
            "Use nl.store(dst, value).",
            current().here(),
        )
    check_writable(target)
    if builder.is_number(value):
        builder.emit("memset", result=target, attributes={"value": builder.number(value)})
        return
    if not isinstance(value, TensorView):
        raise KernelTypeError(
            "operand_type",
            f"a {type(value).__name__} cannot be assigned to a tensor.",
            "Assign a tile or a number.",
            current().here(),
        )
    if not value.on_chip:
        raise KernelError(
            "err_unsupported_memory",
            f"{value!r} lies in HBM and cannot be assigned on-chip.",
            "nl.load it first.",
            current().here(),
        )
    if value.indirect and target.indirect:
        raise KernelError(
            "err_copy_dynamic_indirect_indices_not_natively_supported",
            "a tile with run-time indices is assigned to one with run-time indices.",
            "Use nisa.tensor_copy_dynamic_src or nl.load with the indices.",
            current().here(),
        )
    fitted = fit(value, target.tile_shape)
    builder.emit("copy", result=target, inputs={"data": fitted}, attributes={ASSIGN: True})


def accumulate(target: TensorView, value: Any, op: str) -> TensorView:
    """`target op= value` in place."""
    check_writable(target)
    if isinstance(value, TensorView):
        builder.check_same_partitions(target=target, value=value)
        builder.emit(
            "tensor_tensor",
            result=target,
            inputs={"data1": target, "data2": fit(value, target.tile_shape)},
            attributes={"op": op, **({ASSIGN: True} if op == "add" else {})},
        )
    else:
        builder.emit(
            "tensor_scalar",
            result=target,
            inputs={"data": target, "operand0": value},
            attributes={"op0": op},
        )
    target.updated_in_place = True
    return target


def fit(value: TensorView, shape: tuple[int, ...]) -> TensorView:
    """The value with the target's shape: axes of length 1 repeat; same elements may reshape."""
    if value.tile_shape == shape:
        return value
    squeezed = tuple(n for n in value.tile_shape if n != 1)
    if squeezed == tuple(n for n in shape if n != 1):
        return value.reshape(shape)
    try:
        return value.broadcast_to(shape)
    except KernelValueError:
        raise KernelValueError(
            "err_store_dst_shape_smaller_than_other_shape",
            f"a value of shape {value.tile_shape} does not fit a destination of shape {shape}.",
            "Make the shapes equal; only axes of length 1 are repeated.",
            current().here(),
        ) from None


def check_writable(target: TensorView) -> None:
    """Inputs are read-only unless declared mutable; constants always are."""
    tracer = current()
    storage = target.storage
    read_only = storage in tracer.arguments and storage not in tracer.mutable
    if read_only or storage.data is not None:
        raise KernelError(
            "err_cannot_update_immutable_parameter",
            f"'{storage.name}' is an input of the kernel and cannot be written.",
            "Write to a new nl.shared_hbm tensor and return it, or annotate the parameter with "
            "nt.mutable_tensor.",
            tracer.here(),
        )
