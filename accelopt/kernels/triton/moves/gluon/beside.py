"""The move to Gluon: the next step's keys are copied between the products of this one."""

from __future__ import annotations

import ast
import copy

from accelopt.kernels.triton.moves.columns import number_of
from accelopt.kernels.triton.moves.gluon.alignment import Alignment
from accelopt.kernels.triton.moves.gluon.choice import (
    BROUGHT,
    HELPERS,
    IMPORTS,
    OPTIONS,
    import_of_language,
    imported,
    is_plain_kernel,
    is_plain_launch,
    names_of,
    statement_of,
    with_arguments,
    words_of_grids,
)
from accelopt.kernels.triton.moves.gluon.edges import ask_edges
from accelopt.kernels.triton.moves.gluon.kernel import BESIDE, TURNS, Kernel, copied_to
from accelopt.kernels.triton.moves.gluon.shapes import NotWritten, Shapes
from accelopt.kernels.triton.moves.gluon.spelling import queries_first, spelled
from accelopt.kernels.triton.moves.gluon.steps import Tile, key_step
from accelopt.kernels.triton.moves.gluon.writing import Axes, Layout
from accelopt.kernels.triton.moves.knobs import constant_value
from accelopt.kernels.triton.moves.source import (
    Edit,
    Launch,
    Source,
    address_of,
    called,
    names_in,
)
from accelopt.kernels.triton.moves.totals import summed_behind
from accelopt.parsing import parse_expression

SHARED_BYTES = 227 * 1024  # of a block, compute capability 9.0
WARPS = 8  # two warp groups
ROWS = 64  # of a product that one warp group computes
SUMS_OF_GROUP = 128 * 128
"""Sums of a warp group, 128 registers a thread: where one group has room for all of them, Triton's own
pipeline is as fast or faster (measured on an H200 with 128 columns of values)."""
PIECE = 64  # columns of 16 bits in 128 bytes, the piece that shared memory is swizzled in


def beside_products(source: Source, launch: Launch) -> str | None:
    """Write a kernel whose steps over keys multiply and copy at the same time.

    Before: `for at in range(a, e, B): x = tl.load(p + i[:, None] * n + c[None, :]); s = zeros; s =
    s + tl.dot(q, tl.trans(x)); ...; o = o * f[:, None]; o = o + tl.dot(w, x)`. After: the same in
    Gluon, in a kernel of its own that the host code launches on Hopper where 16 bytes can be copied
    at once, and elsewhere the kernel as it was, with half the keys a step. Triton (3.6, sm_90)
    issues the copies of the next step before or behind all products of this one, and waits for each
    product; here the copies stand between the products, which are waited for together, and the sums
    of a step are shared out so that no product is computed twice. Legal where a step's loads need
    nothing that it computes, and where the number of keys a step says nothing but that.
    """
    try:
        return _Move(source, launch).text()
    except NotWritten:
        return None


class _Move:
    """The kernel in Gluon and the choice in the host code."""

    def __init__(self, source: Source, launch: Launch) -> None:
        self.source, self.launch = source, launch
        if not (is_plain_kernel(source, launch.kernel) and is_plain_launch(launch)):
            raise NotWritten("decorators, annotations, defaults, or options of the launch")
        self.node = spelled(copy.deepcopy(launch.kernel.node))
        ask_edges(self.node)
        queries_first(self.node)
        body, step = key_step(self.node, Shapes(self.node))
        # The rows of scores lie across warps: a sum along them takes barriers.
        summed_behind(body, body.index(step.loop), self.node)
        self.shapes = Shapes(self.node)
        _, self.step = key_step(self.node, self.shapes)
        rows, keys = self.shapes.of_names[self.step.target].axes
        tiles = (*self.step.keys, *self.step.queries)
        self.axes = Axes(rows, keys, {tile.columns for tile in tiles})
        self._check(keys)
        self._check_names()

    def _check(self, keys: str) -> None:
        """Raises NotWritten where tiles are of another form, or the keys of a step say more."""
        step = self.step
        if step.bounds[2] != keys or keys not in self.launch.kernel.constants:
            raise NotWritten("the keys of a step are no constant of the launch")
        if any(tile.rows != keys for tile in step.keys):
            raise NotWritten("a tile of other rows than keys")
        if any(tile.rows != self.axes.rows for tile in step.queries):
            raise NotWritten("a tile of other rows than queries")
        changed = (keys, *OPTIONS)
        if keys in names_in(self.launch.grid) or words_of_grids(self.source, self.launch) & {
            *changed
        }:
            raise NotWritten("the grid may depend on the keys of a step")
        if not _says_step_alone(self.node, step.at, step.bounds[0], keys):
            raise NotWritten("the keys of a step say more than how many there are")
        if not self._asks_where(keys):
            raise NotWritten("nothing leaves out the keys of a step behind the last one")

    def _asks_where(self, keys: str) -> bool:
        """Whether a step's scores are chosen by where its keys are."""
        return any(
            isinstance(n, ast.Compare) and keys in self.shapes.of(n).lines
            for s in (*self.step.places, *self.step.rest)
            for n in ast.walk(s)
        )

    def _check_names(self) -> None:
        """Raises NotWritten where names that the kernel or its helpers bring are taken."""
        tiles = {copied_to(tile.name, turn) for tile in self.step.keys for turn in TURNS}
        own = {n.arg for n in ast.walk(self.node) if isinstance(n, ast.arg)} | names_in(self.node)
        in_text = {self.launch.kernel.name + BESIDE}
        if HELPERS.strip() not in self.source.text:
            in_text |= BROUGHT
        if own & (tiles | BROUGHT | {layout.value for layout in Layout} | {"SHARED"}):
            raise NotWritten("a name of the kernel is needed for something else")
        if in_text & names_of(self.source.tree) or "torch" not in imported(self.source.tree):
            raise NotWritten("a name of the source is needed for something else")

    def text(self) -> str:
        """The new source."""
        keys = self._keys_a_step()
        tiles = (*self.step.keys, *self.step.queries)
        parameters = {tile.name: _parameter(self.launch, tile) for tile in tiles}
        kernel = Kernel(self.node, parameters, self.shapes, self.axes, self.step)
        written = ast.unparse(ast.fix_missing_locations(kernel.function()))
        source, own = self.source, self.launch.kernel.node
        statement = statement_of(source, self.launch)
        chosen = with_arguments(self.launch, {self.step.bounds[2]: keys, "num_warps": WARPS})
        assert isinstance(chosen.func, ast.Subscript)
        chosen.func.value = ast.Name(self.launch.kernel.name + BESIDE, ast.Load())
        # What Triton keeps in shared memory for these tiles need not fit where it runs.
        fewer = {self.step.bounds[2]: keys // 2, "num_warps": WARPS, "num_stages": 2}
        lines = [f"if {self._test()}:", f"    {ast.unparse(chosen)}", "else:"]
        lines.append(f"    {ast.unparse(with_arguments(self.launch, fewer))}")
        choice = ("\n" + source.indentation(statement)).join(lines)
        language = source.end(import_of_language(source))
        behind = source.end(own)
        has_helpers = HELPERS.strip() in source.text
        return source.edited(
            [
                Edit(language, language, "" if has_helpers else IMPORTS),
                Edit(behind, behind, f"{'' if has_helpers else HELPERS}\n\n{written}"),
                source.replacing(statement, choice),
            ]
        )

    def _keys_a_step(self) -> int:
        """As many keys as shared memory has room for, where the sums of values need two warp groups."""
        step, rows = self.step, self._extent(self.axes.rows)
        widths = {columns: self._extent(columns) for columns in sorted(self.axes.columns)}
        if rows != ROWS or any(width % PIECE for width in widths.values()):
            raise NotWritten("tiles that are not made of whole pieces")
        sums = rows * sum(widths[tile.columns] for tile in self._multiplied())
        if not SUMS_OF_GROUP < sums <= 2 * SUMS_OF_GROUP:
            raise NotWritten("sums for one warp group, or for more than two")
        queries = sum(widths[tile.columns] for tile in step.queries)
        keys = sum(widths[tile.columns] for tile in step.keys)
        for count in (64, 32):
            if 2 * (rows * queries + 2 * count * keys + rows * count) <= SHARED_BYTES:
                return count
        raise NotWritten("more than shared memory has room for")

    def _extent(self, text: str) -> int:
        """The extent of an axis; raises NotWritten where the host code does not say it."""
        value = number_of(parse_expression(text), self._constants())
        if value is None:
            raise NotWritten(f"{text} is no known number")
        return value

    def _constants(self) -> dict[str, int]:
        """The constants of the kernel whose values stand in the text."""
        return {
            name: value
            for name in self.launch.kernel.constants
            if (value := constant_value(self.source, self.launch, name)) is not None
        }

    def _multiplied(self) -> list[Tile]:
        """The tiles of keys that are multiplied by scores; raises NotWritten where widths differ."""
        names = [ast.unparse(product.call.args[1]) for product in self.step.values]
        tiles = [tile for name in names for tile in self.step.keys if tile.name == name]
        if len({tile.columns for tile in tiles}) != 1:
            raise NotWritten("values of several widths")
        return tiles

    def _test(self) -> str:
        """What the host code asks before it launches the kernel in Gluon."""
        tiles = (*self.step.keys, *self.step.queries)
        pointers = dict.fromkeys(_parameter(self.launch, tile) for tile in tiles)
        given = [self.launch.bound(name) for name in pointers]
        if any(not isinstance(tensor, ast.Name) for tensor in given):
            raise NotWritten("an argument that the launch does not name")
        tensors = ", ".join(ast.unparse(tensor) for tensor in given if tensor is not None)
        kernel = self.launch.kernel
        numbers = {
            name: ast.unparse(bound)
            for name in kernel.parameters
            if name not in kernel.constants and (bound := self.launch.bound(name)) is not None
        }
        alignment = Alignment(
            self.node, self.shapes, self._constants(), numbers, set(pointers), self.axes.columns
        )
        for tile in tiles:
            alignment.ask(tile.pointer, tile.mask)
        return " and ".join([f"reads_beside({tensors})", *alignment.asked])


def _parameter(launch: Launch, tile: Tile) -> str:
    """The parameter that a tile's address begins with."""
    found = address_of(launch, tile.pointer)
    if len(found) != 1 or found[0] not in launch.kernel.parameters:
        raise NotWritten(f"where {tile.name} is loaded from")
    return found[0]


def _says_step_alone(node: ast.FunctionDef, at: str, begin: str, keys: str) -> bool:
    """Whether the keys of a step are read as that alone: how long a step and its vectors are, where
    the next one begins, and where the last one ends."""
    allowed: list[ast.AST] = []
    for inner in ast.walk(node):
        if isinstance(inner, ast.For) and isinstance(inner.iter, ast.Call):
            allowed += inner.iter.args[2:]
        if called(inner) == "tl.arange" and isinstance(inner, ast.Call):
            allowed += inner.args[1:]
        if called(inner) in ("tl.zeros", "tl.full") and isinstance(inner, ast.Call):
            allowed += getattr(inner.args[0], "elts", [])
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Add):
            allowed += [inner.right] if ast.unparse(inner.left) in (at, begin) else []
        if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult):
            count = inner.left
            if isinstance(count, ast.Call) and called(count) == "tl.cdiv":
                whole = ast.unparse(count.args[-1]) == ast.unparse(inner.right) == keys
                allowed += [count.args[-1], inner.right] if whole else []
    read = [n for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == keys]
    return all(any(n is one for one in allowed) for n in read)
