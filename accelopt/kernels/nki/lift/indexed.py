"""The meaning of instructions driven by positions, for one element."""

from __future__ import annotations

import math

from accelopt.algorithm.index import Axis, Index
from accelopt.algorithm.lookups import index_by
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.value_nodes import Value
from accelopt.kernels.nki.lift.elementwise import applied
from accelopt.kernels.nki.lift.instruction_element import WriteSite, reshaped
from accelopt.kernels.nki.lift.runtime_indices import looked_up
from accelopt.sim.affine import Affine
from accelopt.sim.mask import Mask


def iota(site: WriteSite) -> Value:
    """The value of an affine expression at the element."""
    expression = site.instruction.attributes["expression"]
    assert isinstance(expression, Affine)
    return site.reaching.values.position(site.indexed(expression, site.coordinates))


def affine_select(site: WriteSite) -> Value:
    """The data where affine constraints hold, else a number."""
    predicate = site.instruction.attributes["predicate"]
    assert isinstance(predicate, (Mask, Affine))
    constraints = predicate.constraints if isinstance(predicate, Mask) else (predicate,)
    conditions = [site.indexed(c, site.coordinates) for c in constraints]
    pair = [site.operand("data"), site.operand("on_false")]
    if site.instruction.attributes.get("negate"):
        pair.reverse()
    return site.reaching.values.where(conditions, *pair)


def range_select(site: WriteSite) -> Value:
    """The data where both comparisons of the position hold, else a number."""
    values, instruction = site.reaching.values, site.instruction
    start = instruction.attributes.get("range_start", 0)
    shape = instruction.result.shape[1:]
    (column,) = reshaped(site.coordinates[1:], shape, (math.prod(shape),))
    begin = site.indexed(start, ()) if isinstance(start, Affine) else Index(int(str(start)))
    position = values.position(column + begin)
    value = site.operand("data")
    for number in (1, 0):
        pair = [position, site.operand(f"bound{number}")]
        chosen = applied(site, site.text(f"op{number}"), pair)
        value = apply(values, "select", [chosen, value, site.operand("on_false")])
    return value


def select_reduce(site: WriteSite) -> Value:
    """`where(predicate, on_true, on_false)`; `reverse` exchanges the operands."""
    pair = [site.operand("on_true"), site.operand("on_false")]
    if site.instruction.attributes.get("reverse"):
        pair.reverse()
    return applied(site, "select", [site.operand("predicate"), *pair])


def gather(site: WriteSite) -> Value:
    """The element of the same partition of `data` whose number the index is."""
    data, numbers = site.instruction.inputs["data"], dict[Axis, Value]()
    size, beside = math.prod(data.shape[1:]), (*site.coordinates, *site.place.trips)
    values = site.reaching.values
    index = index_by(values, site.operand("indices"), size, beside, numbers)
    own = [site.coordinates[0], *reshaped([index], [size], data.shape[1:])]
    return looked_up(values, site.read(data, own), numbers, site.instruction.source)
