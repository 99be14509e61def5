"""Moves around the tensor engine."""

from __future__ import annotations

from collections.abc import Iterator

import libcst as cst

from accelopt.kernels.nki.moves.move import Facts, IllegalMove, Option, ready
from accelopt.kernels.nki.moves.places import ValuePlace, places
from accelopt.kernels.nki.moves.reading.reader import Reading, read
from accelopt.kernels.nki.moves.reading.source import ParsedKernel, code_of, line
from accelopt.kernels.nki.moves.reading.values import KnownConstant
from accelopt.kernels.nki.moves.reading.work import resident_bytes
from accelopt.kernels.nki.moves.surgery.hoisting import hoist, plan_hoist
from accelopt.kernels.nki.moves.surgery.names import fresh, taken
from accelopt.kernels.nki.moves.surgery.rewriting import with_expression


class TransposeOnce:
    """Write out the transpose that `nl.matmul` hides, and do it once instead of for every product.

    before: for n in N: for k in K: acc += nl.matmul(x[:, k * 128:(k + 1) * 128], w_tile)
    after:  for k in K: xT_tiles[k] = nl.copy(nisa.nc_transpose(x[:, k * 128:(k + 1) * 128]))
            for n in N: for k in K: acc += nisa.nc_matmul(xT_tiles[k], w_tile)

    Legal when x is an SBUF tile of at most 128 by 128, w_tile has at most 512 columns, and there is
    no mask.
    """

    name = "transpose_once"

    def options(self, kernel: ParsedKernel, facts: Facts) -> Iterator[Option]:
        """Every `nl.matmul` whose left operand is transposed for it."""
        reading = read(kernel)
        for place in places(reading):
            if _operands(reading, place) is None:
                continue
            changed, name = _transposed(kernel, reading, place)
            changed, left = _hoist_as_far_as_possible(changed, name, facts)
            gain = f", before the loop over {left[-1]}" if left else ""
            text = (
                f"Transpose the left operand of the matmul in line {place.statement.line.number} "
                f"explicitly{gain}, and multiply with nc_matmul: nl.matmul transposes it anew for "
                "every product."
            )
            yield Option(place.site(self.name, text), ready(changed))


def _operands(
    reading: Reading, place: ValuePlace
) -> tuple[cst.BaseExpression, cst.BaseExpression] | None:
    call = reading.calls.get(place.node)
    if call is None or call.name != "nl.matmul":
        return None
    if call.values.get("mask", KnownConstant(None)) != KnownConstant(None):
        return None
    if call.values.get("transpose_x", KnownConstant(False)) != KnownConstant(False):
        return None
    left, right = call.access("x"), call.access("y")
    if left is None or right is None or left.tensor.buffer != "sbuf":
        return None
    if right.tensor.buffer != "sbuf" or left.shape is None or right.shape is None:
        return None
    rows, columns, width = left.shape[0].constant, left.shape[1].constant, right.shape[1].constant
    if rows is None or columns is None or width is None:
        return None
    fits = rows <= 128 and columns <= 128 and width <= 512
    return (call.arguments["x"], call.arguments["y"]) if fits else None


def _transposed(
    kernel: ParsedKernel, reading: Reading, place: ValuePlace
) -> tuple[ParsedKernel, str]:
    """With the transpose as a statement of its own; and the name of its result."""
    operands = _operands(reading, place)
    if operands is None:
        raise IllegalMove(f"line {place.statement.line.number} is no matmul that transposes")
    left, right = operands
    call = reading.calls[place.node]
    access = call.access("x")
    assert access is not None
    name = fresh(f"{access.tensor.name}_transposed", taken(kernel))
    spelled = kernel.spelled
    transpose = f"{name} = {spelled('nl.copy')}({spelled('nisa.nc_transpose')}({code_of(left)}))"
    product = f"{spelled('nisa.nc_matmul')}({name}, {code_of(right)})"
    changed = with_expression(place.statement.line, {place.node: cst.parse_expression(product)})
    new = [line(transpose, place.statement.line.number), changed]
    return kernel.replaced(place.statement.path, new), name


def _hoist_as_far_as_possible(
    kernel: ParsedKernel, name: str, facts: Facts
) -> tuple[ParsedKernel, list[str]]:
    """A value moved out of every loop around it that it does not depend on, while it fits."""
    left: list[str] = []
    while True:
        reading = read(kernel)
        maker = next((s for s in reading.statements if name in _made(s)), None)
        room = facts.sbuf_bytes - resident_bytes(reading)
        for loop in reversed(maker.loops if maker is not None else ()):
            try:
                plan = plan_hoist(reading, loop.node.variable, name)
                size = plan.resident_bytes()
                if size is None or size > room:
                    continue
                hoisted = hoist(kernel, loop.node.variable, name)
            except IllegalMove:
                continue
            left.append(loop.node.variable)
            known = {t.name for t in reading.tensors}
            grown = [t.name for t in read(hoisted).tensors if t.name not in known and t.declared]
            kernel, name = hoisted, grown[0] if grown else name
            break
        else:
            return kernel, left


def _made(statement: object) -> set[str]:
    bound = getattr(statement, "bound", None)
    target = getattr(statement, "target", None)
    kind = getattr(statement, "kind", "")
    if kind != "compute":
        return set()
    return {bound} if bound else ({target.tensor.name} if target is not None else set())
