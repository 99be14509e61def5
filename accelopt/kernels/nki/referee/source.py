"""What a kernel's text alone gives away: narrow formats, tampering, and words meant for a model.

The text is a first sieve and a good error message. What counts for precision are the formats in the
compiled program, which no spelling hides; what counts against tampering is that the kernel's Python
runs where there is nothing to gain.
"""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
from collections.abc import Iterator

from accelopt.kernels.nki.referee.precision import NARROW, PACKED, SHORT_NAMES
from accelopt.kernels.prompt_injection_check import Remark
from accelopt.parsing import parse_python

PUBLISHED_PRECISION_MESSAGE = "Float16 is used in the program."

NARROW_FORMATS = frozenset({*NARROW, *PACKED, "half"})
_SHORT_NAMES = frozenset(SHORT_NAMES) - {"half"}

# What a kernel has no use for unless it means to change the process that traces it.
_INSIDES = {"__builtins__", "__closure__", "__code__", "__dict__", "__globals__", "__subclasses__"}
_INSIDES |= {"_getframe", "f_back", "f_globals", "f_locals"}
_TAMPERING_MODULES = frozenset({"accelopt", "builtins", "ctypes", "gc"})


class ForeignEncoding(ValueError):
    """A text that Python would not read as UTF-8: what we see of it is not what it is."""


def decoded(data: bytes) -> str:
    """The text of a kernel's file as Python reads it. Raises ForeignEncoding where its first lines
    declare another encoding than UTF-8, SyntaxError and UnicodeDecodeError where Python cannot
    read it either."""
    lines = io.BytesIO(re.sub(rb"\r\n?", b"\n", data))  # as Python splits them
    name, _ = tokenize.detect_encoding(lines.readline)
    if codecs.lookup(name).name not in ("utf-8", "utf-8-sig"):
        raise ForeignEncoding(f"the text declares the encoding {name}; only UTF-8 is read here")
    return data.decode("utf-8-sig")


def published_precision_rule(source: str) -> bool:
    """True when the published check refuses: `float16` is left after stripping from every `#` on."""
    return "float16" in re.sub(r"#.*", "", source)


def narrow_formats(source: str) -> list[Remark]:
    """Narrow number formats that the code names: attributes, names, strings put together in place.

    Docstrings and comments do not count. Raises SyntaxError when the text is not Python.
    """
    tree = parse_python(source)
    documentation = set(_docstrings(tree))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr in NARROW_FORMATS:
            found.append(Remark(node.lineno, node.attr))
        elif isinstance(node, ast.Name) and node.id in NARROW_FORMATS - {"half"}:
            found.append(Remark(node.lineno, node.id))
        elif isinstance(node, ast.alias) and node.name in NARROW_FORMATS:
            found.append(Remark(getattr(node, "lineno", 0), node.name))
        elif isinstance(node, ast.expr) and node not in documentation:
            text = _folded(node)
            if text in NARROW_FORMATS | _SHORT_NAMES:
                found.append(Remark(node.lineno, f'"{text}"'))
    return sorted(set(found))


def _docstrings(tree: ast.AST) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def _folded(node: ast.expr) -> str | None:
    """The string that a constant expression makes, where that can be seen."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _folded(node.left), _folded(node.right)
        return None if left is None or right is None else left + right
    if isinstance(node, ast.JoinedStr):
        parts = [
            _folded(part.value if isinstance(part, ast.FormattedValue) else part)
            for part in node.values
        ]
        return None if None in parts else "".join(part or "" for part in parts)
    return None


def tampering(source: str) -> list[Remark]:
    """Reaching into the process that runs it: importing this package or the interpreter's insides,
    or putting something else in place of a module's attribute.

    Such a kernel may leave a program that its text does not describe. Raises SyntaxError when the
    text is not Python.
    """
    tree = parse_python(source)
    modules = {
        alias.asname or alias.name.partition(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
    }
    found = []
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        found += [Remark(line, f"uses {name}") for name in _insides(node)]
        found += [Remark(line, f"imports {name}") for name in _imported(node)]
        found += [Remark(line, f"changes {name}") for name in _changed(node, modules)]
    return sorted(set(found))


def _insides(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Attribute) and node.attr in _INSIDES:
        yield node.attr
    if isinstance(node, ast.Name) and node.id in _INSIDES:
        yield node.id
    if isinstance(node, ast.Attribute) and ast.unparse(node) == "sys.modules":
        yield "sys.modules"


def _imported(node: ast.AST) -> Iterator[str]:
    names: list[str] = []
    if isinstance(node, ast.Import):
        names = [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
        names = [node.module or ""]
    elif isinstance(node, ast.Call):
        names = imported_by_call(node)
    yield from (name for name in names if name.partition(".")[0] in _TAMPERING_MODULES)


def imported_by_call(call: ast.Call) -> list[str]:
    """What `__import__("os")` and the like import, where that can be seen."""
    if ast.unparse(call.func).rpartition(".")[2] not in ("__import__", "import_module"):
        return []
    return [text for argument in call.args if (text := _folded(argument))]


def _changed(node: ast.AST, modules: set[str]) -> Iterator[str]:
    """Attributes of imported names that are assigned, deleted or set."""
    if isinstance(node, ast.Attribute) and isinstance(node.ctx, (ast.Store, ast.Del)):
        name = ast.unparse(node)
        if name.partition(".")[0] in modules:
            yield name
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr"):
        yield ast.unparse(node.args[0]) if node.args else "an attribute"
