"""Source patterns that no kernel needs: a first screen, before anything runs. The referee decides."""

from __future__ import annotations

import ast
import re

from accelopt.parsing import tree_of

# What does the work in place of a kernel, by dotted name as it is written.
_LIBRARY = re.compile(
    r"""^(?:torch\.nn(?:\..*)? | F\..* | torch\.ops\.aten(?:\..*)? | aten\..*
    | torch\.(?:conv\w* | matmul | mm | bmm | addmm | baddbmm | einsum | linear | mv | dot | tensordot
      | relu | gelu | silu | sigmoid | tanh | softmax | log_softmax | \w*_pool\w* | batch_norm
      | layer_norm | group_norm) | .*\.forward)$""",
    re.VERBOSE,
)
# What looks around in the interpreter.
_INSIDES = re.compile(
    r"^(?:inspect(?:\..*)?|globals|locals|.*\.?(?:_getframe|currentframe|f_back|f_globals|f_locals))$"
)


def violations(source: str, parent: str) -> tuple[str, ...]:
    """The forbidden names that `source` uses and its parent does not, in order. A text that cannot be
    parsed has none: the referee says what is wrong with it."""
    before = set(_forbidden(parent))
    return tuple(name for name in dict.fromkeys(_forbidden(source)) if name not in before)


def _forbidden(source: str) -> list[str]:
    tree = tree_of(source)
    names = (name for node in ast.walk(tree) for name in _names(node))
    return sorted(name for name in names if _LIBRARY.match(name) or _INSIDES.match(name))


def _names(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [
            alias.name for alias in node.names if alias.name.startswith(("torch.nn", "inspect"))
        ]
    if isinstance(node, ast.ImportFrom):
        return [f"{node.module}.{alias.name}" for alias in node.names]
    if isinstance(node, ast.Attribute):
        return [_dotted(node)]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return [node.func.id]
    return []


def _dotted(node: ast.Attribute) -> str:
    parts = [node.attr]
    value = node.value
    while isinstance(value, ast.Attribute):
        parts.append(value.attr)
        value = value.value
    parts.append(value.id if isinstance(value, ast.Name) else "")
    return ".".join(reversed(parts))
