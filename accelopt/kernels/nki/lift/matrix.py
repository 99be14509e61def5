"""The meaning of products, for one element."""

from __future__ import annotations

from accelopt.algorithm.index import Index, index_of
from accelopt.algorithm.reductions import fold
from accelopt.algorithm.value_nodes import Value
from accelopt.kernels.nki.lift.instruction_element import WriteSite, reshaped
from accelopt.sim.isa.matrix import rows_at_once


def matmul(site: WriteSite) -> Value:
    """The sum over the contraction of products, added to what was there where it accumulates."""
    values, instruction = site.reaching.values, site.instruction
    stationary, moving = instruction.inputs["stationary"], instruction.inputs["moving"]
    summed = 1 if rows_at_once(instruction) == 1 else 2  # of operands (K, 2, F) both
    columns = len(moving.shape) - summed
    rows = len(instruction.result.shape) - columns
    shape = instruction.result.shape
    left, right = list(site.coordinates[:rows]), list(site.coordinates[rows:])
    if len(stationary.shape) - summed != rows:
        left = reshaped(left, shape[:rows], stationary.shape[summed:])
    depth = site.fresh(stationary.shape[:summed])
    k = [index_of(axis) for axis in depth]
    factors = []
    conditions: list[Index] = []
    for access, own in ((stationary, left), (moving, right)):
        own = [
            i if extent > 1 else Index()
            for i, extent in zip(own, access.shape[summed:], strict=True)
        ]
        factors.append((site.read(access, [*k, *own]), 1.0))
        conditions += [site.indexed(c, [*k, *own]) for c in access.mask.constraints]
    product = values.where(conditions, values.product(factors), values.number(0))
    found = fold(values, "add", [*depth], product)
    if not instruction.attributes.get("accumulate"):
        return found
    return values.sum([(site.old(), 1.0), (found, 1.0)])
