"""From `nki` to `neuronxcc.nki`: instructions return their result, which is assigned to what was the
destination; loops that Python had to run are nl.static_range.
"""

from __future__ import annotations

import re
from typing import Any

import libcst as cst
from libcst.metadata import MetadataWrapper

from accelopt.kernels.nki.translation.facts import CallFacts, Fact
from accelopt.kernels.nki.translation.forms import calls, in_place, like
from accelopt.kernels.nki.translation.indices import Untranslated, plus, product, text_of
from accelopt.kernels.nki.translation.instructions import arguments_of
from accelopt.kernels.nki.translation.names import ModuleNames
from accelopt.kernels.nki.translation.positions import (
    indexed,
    indexed_on_chip,
    permuted,
    written_pairs,
)
from accelopt.kernels.nki.translation.rewriter import Rewriter
from accelopt.kernels.nki.translation.to_nki import RANGES

GONE = {
    "rearrange": "the order of dimensions; index with nl.arange",
    "select": "a run-time index; index with a tile",
    "vector_select": "run-time indices; index with a tile and nl.arange",
    "sendrecv": "an exchange between cores",
    "core_barrier": "a barrier between cores",
    "fori_loop": "a loop of the device",
    "while_loop": "a loop of the device",
    "dynamic_range": "a loop of the device",
    "register_alloc": "a register",
    "register_load": "a register",
    "register_store": "a register",
    "register_move": "a register",
}
RENAMED = ("dma_compute", "nc_n_gather")
"""Calls that are another one, or one of nl, in `neuronxcc`."""
CREATIONS = ("ndarray", "zeros", "ones", "full")
COMPARISONS = {
    "equal": "==", "not_equal": "!=", "less": "<", "less_equal": "<=", "greater": ">",
    "greater_equal": ">=",
}  # fmt: skip


class ToNeuronxcc(Rewriter):
    """Destinations become results."""

    def __init__(self, facts: CallFacts, names: ModuleNames) -> None:
        super().__init__(facts, names)
        self.statements: dict[int, str] = {}  # calls that have become assignments
        self.inner: dict[int, cst.Call] = {}  # of them, those that no statement has taken up yet
        self.whole: set[str] = set()  # tiles that were made under their names
        self.in_hbm: set[str] = set()  # parameters, and tensors that are made there

    def visit_Param(self, node: cst.Param) -> bool:
        self.in_hbm.add(node.name.value)
        return True

    def visit_Assign(self, node: cst.Assign) -> bool:
        target = text_of(node.targets[0].target)
        called = self.names.called(node.value.func) if isinstance(node.value, cst.Call) else None
        made = called is not None and called[1] in CREATIONS
        in_hbm = made and "hbm" in text_of(node.value)
        (self.in_hbm.add if in_hbm else self.in_hbm.discard)(target)
        (self.whole.add if made and not in_hbm else self.whole.discard)(target)
        return True

    # Statements.

    def leave_Module(self, original_node: cst.Module, updated_node: cst.Module) -> cst.Module:
        for node in self.inner.values():
            said = "an instruction inside of an expression has no counterpart: write a statement"
            self._give_up(node, said)
        return updated_node

    def leave_Expr(self, original_node: cst.Expr, updated_node: cst.Expr) -> Any:
        text = self.statements.pop(id(original_node.value), None)
        if text is None:
            return updated_node
        del self.inner[id(original_node.value)]
        statement = cst.parse_statement(text)
        assert isinstance(statement, cst.SimpleStatementLine)
        return statement.body[0]

    def leave_For(self, original_node: cst.For, updated_node: cst.For) -> Any:
        """Loops that stayed loops of the Program are traced once, the others are unrolled."""
        head = original_node.iter
        if not isinstance(head, cst.Call):
            return updated_node
        called = self.names.called(head.func)
        plain = text_of(head.func) == "range"
        if not plain and (called is None or called[1] not in RANGES):
            inside = updated_node.iter.visit(_Unrolled(self.names))
            return updated_node.with_changes(iter=inside)
        symbolic = self._line(original_node) in self.facts.symbolic
        kind = "static_range"
        if symbolic:
            kind = "sequential_range" if plain or called is None else called[1]
            kind = "sequential_range" if kind == "static_range" else kind
        made = updated_node.iter
        assert isinstance(made, cst.Call)
        return updated_node.with_changes(
            iter=made.with_changes(func=cst.parse_expression(f"{self.nl}.{kind}"))
        )

    # Calls.

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> Any:
        try:
            return self._call(original_node, updated_node)
        except Untranslated as problem:
            self._give_up(original_node, f"{problem} has no counterpart")
            return updated_node

    def _call(self, node: cst.Call, made: cst.Call) -> Any:
        name = self.names.called(node.func)
        if name is None:
            return self._method(node, made)
        space, function = name
        if function in GONE:
            self._give_up(node, f"{space}.{function}: {GONE[function]}")
            return made
        if (
            space == "nisa"
            and function in (*calls("neuronxcc"), *RENAMED)
            and calls("nki").get(function)
        ):
            return self._instruction(node, made, function)
        if space == "nl" and function in CREATIONS:
            return self._creation(node, made, function)
        if space == "nl" and function in ("program_id", "num_programs"):
            alone = "0" if function == "program_id" else "1"
            axis = text_of(made.args[0].value) if made.args else "0"
            asked = f"{self.nl}.{function}({axis}) if {self.nl}.program_ndim() else {alone}"
            return cst.parse_expression(f"({asked})")
        if space == "nl" and function == "broadcast_to":
            given = [text_of(a.value) for a in made.args]
            return cst.parse_expression(f"{self.nl}.broadcast_to({given[0]}, shape={given[1]})")
        return made

    def _method(self, node: cst.Call, made: cst.Call) -> Any:
        """Methods of tensors that the other dialect spells differently."""
        if not isinstance(made.func, cst.Attribute):
            return made
        method, owner = made.func.attr.value, text_of(made.func.value)
        given = [text_of(a.value) for a in made.args]
        if method == "ap":
            return self._access(made, owner)
        if method in GONE and method not in self.names.functions:
            self._give_up(node, f".{method}: {GONE[method]}")
            return made
        if method == "permute" and method not in self.names.functions:
            return cst.parse_expression(permuted(owner, ", ".join(given), self.nl))
        if method == "broadcast" and len(given) == 2:
            return cst.parse_expression(
                f"{owner}.broadcast_to({_replaced(owner, given[0], given[1])})"
            )
        if method == "expand_dim":
            return cst.parse_expression(f"{owner}.expand_dims({given[0]})")
        if method == "reshape_dim":
            return cst.parse_expression(
                f"{owner}.reshape({_replaced(owner, given[0], '*' + given[1])})"
            )
        return made

    def _access(self, made: cst.Call, owner: str) -> Any:
        """An access pattern of a whole tensor as an index; others have no counterpart."""
        if owner not in self.in_hbm | self.whole:
            raise Untranslated(f"{owner}.ap, an access pattern of a part of a tensor,")
        order = ("pattern", "offset", "scalar_offset", "vector_offset", "indirect_dim", "dtype")
        given = {
            (order[n] if a.keyword is None else a.keyword.value): text_of(a.value)
            for n, a in enumerate(made.args)
        }
        write = indexed if owner in self.in_hbm else indexed_on_chip
        return cst.parse_expression(write(owner, given, self.nl))

    def _creation(self, node: cst.Call, made: cst.Call, function: str) -> Any:
        order = ("shape", "fill_value", "dtype") if function == "full" else ("shape", "dtype")
        order = (*order, "buffer", "name", "address")
        given = {
            (order[n] if a.keyword is None else a.keyword.value): text_of(a.value)
            for n, a in enumerate(made.args)
        }
        if "address" in given:
            raise Untranslated("an address of a tensor")
        if given.get("buffer", "").endswith("hbm") and function != "ndarray":
            raise Untranslated("an initial value in HBM")
        fact = self._fact(node)
        accumulates = fact is not None and fact.result is not None and fact.result.buffer == "psum"
        if function == "ndarray" and accumulates and self._is_product(node):
            function = "zeros"
        plain = [given.pop("shape")] if "shape" in given and not _is_named(made, "shape") else []
        args = [*(cst.Arg(cst.parse_expression(text)) for text in plain), *arguments_of(given)]
        return made.with_changes(func=cst.parse_expression(f"{self.nl}.{function}"), args=args)

    def _is_product(self, node: cst.Call) -> bool:
        return self._line(node) in self.facts.product_lines

    def _instruction(self, node: cst.Call, made: cst.Call, function: str) -> Any:
        order = calls("nki")[function]
        given: dict[str, str] = {}
        for at, argument in enumerate(made.args):
            key = order[at] if argument.keyword is None else argument.keyword.value
            given[key] = text_of(argument.value)
        given.pop("name", None)
        given.pop("priority", None)
        fact = self._fact(node)
        if in_place(function):
            if function == "dma_copy":
                given.pop("engine", None)
            return made.with_changes(args=arguments_of(given))
        if fact is None:
            raise Untranslated(f"{function}, which no trace reached,")
        dst = given.pop("dst")
        self.statements[id(node)] = self._assignment(function, dst, given, fact)
        self.inner[id(node)] = node
        return made

    def _assignment(self, function: str, dst: str, given: dict[str, str], fact: Fact) -> str:
        place = dst if "[" in dst else f"{dst}[...]"
        sign = "="
        if function == "nc_matmul":
            wanted = given.pop("accumulate", "None")
            sign = "=" if wanted == "False" else "+="
            if "double_row" in given.get("perf_mode", ""):
                given["perf_mode"] = "'double_row_gen3'"
        elif function == "memset":
            value, engine = given["value"], given.get("engine")
            tail = f", engine={engine}" if engine else ""
            return f"{place} = {self.nisa}.memset({dst}.shape, {value}, dtype={dst}.dtype{tail})"
        elif function == "dma_compute":
            return self._accumulating(dst, given)
        elif function == "nc_n_gather":
            return f"{place} = {self.nl}.gather_flattened({given['data']}, {given['indices']})"
        elif function in ("iota", "affine_select"):
            return self._by_position(function, place, dst, given, fact)
        elif function == "scalar_tensor_tensor" and len(fact.tiles["data"].shape) > 2:
            raise Untranslated("scalar_tensor_tensor of more than one free dimension")
        elif function == "tensor_reduce":
            given["keepdims"] = "True"
        place = self._regrouped(function, place, dst, given, fact)
        if "bias" in given and "bias" not in fact.tiles:  # numbers came with NeuronCore-v3
            if fact.values.get("bias"):
                rows = f"({dst}.shape[0], 1)"
                given["bias"] = f"{self.nl}.full({rows}, {given['bias']}, dtype={self.nl}.float32)"
            else:
                del given["bias"]
        if like(function) and self._format_differs(function, fact):
            given["dtype"] = f"{dst}.dtype"
        if function in ("tensor_reduce", "bn_stats", "bn_aggr", "max8", "nc_find_index8"):
            given["dtype"] = f"{dst}.dtype"
        arguments = ", ".join(f"{k}={v}" for k, v in given.items())
        return f"{place} {sign} {self.nisa}.{function}({arguments})"

    def _regrouped(
        self, function: str, place: str, dst: str, given: dict[str, str], fact: Fact
    ) -> str:
        """The destination with the free dimensions of what is computed, where they are grouped otherwise."""
        key = like(function) or "data"
        alike, into = fact.tiles.get(key), fact.tiles.get("dst")
        if alike is None or into is None or not (like(function) or function == "tensor_reduce"):
            return place
        shape, text = alike.shape, f"{given[key]}.shape"
        if function == "tensor_reduce":
            axes = fact.values["axis"]
            count = len(axes) if isinstance(axes, (tuple, list)) else 1
            ones = (1,) * count
            shape = (*shape[:-count], *ones)
            text = f"(*{given[key]}.shape[:-{count}], {', '.join(map(str, ones))})"
        return place if into.shape == shape else f"{dst}.reshape({text})[...]"

    def _format_differs(self, function: str, fact: Fact) -> bool:
        """True when the result would not have the destination's format by itself."""
        key, dst = like(function), fact.tiles.get("dst")
        alike = fact.tiles.get(key)
        formats = {tile.dtype for key, tile in fact.tiles.items() if key.startswith("data")}
        if dst is None or alike is None:
            return False
        return dst.dtype != alike.dtype or (key[-1].isdigit() and len(formats) > 1)

    def _accumulating(self, dst: str, given: dict[str, str]) -> str:
        sources = cst.parse_expression(given["srcs"])
        if not isinstance(sources, (cst.List, cst.Tuple)):
            raise Untranslated("dma_compute of a list that is made elsewhere")
        texts = [text_of(e.value) for e in sources.elements]
        others = [text for text in texts if text != dst]
        if len(others) != 1 or len(texts) != 2:
            raise Untranslated("dma_compute that does not add one tensor to dst")
        return f"{self.nisa}.dma_copy(dst={dst}, src={others[0]}, dst_rmw_op={self.nl}.add)"

    def _by_position(
        self, function: str, place: str, dst: str, given: dict[str, str], fact: Fact
    ) -> str:
        """nisa.iota and nisa.affine_select by an expression of nl.arange."""
        pattern = written_pairs(given["pattern"]) or [
            (str(step), str(number)) for step, number in fact.values["pattern"]
        ]
        rank = len(pattern) + 1
        terms = given.get("offset", "0")
        axes = [(given.get("channel_multiplier", "0"), f"{dst}.shape[0]"), *pattern]
        for at, (factor, extent) in enumerate(axes):
            if factor != "0":
                spread = ", ".join(":" if n == at else "None" for n in range(rank))
                terms = plus(terms, product(f"{self.nl}.arange({extent})[{spread}]", factor))
        if terms == given.get("offset", "0"):
            raise Untranslated(f"{function} of one number")
        if function == "iota":
            return f"{place} = {self.nisa}.iota({terms}, dtype={dst}.dtype)"
        sign = COMPARISONS.get(given.get("cmp_op", "equal").rpartition(".")[2])
        if sign is None:
            raise Untranslated(f"the comparison {given['cmp_op']}")
        return (
            f"{place} = {self.nisa}.affine_select(pred=({terms} {sign} 0), "
            f"on_true_tile={given['on_true_tile']}, on_false_value={given['on_false_value']}, "
            f"dtype={dst}.dtype)"
        )


def _is_named(call: cst.Call, name: str) -> bool:
    return any(a.keyword is not None and a.keyword.value == name for a in call.args)


def _replaced(owner: str, at: str, size: str) -> str:
    """The shape of a tensor with one dimension replaced, as text."""
    return f"(*{owner}.shape[:{at}], {size}, *{owner}.shape[{at} + 1 :])"


class _Unrolled(cst.CSTTransformer):
    """Ranges that Python itself runs through, in enumerate(range(4)) and the like."""

    def __init__(self, names: ModuleNames) -> None:
        super().__init__()
        self.names = names

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.Call:
        called = self.names.called(original_node.func)
        if text_of(original_node.func) != "range" and (called is None or called[1] not in RANGES):
            return updated_node
        return updated_node.with_changes(
            func=cst.parse_expression(f"{self.names.language}.static_range")
        )


def to_neuronxcc(
    source: str, facts: CallFacts, names: ModuleNames
) -> tuple[str, list[tuple[int, str]]]:
    """The module in the dialect of `neuronxcc.nki`, and what could not be translated."""
    wrapper = MetadataWrapper(cst.parse_module(source))
    rewriter = ToNeuronxcc(facts, names)
    code = wrapper.visit(rewriter).code
    if "math.prod(" in code and not re.search(r"(?m)^import math$", code):
        code = re.sub(r"(?m)^(?=import |from (?!__future__))", "import math\n", code, count=1)
    return code, rewriter.problems
