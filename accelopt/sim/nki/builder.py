"""What every NKI call needs: operands checked and turned into accesses, results made, one
instruction emitted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from accelopt.sim import dtypes
from accelopt.sim.access import Access, Affine, Mask
from accelopt.sim.errors import (
    KernelError,
    KernelSyntaxError,
    KernelTypeError,
    KernelValueError,
)
from accelopt.sim.nki.index import Index, MaskExpression
from accelopt.sim.nki.tensor import TensorView, whole
from accelopt.sim.operators import COMPARISONS
from accelopt.sim.program import AttributeValue, Buffer, Engine
from accelopt.sim.trace import current

MAX_PARTITIONS = 128

Number = (int, float, bool, np.number, np.bool_)


def mask_of(mask: Any) -> Mask:
    """The `mask=` argument as a Mask; None is no mask, a bool masks everything or nothing."""
    if mask is None:
        return Mask()
    if isinstance(mask, (bool, np.bool_)):
        return Mask() if mask else Mask((Affine(-1),))
    if isinstance(mask, MaskExpression) and not mask.negated:
        return mask.mask
    raise KernelSyntaxError(
        "err_unsupported_expression_in_mask",
        f"mask={mask!r} is not a conjunction of affine comparisons.",
        "A mask is a conjunction (&) of comparisons of nl.arange, nl.mgrid and loop indices.",
        current().here(),
    )


def tile(value: Any, name: str) -> TensorView:
    """An on-chip operand."""
    if not isinstance(value, TensorView):
        raise KernelTypeError(
            "operand_type",
            f"Expect operand '{name}' to be a tile, not {type(value).__name__}.",
            "Pass a tile in SBUF or PSUM (nl.load brings one from HBM).",
            current().here(),
        )
    if not value.on_chip:
        raise KernelError(
            "err_unsupported_memory",
            f"operand '{name}' ({value!r}) lies in HBM, where engines cannot reach it.",
            "nl.load it into SBUF first.",
            current().here(),
        )
    return value


def is_number(value: Any) -> bool:
    """True for Python and NumPy scalars, and zero-dimensional arrays."""
    return isinstance(value, Number) or (isinstance(value, np.ndarray) and value.ndim == 0)


def number(value: Any) -> int | float | bool:
    """The scalar as a plain Python number."""
    return value.item() if isinstance(value, (np.generic, np.ndarray)) else value


def check_same_partitions(**tiles: TensorView | None) -> None:
    """All operands of an instruction span the same partitions."""
    given = {name: t.tile_shape[0] for name, t in tiles.items() if t is not None}
    if len(set(given.values())) > 1:
        sizes = ", ".join(f"{name}: {size}" for name, size in given.items())
        raise KernelValueError(
            "err_num_partition_mismatch",
            f"operands have different numbers of partitions ({sizes}).",
            "Give them the same partition size; nl.* functions and .broadcast_to broadcast it.",
            current().here(),
        )


def check_partitions(shape: tuple[int, ...]) -> None:
    """At most 128 partitions."""
    if shape and shape[0] > MAX_PARTITIONS:
        raise KernelSyntaxError(
            "err_num_partition_exceed_arch_limit",
            f"{shape[0]} partitions exceed the limit of {MAX_PARTITIONS}.",
            "Tile the partition dimension.",
            current().here(),
        )


def new_tile(shape: tuple[int, ...], dtype: Any, buffer: Buffer = Buffer.SBUF) -> TensorView:
    """Storage for a result, named and freed by the compiler."""
    check_partitions(shape)
    return whole(current().declare(shape, parse_dtype(dtype), buffer, temporary=True))


def emit(
    opcode: str,
    *,
    result: TensorView,
    inputs: Mapping[str, Any] | None = None,
    attributes: Mapping[str, AttributeValue] | None = None,
    outputs: Mapping[str, TensorView] | None = None,
    mask: Mask | None = None,
    engine: Any = None,
    dtype: Any = None,
) -> TensorView:
    """One instruction. Inputs that are tiles become accesses, numbers become attributes, None is
    left out; operand masks join the instruction's, except for matmul."""
    mask = mask or Mask()
    accesses: dict[str, Access] = {}
    scalars: dict[str, AttributeValue] = dict(attributes or {})
    for name, value in (inputs or {}).items():
        if isinstance(value, TensorView):
            if opcode != "matmul":
                mask = mask & value.mask
        elif value is not None:
            scalars[name] = number(value)
    for name, value in (inputs or {}).items():
        if isinstance(value, TensorView):
            accesses[name] = value.access(mask)
    current().emit(
        opcode,
        result=result.access(mask),
        inputs=accesses,
        attributes={**scalars, "dtype": dtypes.name_of(parse_dtype(dtype or result.dtype))},
        outputs={name: view.access() for name, view in (outputs or {}).items()},
        mask=mask,
        engine=engine_of(engine),
    )
    return result


def engine_of(engine: Any) -> Engine | None:
    """The `engine=` argument; unknown_engine and None leave the choice open."""
    if engine is None:
        return None
    if isinstance(engine, Engine):
        return engine
    name = getattr(engine, "name", str(engine))
    return None if name == "unknown" else Engine(name)


def operand_dtype(value: Any) -> np.dtype:
    """The dtype an operand promotes with: its own, or that of a Python number (S24)."""
    return value.dtype if isinstance(value, TensorView) else dtypes.of_scalar(value)


def refuse_index(value: Any, name: str) -> None:
    """An index is not a tile."""
    if isinstance(value, Index):
        raise KernelTypeError(
            "operand_type",
            f"Expect operand '{name}' to be a tile, not an index.",
            "nisa.iota turns an index into a tile.",
            current().here(),
        )


def parse_dtype(value: Any) -> np.dtype:
    """Any spelling of an NKI number format; KernelTypeError for what is none."""
    try:
        return dtypes.parse(value)
    except TypeError as error:
        raise KernelTypeError(
            "dtype", f"{error}.", f"Use one of: {', '.join(dtypes.FORMATS)}.", current().here()
        ) from None


def result_dtype(op: str, promoted: np.dtype) -> np.dtype:
    """The default format of an nl operation: comparisons and logic give bool."""
    return dtypes.BOOL if op in COMPARISONS or op.startswith("logical_") else promoted
