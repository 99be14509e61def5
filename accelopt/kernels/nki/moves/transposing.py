"""Transposes that need no DMA."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from accelopt.kernels.nki.moves.move import Facts, Option
from accelopt.kernels.nki.moves.places import ValuePlace, places
from accelopt.kernels.nki.moves.reading.reader import Reading, read
from accelopt.kernels.nki.moves.reading.source import ParsedKernel, SourceNode, code_of, line, loop
from accelopt.kernels.nki.moves.reading.values import KnownCall, KnownConstant
from accelopt.kernels.nki.moves.surgery.names import fresh, taken
from accelopt.kernels.nki.moves.surgery.rewriting import with_expression

BLOCK = 128  # rows and columns that the Tensor engine transposes at once


class TransposeOnEngine:
    """Load rows as they lie and transpose them on the Tensor engine, not element by element in DMA.

    before: kT = nl.load_transpose2d(k)
    after:  kT = nl.ndarray((64, 512), dtype=k.dtype, buffer=nl.sbuf)
            for block in nl.affine_range(4):
                kT[0:64, block * 128:(block + 1) * 128] = nl.transpose(
                    nl.load(k[block * 128:(block + 1) * 128, 0:64]))

    In place of the call alone where there are at most 128 rows. Legal when there is no mask and there
    are at most 128 columns; more rows must come in whole blocks, of a slice or a whole tensor that is
    given a name.
    """

    name = "transpose_on_engine"

    def options(self, kernel: ParsedKernel, facts: Facts) -> Iterator[Option]:
        """Every transposing load."""
        reading = read(kernel)
        for place in places(reading):
            new = _rewritten(reading, place)
            if new is None:
                continue
            text = (
                f"Load the rows of line {place.statement.line.number} as they lie and transpose them "
                "on the Tensor engine: a transposing DMA moves every element by itself."
            )
            made = partial(kernel.replaced, place.statement.path, new)
            yield Option(place.site(self.name, text), made)


def _rewritten(reading: Reading, place: ValuePlace) -> list[SourceNode] | None:
    """The statements in the place of one with a transposing load; None where it must stay."""
    call = reading.calls.get(place.node)
    if call is None or call.name != "nl.load_transpose2d":
        return None
    access = call.access("src")
    if call.values.get("mask", KnownConstant(None)) != KnownConstant(None) or access is None:
        return None
    shape = access.shape
    if shape is None or len(shape) != 2:
        return None
    rows, columns = shape[0].constant, shape[1].constant
    if rows is None or columns is None or columns > BLOCK:
        return None
    kernel = reading.kernel
    if rows <= BLOCK:
        turned = _turned(kernel, call, code_of(call.arguments["src"]))
        changes: dict[cst.CSTNode, cst.CSTNode] = {place.node: cst.parse_expression(turned)}
        return [with_expression(place.statement.line, changes)]
    return None if rows % BLOCK else _in_blocks(kernel, place, call, rows, columns)


def _turned(kernel: ParsedKernel, call: KnownCall, source: str) -> str:
    dtype = f", dtype={code_of(call.arguments['dtype'])}" if "dtype" in call.arguments else ""
    return f"{kernel.spelled('nl.transpose')}({kernel.spelled('nl.load')}({source}{dtype}))"


def _in_blocks(
    kernel: ParsedKernel, place: ValuePlace, call: KnownCall, rows: int, columns: int
) -> list[SourceNode] | None:
    """A tile of its own, filled block by block."""
    statement, access = place.statement, call.access("src")
    node = statement.line.node
    part = node.body[0] if isinstance(node, cst.SimpleStatementLine) else None
    if not (isinstance(part, cst.Assign) and part.value is place.node) or statement.bound is None:
        return None
    block = fresh("block", taken(kernel))
    source = _block_of(call.arguments["src"], block, columns)
    if source is None or access is None:
        return None
    name, number, spelled = statement.bound, statement.line.number, kernel.spelled
    dtype = (
        code_of(call.arguments["dtype"])
        if "dtype" in call.arguments
        else f"{access.tensor.name}.dtype"
    )
    shape = f"({spelled('nl.par_dim')}({columns}), {rows})"
    made = f"{name} = {spelled('nl.ndarray')}({shape}, dtype={dtype}, buffer={spelled('nl.sbuf')})"
    target = f"{name}[0:{columns}, {block} * {BLOCK}:({block} + 1) * {BLOCK}]"
    filled = line(f"{target} = {_turned(kernel, call, source)}", number)
    header = f"for {block} in {spelled('nl.affine_range')}({rows // BLOCK})"
    return [line(made, number), loop(header, [filled], number)]


def _block_of(source: cst.BaseExpression, block: str, columns: int) -> str | None:
    """One block of rows of a tensor, `x` or `x[a:b, ...]`."""
    if isinstance(source, cst.Name):
        return f"{source.value}[{block} * {BLOCK}:({block} + 1) * {BLOCK}, 0:{columns}]"
    if not isinstance(source, cst.Subscript) or len(source.slice) != 2:
        return None
    first = source.slice[0].slice
    if not isinstance(first, cst.Slice) or first.step is not None:
        return None
    begin = "" if first.lower is None else f"{_bracketed(first.lower)} + "
    rows = f"{begin}{block} * {BLOCK}:{begin}({block} + 1) * {BLOCK}"
    return f"{code_of(source.value)}[{rows}, {code_of(source.slice[1].slice)}]"


def _bracketed(node: cst.BaseExpression) -> str:
    text = code_of(node)
    return text if isinstance(node, (cst.Name, cst.Integer, cst.BinaryOperation)) else f"({text})"
