"""Constants that a kernel brings along, as functions of their indices."""

from __future__ import annotations

import numpy as np

from accelopt.algorithm.index import Index
from accelopt.algorithm.value_nodes import Value
from accelopt.algorithm.values import Values
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.sim.program import Tensor


def constant_element(values: Values, tensor: Tensor, address: Index) -> Value:
    """An element of a constant that the kernel brought along: one number, or an identity or
    triangular matrix. Raises NotLifted for any other."""
    data = np.asarray(tensor.data, dtype=np.float64)
    if not address.terms:
        return values.number(float(data.reshape(-1)[address.constant]))
    if (data == data.flat[0]).all():
        return values.number(float(data.flat[0]))
    if data.ndim == 2:
        rows, columns = data.shape
        row, column = address // columns, address % columns
        one, zero = values.number(1), values.number(0)
        for conditions, model in (
            ([row - column, column - row], np.eye(rows, columns)),
            ([row - column], np.tri(rows, columns)),
            ([row - column - 1], np.tri(rows, columns, -1)),
            ([column - row], np.tri(columns, rows).T),
            ([column - row - 1], np.tri(columns, rows, -1).T),
        ):
            if np.array_equal(data, model):
                return values.where(conditions, one, zero)
    raise NotLifted(
        f"the constant {tensor.name or 'that it reads'} is neither one number nor an identity "
        "or triangular matrix",
        tensor.source,
    )
