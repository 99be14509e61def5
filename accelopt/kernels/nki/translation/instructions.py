"""What a call of `neuronxcc.nki` becomes in `nki`: a statement with a destination, or an expression."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import libcst as cst

from accelopt.kernels.nki.translation.facts import Fact, TileFact
from accelopt.kernels.nki.translation.forms import NAMES, OPERATORS, calls, like, masked
from accelopt.kernels.nki.translation.indices import Limit, Unreached, Untranslated, text_of
from accelopt.kernels.nki.translation.masking import Masking
from accelopt.kernels.nki.translation.psum_blocks import nodes_in

ONE_DIMENSION = re.compile(
    r"\(\*(.+)\.shape\[:([1-9])\], (.+), \*\1\.shape\[\2 \+ 1 ?:\]\)", re.DOTALL
)
"""A tensor's own shape with one free dimension replaced."""


class Instructions(Masking):
    """The half of the rewriting that writes calls; the other knows places and statements."""

    targets: dict[int, str]
    consumed: set[int]

    def _say(self, text: str) -> None:
        raise NotImplementedError

    def _subscripted(
        self, node: cst.Subscript, made: cst.Subscript, limits: tuple[Limit, ...]
    ) -> cst.BaseExpression:
        raise NotImplementedError

    # Instructions.

    def _instruction(
        self, node: cst.Call, function: str, given: dict[str, str], fact: Fact | None
    ) -> Any:
        if fact is None:
            raise Unreached(f"{function}, which no trace reached,")
        if self.targets.get(id(node)) == "+=":
            return self._raw(function, given)
        given = {key: self._operand(key, text, fact) for key, text in given.items()}
        if key := masked(function):
            given[key] = self._limited(given[key], fact, key, self.call_limits[id(node)])
        dtype = given.pop("dtype", "")
        if key := like(function):
            given[key] = self._named(given[key], "operand")
            given = self._cut(self._widened(function, given, fact), fact)
            shape = f"{given[key]}.shape"
            element = dtype or self._format(key, given[key], fact)
        else:
            shape, element = self._shape(function, given, fact)
            element = dtype or element
        if function == "memset":
            given = {"value": _whole(given["value"], fact)} | {
                k: v for k, v in given.items() if k == "engine"
            }
        on_tensor = fact.result is not None and fact.result.buffer == "psum"
        if (
            function == "nc_transpose"
            and on_tensor
            and "tensor" not in given.get("engine", "tensor")
        ):
            del given["engine"]  # the tile is too large for the engine that was asked for
        return self._into(node, function, given, fact, shape, element)

    def _into(
        self,
        node: cst.Call,
        function: str,
        given: dict[str, str],
        fact: Fact,
        shape: str,
        element: str,
    ) -> Any:
        """The instruction, writing the statement's target or a tile of its own."""
        target = self.targets.get(id(node), "")
        memory = fact.result.buffer if fact.result is not None else "sbuf"
        fits = "[" in target and self._memory_of(target) == memory
        fits = fits or ("[" in target and memory == "sbuf")
        self.consumed.add(id(node))
        if "[" in target and fits:
            place, given = self._masked_place(node, function, given, fact, target)
            self._emit(function, {"dst": place, **given})
            return cst.Name("None")
        own = bool(target) and "[" not in target
        read = own and any(re.search(rf"\b{target}\b", text) for text in given.values())
        name = target if own and not read else self.names.fresh(NAMES.get(function, "tile"))
        self._say(f"{name} = {self.nl}.ndarray({shape}, dtype={element}, "
                  f"buffer={self.nl}.{memory})")  # fmt: skip
        self.names.tiles[name] = memory
        self._emit(function, {"dst": name, **given})
        if "[" in target:
            self._emit("tensor_copy", {"dst": self._place(target), "src": name})
            return cst.Name("None")
        early = any(self._is_ragged(text) for text in given.values())
        (self.ragged.add if early else self.ragged.discard)(name)
        if read:  # the name's old tile is an operand
            self._say(f"{target} = {name}")
            (self.ragged.add if early else self.ragged.discard)(target)
        if not target:
            self.consumed.discard(id(node))
            return cst.Name(name)
        return cst.Name("None")

    def _emit(self, function: str, given: dict[str, str]) -> None:
        arguments = ", ".join(f"{key}={text}" for key, text in given.items())
        self._say(f"{self.nisa}.{function}({arguments})")

    def _place(self, target: str, limits: tuple[Limit, ...] = ()) -> str:
        """The statement's target, its own subscript translated."""
        tree = cst.parse_expression(target)
        if isinstance(tree, cst.Subscript):
            tree = self._subscripted(tree, tree, limits)
        return text_of(tree).removesuffix("[...]")

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
        small, large = (
            (pair[1], pair[0]) if one == (fact.result.shape if fact.result else one) else pair
        )
        return {**given, small: self._repeat(given[small], fact.tiles[small], given[large],
                                             fact.tiles[large])}  # fmt: skip

    def _repeat(self, text: str, tile: TileFact, like: str, larger: TileFact) -> str:
        if len(tile.shape) != len(larger.shape):
            raise Untranslated(f"an operand of shape {tile.shape} for {larger.shape}")
        for at, (have, want) in enumerate(zip(tile.shape, larger.shape, strict=True)):
            if have != want and (have != 1 or at == 0):
                raise Untranslated(f"an operand of shape {tile.shape} for {larger.shape}")
            if have != want:
                text = f"{text}.broadcast({at}, {like}.shape[{at}])"
        return text

    def _format(self, key: str, text: str, fact: Fact) -> str:
        """The result's default format, as a name's own or in words."""
        own = fact.tiles.get(key)
        if fact.result is not None and own is not None and fact.result.dtype != own.dtype:
            return f"{self.nl}.{nl_name(fact.result.dtype)}"
        return f"{text}.dtype"

    def _shape(self, function: str, given: dict[str, str], fact: Fact) -> tuple[str, str]:
        """Shape and format of a result that has its own."""
        assert fact.result is not None
        element = f"{self.nl}.{nl_name(fact.result.dtype)}"
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
                return f"({data}.shape[0], 1)", f"{data}.dtype" if fact.tiles[
                    "data"
                ].dtype == fact.result.dtype else element
        return str(fact.result.shape), element

    # Products.

    def _raw(self, function: str, given: dict[str, str]) -> cst.BaseExpression:
        """A product whose target is still to be written."""
        return cst.parse_expression(
            f"{self.nisa}.{function}({', '.join(f'{k}={v}' for k, v in given.items())})"
        )

    def _product(
        self, node: cst.BaseExpression, made: cst.BaseExpression, fact: Fact, target: str
    ) -> None:
        """`accumulator += product` in PSUM."""
        assert isinstance(made, cst.Call)
        order = calls("neuronxcc").get(fact.function, ("x", "y", "transpose_x"))
        given: dict[str, str] = {}
        for at, argument in enumerate(made.args):
            key = order[at] if argument.keyword is None else argument.keyword.value
            given[key] = text_of(argument.value)
        if fact.function == "matmul":
            given = self._as_instruction(given, fact)
        given = {k: self._operand(k, v, fact) for k, v in given.items() if k != "mask"}
        place = target.removesuffix("[...]")  # which is translated already
        rows = f"0 : {given['stationary']}.shape[1]" if given["stationary"] in self.ragged else ":"
        columns = f"0 : {given['moving']}.shape[1]" if given["moving"] in self.ragged else ":"
        if (rows, columns) != (":", ":"):
            if "[" in place:
                raise Untranslated("a masked product into a part of a tile")
            name = place.partition("[")[0]
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
        self,
        node: cst.Call | cst.BinaryOperation,
        made: Any,
        function: str,
        given: dict[str, str],
        fact: Fact,
    ) -> Any:
        """nl.add and its like: tiles of one shape, or a tile and a number, stay as they are; one value
        a partition is an operand of nisa.tensor_scalar."""
        given = {
            ("x", "y")[n] if k not in ("x", "y", "dtype") else k: v
            for n, (k, v) in enumerate(given.items())
        }
        tiles = [fact.tiles.get(key) for key in ("x", "y")]
        if None in tiles or fact.result is None:
            return self._plain(made, function, given)
        x, y = tiles
        assert x is not None and y is not None
        given = self._cut(given, fact)
        if x.shape == y.shape:
            return self._plain(made, function, given)
        for data, operand, wide, column in (("x", "y", x, y), ("y", "x", y, x)):
            if wide.shape == fact.result.shape and column.shape == (
                wide.shape[0],
                *(1,) * (len(wide.shape) - 1),
            ):
                like = self._named(given[data], "operand")
                element = given.get("dtype") or (
                    f"{like}.dtype"
                    if wide.dtype == fact.result.dtype
                    else f"{self.nl}.{nl_name(fact.result.dtype)}"
                )
                arguments = {
                    "data": like,
                    "op0": f"{self.nl}.{function}",
                    "operand0": given[operand],
                }
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
            return self._plain(updated_node, function, self._cut(given, fact))
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
            return made.with_changes(args=without(made.args, "mask"))
        shape = ", ".join(text_of(a.value) for a in made.args)
        one = ONE_DIMENSION.fullmatch(shape)
        if one is not None and one[1] == text_of(made.func.value):
            return cst.parse_expression(f"{one[1]}.broadcast({one[2]}, {one[3]})")
        wanted = shape if len(made.args) == 1 else f"({shape})"
        return cst.parse_expression(f"{self.nl}.broadcast_to({text_of(made.func.value)}, {wanted})")

    # Names.

    def _named(self, text: str, kind: str) -> str:
        """The text, when it is a name; else a new name for what it is."""
        if text.isidentifier():
            return text
        name = self.names.fresh(kind)
        self._say(f"{name} = {text}")
        if self._is_ragged(text):
            self.ragged.add(name)
        return name


class _Nothing(cst.Pass):
    """A statement that has become others."""


NOTHING = _Nothing()


def is_nothing(node: cst.CSTNode) -> bool:
    """True for a statement that has become others."""
    return isinstance(node, _Nothing)


def without(arguments: Sequence[cst.Arg], name: str) -> Sequence[cst.Arg]:
    """The arguments but for one keyword."""
    kept = [a for a in arguments if a.keyword is None or a.keyword.value != name]
    return [a.with_changes(comma=cst.MaybeSentinel.DEFAULT) if n == len(kept) - 1 else a
            for n, a in enumerate(kept)]  # fmt: skip


def arguments_of(given: dict[str, str]) -> list[cst.Arg]:
    """Keyword arguments."""
    call = cst.ensure_type(
        cst.parse_expression(f"f({', '.join(f'{k}={v}' for k, v in given.items())})"), cst.Call
    )
    return list(call.args)


def names_in(node: cst.CSTNode) -> list[cst.Name]:
    """Every name below a node."""
    return [n for n in nodes_in(node) if isinstance(n, cst.Name)]


def nl_name(dtype: str) -> str:
    """A format as nl spells it."""
    return "bool_" if dtype == "bool" else dtype


def _whole(value: str, fact: Fact) -> str:
    """memset's value: a whole number for integer formats."""
    integer = fact.result is not None and fact.result.dtype.startswith(("int", "uint"))
    if integer and value.endswith(".0"):
        return value[:-2]
    return value
