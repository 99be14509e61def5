"""What a program asks of all its rows, asked of its first or its last query, where that is the same."""

from __future__ import annotations

import ast
import copy
from itertools import pairwise
from typing import NamedTuple

from accelopt.kernels.triton.moves.loops import Renamed, bodies, fresh_name
from accelopt.kernels.triton.moves.source import (
    HEADS,
    QUERIES,
    called,
    names_in,
    target_of,
)
from accelopt.parsing import parse_expression, parse_python


def ask_edges(node: ast.FunctionDef) -> None:
    """Take the last or the first query of a program in the place of a maximum or a minimum over rows.

    Before, as `queries_together` and `find_sequence` write it: `q = f + r // HEADS_TOGETHER`, a
    search of the offsets for each row, the largest and the smallest of what it finds, a turn for
    each sequence with `found == s` as its mask, and `tl.max(p + q - b + 1, axis=0)`. After: searches
    for the first and the last query, a turn for each sequence between the two with `(q >=
    offsets[s]) & (q < offsets[s + 1])`, and `p + (f + QUERIES_TOGETHER - 1) - b + 1`. A reduction
    over rows takes shuffles and barriers, one behind the other before the first load that is found
    by it, and a search for each row as many loads as rows. What is of another form stays.
    """
    rows = _Rows.read(node)
    if rows is not None:
        rows.search_edges()
        _Edges(rows).visit(node)


class _Edges(ast.NodeTransformer):
    """Puts the value at an edge in the place of reductions."""

    def __init__(self, rows: _Rows) -> None:
        self.rows = rows

    def visit_Call(self, node: ast.Call) -> ast.expr:
        """One call."""
        self.generic_visit(node)
        number = self.rows.of_edge(node) if called(node) in ("tl.max", "tl.min") else None
        return node if number is None else number


class _Rows:
    """The rows of a program: `query` of each row, from the number `first` on."""

    def __init__(self, node: ast.FunctionDef, query: str, first: str) -> None:
        self.node, self.query, self.first = node, query, first
        self.made: dict[str, list[ast.expr]] = {}
        for statement in ast.walk(node):
            if isinstance(statement, ast.Assign) and (name := target_of(statement)) is not None:
                self.made.setdefault(name, []).append(statement.value)

    @classmethod
    def read(cls, node: ast.FunctionDef) -> _Rows | None:
        """The rows as `queries_together` numbers them."""
        for statement in node.body:
            name = target_of(statement)
            text = ast.unparse(statement.value) if isinstance(statement, ast.Assign) else ""
            first, plus, row = text.partition(" + ")
            if name is not None and plus and row.endswith(f" // {HEADS}") and first.isidentifier():
                rows = cls(node, name, first)
                numbered = rows.made.get(row.removesuffix(f" // {HEADS}"), [])
                if [ast.unparse(v) for v in numbered] == [f"tl.arange(0, {QUERIES} * {HEADS})"]:
                    return rows
        return None

    def edge(self, largest: bool) -> str:
        """The number of the last or the first query, as text."""
        return f"{self.first} + ({QUERIES} - 1)" if largest else self.first

    def of_edge(self, call: ast.Call) -> ast.expr | None:
        """The value of a reduction over rows of a sum in which a row's query counts as it is."""
        axes = [ast.unparse(a) for a in (*call.args[1:], *(k.value for k in call.keywords))]
        value = self._opened(copy.deepcopy(call.args[0]), set())
        if axes != ["0"] or value is None or not self._counts(value):
            return None
        edge = parse_expression(self.edge(called(call) == "tl.max"))
        return Renamed({}, {self.query: edge}).visit(value)  # type: ignore[no-any-return]

    def _opened(self, value: ast.expr, opened: set[str]) -> ast.expr | None:
        """A sum with what its vectors are made of in their place, down to the query."""
        for name in names_in(value) - {self.query}:
            if not self._is_row(name, set()):
                continue
            made = self.made.get(name, [])
            if len(made) != 1 or name in opened:
                return None
            value = Renamed({}, {name: made[0]}).visit(value)
            return self._opened(value, opened | {name})
        return value

    def _is_row(self, name: str, seen: set[str]) -> bool:
        """Whether a name has a value for each row."""
        if name == self.query:
            return True
        values = self.made.get(name, []) if name not in seen else []
        return any(
            "tl.arange" in ast.unparse(v)
            or any(self._is_row(n, seen | {name}) for n in _read_as_rows(v))
            for v in values
        )

    def _counts(self, value: ast.expr) -> bool:
        """Whether a sum has the query once, and not to be taken away."""
        if isinstance(value, ast.Name):
            return value.id == self.query
        if isinstance(value, ast.BinOp) and isinstance(value.op, (ast.Add, ast.Sub)):
            left, right = self._mentions(value.left), self._mentions(value.right)
            if left and not right:
                return self._counts(value.left)
            return (
                right and not left and isinstance(value.op, ast.Add) and self._counts(value.right)
            )
        return False

    def _mentions(self, value: ast.expr) -> bool:
        return self.query in names_in(value) or "tl.arange" in ast.unparse(value)

    def found(self, call: ast.expr) -> str | None:
        """What a search found, in `tl.max(tl.where(inside, found, other), axis=0)`."""
        chosen = call.args[0] if isinstance(call, ast.Call) else None
        if not isinstance(chosen, ast.Call) or len(chosen.args) != 3:
            return None
        inside, value = chosen.args[:2]
        text = ast.unparse(self.made.get(ast.unparse(inside), [inside])[0])
        if not text.startswith(f"{self.query} < "):
            return None
        while isinstance(value, ast.Name) and len(made := self.made.get(value.id, [])) == 1:
            function = made[0].func if isinstance(made[0], ast.Call) else None
            is_cast = isinstance(function, ast.Attribute) and function.attr == "to"
            value = function.value if is_cast else made[0]  # type: ignore[union-attr]
        return value.id if isinstance(value, ast.Name) else None

    def search_edges(self) -> None:
        """Makes searches for all rows searches for the first and the last query."""
        for body in bodies(self.node):
            for place, loop in enumerate(body):
                if isinstance(loop, ast.While):
                    turns = _Turns.read(body[:place], loop, self)
                    if turns is not None:
                        turns.rewrite(body)
                        return


class _Turns(NamedTuple):
    """A turn for each sequence of a program's rows, as `queries_together` writes it.

    `largest` and `smallest` are the statements that ask all rows for their sequences, `inside` the
    one that masks the rows of others, `following` the one that goes on, `begin` and `steps` the
    search; `here` is the name of a row's query in a turn.
    """

    rows: _Rows
    largest: ast.Assign
    smallest: ast.Assign
    inside: ast.Assign
    following: ast.Assign
    begin: ast.Assign
    steps: ast.For
    here: str

    @classmethod
    def read(cls, before: list[ast.stmt], loop: ast.While, rows: _Rows) -> _Turns | None:
        """The turns of a loop, where it is of that form."""
        asked = [
            s
            for s in before
            if isinstance(s, ast.Assign)
            and ast.unparse(s.value).startswith(("tl.max(tl.where(", "tl.min(tl.where("))
        ]
        if len(asked) != 2 or not isinstance(loop.test, ast.Compare):
            return None
        sequence, end = ast.unparse(loop.test.left), ast.unparse(loop.test.comparators[0])
        largest, smallest = asked
        found = rows.found(largest.value)
        search = None if found is None else _search_of(before, found)
        if (target_of(largest), target_of(smallest)) != (end, sequence) or search is None:
            return None
        of_row = _chosen(largest.value)
        inside = [s for s in loop.body if ast.unparse(s).endswith(f" & ({of_row} == {sequence})")]
        next_one = (
            f"{sequence} = tl.min(tl.where({of_row} > {sequence}, {of_row}, {end} + 1), axis=0)"
        )
        following = [s for s in loop.body if ast.unparse(s) == next_one]
        here = [
            str(target_of(s))
            for s in loop.body
            if ast.unparse(s).startswith(f"{target_of(s)} = {rows.query} + tl.minimum(")
        ]
        if not (len(inside) == len(following) == len(here) == 1):
            return None
        return cls(rows, largest, smallest, inside[0], following[0], *search, here[0])  # type: ignore[arg-type]

    def rewrite(self, body: list[ast.stmt]) -> None:
        """Asks the first and the last query in the place of all rows."""
        for statement, which in ((self.largest, "last"), (self.smallest, "first")):
            lines, statement.value = self._searched(which)
            place = body.index(self.steps)
            body[place:place] = lines
        sequence, test = str(target_of(self.smallest)), self.inside.value
        assert isinstance(test, ast.BinOp)
        load = next(n for n in ast.walk(self.steps) if called(n) == "tl.load")
        assert isinstance(load, ast.Call) and isinstance(load.args[0], ast.BinOp)
        offsets = ast.unparse(load.args[0].left)
        self.inside.value = parse_expression(
            f"{ast.unparse(test.left)} & ({self.here} >= tl.load({offsets} + {sequence}))"
            f" & ({self.here} < tl.load({offsets} + {sequence} + 1))"
        )
        self.following.value = parse_expression(f"{sequence} + 1")
        body.remove(self.begin)
        body.remove(self.steps)
        unread = [s for s in body if isinstance(s, ast.Assign) and self._is_unread(s)]
        body[:] = [s for s in body if s not in unread]

    def _is_unread(self, statement: ast.Assign) -> bool:
        """Whether nothing reads what was made of the search for each row."""
        name, found = target_of(statement), str(target_of(self.begin))
        reads = (n.id for n in ast.walk(self.rows.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))  # fmt: skip
        return found in names_in(statement.value) and name not in set(reads)

    def _searched(self, which: str) -> tuple[list[ast.stmt], ast.expr]:
        """The search for an edge, and its result."""
        rows, (position,) = self.rows, names_in(self.begin.value)
        own = {str(target_of(s)) for s in self.steps.body} | {position}
        names = {name: fresh_name(f"{name}_{which}", rows.node) for name in own}
        edge = Renamed({}, {rows.query: parse_expression(rows.edge(which == "last"))})
        number = ast.unparse(edge.visit(copy.deepcopy(rows.made[position][0])))
        lines = parse_python(f"{names[position]} = {number}").body
        lines += [Renamed(names, {}).visit(copy.deepcopy(s)) for s in (self.begin, self.steps)]
        return lines, ast.Name(names[str(target_of(self.begin))], ast.Load())


def _chosen(call: ast.expr) -> str:
    """`v` of `tl.max(tl.where(inside, v, other), axis=0)`."""
    assert isinstance(call, ast.Call) and isinstance(call.args[0], ast.Call)
    return ast.unparse(call.args[0].args[1])


def _search_of(body: list[ast.stmt], found: str) -> tuple[ast.Assign, ast.For] | None:
    """The beginning and the steps of a search as `find_sequence` writes it."""
    for begin, steps in pairwise(body):
        if (
            isinstance(begin, ast.Assign)
            and target_of(begin) == found
            and isinstance(steps, ast.For)
            and called(steps.iter) == "tl.static_range"
            and target_of(steps.body[-1]) == found
        ):
            return begin, steps
    return None


def _read_as_rows(value: ast.expr) -> set[str]:
    """The names that an expression reads outside of reductions and loads by number."""
    if isinstance(value, ast.Call) and called(value) in ("tl.max", "tl.min", "tl.sum"):
        return set()
    found = {value.id} if isinstance(value, ast.Name) else set()
    for part in ast.iter_child_nodes(value):
        if isinstance(part, (ast.expr, ast.keyword)):
            found |= _read_as_rows(part.value if isinstance(part, ast.keyword) else part)
    return found
