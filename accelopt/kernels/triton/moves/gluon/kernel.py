"""The function of a kernel in Gluon: this step's products with the next step's copies between them."""

from __future__ import annotations

import ast
import copy
from collections.abc import Mapping, Sequence
from typing import TypeVar

from accelopt.kernels.triton.moves.ahead import stays_inside
from accelopt.kernels.triton.moves.gluon.shapes import NotWritten, Shapes
from accelopt.kernels.triton.moves.gluon.steps import KeyStep
from accelopt.kernels.triton.moves.gluon.writing import Axes, GluonWriter, Layout, converted
from accelopt.kernels.triton.moves.loops import Renamed, fresh_name
from accelopt.kernels.triton.moves.once import Product, product_of
from accelopt.kernels.triton.moves.source import assigned_in, called, names_in, target_of
from accelopt.parsing import parse_expression, parse_python

_Node = TypeVar("_Node", bound=ast.AST)

BESIDE = "_beside"
"""What the name of a kernel in Gluon ends with."""
TURNS = ("first", "second")
"""Two sets of tiles: one is multiplied while the other is copied."""


class Kernel(GluonWriter):
    """Writes a kernel's function; `parameters` are those that the addresses of tiles begin with."""

    def __init__(
        self,
        node: ast.FunctionDef,
        parameters: Mapping[str, str],
        shapes: Shapes,
        axes: Axes,
        step: KeyStep,
    ) -> None:
        dtypes = {name: f"{pointer}.dtype.element_ty" for name, pointer in parameters.items()}
        super().__init__(shapes, axes, self._looked_up(shapes, step), dtypes)
        self.node, self.step = node, step
        self.columns = shapes.of_names[step.values[0].target].axes[1]
        self.is_copying = False
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
            self.is_copying = False
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
        places += [(copied_to(tile.name, turn), tile) for tile in self.step.keys for turn in TURNS]
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
        if tile is not None:
            self.is_copying = True
            return [self._copy(tile.name, tile.pointer, _given(tile.mask)), *_commit()]
        if isinstance(node, ast.Return) and self.is_copying:
            return [*parse_python("async_copy.wait_group(0)").body, node]
        return super().statement(node)

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
        return [*before, *self._copies(first, first=True), *_commit(), loop, *behind]

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
            tile, total = copied_to(ast.unparse(product.call.args[1]), now), product.target
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
            tile = copied_to(ast.unparse(turned.args[0]), now)
            anew = "" if place else "use_acc=False, "
            lines += parse_python(
                f"{target} = warpgroup_mma({ast.unparse(query)}, {tile}.permute((1, 0)), {target}, "
                f"{anew}is_async=True)"
            ).body
            # Of many short products one stays ahead, or the tensor cores would wait for the copies.
            if place or len(self.step.scores) <= 2:
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

    def _copies(self, turn: str, *, first: bool = False) -> list[ast.stmt]:
        """The copies of the tiles of the step that follows, if it comes.

        An address that was looked up is some row's, and harmless for a step that does not come; but
        before the first step it is not known that there is a row.
        """
        lines = []
        for tile in self.step.keys:
            conditions = [self._moved(test) for test in _given(tile.mask)]
            is_some_row = names_in(tile.pointer) & self.looked_up and not self._asks_where(
                tile.pointer
            )
            if first or not is_some_row:
                conditions.append(parse_expression(self.comes))
            lines.append(
                self._copy(copied_to(tile.name, turn), self._moved(tile.pointer), conditions)
            )
        return lines

    def _asks_where(self, node: ast.AST) -> bool:
        """Whether something is made of a step's position itself, not of what was looked up for it."""
        names = names_in(node)
        return self.step.at in names or any(
            self._asks_where(statement.value)
            for statement in self.step.lookups
            if isinstance(statement, ast.Assign)
            and (target_of(statement) or "") in names - self.looked_up
        )

    def _copy(self, place: str, pointer: ast.expr, conditions: Sequence[ast.expr]) -> ast.stmt:
        written = [self.expression(part, Layout.COPIES) for part in (pointer, *conditions)]
        address, *tests = (ast.unparse(part) for part in written)
        mask = f", mask={' & '.join(f'({test})' for test in tests)}" if tests else ""
        text = f"async_copy.async_copy_global_to_shared({place}, {address}{mask})"
        return parse_python(text).body[0]

    def _moved(self, node: _Node) -> _Node:
        """What a step's loads are found by, for the step that follows."""
        names = {self.step.at: self.following, **self.apart}
        return Renamed(names, {}).visit(copy.deepcopy(node))  # type: ignore[no-any-return]


def _given(mask: ast.expr | None) -> list[ast.expr]:
    return [] if mask is None else [mask]


def copied_to(tile: str, turn: str) -> str:
    """The name of a tile in shared memory."""
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
