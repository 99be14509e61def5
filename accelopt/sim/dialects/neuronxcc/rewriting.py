"""What the NKI tracer changes in a kernel's source before it runs: annotations.

Python ignores `x: nt.tensor[128, 512] = ...`, but NKI checks the shape. Everything else stays as it is
written: `a and b` of two masks is the second, as of any two objects (S21).
"""

from __future__ import annotations

import ast
import functools
import linecache
import textwrap
from types import CodeType, FunctionType
from typing import Any

from accelopt.parsing import source_lines
from accelopt.sim.dialects.neuronxcc.tensor import TensorView
from accelopt.sim.rules import operands
from accelopt.sim.tracer import current

CHECK = "__accelopt_annotated"


def rewritten(function: FunctionType, names: dict[str, Any]) -> FunctionType:
    """The function with its source rewritten where needed, over the global names given."""
    text = "".join(linecache.getlines(function.__code__.co_filename))
    own = function.__code__
    code = _code(own, text, own.co_filename) or own
    names[CHECK] = check_annotation
    cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
    if any(name not in cells for name in code.co_freevars):
        code = function.__code__
    closure = tuple(cells[name] for name in code.co_freevars)
    twin = FunctionType(code, names, function.__name__, function.__defaults__, closure)
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__annotations__ = function.__annotations__
    return twin


def check_annotation(value: Any, annotation: Any, name: str) -> Any:
    """The value itself, when it is a tensor of the annotated shape."""
    shape = getattr(annotation, "shape", None)
    wanted = tuple(shape) if isinstance(shape, (tuple, list)) else None
    if isinstance(value, TensorView) and wanted is not None and wanted != value.shape:
        current().refuse(operands.annotated_shape(name, value.shape, wanted))
    return value


def _rewritten_code(
    source: str, file: str, line: int, name: str, free: tuple[str, ...]
) -> CodeType | None:
    tree = ast.parse(textwrap.dedent(source))
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef):
        return None
    definition.decorator_list = []
    rewriter = _Rewriter()
    rewriter.visit(definition)
    if not rewriter.changed:
        return None
    if free:  # an outer function gives the free variables their cells
        outer = ast.parse(f"def outer({', '.join(free)}):\n    pass").body[0]
        assert isinstance(outer, ast.FunctionDef)
        outer.body = [definition]
        tree.body = [outer]
    ast.fix_missing_locations(tree)
    ast.increment_lineno(tree, line - 1)
    module = compile(tree, file, "exec", dont_inherit=True)
    return _find(module, name)


def _find(code: CodeType, name: str) -> CodeType | None:
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_name == name:
                return constant
            inner = _find(constant, name)
            if inner is not None:
                return inner
    return None


@functools.lru_cache(maxsize=256)
def _code(code: CodeType, text: str, file: str) -> CodeType | None:
    """The rewritten code; None when there is nothing to rewrite or no source to read. `text` is that
    of its file: code objects that differ in an annotation alone are equal before Python 3.11, and those of two files
    of one text always are."""
    try:
        lines, first = source_lines(code)
        source = "".join(lines)
        return _rewritten_code(source, file, first, code.co_name, code.co_freevars)
    except (OSError, TypeError, SyntaxError, IndexError):
        return None


class _Rewriter(ast.NodeTransformer):
    """`x: tensor[s] = v` becomes `x = check(v, tensor[s], 'x')`."""

    def __init__(self) -> None:
        self.changed = False

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        annotation = node.annotation
        if node.value is None or not isinstance(annotation, ast.Subscript):
            return node
        base = annotation.value
        leaf = base.attr if isinstance(base, ast.Attribute) else getattr(base, "id", "")
        if leaf not in ("tensor", "mutable_tensor") or not isinstance(node.target, ast.Name):
            return node
        self.changed = True
        call = ast.Call(
            ast.Name(CHECK, ast.Load()),
            [node.value, annotation, ast.Constant(node.target.id)],
            [],
        )
        ast.copy_location(call, node.value)
        return ast.copy_location(ast.Assign([node.target], call), node)
