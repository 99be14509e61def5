"""From `neuronxcc.nki` to `nki`: destinations first, slices for index arithmetic, no block dimensions.

What a statement becomes is decided by what its calls were when the kernel was traced (`facts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from accelopt.kernels.nki.translation.facts import Fact, Facts, Tile
from accelopt.kernels.nki.translation.forms import (
    AUGMENTED,
    BINARY,
    GONE,
    IN_PLACE,
    LIKE,
    NAMES,
    OPERATORS,
    SHAPED,
)
from accelopt.kernels.nki.translation.indices import Indices, Limit, Untranslated, text_of
from accelopt.kernels.nki.translation.names import Names

RANGES = frozenset({"affine_range", "sequential_range", "static_range"})
ON_CHIP = frozenset({"sbuf", "psum"})


class ToNki(cst.CSTTransformer):
    """Rewrites a module; `problems` are what it could not, as (line, sentence)."""

    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, facts: Facts, names: Names) -> None:
        super().__init__()
        self.facts, self.names = facts, names
        self.nl, self.nisa = names.language, names.isa
        self.indices = Indices(self.nl)
        self.problems: list[tuple[int, str]] = []
        self.before: list[list[str]] = []
        self.targets: dict[int, str] = {}  # a statement's own call: where its result goes
        self.consumed: set[int] = set()  # calls that have become statements of their own
        self.blocks: dict[str, int] = {}  # tensors with block dimensions, and how many
        self.ragged: set[str] = set()  # tiles that are smaller where a mask was
        self.padded: set[str] = set()  # tiles of which only a part is written where a mask was
        self.limits: list[tuple[Limit, ...]] = []
        self.accumulators: set[str] = set()

    # Places and facts.

    def _fact(self, node: cst.CSTNode) -> Fact | None:
        place = self.get_metadata(PositionProvider, node, None)
        if place is None:
            return None
        return self.facts.at(
            (place.start.line, place.start.column, place.end.line, place.end.column)
        )

    def _line(self, node: cst.CSTNode) -> int:
        place: Any = self.get_metadata(PositionProvider, node, None)
        return 0 if place is None else int(place.start.line)

    def _give_up(self, node: cst.CSTNode, said: str) -> None:
        self.problems.append((self._line(node), said))

    # Statements.

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> bool:
        self.before.append([])
        return True

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> Any:
        said = self.before.pop()
        kept = [part for part in updated_node.body if not _is_nothing(part)]
        if not said and len(kept) == len(updated_node.body):
            return updated_node
        lines: list[Any] = [cst.parse_statement(text) for text in said]
        if kept:
            lines.append(updated_node.with_changes(body=kept, leading_lines=()))
        if not lines:
            return cst.RemoveFromParent()
        lines[0] = lines[0].with_changes(leading_lines=updated_node.leading_lines)
        if not kept:
            lines[-1] = lines[-1].with_changes(
                trailing_whitespace=updated_node.trailing_whitespace
            )
        return cst.FlattenSentinel(lines)

    def _say(self, text: str) -> None:
        if not self.before:
            raise Untranslated("a call in the head of a statement")
        self.before[-1].append(text)

    def visit_Assign(self, node: cst.Assign) -> bool:
        target = node.targets[0].target
        try:
            if len(node.targets) == 1 and self.indices.learn(target, node.value):
                self.consumed.add(id(node))
                return False
        except Untranslated as problem:
            self._give_up(node, f"{problem} has no counterpart")
            return False
        if len(node.targets) == 1 and isinstance(node.value, cst.Call):
            if isinstance(target, (cst.Name, cst.Subscript)):
                self.targets[id(node.value)] = text_of(target)
        return True

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> Any:
        if id(original_node) in self.consumed:
            return NOTHING
        if id(original_node.value) in self.consumed:
            return NOTHING
        target = original_node.targets[0].target
        if isinstance(target, cst.Name):
            self._note(target.value, original_node.value)
        return updated_node

    def _note(self, name: str, value: cst.BaseExpression) -> None:
        """Whether a name's tile is ragged or padded, as what it was computed from."""
        used = {n.value for n in _names_in(value)}
        masked = any(
            isinstance(node, cst.Arg) and node.keyword is not None and node.keyword.value == "mask"
            and self.indices.limits(node.value)
            for node in _nodes_in(value)
        )  # fmt: skip
        loads = any(f"{self.nl}.load" == text_of(n.func) for n in _nodes_in(value)
                    if isinstance(n, cst.Call))  # fmt: skip
        for group, holds in (
            (self.ragged, (masked and loads) or bool(used & self.ragged)),
            (self.padded, bool(used & self.padded)),
        ):
            group.discard(name)
            if holds:
                group.add(name)

    def leave_AugAssign(self, original_node: cst.AugAssign, updated_node: cst.AugAssign) -> Any:
        fact = self._fact(original_node.value)
        op = AUGMENTED.get(type(original_node.operator).__name__)
        target = text_of(updated_node.target)
        name = target.partition("[")[0]
        if fact is not None and fact.function in ("nc_matmul", "matmul") and op == "add":
            if id(original_node.value) not in self.consumed:
                self._product(original_node.value, updated_node.value, fact, target)
            return NOTHING
        known = self.names.tiles.get(name)
        if op is None or known is None:
            return updated_node
        value = self._named(text_of(updated_node.value), "term")
        if fact is None or fact.result is None:
            self._say(f"{self.nisa}.tensor_scalar(dst={target}, data={target}, "
                      f"op0={self.nl}.{op}, operand0={value})")  # fmt: skip
        else:
            self._say(f"{self.nisa}.tensor_tensor(dst={target}, data1={target}, data2={value}, "
                      f"op={self.nl}.{op})")  # fmt: skip
        return NOTHING

    def visit_AugAssign(self, node: cst.AugAssign) -> bool:
        fact = self._fact(node.value)
        if fact is not None and fact.function in ("nc_matmul", "matmul"):
            self.targets[id(node.value)] = "+="
        return True

    def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> Any:
        return NOTHING if id(original_node.value) in self.consumed else updated_node

    # Calls.

    def visit_Call(self, node: cst.Call) -> bool:
        mask = next((a for a in node.args if a.keyword and a.keyword.value == "mask"), None)
        self.limits.append(() if mask is None else self.indices.limits(mask.value))
        return True

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> Any:
        limits = self.limits.pop()
        try:
            return self._call(original_node, updated_node, limits)
        except Untranslated as problem:
            self._give_up(original_node, f"{problem} has no counterpart")
            return updated_node

    def _call(self, node: cst.Call, made: cst.Call, limits: tuple[Limit, ...]) -> Any:
        if isinstance(made.func, cst.Attribute) and made.func.attr.value == "broadcast_to":
            return self._repeated(node, made)
        name = self.names.called(node.func)
        if name is None:
            return made
        space, function = name
        fact = self._fact(node)
        if function in RANGES:
            return made
        if space == "nl" and function == "par_dim":
            return made.args[0].value
        if function in GONE:
            self._give_up(node, f"{space}.{function}: {GONE[function]}")
            return made
        if space == "nl" and function in ("ndarray", "zeros", "full", "ones"):
            return self._creation(node, made, function)
        given = {k: v for k, v in self._arguments(made, function, fact).items() if k != "mask"}
        if space == "nisa" and function in IN_PLACE:
            return made.with_changes(args=arguments_of({k: given[k] for k in given if k != "mask"}))
        if space == "nisa" and (function in LIKE or function in SHAPED):
            return self._instruction(node, function, given, fact)
        if space == "nl" and function in BINARY and fact is not None:
            return self._binary(node, made, function, given, fact)
        if space == "nl" and function == "store":
            return self._store(made, given, limits)
        if space == "nl" and any(argument.keyword for argument in made.args):
            return made.with_changes(args=_without(made.args, "mask"))
        return made

    def _arguments(self, made: cst.Call, function: str, fact: Fact | None) -> dict[str, str]:
        """The arguments by parameter, as text."""
        order = self._parameters(function)
        found: dict[str, str] = {}
        for at, argument in enumerate(made.args):
            if argument.keyword is None and at >= len(order):
                raise Untranslated(f"the {at + 1}th argument of {function}")
            key = order[at] if argument.keyword is None else argument.keyword.value
            found[key] = self._token(key, text_of(argument.value))
        return found

    def _parameters(self, function: str) -> tuple[str, ...]:
        if function in LIKE:
            return LIKE[function].parameters
        if function in BINARY:
            return ("x", "y")
        return SHAPED.get(function) or IN_PLACE.get(function) or ("dst", "value", "axis", "keepdims")

    def _token(self, key: str, text: str) -> str:
        """NumPy's functions are no operators in nki."""
        if not key.startswith(("op", "reduce_op", "comp_op")) or not text.startswith("np."):
            return text
        renamed = {"max": "maximum", "amax": "maximum", "min": "minimum", "amin": "minimum",
                   "sum": "add"}  # fmt: skip
        leaf = text[3:]
        return f"{self.nl}.{renamed.get(leaf, leaf)}"

    def _creation(self, node: cst.Call, made: cst.Call, function: str) -> Any:
        """nl.ndarray and its like, with the partition dimension first."""
        shape = node.args[0].value
        target = self.targets.get(id(node), "")
        elements = shape.elements if isinstance(shape, (cst.Tuple, cst.List)) else ()
        marked = [n for n, e in enumerate(elements) if f"{self.nl}.par_dim" in text_of(e.value)
                  or "par_dim(" in text_of(e.value)]  # fmt: skip
        sizes = made.args[0].value
        if marked and marked[0] and isinstance(sizes, (cst.Tuple, cst.List)):
            self.blocks[target] = marked[0]
            texts = [text_of(e.value) for e in sizes.elements]
            at = marked[0]
            order = [texts[at], *texts[:at], *texts[at + 1 :]]
            sizes = cst.parse_expression(f"({', '.join(order)})")
        args = [made.args[0].with_changes(value=sizes), *made.args[1:]]
        args = list(_without(args, "lazy_initialization"))
        buffer = next((text_of(a.value) for a in args if a.keyword and a.keyword.value == "buffer"), "")
        if "alloc" in buffer:
            raise Untranslated(f"the direct allocation buffer={buffer}")
        in_psum = buffer.endswith("psum")
        self.names.tiles[target] = "psum" if in_psum else "sbuf"
        if in_psum and function == "zeros":
            self.accumulators.add(target)
            return made.with_changes(func=cst.parse_expression(f"{self.nl}.ndarray"), args=args)
        return made.with_changes(args=args)

    # Instructions.

    def _instruction(self, node: cst.Call, function: str, given: dict[str, str], fact: Fact | None) -> Any:
        if fact is None:
            raise Untranslated(f"{function}, which no trace reached,")
        if self.targets.get(id(node)) == "+=":
            return self._raw(function, given)
        given = {key: self._operand(key, text, fact) for key, text in given.items()}
        dtype = given.pop("dtype", "")
        if function in LIKE:
            like = self._named(given[LIKE[function].like], "operand")
            given[LIKE[function].like] = like
            given = self._widened(function, given, fact)
            shape = f"{like}.shape"
            element = dtype or self._format(function, like, fact)
        else:
            shape, element = self._shape(function, given, fact)
            element = dtype or element
        if function == "memset":
            given = {"value": _whole(given["value"], fact)} | {k: v for k, v in given.items() if k == "engine"}
        if function == "nc_transpose" and "engine" in given and not given["engine"].endswith("tensor_engine"):
            if fact.result is not None and fact.result.buffer == "psum":
                del given["engine"]  # the tile is too large for the engine that was asked for
        return self._into(node, function, given, fact, shape, element)

    def _into(
        self, node: cst.Call, function: str, given: dict[str, str], fact: Fact, shape: str, element: str
    ) -> Any:
        """The instruction, writing the statement's target or a tile of its own."""
        target = self.targets.get(id(node), "")
        memory = fact.result.buffer if fact.result is not None else "sbuf"
        fits = "[" in target and self._memory_of(target) == memory
        fits = fits or ("[" in target and memory == "sbuf")
        self.consumed.add(id(node))
        if "[" in target and fits:
            self._emit(function, {"dst": self._place(target), **given})
            return cst.Name("None")
        name = target if target and "[" not in target else self.names.fresh(NAMES.get(function, "tile"))
        self._say(f"{name} = {self.nl}.ndarray({shape}, dtype={element}, "
                  f"buffer={self.nl}.{memory})")  # fmt: skip
        self.names.tiles[name] = memory
        self._emit(function, {"dst": name, **given})
        if "[" in target:
            self._emit("tensor_copy", {"dst": self._place(target), "src": name})
            return cst.Name("None")
        if not target:
            self.consumed.discard(id(node))
            return cst.Name(name)
        used = {word for text in given.values() for word in self.ragged if word in text}
        (self.ragged.add if used else self.ragged.discard)(name)
        return cst.Name("None")

    def _emit(self, function: str, given: dict[str, str]) -> None:
        arguments = ", ".join(f"{key}={text}" for key, text in given.items())
        self._say(f"{self.nisa}.{function}({arguments})")

    def _place(self, target: str) -> str:
        """The statement's target, its own subscript translated."""
        tree = cst.parse_expression(target)
        if isinstance(tree, cst.Subscript):
            tree = self._subscripted(tree, tree, ())
        return text_of(tree)

    def _memory_of(self, target: str) -> str:
        return self.names.tiles.get(target.partition("[")[0], "sbuf")

    def _operand(self, key: str, text: str, fact: Fact) -> str:
        """perf_mode is an enumeration in nki."""
        if key == "perf_mode" and "double_row" in text:
            return f"{self.nisa}.matmul_perf_mode.double_row"
        return text

    def _widened(self, function: str, given: dict[str, str], fact: Fact) -> dict[str, str]:
        """Operands that repeated along free axes, as views that say so."""
        pair = {"tensor_tensor": ("data1", "data2")}.get(function)
        if pair is None or not all(key in fact.tiles for key in pair):
            return given
        one, other = (fact.tiles[key].shape for key in pair)
        if one == other:
            return given
        small, large = (pair[1], pair[0]) if one == (fact.result.shape if fact.result else one) else pair
        return {**given, small: self._repeat(given[small], fact.tiles[small], given[large],
                                             fact.tiles[large])}  # fmt: skip

    def _repeat(self, text: str, tile: Tile, like: str, larger: Tile) -> str:
        if len(tile.shape) != len(larger.shape):
            raise Untranslated(f"an operand of shape {tile.shape} for {larger.shape}")
        for at, (have, want) in enumerate(zip(tile.shape, larger.shape, strict=True)):
            if have != want and (have != 1 or at == 0):
                raise Untranslated(f"an operand of shape {tile.shape} for {larger.shape}")
            if have != want:
                text = f"{text}.broadcast({at}, {like}.shape[{at}])"
        return text

    def _format(self, function: str, like: str, fact: Fact) -> str:
        """The result's default format, as a name's own or in words."""
        own = fact.tiles.get(LIKE[function].like)
        if fact.result is not None and own is not None and fact.result.dtype != own.dtype:
            return f"{self.nl}.{_nl_name(fact.result.dtype)}"
        return f"{like}.dtype"

    def _shape(self, function: str, given: dict[str, str], fact: Fact) -> tuple[str, str]:
        """Shape and format of a result that has its own."""
        assert fact.result is not None
        element = f"{self.nl}.{_nl_name(fact.result.dtype)}"
        if function == "memset":
            return given["shape"], given.get("dtype", element)
        if function == "nc_transpose" and len(fact.tiles["data"].shape) == 2:
            data = given["data"] = self._named(given["data"], "operand")
            return f"({data}.shape[1], {data}.shape[0])", f"{data}.dtype"
        if function == "nc_matmul" and len(fact.result.shape) == 2:
            left = given["stationary"] = self._named(given["stationary"], "stationary")
            right = given["moving"] = self._named(given["moving"], "moving")
            return f"({left}.shape[1], {right}.shape[1])", element
        if function == "tensor_reduce":
            data = given["data"] = self._named(given["data"], "operand")
            kept = fact.tiles["data"].shape
            if len(kept) == 2 and fact.result.shape == (kept[0], 1):
                return f"({data}.shape[0], 1)", f"{data}.dtype" if fact.tiles["data"].dtype == fact.result.dtype else element
        return str(fact.result.shape), element

    # Products.

    def _raw(self, function: str, given: dict[str, str]) -> cst.BaseExpression:
        """A product whose target is still to be written."""
        return cst.parse_expression(f"{self.nisa}.{function}({', '.join(f'{k}={v}' for k, v in given.items())})")

    def _product(
        self, node: cst.BaseExpression, made: cst.BaseExpression, fact: Fact, target: str
    ) -> None:
        """`accumulator += product` in PSUM."""
        assert isinstance(made, cst.Call)
        order = SHAPED["nc_matmul"] if fact.function == "nc_matmul" else ("x", "y", "transpose_x")
        given: dict[str, str] = {}
        for at, argument in enumerate(made.args):
            key = order[at] if argument.keyword is None else argument.keyword.value
            given[key] = text_of(argument.value)
        if fact.function == "matmul":
            given = self._as_instruction(given, fact)
        given = {k: self._operand(k, v, fact) for k, v in given.items() if k != "mask"}
        place = self._place(target)
        rows = f"0 : {given['stationary']}.shape[1]" if given["stationary"] in self.ragged else ":"
        columns = f"0 : {given['moving']}.shape[1]" if given["moving"] in self.ragged else ":"
        if (rows, columns) != (":", ":"):
            if "[" in place and not place.endswith("[...]"):
                raise Untranslated("a masked product into a part of a tile")
            name = place.partition("[")[0]
            self.padded.add(name)
            place = f"{name}[{rows}, {columns}]"
        self._emit("nc_matmul", {"dst": place, **given})

    def _as_instruction(self, given: dict[str, str], fact: Fact) -> dict[str, str]:
        """nl.matmul as what it becomes: a transpose where x is not turned yet, and a product."""
        left, right = given["x"], given["y"]
        for key, text in (("x", left), ("y", right)):
            if fact.tiles[key].buffer == "psum":
                given[key] = f"{self.nl}.copy({text})"
        left, right = self._named(given["x"], "operand"), self._named(given["y"], "moving")
        if given.get("transpose_x", "False") == "True":
            return {"stationary": left, "moving": right}
        turned, kept = self.names.fresh("turned"), self.names.fresh("stationary")
        self._say(f"{turned} = {self.nl}.ndarray(({left}.shape[1], {left}.shape[0]), "
                  f"dtype={left}.dtype, buffer={self.nl}.psum)")  # fmt: skip
        self._emit("nc_transpose", {"dst": turned, "data": left})
        self._say(f"{kept} = {self.nl}.copy({turned})")
        if left in self.ragged:
            self.ragged |= {turned, kept}
        return {"stationary": kept, "moving": right}

    # Mathematics of nl.

    def _binary(
        self, node: cst.Call | cst.BinaryOperation, made: Any, function: str, given: dict[str, str], fact: Fact
    ) -> Any:
        """nl.add and its like: tiles of one shape, or a tile and a number, stay as they are; one value
        a partition is an operand of nisa.tensor_scalar."""
        given = {("x", "y")[n] if k not in ("x", "y", "dtype") else k: v for n, (k, v) in enumerate(given.items())}
        tiles = [fact.tiles.get(key) for key in ("x", "y")]
        if None in tiles or fact.result is None:
            return self._plain(made, function, given)
        x, y = tiles
        assert x is not None and y is not None
        if x.shape == y.shape:
            return self._plain(made, function, given)
        for data, operand, wide, column in (("x", "y", x, y), ("y", "x", y, x)):
            if wide.shape == fact.result.shape and column.shape == (wide.shape[0], *(1,) * (len(wide.shape) - 1)):
                like = self._named(given[data], "operand")
                element = given.get("dtype") or (f"{like}.dtype" if wide.dtype == fact.result.dtype else f"{self.nl}.{_nl_name(fact.result.dtype)}")
                arguments = {"data": like, "op0": f"{self.nl}.{function}", "operand0": given[operand]}
                if data == "y":
                    arguments["reverse0"] = "True"
                plain = fact._replace(result=fact.result._replace(buffer="sbuf"))
                return self._into(node, "tensor_scalar", arguments, plain, f"{like}.shape", element)  # type: ignore[arg-type]
        for small, large, tile, larger in (("y", "x", y, x), ("x", "y", x, y)):
            if larger.shape == fact.result.shape and len(tile.shape) == len(larger.shape):
                wide_name = given[large] = self._named(given[large], "operand")
                given[small] = f"{self.nl}.broadcast_to({given[small]}, {wide_name}.shape)"
                return self._plain(made, function, given)
        raise Untranslated(f"nl.{function} of {x.shape} and {y.shape}")

    def _plain(self, made: Any, function: str, given: dict[str, str]) -> Any:
        dtype = f", dtype={given['dtype']}" if "dtype" in given else ""
        return cst.parse_expression(f"{self.nl}.{function}({given['x']}, {given['y']}{dtype})")

    def leave_BinaryOperation(
        self, original_node: cst.BinaryOperation, updated_node: cst.BinaryOperation
    ) -> Any:
        fact = self._fact(original_node)
        function = OPERATORS.get(type(original_node.operator).__name__)
        if fact is None or function is None or fact.function not in (function, "divide"):
            return updated_node
        given = {"x": text_of(updated_node.left), "y": text_of(updated_node.right)}
        if {"x", "y"} & fact.tiles.keys() == {"x", "y"} and fact.tiles["x"] == fact.tiles["y"]:
            return self._plain(updated_node, function, given)
        try:
            return self._binary(original_node, updated_node, function, given, fact)
        except Untranslated as problem:
            self._give_up(original_node, f"{problem} has no counterpart")
            return updated_node

    def leave_UnaryOperation(
        self, original_node: cst.UnaryOperation, updated_node: cst.UnaryOperation
    ) -> Any:
        fact = self._fact(original_node)
        if fact is None or fact.function != "negative":
            return updated_node
        return cst.parse_expression(f"{self.nl}.negative({text_of(updated_node.expression)})")

    def _repeated(self, node: cst.Call, made: cst.Call) -> Any:
        """`tile.broadcast_to(shape)`, which may repeat partitions, as a tile of its own."""
        assert isinstance(made.func, cst.Attribute)
        if self.names.called(node.func) is not None:
            return made.with_changes(args=_without(made.args, "mask"))
        shape = ", ".join(text_of(a.value) for a in made.args)
        wanted = shape if len(made.args) == 1 else f"({shape})"
        return cst.parse_expression(f"{self.nl}.broadcast_to({text_of(made.func.value)}, {wanted})")

    def _store(self, made: cst.Call, given: dict[str, str], limits: tuple[Limit, ...]) -> Any:
        dst, value = given["dst"], given["value"]
        if limits and value in self.padded:
            view = self._named(dst, "place")
            value = f"{value}[0 : {view}.shape[0], 0 : {view}.shape[1]]"
            dst = view
        return cst.parse_expression(f"{self.nl}.store({dst}, {value})")

    # Subscripts.

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> Any:
        try:
            limits = self.limits[-1] if self.limits else ()
            return self._subscripted(original_node, updated_node, limits)
        except Untranslated as problem:
            self._give_up(original_node, f"{problem} has no counterpart")
            return updated_node

    def _subscripted(
        self, node: cst.Subscript, made: cst.Subscript, limits: tuple[Limit, ...]
    ) -> cst.BaseExpression:
        """Slices for indices, and the partition dimension before what were block dimensions."""
        items: list[str] = []
        splits: list[tuple[int, tuple[str, ...]]] = []
        positions: list[int] = []
        for old, new in zip(node.slice, made.slice, strict=True):
            index = self.indices.index(old.slice.value) if isinstance(old.slice, cst.Index) else None
            if index is None:
                items.append(text_of(new.slice))
                continue
            text, sizes = self.indices.sliced(index, limits)
            positions += [axis.position for axis in index.axes]
            if sizes:
                splits.append((len(items), sizes))
            items.append(text)
        if positions != sorted(positions):
            raise Untranslated("an index that transposes")
        blocks = self.blocks.get(text_of(made.value), 0)
        if blocks:
            items = [*items[:blocks], ":"] if len(items) <= blocks else items
            at = blocks if len(items) > blocks else len(items) - 1
            items = [items[at], *items[:at], *items[at + 1 :]]
        if not positions and not blocks:
            return made
        text = f"{text_of(made.value)}[{', '.join(items)}]"
        for at, sizes in reversed(splits):
            text += f".reshape_dim({at}, ({', '.join(sizes)}))"
        return cst.parse_expression(text)

    # Names.

    def _named(self, text: str, kind: str) -> str:
        """The text, when it is a name; else a new name for what it is."""
        if text.isidentifier():
            return text
        name = self.names.fresh(kind)
        self._say(f"{name} = {text}")
        return name

    def leave_Decorator(self, original_node: cst.Decorator, updated_node: cst.Decorator) -> Any:
        decorator = updated_node.decorator
        called = decorator.func if isinstance(decorator, cst.Call) else decorator
        if text_of(called).endswith((".jit", ".baremetal", ".trace", ".benchmark")):
            return updated_node.with_changes(decorator=cst.parse_expression(f"{self.names.top}.jit"))
        return updated_node


class _Nothing(cst.Pass):
    """A statement that has become others."""


NOTHING = _Nothing()


def _is_nothing(node: cst.CSTNode) -> bool:
    return isinstance(node, _Nothing)


def _without(arguments: Sequence[cst.Arg], name: str) -> Sequence[cst.Arg]:
    kept = [a for a in arguments if a.keyword is None or a.keyword.value != name]
    return [a.with_changes(comma=cst.MaybeSentinel.DEFAULT) if n == len(kept) - 1 else a
            for n, a in enumerate(kept)]  # fmt: skip


def arguments_of(given: dict[str, str]) -> list[cst.Arg]:
    """Keyword arguments."""
    call = cst.ensure_type(
        cst.parse_expression(f"f({', '.join(f'{k}={v}' for k, v in given.items())})"), cst.Call
    )
    return list(call.args)


def _names_in(node: cst.CSTNode) -> list[cst.Name]:
    return [n for n in _nodes_in(node) if isinstance(n, cst.Name)]


def _nodes_in(node: cst.CSTNode) -> list[cst.CSTNode]:
    found = [node]
    for child in node.children:
        found += _nodes_in(child)
    return found


def _nl_name(dtype: str) -> str:
    return "bool_" if dtype == "bool" else dtype


def _whole(value: str, fact: Fact) -> str:
    """memset's value: a whole number for integer formats."""
    integer = fact.result is not None and fact.result.dtype.startswith(("int", "uint"))
    if integer and value.endswith(".0"):
        return value[:-2]
    return value


def to_nki(source: str, facts: Facts, names: Names) -> tuple[str, list[tuple[int, str]]]:
    """The module in the dialect of `nki`, and what could not be translated."""
    wrapper = MetadataWrapper(cst.parse_module(source))
    rewriter = ToNki(facts, names)
    made = wrapper.visit(rewriter)
    return made.code, rewriter.problems
