"""From `neuronxcc.nki` to `nki`: destinations first, slices for index arithmetic, no block dimensions.

What a statement becomes is decided by what its calls were when the kernel was traced (`facts`).
"""

from __future__ import annotations

import contextlib
import re
from typing import Any

import libcst as cst
import numpy as np
from libcst.metadata import MetadataWrapper

from accelopt.kernels.nki.translation.facts import CallFacts, Fact
from accelopt.kernels.nki.translation.forms import (
    AUGMENTED,
    BINARY,
    GONE,
    SHAPED,
    calls,
    in_place,
    like,
)
from accelopt.kernels.nki.translation.imports import HOST_NAMES
from accelopt.kernels.nki.translation.index_patterns import (
    compared,
    gathered,
    pattern,
    patterned,
    position,
)
from accelopt.kernels.nki.translation.indices import (
    RAISES,
    Indices,
    Limit,
    Unreached,
    Untranslated,
    text_of,
)
from accelopt.kernels.nki.translation.instructions import (
    NOTHING,
    Instructions,
    arguments_of,
    is_nothing,
    names_in,
    nl_name,
    without,
)
from accelopt.kernels.nki.translation.names import ModuleNames
from accelopt.kernels.nki.translation.psum_blocks import (
    PSUM_BYTES,
    nodes_in,
    partition_bytes,
    written_before_read,
)

REDUCTIONS = frozenset({"sum", "max", "min", "mean", "var", "prod", "all"})
HINTS = frozenset({"enable_stack_allocator", "skip_middle_end_transformations", "force_auto_alloc"})
"""Decorators for the compiler of `neuronxcc`; `nki` has none of them."""
RANGES = frozenset({"affine_range", "sequential_range", "static_range"})


class ToNki(Instructions):
    """Results become destinations: statements, loops, indices; calls are `Instructions`'."""

    def __init__(self, facts: CallFacts, names: ModuleNames) -> None:
        super().__init__(facts, names)
        self.indices = Indices(self.nl)
        self.before: list[list[str]] = []
        self.targets: dict[int, str] = {}  # a statement's own call: where its result goes
        self.consumed: set[int] = set()  # calls that have become statements of their own
        self.blocks: dict[str, int] = {}  # tensors with block dimensions, and how many
        self.single: set[str] = set()  # of these, those of which one block at a time is in use,
        self.renewed: dict[int, cst.Assign] = {}  # and what writes a block, with the creation
        self.summed: set[str] = set()  # tiles that loop_reduce sums in
        self.moved: set[int] = set()  # creations of tiles that PSUM cannot hold
        self.ragged: set[str] = set()  # tiles that are smaller where a mask was
        self.limits: list[tuple[Limit, ...]] = []
        self.call_limits: dict[int, tuple[Limit, ...]] = {}  # of a mask, by its call
        self.target_limits: dict[int, tuple[Limit, ...]] = {}  # and by what the call is assigned to
        self.target_ends: dict[int, str] = {}  # a tile that ends early, of which it is made
        self.carried: tuple[cst.EmptyLine, ...] = ()  # comments of statements that are gone
        self.held: dict[int, tuple[cst.EmptyLine, ...]] = {}

    # Statements.

    def visit_Module(self, node: cst.Module) -> None:
        """A function may use tensors that stand below it."""
        assigned = [n for n in nodes_in(node) if isinstance(n, cst.Assign)]
        self.summed = {
            text_of(made.targets[0].target.value)
            for made in assigned
            if isinstance(made.targets[0].target, cst.Subscript) and self._is_sum(made.value)
        }
        in_psum: dict[str, tuple[cst.Assign, int]] = {}
        for made in assigned:
            given = made.value.args if isinstance(made.value, cst.Call) else ()
            if given and (marked := _partition_place(given[0].value)):
                name, fact = text_of(made.targets[0].target), self._fact(made.value)
                self.blocks.setdefault(name, marked)
                if fact is not None and fact.result is not None and fact.result.buffer == "psum":
                    in_psum[name] = made, partition_bytes(fact.result)
        if sum(size for _, size in in_psum.values()) <= PSUM_BYTES:
            return
        for name, (made, size) in in_psum.items():
            found = written_before_read(node, name, made)
            if found is not None:
                self.renewed |= dict.fromkeys(map(id, found), made)
                self.consumed.add(id(made))
                self.single.add(name)
            elif size > PSUM_BYTES:
                self.moved.add(id(made.value))

    def _is_sum(self, node: cst.BaseExpression) -> bool:
        called = self.names.called(node.func) if isinstance(node, cst.Call) else None
        if called != ("nl", "loop_reduce") or not isinstance(node, cst.Call):
            return False
        return text_of(node.args[1].value).rpartition(".")[2] == "add"

    def visit_SimpleStatementLine(self, node: cst.SimpleStatementLine) -> bool:
        self.before.append([])
        return True

    def leave_SimpleStatementLine(
        self, original_node: cst.SimpleStatementLine, updated_node: cst.SimpleStatementLine
    ) -> Any:
        said = self.before.pop()
        kept = [part for part in updated_node.body if not is_nothing(part)]
        if not said and len(kept) == len(updated_node.body) and not self.carried:
            return updated_node
        lines: list[Any] = [cst.parse_statement(text) for text in said]
        if kept:
            lines.append(updated_node.with_changes(body=kept, leading_lines=()))
        leading = (*self.carried, *updated_node.leading_lines)
        if not lines:
            self.carried = leading if any(line.comment for line in leading) else self.carried
            return cst.RemoveFromParent()
        self.carried = ()
        lines[0] = lines[0].with_changes(leading_lines=leading)
        if not kept:
            lines[-1] = lines[-1].with_changes(trailing_whitespace=updated_node.trailing_whitespace)
        return cst.FlattenSentinel(lines)

    def visit_For(self, node: cst.For) -> bool:
        self.held[id(node)], self.carried = self.carried, ()
        return True

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> Any:
        leading = (*self.held.pop(id(original_node)), *updated_node.leading_lines)
        return updated_node.with_changes(leading_lines=leading)

    def _say(self, text: str) -> None:
        if not self.before:
            raise Untranslated("a call in the head of a statement")
        self.before[-1].append(text)

    def visit_Assign(self, node: cst.Assign) -> bool:
        target = node.targets[0].target
        if (made := self.renewed.get(id(node))) is not None:
            name = self.targets[id(made.value)] = text_of(made.targets[0].target)
            self._say(f"{name} = {text_of(cst.ensure_type(made.value.visit(self), cst.Call))}")
        if id(node) in self.consumed:
            return False
        try:
            if len(node.targets) == 1 and self.indices.learn(target, node.value):
                self.consumed.add(id(node))
                return False
        except Untranslated as problem:
            self._give_up(node, f"{problem} has no counterpart")
            return False
        early = [n.value for n in names_in(node.value) if n.value in self.ragged]
        self.target_ends[id(target)] = early[0] if early else ""
        places = isinstance(target, (cst.Name, cst.Subscript))
        if len(node.targets) == 1 and places and isinstance(node.value, cst.Call):
            self.targets[id(node.value)] = text_of(target)
            self.target_limits[id(target)] = self._mask_of(node.value)
        return True

    def leave_Assign(self, original_node: cst.Assign, updated_node: cst.Assign) -> Any:
        if id(original_node) in self.consumed:
            return NOTHING
        if id(original_node.value) in self.consumed:
            return NOTHING
        target = original_node.targets[0].target
        if isinstance(made := updated_node.targets[0].target, cst.Call):  # a view of a subscript
            source = text_of(updated_node.value)
            self._say(f"{self.nisa}.tensor_copy(dst={text_of(made)}, src={source})")
            return NOTHING
        if isinstance(target, cst.Name):
            self._note(target.value, original_node.value)
            fact = self._fact(original_node.value)
            if fact is not None and fact.result is not None and "hbm" not in fact.result.buffer:
                self.names.tiles.setdefault(target.value, fact.result.buffer)
        return updated_node

    def _note(self, name: str, value: cst.BaseExpression) -> None:
        """Whether a name's tile is ragged, as what it was computed from."""
        used = {n.value for n in names_in(value)}
        calls = [n for n in nodes_in(value) if isinstance(n, cst.Call)]
        loads = any(text_of(n.func) == f"{self.nl}.load" for n in calls)
        masked = any(self._mask_of(n) for n in calls)
        early = (masked and loads) or bool(used & self.ragged)
        (self.ragged.add if early else self.ragged.discard)(name)

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
        of_tiles = self._line(original_node) in self.facts.tile_lines
        if not of_tiles and (fact is None or fact.result is None):
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
        self.limits.append(self._mask_of(node))
        self.call_limits[id(node)] = self.limits[-1]
        return True

    def _mask_of(self, node: cst.Call) -> tuple[Limit, ...]:
        mask = next((a for a in node.args if a.keyword and a.keyword.value == "mask"), None)
        return () if mask is None else self.indices.limits(mask.value)

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> Any:
        limits = self.limits.pop()
        try:
            return self._call(original_node, updated_node, limits)
        except Unreached as problem:
            if not self.before:
                raise
            self._say(f'raise NotImplementedError("not translated: {problem}")')
            self._give_up(original_node, f"{problem} {RAISES}")
            self.consumed.add(id(original_node))
            return cst.Name("None")
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
        if function in RANGES:  # whose directives are for the older compiler
            return made.with_changes(args=without(made.args, "directives"))
        if space == "nl" and function == "par_dim":
            return made.args[0].value
        if self._is_sum(node) and "[" in self.targets.get(id(node), ""):
            place = self._place(self.targets[id(node)])  # which is zero before the loop
            self._emit("tensor_tensor", {"dst": place, "data1": place, "op": f"{self.nl}.add",
                                         "data2": text_of(made.args[0].value)})  # fmt: skip
            self.consumed.add(id(node))
            return cst.Name("None")
        if function in GONE:
            self._give_up(node, f"{space}.{function}: {GONE[function]}")
            return made
        if space == "nl" and function in ("ndarray", "zeros", "full", "ones"):
            return self._creation(node, made, function)
        if space == "nl" and function == "shared_constant" and fact is not None and fact.result:
            kind = fact.result.dtype  # which an array of nki has itself
            kind = f'"{kind}"' if hasattr(np, kind) else f"ml_dtypes.{kind}"
            array = cst.parse_expression(f"({text_of(made.args[0].value)}).astype({kind})")
            return made.with_changes(args=[cst.Arg(array)])
        given = {k: v for k, v in self._arguments(made, function, fact).items() if k != "mask"}
        if space == "nisa" and function == "dma_copy" and "dst_rmw_op" in given:
            into, added = given["dst"], given["src"]
            summed = {"dst": into, "srcs": f"[{into}, {added}]", "reduce_op": f"{self.nl}.add"}
            return cst.parse_expression(f"{self.nisa}.dma_compute()").with_changes(  # type: ignore[union-attr]
                args=arguments_of(summed)
            )
        if space == "nisa" and function == "dma_copy" and fact is not None:
            rows, moved = fact.tiles["dst"].shape[0], fact.tiles["src"]
            if rows > 1 == moved.shape[0] and "hbm" in moved.buffer:
                given["src"] += f".broadcast(0, {rows})"
        if space == "nisa" and in_place(function):
            return made.with_changes(args=arguments_of({k: given[k] for k in given if k != "mask"}))
        if space == "nisa" and function in ("iota", "affine_select"):
            return self._positioned(node, function, given, fact)
        if space == "nisa" and (like(function) or function in SHAPED):
            return self._instruction(node, function, given, fact)
        if space == "nl" and function in BINARY and fact is not None:
            return self._binary(node, made, function, given, fact)
        if space == "nl" and function in REDUCTIONS and fact is not None and limits:
            key = next(iter(fact.tiles))
            data = self._limited(text_of(made.args[0].value), fact, key, limits)
            first = made.args[0].with_changes(value=cst.parse_expression(data))
            return made.with_changes(args=without([first, *made.args[1:]], "mask"))
        if space == "nl" and function == "where" and fact is not None:
            chosen = self._cut(given, fact)
            return made.with_changes(args=arguments_of(chosen))
        if space == "nl" and function == "store":
            return self._store(made, given, fact, limits)
        if space == "nl" and any(argument.keyword for argument in made.args):
            return made.with_changes(args=without(made.args, "mask"))
        return made

    def _positioned(
        self, node: cst.Call, function: str, given: dict[str, str], fact: Fact | None
    ) -> Any:
        """nisa.iota and nisa.affine_select, whose positions become a pattern of steps."""
        if fact is None or fact.result is None:
            raise Unreached(f"{function}, which no trace reached,")
        shape, element = str(fact.result.shape), f"{self.nl}.{nl_name(fact.result.dtype)}"
        tree = next(
            argument.value
            for argument in node.args
            if argument.keyword is None or argument.keyword.value in ("expr", "pred")
        )
        if function == "iota":
            steps = pattern(position(self.indices, tree), fact.result.shape)
            return self._into(node, function, steps, fact, shape, given.get("dtype", element))
        value, name = compared(self.indices, tree)
        steps = pattern(value, fact.result.shape)
        kept = {k: v for k, v in given.items() if k not in ("pred", "dtype")}
        if fact.tiles["on_true_tile"].buffer == "psum":  # which GpSimd does not reach
            kept["on_true_tile"] = f"{self.nl}.copy({kept['on_true_tile']})"
        full = {**steps, **kept, "cmp_op": f"{self.nl}.{name}"}
        if self._is_ragged(full["on_true_tile"]):
            full["on_true_tile"] = self._named(full["on_true_tile"], "operand")
            shape = f"{full['on_true_tile']}.shape"
        return self._into(node, function, full, fact, shape, given.get("dtype", element))

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
        if function in BINARY:
            return ("x", "y")
        if function == "where":
            return ("condition", "x", "y")
        return calls("neuronxcc").get(function, ("dst", "value", "axis", "keepdims"))

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
        at, sizes = _partition_place(shape), made.args[0].value
        if at:
            self.blocks[target] = at
            texts = _dimensions(sizes)
            kept = [] if target in self.single else texts[:at]
            order = [texts[at], *kept, *texts[at + 1 :]]
            sizes = cst.parse_expression(f"({', '.join(order)})")
        args = [made.args[0].with_changes(value=sizes), *made.args[1:]]
        args = list(without(args, "lazy_initialization"))
        buffer = next(
            (text_of(a.value) for a in args if a.keyword and a.keyword.value == "buffer"), ""
        )
        fact, memory = self._fact(node), ""
        if id(node) in self.moved:
            memory = "sbuf"
        elif "alloc" in buffer or buffer.endswith(")"):  # the author's place, which nki finds
            if fact is not None and fact.result is not None:
                memory = fact.result.buffer
            elif not (memory := "psum" * ("psum." in buffer) or "sbuf" * ("sbuf." in buffer)):
                raise Untranslated(f"the direct allocation buffer={buffer}")
        if memory:
            buffer = f"{self.nl}.{memory}"
            args = [*without(args, "buffer"), *arguments_of({"buffer": buffer})]
        in_psum = buffer.endswith("psum")
        self.names.tiles[target] = "psum" if in_psum else "sbuf"
        if in_psum and function == "zeros":
            return made.with_changes(func=cst.parse_expression(f"{self.nl}.ndarray"), args=args)
        if target in self.summed and function == "ndarray":
            return made.with_changes(func=cst.parse_expression(f"{self.nl}.zeros"), args=args)
        return made.with_changes(args=args)

    # Subscripts.

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> Any:
        try:
            limits = self.limits[-1] if self.limits else ()
            limits = self.target_limits.get(id(original_node), limits)
            return self._subscripted(original_node, updated_node, limits)
        except Untranslated as problem:
            self._give_up(original_node, f"{problem} has no counterpart")
            return updated_node

    def _subscripted(
        self, node: cst.Subscript, made: cst.Subscript, limits: tuple[Limit, ...]
    ) -> cst.BaseExpression:
        """Slices for indices, and the partition dimension before what were block dimensions."""
        found = gathered(self.indices, node)
        if found is None and ".reshape(" in text_of(node.value):  # its flat view
            with contextlib.suppress(Untranslated):
                found = patterned(self.indices, node)
        if found is not None:
            return cst.parse_expression(found)
        items: list[str] = []
        splits: list[tuple[int, tuple[str, ...]]] = []
        positions: list[int] = []
        for old, new in zip(node.slice, made.slice, strict=True):
            index = (
                self.indices.index(old.slice.value) if isinstance(old.slice, cst.Index) else None
            )
            if index is None:
                items.append(text_of(new.slice))
                continue
            owner = text_of(made.value)
            model = owner if owner in self.ragged else self.target_ends.get(id(node), "")
            try:
                text, sizes = self.indices.sliced(index, limits)
            except Untranslated:
                if self._is_blocked(made):
                    raise
                return cst.parse_expression(patterned(self.indices, node, limits, model))
            positions += [axis.position for axis in index.axes]
            if sizes:
                splits.append((len(items), sizes))
            elif model and (model == owner or not items) and re.fullmatch("[^:]+ : [^:]+", text):
                start, stop = text.split(" : ")
                if not stop.startswith("min("):
                    text = f"{start} : min({stop}, {model}.shape[{len(items)}])"
            items.append(text)
        turned = positions != sorted(positions)
        if turned and self._is_blocked(made):
            raise Untranslated("an index that transposes")
        if turned and (len(positions) != len(items) or splits):
            return cst.parse_expression(patterned(self.indices, node, limits, ""))
        if turned:
            order = sorted(range(len(positions)), key=positions.__getitem__)
            said = ", ".join(map(str, order))
            return cst.parse_expression(
                f"{text_of(made.value)}[{', '.join(items)}].permute(({said}))"
            )
        blocks = self.blocks.get(text_of(made.value), 0)
        if text_of(made.value) in self.single:
            items = items[blocks:]
            if not items or set(items) == {":"}:
                return made.value
        elif blocks:
            items = [*items[:blocks], ":"] if len(items) <= blocks else items
            at = blocks if len(items) > blocks else len(items) - 1
            items = [items[at], *items[:at], *items[at + 1 :]]
        if not positions and not blocks:
            return made
        text = f"{text_of(made.value)}[{', '.join(items)}]"
        for at, sizes in reversed(splits):
            text += f".reshape_dim({at}, ({', '.join(sizes)}))"
        return cst.parse_expression(text)

    def _is_blocked(self, made: cst.Subscript) -> bool:
        return text_of(made.value) in self.blocks

    def leave_Attribute(self, original_node: cst.Attribute, updated_node: cst.Attribute) -> Any:
        if text_of(updated_node) != f"{self.names.top}.tensor":
            return updated_node
        return cst.parse_expression(f"{self.nl}.ndarray")  # what kernels of nki annotate

    def leave_Decorator(self, original_node: cst.Decorator, updated_node: cst.Decorator) -> Any:
        decorator = updated_node.decorator
        called = decorator.func if isinstance(decorator, cst.Call) else decorator
        if text_of(called).rpartition(".")[2] in HINTS:
            return cst.RemoveFromParent()
        if text_of(called).rpartition(".")[2] in {"jit", *HOST_NAMES}:
            return updated_node.with_changes(
                decorator=cst.parse_expression(f"{self.names.top}.jit")
            )
        return updated_node


def _dimensions(shape: cst.BaseExpression) -> list[str]:
    """The dimensions of a shape that is written out, be it as the sum of several lists."""
    if isinstance(shape, cst.BinaryOperation):
        parts = _dimensions(shape.left), _dimensions(shape.right)
        return [*parts[0], *parts[1]] if all(parts) else []
    written = isinstance(shape, (cst.Tuple, cst.List))
    return [text_of(e.value) for e in shape.elements] if written else []  # type: ignore[attr-defined]


def _partition_place(shape: cst.BaseExpression) -> int:
    """Where `par_dim` stands in a shape, which is the number of block dimensions; 0 where it does not."""
    return next((n for n, text in enumerate(_dimensions(shape)) if "par_dim(" in text), 0)


def to_nki(source: str, facts: CallFacts, names: ModuleNames) -> tuple[str, list[tuple[int, str]]]:
    """The module in the dialect of `nki`, and what could not be translated."""
    wrapper = MetadataWrapper(cst.parse_module(source))
    rewriter = ToNki(facts, names)
    made = wrapper.visit(rewriter)
    return made.code, rewriter.problems
