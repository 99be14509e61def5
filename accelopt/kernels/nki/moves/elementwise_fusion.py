"""Moves that do elementwise arithmetic in fewer instructions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import libcst as cst

from accelopt.kernels.nki.moves.move import Facts, Option
from accelopt.kernels.nki.moves.places import ValuePlace, places
from accelopt.kernels.nki.moves.reading.patterns import ACTIVATIONS, PATTERNS, Rewritten, activation
from accelopt.kernels.nki.moves.reading.polynomial import ONE
from accelopt.kernels.nki.moves.reading.reader import Reading, ReadStatement, read
from accelopt.kernels.nki.moves.reading.source import ParsedKernel, code_of, line
from accelopt.kernels.nki.moves.reading.terms import FusedTerm, Terms
from accelopt.kernels.nki.moves.reading.values import (
    KnownConstant,
    Name,
    Number,
    Sequence,
    UnboundResult,
)
from accelopt.kernels.nki.moves.surgery.names import fresh, taken
from accelopt.kernels.nki.moves.surgery.rewriting import tidy, with_expression


class Fuse:
    """Compute a pattern of elementwise arithmetic by the one instruction made for it.

    before: e = nl.exp(nl.negative(x)); d = nl.add(e, 1.0); y = nl.divide(x, d)
    after:  y = nl.silu(x)

    The patterns stand in `patterns.py`: silu and sigmoid, activation with scale and bias, two
    scalar operations in one tensor_scalar, x plus a multiple of x, division by one number a row,
    1 / sqrt. They are found across statements and spellings. Legal when every value looked through
    is made by one statement, in the same iteration, under the same mask, from operands that still
    hold; values that are used elsewhere too stay.
    """

    name = "fuse"

    def options(self, kernel: ParsedKernel, facts: Facts) -> Iterator[Option]:
        """Every place where a pattern matches."""
        reading = read(kernel)
        for place in places(reading):
            for pattern in PATTERNS:
                found = _match(reading, place, pattern)
                if found is None:
                    continue
                term, rewritten = found
                lines = sorted({s.line.number for s in (*term.everything(), place.statement)})
                text = (
                    f"Compute {_target(place.statement)} ({_lines(lines)}) by one {rewritten.call}: "
                    f"{rewritten.story}."
                )
                made = partial(_fused, kernel, reading, place, rewritten)
                yield Option(place.site(self.name, text, pattern=pattern), made)


class FuseReduction:
    """Let the activation that makes a row also sum it up.

    before: s = nl.square(x); t = nl.sum(s, axis=1)
    after:  t = nl.ndarray((nl.par_dim(128), 1), dtype=nl.float32, buffer=nl.sbuf)
            s = nisa.activation_reduce(op=nl.square, data=x, reduce_op=nl.add, reduce_res=t[0:128, 0:1])

    Legal for a sum over the free axis of an activation function of a tile, with known size, without
    a mask.
    """

    name = "fuse_reduction"

    def options(self, kernel: ParsedKernel, facts: Facts) -> Iterator[Option]:
        """Every sum over rows whose operand is an activation."""
        reading = read(kernel)
        for place in places(reading):
            found = _row_sum(reading, place)
            if found is None:
                continue
            text = (
                f"Sum up the rows in line {_number(place)} within the activation that makes them: "
                "one pass of the Scalar engine in place of a second one over the data."
            )
            made = partial(_summed, kernel, place, *found)
            yield Option(place.site(self.name, text), made)


def _fused(
    kernel: ParsedKernel, reading: Reading, place: ValuePlace, rewritten: Rewritten
) -> ParsedKernel:
    text = _call_text(reading, place, rewritten)
    changed = with_expression(place.statement.line, {place.node: cst.parse_expression(text)})
    return tidy(kernel.replaced(place.statement.path, [changed]))


def _summed(
    kernel: ParsedKernel, place: ValuePlace, term: FusedTerm, arguments: dict[str, str]
) -> ParsedKernel:
    """The sum in the place of its operand's making."""
    assert term.shape is not None
    partitions = term.shape[0].constant
    used = taken(kernel)
    total = fresh("row_sum", used)
    maker = term.statements[-1] if term.statements else None
    made = maker.bound if maker and maker.bound else fresh("elementwise", {*used, total})
    spelled = kernel.spelled
    declaration = (
        f"{total} = {spelled('nl.ndarray')}(({spelled('nl.par_dim')}({partitions}), 1), "
        f"dtype={spelled('nl.float32')}, buffer={spelled('nl.sbuf')})"
    )
    arguments = {
        **arguments,
        "reduce_op": "nl.add",
        "reduce_res": f"{total}[0:{partitions}, 0:1]",
    }
    text = ", ".join(f"{k}={_spelled(kernel, v)}" for k, v in arguments.items())
    instruction = f"{made} = {spelled('nisa.activation_reduce')}({text})"
    use = with_expression(place.statement.line, {place.node: cst.Name(total)})
    if maker is None or not maker.bound:
        new = [line(declaration), line(instruction), use]
        return tidy(kernel.replaced(place.statement.path, new))
    kernel = kernel.replaced(place.statement.path, [use])
    return tidy(kernel.replaced(maker.path, [line(declaration), line(instruction)]))


def _match(reading: Reading, place: ValuePlace, pattern: str) -> tuple[FusedTerm, Rewritten] | None:
    term = Terms(reading).of(place.node, place.statement)
    if term is None or term.shape is None or not _one_dtype(reading, place, term):
        return None
    rewritten = PATTERNS[pattern](term)
    if rewritten is None:
        return None
    call = reading.calls.get(place.node)
    if call is not None and call.name == rewritten.call and not term.everything():
        nested = any(isinstance(v, UnboundResult) for v in call.values.values())
        if not nested:
            return None
    return term, rewritten


def _one_dtype(reading: Reading, place: ValuePlace, term: FusedTerm) -> bool:
    """True when no value on the way was rounded to another format."""
    value = reading.values.get(place.node)
    dtypes = {value.dtype} if isinstance(value, UnboundResult) else set()
    for statement in term.everything():
        tensor = statement.result or (statement.target.tensor if statement.target else None)
        dtypes.add(tensor.dtype if tensor is not None else None)
    return len(dtypes) == 1


def _call_text(reading: Reading, place: ValuePlace, rewritten: Rewritten) -> str:
    kernel = reading.kernel
    call = reading.calls.get(place.node)
    arguments = {k: _spelled(kernel, v) for k, v in rewritten.arguments.items()}
    positional = rewritten.call.startswith("nl.")
    parts = [v if positional else f"{k}={v}" for k, v in arguments.items()]
    if call is not None:
        for keyword in ("dtype", "mask"):
            value = call.values.get(keyword)
            if keyword in call.arguments and value != KnownConstant(None):
                parts.append(f"{keyword}={code_of(call.arguments[keyword])}")
    return f"{kernel.spelled(rewritten.call)}({', '.join(parts)})"


def _spelled(kernel: ParsedKernel, text: str) -> str:
    """Text with `nl.` names of ours written as this kernel imports them."""
    for prefix in ("nl.", "nisa."):
        if text.startswith(prefix):
            name, _, rest = text.partition("(")
            return kernel.spelled(name) + ("(" + rest if rest else "")
    return text


def _row_sum(reading: Reading, place: ValuePlace) -> tuple[FusedTerm, dict[str, str]] | None:
    """The term summed up and the activation's arguments, when a sum has the right form."""
    call = reading.calls.get(place.node)
    if call is None or call.values.get("mask", KnownConstant(None)) != KnownConstant(None):
        return None
    if call.name == "nl.sum":
        operand = call.arguments.get("x")
    elif call.name == "nisa.tensor_reduce" and _adds(call.values.get("op")):
        operand = call.arguments.get("data")
        if call.values.get("negate", KnownConstant(False)) != KnownConstant(False):
            return None
    else:
        return None
    if operand is None or not _last_axis(call.values.get("axis")):
        return None
    term = Terms(reading).of(operand, place.statement)
    if term is None or term.operation not in ACTIVATIONS or term.shape is None:
        return None
    if len(term.shape) != 2 or any(size.constant is None for size in term.shape):
        return None
    if term.shape[1] == ONE or not _one_dtype(reading, place, term):
        return None
    maker = term.statements[-1] if term.statements else None
    if maker is not None and maker.loops != place.statement.loops:
        return None
    rewritten = activation(term)
    if rewritten is not None:
        return term, dict(rewritten.arguments)
    inner = term.parts[0]
    if not inner.text or inner.is_number:
        return None
    return term, {"op": f"nl.{term.operation}", "data": inner.text}


def _adds(value: object) -> bool:
    return isinstance(value, Name) and value.canonical.rpartition(".")[2] in {"add", "sum"}


def _last_axis(value: object) -> bool:
    if isinstance(value, Sequence):
        return len(value.items) == 1 and _last_axis(value.items[0])
    return isinstance(value, Number) and value.polynomial.constant in (1, -1)


def _target(statement: ReadStatement) -> str:
    if statement.bound:
        return statement.bound
    return statement.target.tensor.name if statement.target else "the result"


def _number(place: ValuePlace) -> int:
    return place.statement.line.number


def _lines(numbers: list[int]) -> str:
    if len(numbers) == 1:
        return f"line {numbers[0]}"
    return f"lines {', '.join(map(str, numbers[:-1]))} and {numbers[-1]}"
