"""Grids of `neuronxcc.nki`, whose programs run one after another on a core, as loops of the kernel: a launch of
`nki` has the cores of one logical core and no more."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst

from accelopt.kernels.nki.translation.blocks import nodes_in
from accelopt.kernels.nki.translation.indices import Untranslated, text_of
from accelopt.kernels.nki.translation.names import ModuleNames

_PLAIN = frozenset({"min", "max", "len", "int", "tuple", "list", "divmod", "math.ceil", "math.prod"})


def in_loops(source: str, function: str, axes: int, names: ModuleNames) -> str:
    """The module, whose kernel is in `nki` but for its grid of so many axes, with loops over the programs around
    what depends on them; the kernel takes the grid as its last argument. Raises Untranslated where it may not."""
    return cst.parse_module(source).visit(_Loops(function, axes, names)).code


class _Loops(cst.CSTTransformer):
    def __init__(self, function: str, axes: int, names: ModuleNames) -> None:
        super().__init__()
        self.function, self.nl, self.said = function, names.language, ""
        self.grid = names.fresh("grid")
        self.programs = [names.fresh(f"program_{axis}") for axis in range(axes)]

    def visit_Assign(self, node: cst.Assign) -> None:
        if isinstance(node.value, cst.Subscript) and text_of(node.value.value) == self.function:
            self.said = _tuple(node.value)  # `kernel = name[4, 2]`, which stands below the kernel

    def visit_Module(self, node: cst.Module) -> None:
        for statement in nodes_in(node):
            if isinstance(statement, cst.Assign):
                self.visit_Assign(statement)

    def leave_Subscript(self, original_node: cst.Subscript, updated_node: cst.Subscript) -> cst.BaseExpression:
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

    def leave_FunctionDef(self, original_node: cst.FunctionDef, updated_node: cst.FunctionDef) -> cst.FunctionDef:
        used = {n.value for n in nodes_in(updated_node) if isinstance(n, cst.Name)}
        if original_node.name.value != self.function:
            if used & {*self.programs}:
                raise Untranslated(f"a grid of which {original_node.name.value} asks its place")
            return updated_node
        parameter = cst.Param(
            cst.Name(self.grid),
            default=cst.parse_expression(self.said) if self.said else None,
            equal=_EQUAL if self.said else cst.MaybeSentinel.DEFAULT,
        )
        parameters = updated_node.params
        parameters = parameters.with_changes(params=[*parameters.params, parameter])
        body = cst.ensure_type(updated_node.body, cst.IndentedBlock)
        return updated_node.with_changes(
            params=parameters, body=body.with_changes(body=self._looped(body.body))
        )

    def _looped(self, body: Sequence[cst.BaseStatement]) -> list[cst.BaseStatement]:
        last = [s for s in body[-1:] if any(isinstance(n, cst.Return) for n in nodes_in(s))]
        before: list[cst.BaseStatement] = []
        inside: list[cst.BaseStatement] = []
        varying = set(self.programs)
        for statement in body[: len(body) - len(last)]:
            names = {n.value for n in nodes_in(statement) if isinstance(n, cst.Name)}
            if any(isinstance(n, cst.Return) for n in nodes_in(statement)):
                raise Untranslated("a grid whose programs end early")
            if names & varying or not self._is_plain(statement):
                inside.append(statement)
                varying |= _assigned(statement)
            else:
                before.append(statement)
        if last and {n.value for n in nodes_in(last[0]) if isinstance(n, cst.Name)} & varying:
            raise Untranslated("a grid whose programs return what each has")
        made: Sequence[cst.BaseStatement] = inside
        for axis in reversed(range(len(self.programs))):
            made = [cst.For(cst.Name(self.programs[axis]),
                            cst.parse_expression(f"range({self.grid}[{axis}])"),
                            cst.IndentedBlock(body=made))]  # fmt: skip
        return [*before, *made, *last]

    def _is_plain(self, statement: cst.BaseStatement) -> bool:
        """Whether it may be done once for all programs: Python's own work, and tensors in HBM."""
        if not isinstance(statement, cst.SimpleStatementLine):
            return False
        calls = [n for n in nodes_in(statement) if isinstance(n, cst.Call)]
        return all(
            isinstance(part, (cst.Assign, cst.AnnAssign, cst.Assert, cst.Expr, cst.Pass))
            for part in statement.body
        ) and all(
            text_of(call.func) in _PLAIN
            or (text_of(call.func) == f"{self.nl}.ndarray" and "hbm" in text_of(call))
            for call in calls
        )


def _assigned(statement: cst.BaseStatement) -> set[str]:
    return {n.value for node in nodes_in(statement) if isinstance(node, (cst.AssignTarget, cst.AnnAssign, cst.AugAssign))
            for n in nodes_in(node.target) if isinstance(n, cst.Name)}  # fmt: skip


def _tuple(launch: cst.Subscript) -> str:
    sizes = [text_of(element.slice) for element in launch.slice]
    return f"({', '.join(sizes)},)" if len(sizes) == 1 else f"({', '.join(sizes)})"


_EQUAL = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
