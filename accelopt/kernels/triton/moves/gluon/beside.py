"""The move to Gluon: the next step's keys are copied between the products of this one."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping

from accelopt.kernels.triton.moves.columns import number_of
from accelopt.kernels.triton.moves.gluon.edges import ask_edges
from accelopt.kernels.triton.moves.gluon.kernel import BESIDE, Kernel
from accelopt.kernels.triton.moves.gluon.shapes import NotWritten, Shapes
from accelopt.kernels.triton.moves.gluon.spelling import queries_first, spelled
from accelopt.kernels.triton.moves.gluon.steps import Tile, key_step
from accelopt.kernels.triton.moves.gluon.writing import Axes
from accelopt.kernels.triton.moves.knobs import constant_value
from accelopt.kernels.triton.moves.once import product_of
from accelopt.kernels.triton.moves.source import (
    Edit,
    Launch,
    Source,
    address_of,
    names_in,
    target_of,
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

IMPORTS = """
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared, warpgroup_mma, warpgroup_mma_init, warpgroup_mma_wait)"""

HELPERS = '''

@gluon.constexpr_function
def product_layout(rows, columns, warps):
    """How a tile of sums lies in the registers of all warps."""
    down = min(warps, rows // 16)
    wide = min(256, columns * down // warps)
    return gl.NVMMADistributedLayout([3, 0], [down, warps // down], [16, wide, 16])


def reads_beside(*tensors):
    """Whether the tensors are halves, of which Hopper can copy 16 bytes at once."""
    return all(
        t.is_cuda and t.dtype in (torch.float16, torch.bfloat16) and t.dtype == tensors[0].dtype
        and t.data_ptr() % 16 == 0 and torch.cuda.get_device_capability(t.device)[0] == 9
        for t in tensors
    )
'''


def beside_products(source: Source, launch: Launch) -> str | None:
    """Write a kernel whose steps over keys multiply and copy at the same time.

    Before: `for at in range(a, e, B): x = tl.load(p + i[:, None] * n + c[None, :]); s = zeros; s =
    s + tl.dot(q, tl.trans(x)); ...; o = o * f[:, None]; o = o + tl.dot(w, x)`. After: the same in
    Gluon, in a kernel of its own that the host code launches on Hopper where 16 bytes can be copied
    at once, and elsewhere the kernel as it was, with half the keys a step. Triton (3.6, sm_90) issues the copies of the next
    step before or behind all products of this one, and waits for each product; here the copies
    stand between the products, which are waited for together, and the sums of a step are shared out
    so that no product is computed twice. Legal where a step's loads need nothing that it computes.
    """
    try:
        return _Move(source, launch).text()
    except NotWritten:
        return None


class _Move:
    """The kernel in Gluon and the choice in the host code."""

    def __init__(self, source: Source, launch: Launch) -> None:
        self.source, self.launch = source, launch
        self.node = spelled(copy.deepcopy(launch.kernel.node))
        if not _is_plain_kernel(launch):
            raise NotWritten("an autotuner, or defaults of parameters")
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

    def _check(self, keys: str) -> None:
        step = self.step
        if step.bounds[2] != keys or keys not in self.launch.kernel.constants:
            raise NotWritten("the keys of a step are no constant of the launch")
        if any(tile.rows != keys for tile in step.keys):
            raise NotWritten("a tile of other rows than keys")
        if any(tile.rows != self.axes.rows for tile in step.queries):
            raise NotWritten("a tile of other rows than queries")
        if keys in names_in(self.launch.grid) or "lambda" in ast.unparse(self.launch.grid):
            raise NotWritten("the grid may depend on the keys of a step")

    def text(self) -> str:
        """The new source."""
        keys = self._keys_a_step()
        tiles = (*self.step.keys, *self.step.queries)
        parameters = {tile.name: _parameter(self.launch, tile) for tile in tiles}
        kernel = Kernel(self.node, parameters, self.shapes, self.axes, self.step)
        written = ast.unparse(ast.fix_missing_locations(kernel.function()))
        source, own = self.source, self.launch.kernel.node
        statement = self._statement()
        chosen = _set(self.launch, {self.step.bounds[2]: keys, "num_warps": WARPS})
        assert isinstance(chosen.func, ast.Subscript)
        chosen.func.value = ast.Name(self.launch.kernel.name + BESIDE, ast.Load())
        # What Triton keeps in shared memory for these tiles need not fit where it runs.
        fewer = {self.step.bounds[2]: keys // 2, "num_warps": WARPS, "num_stages": 2}
        lines = [f"if {self._test()}:", f"    {ast.unparse(chosen)}", "else:"]
        lines.append(f"    {ast.unparse(_set(self.launch, fewer))}")
        choice = ("\n" + source.indentation(statement)).join(lines)
        language = _language(source)
        behind = source.end(own)
        return source.edited(
            [
                Edit(source.end(language), source.end(language), IMPORTS),
                Edit(behind, behind, f"{HELPERS}\n\n{written}"),
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
        values = {
            name: value
            for name in self.launch.kernel.constants
            if (value := constant_value(self.source, self.launch, name)) is not None
        }
        value = number_of(parse_expression(text), values)
        if value is None:
            raise NotWritten(f"{text} is no known number")
        return value

    def _multiplied(self) -> list[Tile]:
        """The tiles of keys that are multiplied by scores; raises NotWritten where widths differ."""
        products = [product_of(s) for s in self.step.rest if "tl.dot" in ast.unparse(s)]
        names = [ast.unparse(p.call.args[1]) for p in products if p is not None]
        tiles = [tile for name in names for tile in self.step.keys if tile.name == name]
        if len({tile.columns for tile in tiles}) != 1:
            raise NotWritten("values of several widths")
        return tiles

    def _statement(self) -> ast.stmt:
        """The launch, where it is a statement of its own."""
        for node in ast.walk(self.launch.function) if self.launch.function is not None else ():
            if isinstance(node, ast.Expr) and node.value is self.launch.call:
                return node
        raise NotWritten("the launch is no statement of its own")

    def _test(self) -> str:
        """What the host code asks before it launches the kernel in Gluon."""
        tiles = (*self.step.keys, *self.step.queries)
        pointers = dict.fromkeys(_parameter(self.launch, tile) for tile in tiles)
        given = [self.launch.bound(name) for name in pointers]
        strides = dict.fromkeys(
            name for tile in tiles for name in self._factors(tile.pointer, set())
        )
        if any(not isinstance(tensor, ast.Name) for tensor in given):
            raise NotWritten("an argument that the launch does not name")
        tensors = ", ".join(ast.unparse(tensor) for tensor in given if tensor is not None)
        asked = [f"({self._argument(name)}) % 16 == 0" for name in strides]
        return " and ".join([f"reads_beside({tensors})", *asked])

    def _argument(self, name: str) -> str:
        bound = self.launch.bound(name) if name in self.launch.kernel.parameters else None
        if bound is None:
            raise NotWritten(f"{name} is no argument of the launch")
        return ast.unparse(bound)

    def _factors(self, node: ast.expr, seen: set[str]) -> set[str]:
        """The parameters, no constants, that an address multiplies by."""
        kernel = self.launch.kernel
        found = set[str]()
        for inner in ast.walk(node):
            if isinstance(inner, ast.BinOp) and isinstance(inner.op, ast.Mult):
                sides = {s.id for s in (inner.left, inner.right) if isinstance(s, ast.Name)}
                found |= (sides & set(kernel.parameters)) - kernel.constants
        for name in names_in(node) - seen:
            seen.add(name)
            for statement in ast.walk(self.node):
                if isinstance(statement, ast.Assign) and target_of(statement) == name:
                    found |= self._factors(statement.value, seen)
        return found


def _parameter(launch: Launch, tile: Tile) -> str:
    """The parameter that a tile's address begins with."""
    found = address_of(launch, tile.pointer)
    if len(found) != 1 or found[0] not in launch.kernel.parameters:
        raise NotWritten(f"where {tile.name} is loaded from")
    return found[0]


def _is_plain_kernel(launch: Launch) -> bool:
    arguments = launch.kernel.node.args
    has_defaults = bool(arguments.defaults or arguments.posonlyargs or arguments.vararg)
    return launch.kernel.autotune is None and not has_defaults


def _set(launch: Launch, values: Mapping[str, int]) -> ast.Call:
    """A launch with other values of its arguments, and with no options of Triton's but those given."""
    call, parameters = copy.deepcopy(launch.call), launch.kernel.parameters
    call.keywords = [k for k in call.keywords if k.arg not in ("num_stages", "maxnreg")]
    for name, value in values.items():
        given = next((k for k in call.keywords if k.arg == name), None)
        place = parameters.index(name) if name in parameters else len(call.args)
        if given is not None:
            given.value = ast.Constant(value)
        elif place < len(call.args):
            call.args[place] = ast.Constant(value)
        else:
            call.keywords.append(ast.keyword(name, ast.Constant(value)))
    return call


def _language(source: Source) -> ast.stmt:
    """The import behind which those of Gluon stand."""
    for node in source.tree.body:
        if isinstance(node, ast.Import) and any(a.name == "triton.language" for a in node.names):
            return node
    raise NotWritten("no import of triton.language")
