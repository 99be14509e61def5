"""The meaning of each opcode: the value of one element of an instruction's result.

As `accelopt.sim.compute` computes it, but in real numbers: what is left of formats are roundings to
narrower ones.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

from accelopt.algorithm.index import Index, index_of
from accelopt.algorithm.normal_forms import apply
from accelopt.algorithm.reductions import fold
from accelopt.algorithm.value_nodes import (
    Value,
)
from accelopt.kernels.nki.lift.collective import (
    bn_aggr,
    bn_stats,
    loop_reduce,
    partition_reduce,
    register,
    scan,
    tensor_reduce,
)
from accelopt.kernels.nki.lift.elementwise import (
    activation,
    applied,
    reciprocal,
    scalar_tensor_tensor,
    select,
    select_reduce,
    tensor_scalar,
    tensor_tensor,
)
from accelopt.kernels.nki.lift.execution_points import Contents, Moment
from accelopt.kernels.nki.lift.instruction_element import WriteSite, reshaped
from accelopt.sim.affine import Affine
from accelopt.sim.dialects.neuronxcc.isa.checks import KEEP
from accelopt.sim.mask import Mask
from accelopt.sim.program import Instruction


def meaning(
    reaching: Contents,
    instruction: Instruction,
    output: str,
    coordinates: tuple[Index, ...],
    place: Moment,
) -> Value:
    """The value of the element at `coordinates` of an output. Raises NotLifted."""
    site = WriteSite(reaching, instruction, coordinates, place)
    found = _MEANINGS.get(instruction.opcode)
    if found is None or output not in ("result", "reduce_result"):
        raise site.refusal(_WHY.get(instruction.opcode, f"{instruction.opcode} has no algorithm"))
    if output == "reduce_result":
        return site.stored(register(site, found), instruction.outputs[output])
    value = found(site)
    return value if instruction.opcode == "dma_copy" and site.same_format() else site.stored(
        value, instruction.result)  # fmt: skip


_WHY = {
    "gather": "it gathers by indices that are only known at run time",
    "local_gather": "it gathers by indices that are only known at run time",
    "max8": "it sorts: the eight largest elements are no reduction",
    "while": "it runs a loop whose length is only known at run time",
    "nonzero": "it searches for what is not 0",
    "find_index8": "it searches for the positions of values",
    "match_replace8": "it searches for values and replaces them",
    "sequence_bounds": "it searches for the ends of segments",
    "random": "it draws random numbers",
    "dropout": "it draws random numbers",
}


# Data movement.


def _dma_copy(site: WriteSite) -> Value:
    value = site.operand("source")
    accumulate = site.text("accumulate")
    if not accumulate:
        return value
    return apply(site.reaching.values, accumulate, [site.old(), value])


def _copy(site: WriteSite) -> Value:
    return site.operand("data")


def _memset(site: WriteSite) -> Value:
    return site.operand("value")


def _transpose(site: WriteSite) -> Value:
    data = site.instruction.inputs["data"]
    free, result = data.shape[1:], site.instruction.result.shape
    row, column = reshaped(site.coordinates, result, (math.prod(free), data.shape[0]))
    return site.read(data, [column, *reshaped([row], [math.prod(free)], free)])


def _copy_predicated(site: WriteSite) -> Value:
    values = site.reaching.values
    predicate, source, old = site.operand("predicate"), site.operand("source"), site.old()
    if site.instruction.attributes.get("reverse"):
        source, old = old, source
    return apply(values, "select", [predicate, source, old])


def _stream_shuffle(site: WriteSite) -> Value:
    """Each run of the table that counts evenly is a source of its own: a table of one number (a row
    on all partitions), a rotation or a reversal has one or two."""
    table = site.instruction.attributes["shuffle_mask"]
    source, result = site.instruction.inputs["source"], site.instruction.result
    assert isinstance(table, tuple)
    rows = [int(str(row)) for row in table]
    deepest = max((row for row in rows if row != KEEP), default=0)
    if source.shape[0] < deepest + 1 + (result.shape[0] - 1) // len(rows) * len(rows):
        raise site.refusal("it shuffles partitions that its source does not have")
    lane = site.coordinates[0] % len(rows)
    group = site.coordinates[0] - lane
    free = reshaped(site.coordinates[1:], result.shape[1:], source.shape[1:])
    last = min(len(rows), result.shape[0])
    value: Value | None = None
    for start, stop, step in reversed(list(_even_runs(rows[:last]))):
        row = group + lane * step + (rows[start] - start * step)
        part = site.old() if rows[start] == KEEP else site.read(source, [row, *free])
        after = lane * -1 + (stop - 1)
        value = part if value is None else site.reaching.values.where([after], part, value)
    assert value is not None
    return value


def _even_runs(rows: list[int]) -> Iterator[tuple[int, int, int]]:
    """The runs of a table of partitions by their begin, their end and the step from each to the next."""
    start = 0
    while start < len(rows):
        step = rows[start + 1] - rows[start] if start + 1 < len(rows) else 0
        if step and KEEP in rows[start : start + 2]:
            step = 0
        stop = start + 1
        while stop < len(rows) and rows[stop] == rows[start] + step * (stop - start):
            stop += 1
        yield start, stop, step
        start = stop


# The Tensor engine.


def _matmul(site: WriteSite) -> Value:
    values, instruction = site.reaching.values, site.instruction
    stationary, moving = instruction.inputs["stationary"], instruction.inputs["moving"]
    if instruction.attributes.get("perf_mode") and len(stationary.shape) == 3:
        raise site.refusal("it multiplies two rows at a time")
    columns = len(moving.shape) - 1
    rows = len(instruction.result.shape) - columns
    shape = instruction.result.shape
    left, right = list(site.coordinates[:rows]), list(site.coordinates[rows:])
    if len(stationary.shape) - 1 != rows:
        left = reshaped(left, shape[:rows], stationary.shape[1:])
    (depth,) = site.fresh([stationary.shape[0]])
    k = index_of(depth)
    factors = []
    conditions: list[Index] = []
    for access, own in ((stationary, left), (moving, right)):
        own = [
            i if extent > 1 else Index() for i, extent in zip(own, access.shape[1:], strict=True)
        ]
        factors.append((site.read(access, [k, *own]), 1.0))
        conditions += [site.indexed(c, [k, *own]) for c in access.mask.constraints]
    product = values.where(conditions, values.product(factors), values.number(0))
    found = fold(values, "add", [depth], product)
    if not instruction.attributes.get("accumulate"):
        return found
    return values.sum([(site.old(), 1.0), (found, 1.0)])


# By position.


def _iota(site: WriteSite) -> Value:
    expression = site.instruction.attributes["expression"]
    assert isinstance(expression, Affine)
    return site.reaching.values.position(site.indexed(expression, site.coordinates))


def _affine_select(site: WriteSite) -> Value:
    predicate = site.instruction.attributes["predicate"]
    assert isinstance(predicate, (Mask, Affine))
    constraints = predicate.constraints if isinstance(predicate, Mask) else (predicate,)
    conditions = [site.indexed(c, site.coordinates) for c in constraints]
    pair = [site.operand("data"), site.operand("on_false")]
    if site.instruction.attributes.get("negate"):
        pair.reverse()
    return site.reaching.values.where(conditions, *pair)


def _range_select(site: WriteSite) -> Value:
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


_MEANINGS: dict[str, Callable[[WriteSite], Value]] = {
    "dma_copy": _dma_copy,
    "copy": _copy,
    "memset": _memset,
    "matmul": _matmul,
    "transpose": _transpose,
    "activation": activation,
    "tensor_scalar": tensor_scalar,
    "tensor_tensor": tensor_tensor,
    "scalar_tensor_tensor": scalar_tensor_tensor,
    "reciprocal": reciprocal,
    "select": select,
    "select_reduce": select_reduce,
    "copy_predicated": _copy_predicated,
    "tensor_reduce": tensor_reduce,
    "partition_reduce": partition_reduce,
    "loop_reduce": loop_reduce,
    "tensor_tensor_scan": scan,
    "bn_stats": bn_stats,
    "bn_aggr": bn_aggr,
    "iota": _iota,
    "affine_select": _affine_select,
    "range_select": _range_select,
    "stream_shuffle": _stream_shuffle,
}
