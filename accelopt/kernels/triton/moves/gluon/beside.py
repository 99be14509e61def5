"""The move to Gluon: the next step's keys are copied between the products of this one."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from accelopt.kernels.triton.moves.ahead import stays_inside
from accelopt.kernels.triton.moves.columns import number_of
from accelopt.kernels.triton.moves.gluon.edges import ask_edges
from accelopt.kernels.triton.moves.gluon.shapes import NotWritten, Shapes
from accelopt.kernels.triton.moves.gluon.spelling import queries_first, spelled
from accelopt.kernels.triton.moves.gluon.steps import KeyStep, Tile, key_step
from accelopt.kernels.triton.moves.gluon.writing import Axes, GluonWriter, Layout, converted
from accelopt.kernels.triton.moves.knobs import constant_value
from accelopt.kernels.triton.moves.loops import Renamed, fresh_name
from accelopt.kernels.triton.moves.once import Product, product_of
from accelopt.kernels.triton.moves.source import (
    Edit,
    Launch,
    Source,
    address_of,
    assigned_in,
    called,
    names_in,
    target_of,
)
from accelopt.kernels.triton.moves.totals import summed_behind
from accelopt.parsing import parse_expression, parse_python

BESIDE = "_beside"
"""What the name of a kernel in Gluon ends with."""
SHARED_BYTES = 227 * 1024  # of a block, compute capability 9.0
SUMS_A_THREAD = 128  # registers for sums of values; a thread has 255 at most
WIDTH = 128  # columns of a tile where the host code does not say how many; it is asked then
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
    """Whether 16 bytes of the tensors can be copied at once, to the products of Hopper."""
    return all(
        t.is_cuda and t.element_size() == 2 and t.data_ptr() % 16 == 0
        and torch.cuda.get_device_capability(t.device)[0] == 9
        for t in tensors
    )
'''


def beside_products(source: Source, launch: Launch) -> str | None:
    """Write a kernel whose steps over keys multiply and copy at the same time.

    Before: `for at in range(a, e, B): x = tl.load(p + i[:, None] * n + c[None, :]); s = zeros; s =
    s + tl.dot(q, tl.trans(x)); ...; o = o * f[:, None]; o = o + tl.dot(w, x)`. After: the same in
    Gluon, in a kernel of its own that the host code launches on Hopper where 16 bytes can be copied
    at once, and the kernel as it was elsewhere. Triton (3.6, sm_90) issues the copies of the next
    step before or behind all products of this one, and waits for each product; here the copies
    stand between the products, which are waited for together, and the sums of a step are shared out
    so that no product is computed twice. Legal where a step's loads need nothing that it computes.
    """
    try:
        return _Move(source, launch).text()
    except NotWritten:
        return None


class _Sizes(NamedTuple):
    """The keys of a step, and the warps of a program."""

    keys: int
    warps: int


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
        self.asked: dict[str, int] = {}
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
        sizes = self._sizes()
        kernel = _Kernel(self.node, self.launch, self.shapes, self.axes, self.step)
        written = ast.unparse(ast.fix_missing_locations(kernel.function()))
        source, own = self.source, self.launch.kernel.node
        statement = self._statement()
        chosen = copy.deepcopy(self.launch.call)
        assert isinstance(chosen.func, ast.Subscript)
        chosen.func.value = ast.Name(self.launch.kernel.name + BESIDE, ast.Load())
        _set(chosen, self.launch, {self.step.bounds[2]: sizes.keys, "num_warps": sizes.warps})
        test = self._test()
        lines = [f"if {test}:", f"    {ast.unparse(chosen)}", "else:"]
        lines.append(f"    {ast.unparse(self.launch.call)}")
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

    def _sizes(self) -> _Sizes:
        """The most keys that shared memory has room for and the fewest warps for the sums."""
        step = self.step
        values = {
            name: value
            for name in self.launch.kernel.constants
            if (value := constant_value(self.source, self.launch, name)) is not None
        }

        rows = number_of(parse_expression(self.axes.rows), values)
        widths = {}
        for columns in sorted(self.axes.columns):
            width = number_of(parse_expression(columns), values)
            if width is None:
                width = self.asked[columns] = WIDTH
            widths[columns] = width
        if rows not in (64, 128) or any(width % PIECE for width in widths.values()):
            raise NotWritten("tiles that are not made of whole pieces")
        sums = sum(widths[tile.columns] for tile in self._multiplied())
        queries = sum(widths[tile.columns] for tile in step.queries)
        keys = sum(widths[tile.columns] for tile in step.keys)
        for count in (64, 32):
            for warps in (4, 8):
                across = 16 * warps // rows
                shared = 2 * (rows * queries + 2 * count * keys + rows * count)
                if (
                    shared <= SHARED_BYTES
                    and rows * sums // (32 * warps) <= SUMS_A_THREAD
                    and across > 0
                ):
                    return _Sizes(count, warps)
        raise NotWritten("more than a multiprocessor has room for")

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
        asked += [f"({self._argument(name)}) == {width}" for name, width in self.asked.items()]
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


class _Kernel(GluonWriter):
    """Writes the kernel's function."""

    def __init__(
        self, node: ast.FunctionDef, launch: Launch, shapes: Shapes, axes: Axes, step: KeyStep
    ) -> None:
        dtypes = {
            tile.name: f"{_parameter(launch, tile)}.dtype.element_ty"
            for tile in (*step.keys, *step.queries)
        }
        super().__init__(shapes, axes, self._looked_up(shapes, step), dtypes)
        self.node, self.step = node, step
        self.columns = next(
            shapes.of_names[p.target].axes[1] for s in step.rest if (p := _multiplied(s))
        )
        self.queries = {tile.name: tile for tile in step.queries}
        self.following = fresh_name("following", node)
        self.comes = fresh_name("comes", node)
        self.second = fresh_name(f"second_{step.at}", node)
        self.apart = {
            name: fresh_name(f"{name}_of_following", node) for name in assigned_in(step.places)
        }
        for old, new in self.apart.items():
            shapes.of_names[new] = shapes.of_names[old]

    @staticmethod
    def _looked_up(shapes: Shapes, step: KeyStep) -> set[str]:
        return {name for name in assigned_in(step.lookups) if shapes.of_names[name].found}

    def function(self) -> ast.FunctionDef:
        """The function, once all its vectors lie where they are asked for."""
        asked = None
        while asked != self.asked:
            asked = copy.deepcopy(self.asked)
            body = self.statements(self.node.body)
        arguments = copy.deepcopy(self.node.args)
        for argument in (*arguments.args, *arguments.kwonlyargs):
            if argument.annotation is not None:
                argument.annotation = parse_expression("gl.constexpr")
        return ast.FunctionDef(
            self.node.name + BESIDE,
            arguments,
            [*self._prelude(), *body, *parse_python("async_copy.wait_group(0)").body],
            [parse_expression("gluon.jit")],
            lineno=0,
        )

    def _prelude(self) -> list[ast.stmt]:
        rows, keys = self.axes.rows, self.axes.keys
        lines = [
            f"SCORES: gl.constexpr = product_layout({rows}, {keys}, gl.num_warps())",
            f"VALUES: gl.constexpr = product_layout({rows}, {self.columns}, gl.num_warps())",
            "COPIES: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [gl.num_warps(), 1], [1, 0])",
            "SHARED: gl.constexpr = gl.NVMMASharedLayout(128, 16, 2)",
        ]
        places = [(tile.name, tile) for tile in self.step.queries]
        places += [(_of(tile.name, turn), tile) for tile in self.step.keys for turn in TURNS]
        lines += [
            f"{name} = gl.allocate_shared_memory({self.tiles[tile.name]}, "
            f"[{tile.rows}, {tile.columns}], SHARED)"
            for name, tile in places
        ]
        return parse_python("\n".join(lines)).body

    def statement(self, node: ast.stmt) -> list[ast.stmt]:
        """A statement; the loop over keys and what it reads in a form of their own."""
        if node is self.step.loop:
            return self._loop()
        tile = self.queries.get(str(target_of(node)))
        return (
            super().statement(node) if tile is None else [self._copy(tile.name, tile), *_commit()]
        )

    def _loop(self) -> list[ast.stmt]:
        begin, end, step = self.step.bounds
        first, second = TURNS
        at, again = self.step.at, self.second
        behind = parse_python("async_copy.wait_group(0)").body
        loop = parse_python(
            f"for {at} in range({begin}, {end}, 2 * {step}):\n"
            f"    {again} = {at} + {step}\n"
            f"    if {again} < {end}:\n        pass"
        ).body[0]
        assert isinstance(loop, ast.For) and isinstance(loop.body[1], ast.If)
        loop.iter = self._range(loop.iter)
        loop.body[1].test = self._number(loop.body[1].test)
        loop.body[1].body = self._turn(second, first, again)
        loop.body[:0] = self._turn(first, second, at)
        before = [*self._following(begin), *self._looked_up_for(self.step.lookups, first=True)]
        return [*before, *self._copies(first), *_commit(), loop, *behind]

    def _turn(self, now: str, then: str, at: str) -> list[ast.stmt]:
        """A step at `at`: its tiles are in those of `now`, the next one's are copied to `then`."""
        step = self.step.bounds[2]
        lines = parse_python("async_copy.wait_group(0)\nfence_async_shared()").body
        lines += self._following(f"{at} + {step}")
        early = self.step.early
        lines += self._looked_up_for(early)
        lines += self._products_and_copies(now, self._copies(then))
        # A load that only the next step needs would stand in the way of the copies.
        lines += self._looked_up_for([s for s in self.step.lookups if s not in early])
        lines += _waited([self.step.target])
        sums: list[str] = []
        operands: dict[str, str] = {}
        for statement in (*self.step.places, *self.step.rest):
            moved = Renamed({self.step.at: at}, {}).visit(copy.deepcopy(statement))
            product = _multiplied(moved)
            if product is None:
                lines += self.statement(moved)
                continue
            lines += self._weights(product, operands)
            weights = operands[ast.unparse(self.expression(product.call.args[0], Layout.SCORES))]
            tile, total = _of(ast.unparse(product.call.args[1]), now), product.target
            lines += parse_python(
                f"{total} = warpgroup_mma({weights}, {tile}, {total}, is_async=True)"
            ).body
            sums.append(total)
        return [*lines, *_waited(sums)]

    def _products_and_copies(self, now: str, copies: list[ast.stmt]) -> list[ast.stmt]:
        """The products of a step's scores with copies between them."""
        target, rows, keys = self.step.target, self.axes.rows, self.axes.keys
        lines = parse_python(
            f"{target} = warpgroup_mma_init(gl.full([{rows}, {keys}], 0.0, gl.float32, layout=SCORES))"
        ).body
        left = list(copies)
        for place, product in enumerate(self.step.scores):
            query, turned = product.call.args[:2]
            assert isinstance(turned, ast.Call)
            tile = _of(ast.unparse(turned.args[0]), now)
            anew = "" if place else "use_acc=False, "
            lines += parse_python(
                f"{target} = warpgroup_mma({ast.unparse(query)}, {tile}.permute((1, 0)), {target}, "
                f"{anew}is_async=True)"
            ).body
            # One product stays ahead of the copies, or the tensor cores would wait for them.
            if place:
                lines += left[:1]
                left = left[1:]
        return [*lines, *left, *_commit()]

    def _weights(self, product: Product, operands: dict[str, str]) -> list[ast.stmt]:
        """The scores that values are multiplied by, as an operand; once for several products."""
        written = self.expression(product.call.args[0], Layout.SCORES)
        text = ast.unparse(written)
        if text in operands:
            return []
        operands[text] = fresh_name(f"weights_{len(operands)}", self.node)
        made = converted(written, "gl.DotOperandLayout(0, VALUES, 2)")
        return parse_python(f"{operands[text]} = {ast.unparse(made)}").body

    def _following(self, at: str) -> list[ast.stmt]:
        """The step at `at` and whether it comes."""
        return [
            self._number_line(self.following, at),
            self._number_line(self.comes, f"{self.following} < {self.step.bounds[1]}"),
        ]

    def _looked_up_for(self, statements: Sequence[ast.stmt], first: bool = False) -> list[ast.stmt]:
        """Where the tiles of the step that follows are, or what the one behind it needs. Only before
        the first step a position that is clamped to the last one may be none."""
        lines: list[ast.stmt] = []
        for statement in statements:
            moved = self._moved(statement)
            assert isinstance(moved, ast.Assign)
            if first or not stays_inside(moved.value, self.following):
                _also_if(moved.value, self.comes)
            lines += self.assigned(str(target_of(moved)), moved.value)
        return lines

    def _number_line(self, name: str, text: str) -> ast.stmt:
        value = self._number(parse_expression(text))
        return parse_python(f"{name} = {ast.unparse(value)}").body[0]

    def _copies(self, turn: str) -> list[ast.stmt]:
        return [self._copy(_of(tile.name, turn), tile, self.comes) for tile in self.step.keys]

    def _copy(self, place: str, tile: Tile, comes: str = "") -> ast.stmt:
        """The copy of a tile; of a tile of keys that of the step that follows, if it comes."""
        parts = [tile.pointer, *([tile.mask] if tile.mask is not None else [])]
        if comes:
            parts = [self._moved(part) for part in parts]  # type: ignore[misc]
        pointer, *mask = (ast.unparse(self.expression(part, Layout.COPIES)) for part in parts)
        # An address that was looked up is that of some row, for a step that does not come as well.
        is_free = bool(names_in(tile.pointer) & self.looked_up)
        asked = " & ".join(
            [*(f"({test})" for test in mask), *([comes] if comes and not is_free else [])]
        )
        text = f"async_copy.async_copy_global_to_shared({place}, {pointer}"
        return parse_python(f"{text}{f', mask={asked}' if asked else ''})").body[0]

    def _moved(self, node: ast.AST) -> ast.AST:
        """What a step's loads are found by, for the step that follows."""
        names = {self.step.at: self.following, **self.apart}
        return Renamed(names, {}).visit(copy.deepcopy(node))  # type: ignore[no-any-return]


TURNS = ("first", "second")
"""Two sets of tiles: one is multiplied while the other is copied."""


def _of(tile: str, turn: str) -> str:
    return f"{tile}_{turn}"


def _multiplied(statement: ast.stmt) -> Product | None:
    return product_of(statement) if "tl.dot" in ast.unparse(statement) else None


def _commit() -> list[ast.stmt]:
    return parse_python("async_copy.commit_group()").body


def _waited(names: list[str]) -> list[ast.stmt]:
    """The wait for products that are under way, all that have been started."""
    many = ", ".join(names)
    return parse_python(f"{many} = warpgroup_mma_wait(0, deps=({many},))").body


def _also_if(node: ast.expr, comes: str) -> None:
    """Makes what an expression loads depend on a number as well."""
    for call in ast.walk(node):
        if not (isinstance(call, ast.Call) and called(call) == "tl.load"):
            continue
        given = {keyword.arg: keyword for keyword in call.keywords}
        if len(call.args) > 1 or not given.keys() <= {"mask", "other"}:
            raise NotWritten(ast.unparse(call))
        if "mask" in given:
            test = ast.BinOp(given["mask"].value, ast.BitAnd(), ast.Name(comes, ast.Load()))
            given["mask"].value = test
        else:
            call.keywords.append(ast.keyword("mask", ast.Name(comes, ast.Load())))
        if "other" not in given:
            call.keywords.append(ast.keyword("other", ast.Constant(0)))


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


def _set(call: ast.Call, launch: Launch, values: Mapping[str, int]) -> None:
    """Gives a launch's arguments values, and leaves out what the compiler of Triton alone reads."""
    call.keywords = [k for k in call.keywords if k.arg not in ("num_stages", "maxnreg")]
    for name, value in values.items():
        given = next((k for k in call.keywords if k.arg == name), None)
        place = launch.kernel.parameters.index(name) if name in launch.kernel.parameters else None
        if given is not None:
            given.value = ast.Constant(value)
        elif place is not None and place < len(call.args):
            call.args[place] = ast.Constant(value)
        else:
            call.keywords.append(ast.keyword(name, ast.Constant(value)))


def _language(source: Source) -> ast.stmt:
    """The import behind which those of Gluon stand."""
    for node in source.tree.body:
        if isinstance(node, ast.Import) and any(a.name == "triton.language" for a in node.names):
            return node
    raise NotWritten("no import of triton.language")
