"""Numbers that host code passes for a kernel's constants, given names there."""

from __future__ import annotations

import ast

from accelopt.kernels.triton.moves.loops import bodies, fresh_name
from accelopt.kernels.triton.moves.source import Edit, Launch, Source


class NamedNumbers:
    """Gives numbers that a launch passes for constants names, so that all that is made of one gets
    the same, whoever sets it later; `edits` make them."""

    def __init__(self, source: Source, launch: Launch) -> None:
        self.source, self.launch = source, launch
        self.names: dict[str, str] = {}
        self.edits: list[Edit] = []

    def name(self, parameter: str, value: ast.expr) -> str:
        """What to call the argument for a parameter in the host code."""
        function = self.launch.function
        if not isinstance(value, ast.Constant) or function is None:
            return ast.unparse(value)
        if parameter not in self.names:
            name = self.names[parameter] = fresh_name(parameter.lower(), function)
            holding = [s for body in bodies(function) for s in body if self._holds(s)]
            first = min(holding, key=lambda s: len(ast.unparse(s)))
            start, indent = self.source.start(first), self.source.indentation(first)
            self.edits.append(Edit(start, start, f"{name} = {ast.unparse(value)}\n{indent}"))
            self.edits.append(self.source.replacing(value, name))
        return self.names[parameter]

    def _holds(self, statement: ast.stmt) -> bool:
        return any(inner is self.launch.call for inner in ast.walk(statement))
