"""Pieces of a kernel that does not lift as a whole: runs of its function's statements that write arrays in
HBM and lift by themselves, and what the first statements of a loop's body do in all of its iterations. Each
is scheduled by itself; all other lines stay as their author wrote them.

A run of statements is closed: what it leaves on the chip, and the names that it binds, no other statement
reads, and no other one writes its arrays. Of a loop that is taken apart, the tiles that its first statements
leave for the others go through arrays in HBM, a part for each iteration.
"""

from __future__ import annotations

import ast
import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from accelopt.algorithm.ir import Algorithm, Read, expressions_of, with_names
from accelopt.algorithm.linear import row_major
from accelopt.kernels.nki.kernel_function import KernelFunction, NoKernel, traced_function
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.lift.lifting import lift
from accelopt.parsing import parse_python
from accelopt.sim.access import Access
from accelopt.sim.affine import Affine
from accelopt.sim.dialects.dialect import Dialect
from accelopt.sim.dtypes import is_float, name_of
from accelopt.sim.errors import SourceLine
from accelopt.sim.isa.movement import transfer
from accelopt.sim.program import Buffer, Instruction, Loop, Program, ProgramNode, Tensor
from accelopt.time_limits import LIFT_SECONDS

PLACES = ("ndarray", "zeros", "arange")
"""What makes arrays, tiles and positions of them, without an instruction."""


class HandedOn(NamedTuple):
    """A tile of a loop's body, by the author's name, and the array in HBM that has it for each iteration:
    `shape` without the iterations, `variable` the loop's; `declared` where a statement that stays makes
    the tile, `copied` where the loop brings it or stores it."""

    name: str
    array: str
    iterations: int
    shape: tuple[int, ...]
    dtype: str
    variable: str
    declared: bool
    copied: bool = True


class Piece(NamedTuple):
    """Statements of a kernel's function, by number, and what they compute; its arrays have the author's
    names. Of a `loop`, a statement's number, the statements `inside` are meant, `early` before all others
    of its body or after them, and the tiles that are handed on between both."""

    statements: tuple[int, ...]
    algorithm: Algorithm
    loop: int | None = None
    inside: tuple[int, ...] = ()
    handed_on: tuple[HandedOn, ...] = ()
    early: bool = True


class Part(NamedTuple):
    """A piece of a loop, and where its tiles are."""

    piece: Piece
    handed: Mapping[Tensor, HandedOn]


class Opaque(NamedTuple):
    """Statements that stay as their author wrote them, with the arrays in HBM that they take and give,
    and the sentence that says why they have no algorithm."""

    statements: tuple[int, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    reason: str
    source: SourceLine


class Pieces(NamedTuple):
    """A kernel in pieces, in their order; `function` has the statements."""

    function: KernelFunction
    lifted: tuple[Piece, ...]
    opaque: tuple[Opaque, ...]


def pieces(program: Program, source: str, seconds: float = LIFT_SECONDS) -> Pieces:
    """A kernel that does not lift in pieces, as large as they lift. Raises NotLifted where it has no
    closed pieces, or where none of them lifts."""
    try:
        function = traced_function(source, program.source.line)
    except NoKernel as error:
        raise NotLifted(str(error)) from None
    kernel = _Statements(program, function, time.monotonic() + seconds)
    lifted: list[Piece] = []
    opaque: list[Opaque] = []
    waiting = kernel.closed()
    done = 0
    while done < len(waiting):
        best: Piece | None = None
        first: NotLifted | None = None
        for end in range(len(waiting), done, -1):  # the longest run that lifts
            run = tuple(n for part in waiting[done:end] for n in part)
            try:
                best = kernel.piece(run)
                break
            except NotLifted as refusal:
                first = refusal
        if best is None:
            assert first is not None
            inside, left = kernel.parts_of_loop(waiting[done])
            sides = []
            for early, arrays in zip((True, False), kernel.arrays(waiting[done]), strict=True):
                handed = (
                    h.array for p in inside if p.early == early for h in p.handed_on if h.copied
                )
                sides.append((*handed, *filter(None, map(kernel.name, left.intersection(arrays)))))
            lifted += inside
            opaque.append(Opaque(waiting[done], sides[0], sides[1], first.reason, first.source))
            done += 1
        else:
            lifted.append(best)
            done = end
    if not lifted:
        raise NotLifted("no part of it stands alone and lifts", opaque[0].source)
    return Pieces(function, tuple(lifted), tuple(opaque))


class _Statements:
    """The statements of a kernel's function and the nodes of its Program that each of them made."""

    def __init__(self, program: Program, function: KernelFunction, end: float) -> None:
        self.program = program
        self.end = end
        self.body = function.definition.body
        self.parameters = function.parameters
        self.nodes: dict[int, list[ProgramNode]] = {}
        for node in program.body:
            self.nodes.setdefault(self._statement(node), []).append(node)
        self.read = {n: _tensors(nodes, "inputs") for n, nodes in self.nodes.items()}
        self.written = {n: _tensors(nodes, "outputs") for n, nodes in self.nodes.items()}

    def _statement(self, node: ProgramNode) -> int:
        lines = {i.source.line for i in _instructions([node])}
        found = {n for n, s in enumerate(self.body) if any(_stands_in(line, s) for line in lines)}
        if len(found) != 1 or not all(_stands_in(line, self.body[min(found)]) for line in lines):
            raise NotLifted("its instructions stand in several functions or loops", node.source)
        return found.pop()

    def closed(self) -> list[tuple[int, ...]]:
        """The least runs of statements that leave no tile and no name for others."""
        statements = sorted(self.nodes)
        runs: list[tuple[int, ...]] = []
        start = 0
        for end in range(1, len(statements) + 1):
            run, rest = statements[start:end], statements[end:]
            left = {t for n in run for t in self.written[n] if t.buffer.on_chip}
            bound = {name for n in run for name in _bound(self.body[n])}
            later = {t for n in rest for t in (*self.read[n], *self.written[n])}
            if left.isdisjoint(later) and bound.isdisjoint(self._open_names(run)):
                runs.append(tuple(run))
                start = end
        return runs

    def _open_names(self, run: Sequence[int]) -> set[str]:
        """The names that statements after or within a run, not of it, read before they bind them."""
        return _open(s for n, s in enumerate(self.body) if n > run[0] and n not in run)

    def arrays(self, run: Sequence[int]) -> tuple[list[Tensor], list[Tensor]]:
        """The arrays in HBM that statements take and those that they give to others."""
        inside = {t: None for n in run for t in self.written[n] if not t.buffer.on_chip}
        taken = {t: None for n in run for t in self.read[n] if not t.buffer.on_chip}
        others = {t for n in self.nodes if n not in run for t in self.read[n]}
        given = [t for t in inside if t in others or t in self.program.results]
        return [t for t in taken if t not in inside and t.data is None], given

    def name(self, tensor: Tensor) -> str:
        """The author's name of an array in HBM; empty where it has none that always means it."""
        bindings = [name for statement in self.body for name in _stores(statement)]
        if tensor in self.program.arguments:
            return tensor.name if tensor.name not in bindings else ""
        for statement in self.body:
            if _stands_in(tensor.source.line, statement) and isinstance(statement, ast.Assign):
                target = statement.targets[0]
                if isinstance(target, ast.Name) and bindings.count(target.id) == 1:
                    calls = [n for n in ast.walk(statement.value) if isinstance(n, ast.Call)]
                    alone = len(calls) == 1 and calls[0] is statement.value
                    return target.id if alone and len(statement.targets) == 1 else ""
        return ""

    def piece(self, run: tuple[int, ...]) -> Piece:
        """What a run of statements computes. Raises NotLifted."""
        taken, given = self.arrays(run)
        source = self.nodes[run[0]][0].source
        others = {t for n in self.nodes if n not in run for t in self.written[n]}
        if not given:
            raise NotLifted("nothing reads what it writes", source)
        if others & {*given}:
            raise NotLifted("other statements write the same array", source)
        if {*given} & {*self.program.arguments}:
            raise NotLifted("it writes into an argument", source)
        names = [self.name(tensor) for tensor in (*taken, *given)]
        if not all(names):
            raise NotLifted("an array that it takes or gives has no name that is its own", source)
        part = replace(
            self.program, arguments=tuple(taken), results=tuple(given), result_shapes=(),
            body=tuple(node for n in run for node in self.nodes[n]),
        )  # fmt: skip
        found = lift(part, max(self.end - time.monotonic(), 0.0))
        arrays = [array.name for array in (*found.inputs, *found.outputs)]
        inner = {d.out for d in found.definitions} - set(arrays)
        if inner & set(names):
            raise NotLifted(f"{min(inner & set(names))} is a name of an array and of a sum", source)
        return Piece(run, with_names(found, dict(zip(arrays, names, strict=True))))

    # Loops that are taken apart.

    def parts_of_loop(self, run: tuple[int, ...]) -> tuple[list[Piece], set[Tensor]]:
        """What the first and the last statements of the body of a run's last one do, a loop, each as many
        as lift; none where that are none, or where they are not apart from the others. And the tensors
        that the run's other statements use."""
        loop = self.body[run[-1]]
        every = {t for n in run for t in (*self.read[n], *self.written[n])}
        if not isinstance(loop, ast.For) or not isinstance(loop.target, ast.Name):
            return [], every
        plain = isinstance(loop.iter, ast.Call) and len(loop.iter.args) == 1
        made = self._made_by(loop.body, self.nodes[run[-1]])
        if not plain or loop.orelse or made is None:
            return [], every
        order = sorted(made)
        first: Part | None = None
        last: Part | None = None
        for count in range(len(order) - 1, 0, -1):
            with contextlib.suppress(NotLifted):
                first = self._part(run, loop, order[:count], made, {})
                break
        done = len(first.piece.inside) if first else 0
        for begin in range(done + 1, len(order)):
            with contextlib.suppress(NotLifted):
                handed = first.handed if first else {}
                last = self._part(run, loop, order[begin:], made, handed, early=False)
                break
        inside = [n for part in (first, last) if part for n in part.piece.inside]
        used = set(
            _tensors([i for n in made if n not in inside for i in made[n]], "inputs", "outputs")
        )
        if first:
            needed = {first.handed[tile].array for tile in used if tile in first.handed}
            handed_on = (h._replace(copied=h.array in needed) for h in first.piece.handed_on)
            first = first._replace(piece=first.piece._replace(handed_on=tuple(handed_on)))
        found = [part.piece for part in (first, last) if part]
        stay = [n for n in run[:-1] if not any(n in piece.statements for piece in found)]
        used |= {t for n in stay for t in (*self.read[n], *self.written[n])}
        return found, used if found else every

    def _made_by(
        self, body: Sequence[ast.stmt], nodes: Sequence[ProgramNode]
    ) -> dict[int, list[Instruction]] | None:
        """The instructions of each statement of a loop's body; None where one stands elsewhere."""
        made: dict[int, list[Instruction]] = {}
        for instruction in _instructions(nodes):
            line = instruction.source.line
            found = [n for n, statement in enumerate(body) if _stands_in(line, statement)]
            if len(found) != 1:
                return None
            made.setdefault(found[0], []).append(instruction)
        return made

    def _part(
        self, run: tuple[int, ...], loop: ast.For, inside: Sequence[int],
        made: Mapping[int, list[Instruction]], known: Mapping[Tensor, HandedOn], early: bool = True,
    ) -> Part:  # fmt: skip
        """The piece of some statements of a loop's body, before (`early`) or after all others; `known`
        tiles are in arrays already. Raises NotLifted."""
        whole = self.nodes[run[-1]]
        source = whole[0].source
        before = [node for n in run[:-1] for node in self.nodes[n]]
        chosen = {i for n in inside for i in made[n]}
        nodes = [node for node in (_only(n, chosen) for n in whole) if node]
        own, left = _tensors(nodes, "inputs", "outputs"), _tensors(nodes, "outputs")
        kept = [i for n in made if n not in inside for i in made[n]]
        theirs, written = _tensors(kept, "inputs", "outputs"), _tensors(kept, "outputs")
        if early:
            shared = [t for t in written if t in own]
            tiles = [t for t in left if t.buffer.on_chip and t in theirs]
        else:
            shared = [
                t for t in (*written, *left) if t in own and t in theirs and not t.buffer.on_chip
            ]
            shared += [t for t in left if t.buffer.on_chip and t in theirs and t not in written]
            tiles = [t for t in own if t.buffer.on_chip and t in written]
        if shared:
            raise NotLifted("statements of the loop use what others write", source)
        handed = {t: known.get(t) or self._handed_on(loop, inside, t, early) for t in tiles}
        handed = {t: h._replace(copied=t not in known) for t, h in handed.items()}
        names = {name for n in inside for name in _bound(loop.body[n])}
        asked = _open([s for n, s in enumerate(loop.body) if n not in inside]) | self._open_names(
            run
        )
        if names & asked - ({one.name for one in handed.values()} if early else set()):
            raise NotLifted("statements of the loop bind names that others read", source)
        nodes, arrays = _with_copies(whole, nodes, handed, early)
        taken, given = self.arrays(run)
        given = [t for t in given if t in left]
        taken = [t for t in taken if t in own or t in _tensors(before, "inputs")]
        if {*given} & {*self.program.arguments, *_tensors(before, "outputs")}:
            raise NotLifted("it writes into what is there before", source)
        if not all(map(self.name, (*taken, *given))):
            raise NotLifted("an array that it takes or gives has no name that is its own", source)
        inputs, outputs = (taken, [*given, *arrays]) if early else ([*taken, *arrays], given)
        if not outputs:
            raise NotLifted("nothing reads what it writes", source)
        part = replace(
            self.program, arguments=tuple(inputs), results=tuple(outputs), result_shapes=(),
            body=(*before, *nodes), tensors=(*self.program.tensors, *arrays),
        )  # fmt: skip
        found = lift(part, max(self.end - time.monotonic(), 0.0))
        if all(isinstance(e, Read) for d in found.definitions for e in expressions_of(d)):
            raise NotLifted("its statements compute nothing", source)
        lifted = [array.name for array in (*found.inputs, *found.outputs)]
        wanted = [t.name if t in arrays else self.name(t) for t in (*inputs, *outputs)]
        idle = tuple(
            n for n in run[:-1]
            if all(t.buffer.on_chip and t not in theirs for t in self.written[n])
            and not _bound(self.body[n]) & asked
        )  # fmt: skip
        renamed = with_names(found, dict(zip(lifted, wanted, strict=True)))
        handed_on = tuple(dict.fromkeys(handed.values()))
        return Part(Piece(idle, renamed, run[-1], tuple(inside), handed_on, early), handed)

    def _handed_on(
        self, loop: ast.For, inside: Sequence[int], tile: Tensor, early: bool
    ) -> HandedOn:
        """The array for a tile that statements of a loop's body leave for others. Raises NotLifted where
        the tile has no name, or does not go through HBM as it is."""
        assert isinstance(loop.target, ast.Name)
        at = [n for n, s in enumerate(loop.body) if _stands_in(tile.source.line, s)]
        statement = loop.body[at[0]] if len(at) == 1 else None
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        if not isinstance(target, ast.Name) or tile.block_rank:
            raise NotLifted("a tile that is handed on has no name, or blocks", tile.source)
        if early and not is_float(tile.dtype):
            raise NotLifted("a tile that is handed on is no float", tile.source)
        declared = at[0] not in inside
        if tile.buffer == Buffer.PSUM and (declared if early else self.program.dialect == "nki"):
            raise NotLifted("a tile that is handed on lies in PSUM", tile.source)
        taken = {name for s in self.body for name, _ in _events(s)}
        array = f"{target.id}_of_all"
        while array in taken:
            array += "_"
        count, shape = len(self._alike(tile)), tile.tile_shape
        dtype = name_of(tile.dtype)
        return HandedOn(target.id, array, count, shape, dtype, loop.target.id, declared)

    def _alike(self, tile: Tensor) -> range:
        """The iterations of the loop in which a tile is made; of one that was unrolled each has its own."""
        for node in self.program.body:
            if isinstance(node, Loop) and tile in node.tensors:
                if (node.variable.start, node.variable.step) != (0, 1):
                    raise NotLifted("a loop does not count from 0 by 1", node.source)
                return range(node.variable.trips)
        tensors = [t for t in self.program.all_tensors() if t.source == tile.source]
        shapes = [
            t
            for t in tensors
            if (t.shape, t.dtype, t.buffer) == (tile.shape, tile.dtype, tile.buffer)
        ]
        if len(tensors) != len(shapes):
            raise NotLifted("a line makes several tiles in each iteration", tile.source)
        return range(len(tensors))


def _only(node: ProgramNode, chosen: set[Instruction]) -> ProgramNode | None:
    """A node with the chosen instructions alone; None where it has none."""
    if isinstance(node, Instruction):
        return node if node in chosen else None
    body = tuple(found for found in (_only(n, chosen) for n in node.body) if found)
    return replace(node, body=body) if body else None


def _with_copies(
    whole: Sequence[ProgramNode], nodes: list[ProgramNode], handed: Mapping[Tensor, HandedOn],
    early: bool,
) -> tuple[list[ProgramNode], list[Tensor]]:  # fmt: skip
    """The nodes of some statements of a loop with copies of the tiles that are handed on, `early` ones to
    arrays and others from there; and the arrays."""
    arrays = {
        one.array: Tensor(-1 - n, one.array, (one.iterations, *one.shape), tile.dtype, Buffer.HBM)
        for n, (tile, one) in enumerate(handed.items())
    }
    places: dict[str, int] = {}
    copies: list[Instruction] = []
    loop = whole[0]
    rolled = isinstance(loop, Loop) and {*handed} <= {*loop.tensors}
    for tile, one in sorted(handed.items(), key=lambda pair: pair[0].id):
        place = places[one.array] = places.get(one.array, -1) + 1
        size = math.prod(one.shape)
        start = Affine(place * size)
        if isinstance(loop, Loop) and rolled:
            start = Affine(0, ((loop.variable, size),))
        strides = row_major(one.shape)
        ends = [
            Access(arrays[one.array], one.shape, (), start, strides, tile.dtype),
            Access(tile, one.shape, (), Affine(0), strides, tile.dtype),
        ]
        into, data = ends if early else ends[::-1]
        copies.append(transfer(into, data, tile.source))
    if any(places[h.array] + 1 != h.iterations for h in handed.values() if not rolled):
        raise NotLifted("a tile that is handed on is not made in each iteration", loop.source)
    if rolled:
        assert isinstance(nodes[0], Loop)
        body = (*nodes[0].body, *copies) if early else (*copies, *nodes[0].body)
        return [replace(nodes[0], body=body)], list(arrays.values())
    return [*nodes, *copies] if early else [*copies, *nodes], list(arrays.values())


def with_pieces(
    source: str, function: KernelFunction, made: Sequence[tuple[Piece, Sequence[str]]],
    first: Sequence[str], dialect: Dialect = "neuronxcc",
) -> str:  # fmt: skip
    """The module with lines in the place of pieces of its kernel, and others before all of the kernel's
    statements. What was on other lines stays as it is."""
    lines = source.splitlines(keepends=True)
    body = function.definition.body

    def written(texts: Sequence[str], beside: ast.stmt) -> list[str]:
        indent = " " * beside.col_offset
        return [f"{indent}{text}\n" if text else "\n" for text in texts]

    top = body[1] if ast.get_docstring(function.definition) and len(body) > 1 else body[0]
    changes = [(top.lineno - 1, top.lineno - 1, written(first, top))]

    def change(statement: ast.stmt, texts: Sequence[str]) -> None:
        changes.append((statement.lineno - 1, statement.end_lineno or 0, written(texts, statement)))

    for piece, texts in made:
        for number in piece.statements:
            last = piece.loop is None and number == piece.statements[-1]
            change(body[number], texts if last else [])
        loop = body[piece.loop] if piece.loop is not None else None
        if isinstance(loop, ast.For):
            new = [_declaration(one) for one in piece.handed_on if piece.early or one.copied]
            handed = [one for one in piece.handed_on if one.copied]
            copies = [line for one in handed for line in _copy(one, dialect, piece.early)]
            above, below = ([*new, *texts], []) if piece.early else (new, texts)
            changes.append((loop.lineno - 1, loop.lineno - 1, written(above, loop)))
            end_line = loop.end_lineno or 0
            changes.append((end_line, end_line, written(below, loop)))
            place = piece.inside[-1 if piece.early else 0]
            for number in piece.inside:
                change(loop.body[number], copies if number == place else [])
    for begin, stop, new in sorted(changes, key=lambda change: change[:2], reverse=True):
        lines[begin:stop] = new
    return _without_idle_declarations("".join(lines), function)


def _without_idle_declarations(text: str, before: KernelFunction) -> str:
    """The module without the statements that name sizes, positions, arrays and tiles which nothing reads
    any more."""
    read = {name for s in before.definition.body for name, bound in _events(s) if not bound}
    tree = parse_python(text)
    function = next(n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef)
                    and n.name == before.definition.name)  # fmt: skip
    now = {name for s in function.body for name, bound in _events(s) if not bound}
    lines = text.splitlines(keepends=True)
    idle = []
    for statement in ast.walk(function):
        if isinstance(statement, ast.Assign):
            calls = [n.func for n in ast.walk(statement.value) if isinstance(n, ast.Call)]
            pure = all(isinstance(c, ast.Attribute) and c.attr in PLACES for c in calls)
            if pure and _bound(statement) and _bound(statement) <= read - now:
                idle.append(statement)
    for statement in sorted(idle, key=lambda statement: -statement.lineno):
        del lines[statement.lineno - 1 : statement.end_lineno]
    return _without_idle_declarations("".join(lines), before) if idle else text


def _declaration(one: HandedOn) -> str:
    shape = (one.iterations, *one.shape)
    return f"{one.array} = nl.ndarray({shape}, dtype=nl.{one.dtype}, buffer=nl.private_hbm)"


def _copy(one: HandedOn, dialect: Dialect, load: bool) -> Iterator[str]:
    """The statements that bring an iteration's tile, or store it."""
    if dialect == "nki":
        if load and not one.declared:
            yield f"{one.name} = nl.ndarray({one.shape}, dtype=nl.{one.dtype}, buffer=nl.sbuf)"
        part = f"{one.array}[{', '.join([one.variable, *(':' for _ in one.shape)])}]"
        into, data = (one.name, part) if load else (part, one.name)
        yield f"nisa.dma_copy(dst={into}, src={data})"
        return
    part = f"{one.array}[{', '.join([one.variable, *(f'0:{size}' for size in one.shape)])}]"
    yield (
        f"{one.name}{'[...]' if one.declared else ''} = nl.load({part})"
        if load
        else f"nl.store({part}, {one.name})"
    )


# Names and nodes.


def _stands_in(line: int, statement: ast.stmt) -> bool:
    return statement.lineno <= line <= (statement.end_lineno or statement.lineno)


def _instructions(nodes: Iterable[ProgramNode]) -> Iterator[Instruction]:
    for node in nodes:
        if isinstance(node, Loop):
            yield from _instructions(node.body)
        else:
            yield node


def _tensors(nodes: Iterable[ProgramNode], *sides: str) -> dict[Tensor, None]:
    """The tensors that nodes read (`inputs`, run-time indices among them) or write (`outputs`)."""
    found: dict[Tensor, None] = {}
    for instruction in _instructions(nodes):
        inputs, outputs = instruction.inputs.values(), instruction.outputs.values()
        if "inputs" in sides:
            found |= {access.tensor: None for access in inputs}
            found |= {i.index.tensor: None for a in (*inputs, *outputs) for i in a.indirect}
        if "outputs" in sides:
            found |= {access.tensor: None for access in outputs}
    return found


def _events(node: ast.AST) -> Iterator[tuple[str, bool]]:
    """Names in the order in which they are evaluated, and whether they are bound."""
    if isinstance(node, ast.Name):
        yield node.id, not isinstance(node.ctx, ast.Load)
        return
    if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name):
        yield node.target.id, False
    parts: Iterable[ast.AST] = ast.iter_child_nodes(node)
    if isinstance(node, ast.Assign):
        parts = (node.value, *node.targets)
    elif isinstance(node, ast.For):
        parts = (node.iter, node.target, *node.body, *node.orelse)
    elif isinstance(node, (ast.ListComp, ast.GeneratorExp, ast.SetComp)):
        parts = (*(p for g in node.generators for p in (g.iter, g.target, *g.ifs)), node.elt)
    elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        yield node.name, True
    for part in parts:
        yield from _events(part)


def _stores(statement: ast.stmt) -> list[str]:
    return [name for name, bound in _events(statement) if bound]


def _bound(statement: ast.stmt) -> set[str]:
    return set(_stores(statement))


def _open(statements: Iterable[ast.stmt]) -> set[str]:
    """The names that statements read before they bind them."""
    found: set[str] = set()
    bound: set[str] = set()
    for statement in statements:
        for name, is_bound in _events(statement):
            if is_bound:
                bound.add(name)
            elif name not in bound:
                found.add(name)
    return found
