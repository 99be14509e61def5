"""Grids of `neuronxcc.nki`, whose programs run one after another on a core, as loops of the kernel: a launch of
`nki` has the cores of one logical core and no more."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from accelopt.kernels.nki.translation.indices import Untranslated, text_of
from accelopt.kernels.nki.translation.names import ModuleNames
from accelopt.kernels.nki.translation.psum_blocks import nodes_in

_PLAIN = "min max len int tuple list divmod math.ceil math.prod np.dtype getattr".split()
_MORE = (cst.For, cst.While, cst.With, cst.Return)
"""What no statement has that is done once for all programs."""


def in_loops(source: str, function: str, axes: int, names: ModuleNames) -> str:
    """The module, whose kernel is in `nki` but for its grid of so many axes, with loops over the programs around
    what depends on them; the kernel takes the grid as its last argument. Raises Untranslated where it may not."""
    return cst.parse_module(source).visit(_Loops(function, axes, names)).code


class _Loops(cst.CSTTransformer):
    def __init__(self, function: str, axes: int, names: ModuleNames) -> None:
        super().__init__()
        self.function, self.nl, self.nisa = function, names.language, names.isa
        self.said, self.plain = "", set(_PLAIN)
        self.grid = names.fresh("grid")
        self.programs = [names.fresh(f"program_{axis}") for axis in range(axes)]

    def visit_Module(self, node: cst.Module) -> None:
        for one in nodes_in(node):
            if isinstance(one, cst.Assign) and isinstance(one.value, cst.Subscript):
                if text_of(one.value.value) == self.function:  # `kernel = name[4, 2]`
                    self.said = _tuple(one.value)
            elif isinstance(one, (cst.FunctionDef, cst.ClassDef)):
                used = {n.value for n in nodes_in(one.body) if isinstance(n, cst.Name)}
                self.plain |= {one.name.value} if not used & {self.nl, self.nisa} else set()

    def leave_Subscript(
        self, original_node: cst.Subscript, updated_node: cst.Subscript
    ) -> cst.BaseExpression:
        at_kernel = self.said and text_of(original_node.value) == self.function
        return updated_node.value if at_kernel else updated_node

    def leave_Call(self, original_node: cst.Call, updated_node: cst.Call) -> cst.BaseExpression:
        called = original_node.func
        if isinstance(called, cst.Subscript) and text_of(called.value) == self.function:
            given = cst.Arg(cst.parse_expression(_tuple(called)), cst.Name(self.grid), _EQUAL)
            func = cst.parse_expression(f"{self.function}[1]")
            return updated_node.with_changes(func=func, args=[*updated_node.args, given])
        asked = text_of(called).removeprefix(f"{self.nl}.")
        if asked == "program_ndim":
            return cst.Integer(str(len(self.programs)))
        if asked not in ("program_id", "num_programs"):
            return updated_node
        axis = text_of(original_node.args[0].value) if original_node.args else "0"
        if not axis.isdigit():
            raise Untranslated(f"{text_of(original_node)}, an axis that is not written out,")
        text = self.programs[int(axis)] if asked == "program_id" else f"{self.grid}[{axis}]"
        return cst.parse_expression(text)

    def leave_FunctionDef(
        self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef
    ) -> cst.FunctionDef:
        used = {n.value for n in nodes_in(updated_node) if isinstance(n, cst.Name)}
        if original_node.name.value != self.function:
            if used & {*self.programs}:
                raise Untranslated(f"a grid of which {original_node.name.value} asks its place")
            return updated_node
        default = cst.parse_expression(self.said or "None")  # the last parameter, others have some
        parameter = cst.Param(cst.Name(self.grid), default=default, equal=_EQUAL)
        parameters, body = updated_node.params, updated_node.body
        return updated_node.with_changes(
            params=parameters.with_changes(params=[*parameters.params, parameter]),
            body=body.with_changes(
                body=self._looped(cst.ensure_type(body, cst.IndentedBlock).body)
            ),
        )

    def _looped(self, body: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
        at = len(body)
        while at and _returns(body[at - 1]):
            at -= 1
        before, inside, last = list[cst.BaseStatement](), list[cst.BaseStatement](), body[at:]
        varying = set(self.programs)
        for statement in body[:at]:
            names = {n.value for n in nodes_in(statement) if isinstance(n, cst.Name)}
            if _returns(statement):
                raise Untranslated("a grid whose programs end early")
            if names & varying or not self._is_plain(statement):
                inside.append(statement)
                varying |= _assigned(statement)
            else:
                before.append(statement)
        if {n.value for s in last for n in nodes_in(s) if isinstance(n, cst.Name)} & varying:
            raise Untranslated("a grid whose programs return what each has")
        made: Sequence[cst.BaseStatement] = inside
        for axis in reversed(range(len(self.programs))):
            made = [cst.For(cst.Name(self.programs[axis]),
                            cst.parse_expression(f"range({self.grid}[{axis}])"),
                            cst.IndentedBlock(body=made))]  # fmt: skip
        return [*before, *made, *last]

    def _is_plain(self, statement: cst.BaseStatement) -> bool:
        """Whether it may be done once for all programs: Python's own work, and tensors in HBM."""
        kinds = (*_MORE, cst.Call)
        return all(
            isinstance(node, cst.Call)
            and (text_of(node.func) in self.plain or "hbm" in text_of(node))
            for node in nodes_in(statement)
            if isinstance(node, kinds)
        )


def _returns(statement: cst.BaseStatement) -> bool:
    return any(isinstance(node, cst.Return) for node in nodes_in(statement))


def _assigned(statement: cst.BaseStatement) -> set[str]:
    """The names that a statement gives other values, and not those of what it writes into."""
    kinds = (cst.AssignTarget, cst.AnnAssign, cst.AugAssign, cst.For)
    targets = [node.target for node in nodes_in(statement) if isinstance(node, kinds)]
    apart = [target for target in targets if not isinstance(target, cst.Subscript)]
    return {n.value for target in apart for n in nodes_in(target) if isinstance(n, cst.Name)}


def _tuple(launch: cst.Subscript) -> str:
    sizes = [text_of(element.slice) for element in launch.slice]
    return f"({', '.join(sizes)},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


_EQUAL = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
