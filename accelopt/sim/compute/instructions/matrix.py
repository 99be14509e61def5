"""The Tensor engine: (M, N) = stationary (K, M).T @ moving (K, N), in float32; and what makes its
microscaling operands."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from accelopt.sim import dtypes, microscaling
from accelopt.sim.access import Access
from accelopt.sim.compute.instructions import blas
from accelopt.sim.compute.tiles.addressing import Address
from accelopt.sim.compute.tiles.operands import FLOAT32, Closure, LaneSite, ReadClosure, flat_free
from accelopt.sim.isa.matrix import rows_at_once, scale_names
from accelopt.sim.microscaling import SCALES

CONTRACTION = "contraction"


def matmul(site: LaneSite) -> Closure:
    """result = or += stationary.T @ moving; operand masks narrow K, M and N."""
    inputs, result = site.instruction.inputs, site.result
    stationary, moving = inputs["stationary"], inputs["moving"]
    accumulate = bool(site.attribute("accumulate"))
    if dtypes.is_packed(stationary.dtype):
        return _microscaled(site, accumulate)
    keys = _Keys(site, stationary, moving)
    if rows_at_once(site.instruction) > 1:
        return _general(site, keys, accumulate, double_row=True)
    library = blas.load()
    plan = _direct(site, stationary, moving, result) if site.window.trivial else None
    if library is None or plan is None or site.pattern is not None:
        return _general(site, keys, accumulate)
    return _called_directly(site, plan, library.sgemm, accumulate)


class _Keys:
    """Mask keys of the operands' axes: the result's axes are M, then N."""

    def __init__(self, site: LaneSite, stationary: Access, moving: Access) -> None:
        rank, columns = len(site.result.shape), len(moving.shape) - 1
        rows = rank - columns
        m_keys: list[Hashable] = list(range(-rank, -columns))
        n_keys: list[Hashable] = list(range(-columns, 0))
        free = len(stationary.shape) - 1
        m_keys = m_keys if free == rows else [None] * free
        self.stationary: list[Hashable] = [CONTRACTION, *m_keys]
        self.moving: list[Hashable] = [CONTRACTION, *n_keys]
        for access, own in ((stationary, self.stationary), (moving, self.moving)):
            if access.mask.constraints:
                site.constrain(access.mask, {n - len(own): key for n, key in enumerate(own)})


@dataclass(frozen=True)
class _Matrix:
    """A BLAS operand: where it starts, whether it is transposed, and the step between its rows."""

    access: Access
    address: Address
    transposed: bool
    leading: int


@dataclass(frozen=True)
class _Plan:
    stationary: _Matrix
    moving: _Matrix
    result: _Matrix
    rows: int
    columns: int
    depth: int


def _direct(site: LaneSite, stationary: Access, moving: Access, result: Access) -> _Plan | None:
    """The call that works in place, if every operand is a plain float32 matrix in bounds."""
    name = site.attribute("dtype")
    if isinstance(name, str) and dtypes.parse(name) != FLOAT32:
        return None
    matrices = [_matrix(site, access) for access in (stationary, moving, result)]
    a, b, c = matrices
    if a is None or b is None or c is None or c.transposed:
        return None
    (depth, rows), (_, columns) = a.access.shape, b.access.shape
    if c.access.shape != (rows, columns):
        return None
    return _Plan(a, b, c, rows, columns, depth)


def _matrix(site: LaneSite, access: Access) -> _Matrix | None:
    flat = flat_free(access)
    if flat is None or dtypes.stored(flat.dtype) != FLOAT32 or flat.indirect:
        return None
    if flat.mask.constraints or not site.inside(flat):
        return None
    (rows, columns), (down, along) = flat.shape, flat.strides
    if (along == 1 or columns == 1) and (down >= columns or rows == 1):
        return _Matrix(flat, site.address(flat), False, max(down, columns))
    if (down == 1 or rows == 1) and along >= rows:
        return _Matrix(flat, site.address(flat), True, max(along, rows))
    return None


def _called_directly(site: LaneSite, plan: _Plan, sgemm: blas.Sgemm, accumulate: bool) -> Closure:
    a, b, c = plan.stationary, plan.moving, plan.result
    a_storage, b_storage, c_storage = (site.storage(m.access) for m in (a, b, c))
    a_at, b_at, c_at = a.address, b.address, c.address
    # The result is stationary transposed, so a plain stationary matrix is the transposed operand.
    a_form = blas.PLAIN if a.transposed else blas.TRANSPOSED
    b_form = blas.TRANSPOSED if b.transposed else blas.PLAIN
    rows, columns, depth = plan.rows, plan.columns, plan.depth
    a_step, b_step, c_step = a.leading, b.leading, c.leading
    beta = 1.0 if accumulate else 0.0
    order = blas.ROW_MAJOR

    def run() -> None:
        sgemm(
            order, a_form, b_form, rows, columns, depth,
            1.0, a_storage.pointer + a_at(), a_step, b_storage.pointer + b_at(), b_step,
            beta, c_storage.pointer + c_at(), c_step,
        )  # fmt: skip

    return run


def _microscaled(site: LaneSite, accumulate: bool) -> Closure:
    """Packed elements times their scales, which float32 holds exactly; the sum is float32's."""
    stationary, moving = _scaled(site, "stationary"), _scaled(site, "moving")
    return _result(site, accumulate, lambda: blas.product(stationary(), moving()))


def _result(site: LaneSite, accumulate: bool, product: ReadClosure) -> Closure:
    """Puts a product into the result, or adds it to what is there."""
    old = site.values(site.result)

    def calculate(out: np.ndarray) -> None:
        found = product()
        np.copyto(out, found.reshape(out.shape))
        if accumulate:
            np.add(out, old(), out)

    return site.computed(calculate, alias=True)


def _scaled(site: LaneSite, name: str) -> ReadClosure:
    """An operand's numbers as (K * 4, columns)."""
    data = site.instruction.inputs[name]
    packed = site.whole(data)
    scales = [
        site.whole(site.instruction.inputs[n])
        for n in scale_names(f"{name}_scale")
        if n in site.instruction.inputs
    ]

    def read() -> np.ndarray:
        parts = [scale().reshape(SCALES, -1) for scale in scales]
        numbers = microscaling.dequantize(packed().reshape(data.partitions, -1), parts)
        columns: np.ndarray = numbers.transpose(0, 2, 1).reshape(-1, data.free_elements)
        return columns

    return read


def quantize_mx(site: LaneSite) -> Closure:
    """result, scales = data in groups of 8 partitions by 4 elements."""
    data, result = site.instruction.inputs["data"], site.result
    read = site.values(data)
    outputs = site.instruction.outputs
    stores = {name: site.destination(access, None).put_all for name, access in outputs.items()}

    def run() -> None:
        packed, codes = microscaling.quantize(read().reshape(data.partitions, -1), result.dtype)
        stores["result"](packed)
        for part, name in enumerate(scale_names("scale")[: len(codes) // SCALES]):
            rows = codes[part * SCALES : (part + 1) * SCALES]
            stores[name](rows.view(outputs[name].dtype))

    return run


def _general(site: LaneSite, keys: _Keys, accumulate: bool, double_row: bool = False) -> Closure:
    """Any dtype, mask and layout. `double_row` operands are (K, 2, free): both K and 2 are summed."""
    inputs = site.instruction.inputs
    left = site.values(inputs["stationary"], keys.stationary)
    right = site.values(inputs["moving"], keys.moving)

    def product() -> np.ndarray:
        stationary, moving = left(), right()
        depth = stationary.shape[0] * (2 if double_row else 1)
        return blas.product(stationary.reshape(depth, -1), moving.reshape(depth, -1))

    return _result(site, accumulate, product)
