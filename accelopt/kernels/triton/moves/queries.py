"""Several queries, with all heads that read the same keys, in one program."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping
from functools import reduce
from itertools import product

from accelopt.hardware.gpus import DEFAULT_GPU, GPUS
from accelopt.kernels.triton.moves.ends import CommonEnds, common_ends
from accelopt.kernels.triton.moves.heads import (
    Coordinate,
    coordinates,
    divided,
    is_asked_once,
    leaves,
    number_of_heads,
    quotient,
)
from accelopt.kernels.triton.moves.knobs import constant_value
from accelopt.kernels.triton.moves.lanes import Lanes, NotLaned, RankedExpression
from accelopt.kernels.triton.moves.loops import Renamed, fresh_name, stepped_by_tiles
from accelopt.kernels.triton.moves.masks import conjuncts
from accelopt.kernels.triton.moves.source import (
    HEADS,
    QUERIES,
    Launch,
    Source,
    add_parameter,
    assigned_in,
    called,
    grid_sizes,
    names_in,
    relaunched,
)
from accelopt.parsing import parse_python

COUNT = f"{QUERIES} * {HEADS}"
ROWS = GPUS[DEFAULT_GPU].product_rows


def queries_together(source: Source, launch: Launch, rows: int) -> str | None:
    """Let a program that computes one head of one query compute all heads of several queries.

    Before: a grid of (queries, heads) programs, each with `s = tl.sum(k * q[None, :], 1)`. After:
    q has a line for each head of each of the program's queries, and the keys are loaded once for
    all of them. Where the keys depend on a number that is looked up for the query (the sequence
    that it is of), the program takes one such number after the other and masks the queries of
    others; queries that lie beside each other mostly have the same. Where each query ends its loop at
    its own last key, the program goes on to the last of all (`ends.common_ends`). There are as many
    queries as make `rows` lines. Past the last query lines are that query again, and not stored, so
    that what is found by the query alone is loaded without a mask. Legal as `heads_together` is.
    """
    sizes = grid_sizes(launch)
    if sizes is None or {HEADS, QUERIES} & set(launch.kernel.parameters):
        return None
    found = [c for c in coordinates(launch.kernel.node) if c.program is None]
    for head in found:
        for query in found:
            if head.axis != query.axis and max(head.axis, query.axis) < len(sizes):
                text = _with_rows(source, launch, head, query, sizes, rows)
                if text is not None:
                    return text
    return None


def _with_rows(
    source: Source,
    launch: Launch,
    head: Coordinate,
    query: Coordinate,
    sizes: list[ast.expr],
    rows: int,
) -> str | None:
    node = launch.kernel.node
    if not (is_asked_once(node, head.axis) and is_asked_once(node, query.axis)):
        return None
    shared_by = quotient(node, head)
    count = number_of_heads(launch, head, shared_by, sizes)
    if count is None:
        return None
    heads = int(count) if count.isdigit() else constant_value(source, launch, count)
    queries = rows // heads if heads else 0
    if queries < 2 or queries & (queries - 1):
        return None
    stepped = stepped_by_tiles(launch.kernel)
    common = common_ends(node if stepped is None else stepped)
    forms = [CommonEnds(node, {}), *([common] if common is not None else [])]
    for form, looked_up in product(forms, (None, *_looked_up(node, query))):
        written = _Rows(form, head, query, shared_by, looked_up)
        try:
            body = written.body()
        except NotLaned:
            continue
        if not written.lanes.products:
            return None
        new = written.node
        new.body = body
        for name in (QUERIES, HEADS):
            add_parameter(new.args, name, constant=True)
        add_parameter(new.args, written.names["query_count"], constant=False)
        grid = [ast.unparse(size) for size in sizes]
        number = grid[query.axis]
        grid[head.axis] = divided(sizes[head.axis], count)
        grid[query.axis] = f"triton.cdiv({number}, {queries})"
        given = f"{QUERIES}={queries}, {HEADS}={count}, {written.names['query_count']}={number}"
        return relaunched(source, launch, new, f"({', '.join(grid)},)", given)
    return None


def _looked_up(node: ast.FunctionDef, query: Coordinate) -> list[str]:
    """Names of numbers that are loaded for a query and used to find others."""
    return [
        statement.targets[0].id
        for statement in node.body
        if isinstance(statement, ast.Assign)
        and isinstance(statement.targets[0], ast.Name)
        and any(
            called(inner) == "tl.load" and query.name in names_in(inner)
            for inner in ast.walk(statement.value)
        )
    ]


class _Rows:
    """The kernel's body for rows of (query, head), the head running fastest."""

    def __init__(
        self,
        form: CommonEnds,
        head: Coordinate,
        query: Coordinate,
        shared_by: str | None,
        looked_up: str | None,
    ) -> None:
        node = copy.deepcopy(form.node)
        words = (
            "head_group", "first_head", "first_query", "row", "query_read", "row_is_inside",
            "row_is_of_query", "query_count", "of_row", "last_of_rows", "turns", f"{query.name}_here",
        )  # fmt: skip
        self.node, self.head, self.query, self.looked_up = node, head, query, looked_up
        self.names = {word: fresh_name(word, node) for word in words}
        known = {
            name: RankedExpression(ast.Name(name, ast.Load()), 0, laned=True)
            for name in (head.name, query.name)
        }
        if shared_by is not None:
            group = ast.Name(self.names["head_group"], ast.Load())
            known[f"{head.name} // {shared_by}"] = RankedExpression(group, 0)
        self.lanes = Lanes(COUNT, known, self.names["row_is_inside"], form.of_all)

    def body(self) -> list[ast.stmt]:
        """The new statements; raises NotLaned."""
        names = self.names
        after = [s for s in self.node.body if not self._is_place(s)]
        for statement in after:
            if isinstance(statement, ast.If) and leaves(statement) and not statement.orelse:
                test = statement.test
                if isinstance(test, ast.Compare):
                    first = {self.head.name: "first_head", self.query.name: "first_query"}
                    word = first.get(ast.unparse(test.left))
                    if word is not None:
                        test.left = ast.Name(names[word], ast.Load())
        lines = (
            f"{names['head_group']} = tl.program_id({self.head.axis})\n"
            f"{names['first_head']} = {names['head_group']} * {HEADS}\n"
            f"{names['first_query']} = tl.program_id({self.query.axis}) * {QUERIES}\n"
            f"{names['row']} = tl.arange(0, {COUNT})\n"
            f"{self.head.name} = {names['first_head']} + {names['row']} % {HEADS}\n"
            f"{self.query.name} = {names['first_query']} + {names['row']} // {HEADS}\n"
            f"{names['row_is_inside']} = {self.query.name} < {names['query_count']}\n"
            f"{names['query_read']} = {self._last_again(self.query.name)}"
        )
        begin = parse_python(lines).body
        if self.looked_up is None:
            return [*begin, *self._unmasked(self.lanes.body(after), "")]
        at = next(i for i, s in enumerate(after) if assigned_in([s]) == {self.looked_up})
        rest = after[at + 1 :]
        if any(isinstance(n, ast.Return) for s in rest for n in ast.walk(s)) or (
            self.looked_up in assigned_in(rest)
        ):
            raise NotLaned(f"{self.looked_up} is not alone")
        return [*begin, *self._by_number(after[:at], after[at], rest)]

    def _is_place(self, statement: ast.stmt) -> bool:
        text = ast.unparse(statement)
        return any(text.startswith(f"{c.name} = tl.program_id") for c in (self.head, self.query))

    def _by_number(
        self, before: list[ast.stmt], load: ast.stmt, rest: list[ast.stmt]
    ) -> list[ast.stmt]:
        """The rest once for each number that was looked up for the rows, rows of others masked."""
        names, number = self.names, self.looked_up
        assert isinstance(load, ast.Assign) and number is not None
        of_row, last, inside = names["of_row"], names["last_of_rows"], names["row_is_inside"]
        turns, here = names["turns"], names[f"{self.query.name}_here"]
        load.targets = [ast.Name(of_row, ast.Store())]
        # One pass over both parts: what is known of names settles over all statements.
        written = self.lanes.body([*before, load, *rest])
        if not self.lanes.env[of_row].laned or self.lanes.env[of_row].rank:
            raise NotLaned(f"{number} is the same for all")
        head, tail = written[: len(before) + 1], written[len(before) + 1 :]
        head, tail = self._unmasked(head, ""), self._unmasked(tail, number)
        tail = [Renamed({self.query.name: here}, {}).visit(statement) for statement in tail]
        numbers = (
            f"{last} = tl.max(tl.where({inside}, {of_row}, -2147483648), axis=0)\n"
            f"{number} = tl.min(tl.where({inside}, {of_row}, {last}), axis=0)\n"
            f"{names['row_is_of_query']} = {inside}\n"
            f"{turns} = 0"
        )
        # What is made of the query alone would be made before the loop, kept until its end, and
        # spilled. That the turns do not fall below 0 no compiler knows.
        masked = (
            f"{here} = {self.query.name} + tl.minimum({turns}, 0)\n    "
            f"{names['query_read']} = {self._last_again(here)}\n    "
            f"{inside} = {names['row_is_of_query']} & ({of_row} == {number})"
        )
        # The last number again would never end the loop: one more is none of them.
        following = (
            f"{number} = tl.min(tl.where({of_row} > {number}, {of_row}, {last} + 1), axis=0)\n"
            f"{turns} = {turns} + 1"
        )
        loop = parse_python(f"while {number} <= {last}:\n    {masked}").body[0]
        assert isinstance(loop, ast.While)
        loop.body += [*tail, *parse_python(following).body]
        return [*head, *parse_python(numbers).body, loop]

    def _last_again(self, name: str) -> str:
        """A row's query, the last one for rows past it."""
        return f"tl.minimum({name}, {self.names['query_count']} - 1)"

    def _unmasked(self, statements: list[ast.stmt], number: str) -> list[ast.stmt]:
        """Loads without the mask of rows where no address is made of `number`: every row has a query
        to read. Addresses that are stored to are made apart, or they would be kept until then."""
        made = {number}
        makings: dict[str, list[ast.expr | None]] = {}
        for inner in (n for _ in statements for s in statements for n in ast.walk(s)):
            if isinstance(inner, ast.For) and names_in(inner.iter) & made:
                made |= names_in(inner.target)
            if isinstance(inner, (ast.Assign, ast.AugAssign)) and names_in(inner) & made:
                made |= assigned_in([inner])
        for inner in (n for s in statements for n in ast.walk(s)):
            if isinstance(inner, (ast.Assign, ast.AugAssign)):
                value = inner.value if isinstance(inner, ast.Assign) else None
                for name in assigned_in([inner]):
                    makings.setdefault(name, []).append(value)
        for call in (n for s in statements for n in ast.walk(s)):
            if called(call) != "tl.load" or not isinstance(call, ast.Call):
                continue
            address = self._read_address(call.args[0], makings)
            if address is None or names_in(call.args[0]) & made:
                continue
            if _without_condition(call, self.names["row_is_inside"]):
                call.args[0] = address
        return statements

    def _read_address(
        self, node: ast.expr, makings: Mapping[str, list[ast.expr | None]]
    ) -> ast.expr | None:
        """An address with the query to read in the place of a row's; None where it is no such."""
        address = copy.deepcopy(node)
        for _ in makings:
            if self.query.name in names_in(address):
                break
            put: dict[str, ast.expr] = {}
            for name in names_in(address) & set(makings):
                if self._is_made_of_query(name, makings):
                    values = makings[name]
                    if len(values) != 1 or values[0] is None or "tl.load" in ast.unparse(values[0]):
                        return None
                    put[name] = values[0]
            address = Renamed({}, put).visit(address)
        if self.query.name not in names_in(address):
            return None
        read: ast.expr = Renamed({self.query.name: self.names["query_read"]}, {}).visit(address)
        return read

    def _is_made_of_query(
        self, name: str, makings: Mapping[str, list[ast.expr | None]], depth: int = 0
    ) -> bool:
        return depth < len(makings) and any(
            self.query.name in names_in(value)
            or any(self._is_made_of_query(n, makings, depth + 1) for n in names_in(value))
            for value in makings.get(name, [])
            if value is not None
        )


def _without_condition(call: ast.Call, name: str) -> bool:
    """Whether the condition `name` was taken out of a load's mask."""
    for keyword in call.keywords:
        if keyword.arg != "mask":
            continue
        parts = conjuncts(keyword.value)
        left = [part for part in parts if not _is_name(part, name)]
        if len(left) == len(parts):
            return False
        left = [part for part in left if ast.unparse(part) != "True"]
        if left:
            keyword.value = reduce(lambda a, b: ast.BinOp(a, ast.BitAnd(), b), left)
        else:
            call.keywords = [k for k in call.keywords if k.arg not in ("mask", "other")]
        return True
    return False


def _is_name(node: ast.expr, name: str) -> bool:
    """Whether a node is a name, along whatever axis."""
    bare = node.value if isinstance(node, ast.Subscript) else node
    return isinstance(bare, ast.Name) and bare.id == name
