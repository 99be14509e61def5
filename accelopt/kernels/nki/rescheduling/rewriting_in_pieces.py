"""Kernels by schedule of what lifts only in pieces: each piece by the fastest nests of its own, the rest as
its author wrote it."""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from accelopt.caches import VerdictCache, package_key
from accelopt.kernels.nki.arguments import ParameterFacts
from accelopt.kernels.nki.devices.protocol import TensorArgument
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.nests.lowering import Interface, lower_part
from accelopt.kernels.nki.nests.nest import Nest
from accelopt.kernels.nki.nests.search import NestSearch, described
from accelopt.kernels.nki.predicted_times import Times, own_processes
from accelopt.kernels.nki.rescheduling.liftable_statements import (
    Opaque,
    Piece,
    Pieces,
    pieces,
    with_pieces,
)
from accelopt.kernels.nki.rescheduling.lifted_kernel import too_large
from accelopt.kernels.nki.rescheduling.scalar_arguments import pinned, plain_arguments
from accelopt.parsing import parse_python
from accelopt.sim.dialects.dialect import Dialect, dialect_of_source
from accelopt.store import content_key

MODULES: Mapping[Dialect, Mapping[str, str]] = {
    "neuronxcc": {"nl": "neuronxcc.nki.language", "nisa": "neuronxcc.nki.isa"},
    "nki": {"nl": "nki.language", "nisa": "nki.isa"},
}
"""What the statements of a nest call modules."""


class Rewritten(NamedTuple):
    """A kernel with some pieces by schedule: `nest` has the stages of all of them."""

    nest: Nest
    sentence: str
    source: str
    predicted_ms: float
    moved_bytes: int


class Found(NamedTuple):
    """The fastest first, and what stays as its author wrote it."""

    kernels: tuple[Rewritten, ...]
    opaque: tuple[Opaque, ...]


def rewritten_in_pieces(
    source: str, path: Path, given: Mapping[str, ParameterFacts], target: str,
    times: Times | None = None, shelf: VerdictCache | None = None,
) -> Found:  # fmt: skip
    """The kernels that the fastest nests of its pieces make of `source`, which lies at `path`: of all of
    them, and of each, or those of one loop, alone. What the search for a piece came to is kept on the `shelf`. Raises NotLifted for a kernel without pieces, KernelFailure for one that
    breaks a rule."""
    plain = plain_arguments(source, given)
    arguments = [what.argument for what in plain.facts.values()]
    program = SimulatedDevice(target).compile(str(path), arguments).program
    found = pieces(program, source)
    dialect = dialect_of_source(source)
    first = [
        f'assert tuple({name}.shape) == {what.shape}, "{name} must be '
        f'{" x ".join(map(str, what.shape))}"'
        for name, what in plain.facts.items()
        if what.shape
    ]
    first += pinned(plain)
    missing = _missing_modules(source, dialect)
    best = [
        [(piece, _fastest(piece, target, dialect, shelf)) for piece in group]
        for _, group in itertools.groupby(found.lifted, lambda one: one.loop or one.statements)
    ]
    whole = [[(p, nest) for p, nest in g if nest] for g in best if all(nest for _, nest in g)]
    chosen = [list(itertools.chain.from_iterable(whole)), *(whole if len(whole) > 1 else ())]
    made = [
        _written(_Text(source, found, first, missing), one, target, dialect)
        for one in chosen
        if one
    ]
    if times is None:
        with own_processes(arguments, target) as own:
            taken = own([kernel.source for kernel in made])
    else:
        taken = times([kernel.source for kernel in made])
    timed = [k._replace(predicted_ms=ms) for k, ms in zip(made, taken, strict=True)]
    right = (kernel for kernel in timed if kernel.predicted_ms < math.inf)
    return Found(tuple(sorted(right, key=lambda kernel: kernel.predicted_ms)), found.opaque)


class _Text(NamedTuple):
    """A module with a kernel in pieces; `first` are lines before its statements, `missing` imports."""

    source: str
    pieces: Pieces
    first: Sequence[str]
    missing: Sequence[str]


def _fastest(
    piece: Piece, target: str, dialect: Dialect, shelf: VerdictCache | None
) -> Nest | None:
    """The nest of a piece that is fastest where the piece is all of a kernel; None where none is right."""
    if too_large(piece.algorithm):
        return None
    key = content_key(piece.algorithm.to_json(), dialect, target, package_key())
    kept = shelf.find_row("pieces", key, list[Nest]) if shelf else None
    if kept is not None:
        return kept[0] if kept else None
    values = [TensorArgument(array.given, array.dtype) for array in piece.algorithm.inputs]
    with own_processes(values, target) as times:
        found = NestSearch(piece.algorithm, Interface(), target, dialect, times=times).run()
    right = found.timed and found.timed[0].latency_ms < math.inf
    nest = found.timed[0].nest if right else None
    if shelf:
        shelf.put_row("pieces", key, list[Nest], [nest] if nest else [])
    return nest


def _written(
    text: _Text, chosen: Sequence[tuple[Piece, Nest]], target: str, dialect: Dialect
) -> Rewritten:
    """The module with some pieces by their nests, not timed yet."""
    taken = {n.id for n in ast.walk(parse_python(text.source)) if isinstance(n, ast.Name)}
    taken |= set(text.pieces.function.parameters)
    taken |= {
        a.name for p in text.pieces.lifted for a in (*p.algorithm.inputs, *p.algorithm.outputs)
    }
    made: list[tuple[Piece, Sequence[str]]] = []
    moved = 0
    for piece, nest in chosen:
        lines, price = lower_part(piece.algorithm, nest, taken, target, dialect)
        made.append((piece, lines))
        moved += price.moved
    source = with_pieces(text.source, text.pieces.function, made, text.first, dialect)
    lines = source.splitlines(keepends=True)
    imports = [n for n in parse_python(source).body if isinstance(n, (ast.Import, ast.ImportFrom))]
    place = imports[-1].end_lineno or 0
    source = "".join([*lines[:place], *(f"{one}\n" for one in text.missing), *lines[place:]])
    nests = [nest for _, nest in chosen]
    kept = sorted({one.source.line for one in text.pieces.opaque})
    said = "; ".join(described(nest).removeprefix("Rewrite: ") for nest in nests)
    if kept:
        said += f"; what stands around line {' and '.join(map(str, kept))} stays as it is"
    stages = tuple(itertools.chain.from_iterable(nest.stages for nest in nests))
    return Rewritten(Nest(stages=stages), f"Rewrite a part: {said}", source, math.inf, moved)


def _missing_modules(source: str, dialect: Dialect) -> list[str]:
    """The imports that the statements of a nest need and a module does not have. Raises NotLifted where
    it calls something else by one of their names."""
    bound: dict[str, str] = {}
    for statement in parse_python(source).body:
        if isinstance(statement, ast.Import):
            bound |= {a.asname or a.name.split(".")[0]: a.name for a in statement.names}
        elif isinstance(statement, ast.ImportFrom):
            bound |= {a.asname or a.name: f"{statement.module}.{a.name}" for a in statement.names}
    wrong = [name for name, module in MODULES[dialect].items() if bound.get(name, module) != module]
    if wrong:
        raise NotLifted(f"its module calls {bound[wrong[0]]} {wrong[0]}")
    return [f"import {m} as {n}" for n, m in MODULES[dialect].items() if n not in bound]
