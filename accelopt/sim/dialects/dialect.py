"""The two dialects of NKI, and which one a kernel is written in: that of the modules it uses.

`neuronxcc` is `neuronxcc.nki` (Beta 1, Neuron SDK 2.21 to 2.29): results are returned, loops are
traced, masks. `nki` is the package of that name (NKI 0.3 to 0.7, SDK 2.29 to 2.33): a destination
first, Python's own loops. Both leave the same Programs.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Callable, Iterator, Sequence
from types import CodeType, ModuleType
from typing import Any, Literal, get_args

from accelopt.parsing import parse_python, source_lines, tree_of
from accelopt.sim.dialects.neuronxcc import kernel as neuronxcc
from accelopt.sim.dialects.nki import kernel as standalone
from accelopt.sim.dialects.nki.language.memories import DEFAULT_TARGET
from accelopt.sim.errors import KernelError, KernelSyntaxError, SourceLine
from accelopt.sim.program import Program

Dialect = Literal["neuronxcc", "nki"]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)

DEFAULT_TARGETS: dict[Dialect, str] = {"neuronxcc": "trn1", "nki": DEFAULT_TARGET}
"""The generation that kernels of a dialect are written for, unless it is said."""

NAMES: dict[Dialect, str] = {
    "neuronxcc": "neuronxcc.nki (Neuron SDK 2.21 to 2.29)",
    "nki": "nki (NKI 0.3 to 0.7)",
}
FORMS: dict[Dialect, str] = {
    "neuronxcc": "whose instructions return their results, y = nisa.activation(op=..., data=x)",
    "nki": "whose instructions take their destination first, nisa.activation(dst=y, op=..., data=x)",
}

_HOMES: dict[str, Dialect] = {
    "neuronxcc": "neuronxcc",
    "accelopt.sim.dialects.neuronxcc": "neuronxcc",
    "nki": "nki",
    "accelopt.sim.dialects.nki": "nki",
}


def dialect_of(kernel: Any) -> Dialect:
    """The dialect of a kernel: its decorator's, or that of the modules that its function uses.

    Raises KernelSyntaxError where these differ: no release compiles such a kernel (NKI 0.4)."""
    function = getattr(kernel, "func", kernel)
    used = list(_used(function))
    own: Dialect = used[0][0] if used else "neuronxcc"
    if isinstance(kernel, standalone.Kernel):
        own = "nki"
    elif isinstance(kernel, neuronxcc.Kernel):
        own = "neuronxcc"
    foreign = next((name for dialect, name in used if dialect != own), None)
    if foreign is not None:
        raise _mixed(function, foreign)
    return own


def trace_kernel(
    kernel: Any,
    args: Sequence[Any],
    kwargs: dict[str, Any] | None = None,
    *,
    target: str | None = None,
    version: str = "",
    report: Callable[[KernelError], None] | None = None,
) -> Program:
    """The Program of a kernel in either dialect, for arguments without data; `version` is that of `nki`
    which it is said to be for. Raises KernelError, or calls `report` and goes on."""
    if dialect_of(kernel) == "nki":
        return standalone.trace_kernel(
            kernel, args, kwargs, target=target, version=version, report=report
        )
    if version:
        said = f"the kernel is written in {NAMES['neuronxcc']}, and said to be for NKI {version}."
        code = getattr(kernel, "func", kernel).__code__
        place = SourceLine(code.co_filename, code.co_firstlineno)
        raise KernelError("nki_version", said, "accelopt translate --to nki writes it anew.", place)
    return neuronxcc.trace_kernel(kernel, args, kwargs, target=target, report=report)


def dialect_of_source(source: str) -> Dialect:
    """The dialect that a kernel's text imports; `neuronxcc` where it imports none."""
    return imported_dialect(source) or "neuronxcc"


def imported_dialect(source: str) -> Dialect | None:
    """The dialect that a kernel's text imports, the older one where it imports both; None where it
    imports none, or is no Python."""
    found = _imported(source)
    return next((dialect for dialect in DIALECTS if dialect in found), None)


def wrong_dialect(source: str, wanted: str) -> str:
    """One sentence for a kernel's text in another dialect than that of the kernel `wanted`, at the line
    of its first import of it; empty where they agree, or the text imports none."""
    given, dialect = imported_dialect(source), dialect_of_source(wanted)
    if given is None or given == dialect:
        return ""
    return (
        f"line {_imported(source)[given]} imports {NAMES[given]}, and the kernel to be made faster is written in "
        f"{NAMES[dialect]}: write it in that dialect, {FORMS[dialect]}."
    )


def _imported(source: str) -> dict[Dialect, int]:
    """The dialects that a text imports, each with the first line where it does; none for a text that
    is no Python."""
    tree = tree_of(source)
    lines: dict[Dialect, int] = {}
    for name, line in _imports(tree):
        dialect = _HOMES.get(name.partition(".")[0])
        if dialect is not None:
            lines[dialect] = min(line, lines.get(dialect, line))
    return lines


def _imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module, node.lineno


def _used(function: Any) -> Iterator[tuple[Dialect, str]]:
    """Dialects whose modules a function uses, each with a name by which it does; annotations of
    `typing` modules do not count."""
    code = getattr(function, "__code__", None)
    if not isinstance(code, CodeType):
        return
    names = getattr(function, "__globals__", {})
    for name in dict.fromkeys(_names(code)):
        dialect = _home(names[name]) if name in names else _HOMES.get(name.partition(".")[0])
        imported = name in names or "." in name or name in _HOMES
        if dialect is not None and imported and not name.endswith(".typing"):
            yield dialect, name


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _home(value: object) -> Dialect | None:
    """The dialect that a module, or a function of one, belongs to."""
    module = value.__name__ if isinstance(value, ModuleType) else getattr(value, "__module__", "")
    if not isinstance(module, str) or module.endswith(".typing"):
        return None
    for home, dialect in _HOMES.items():
        if module == home or module.startswith(f"{home}."):
            return dialect if isinstance(value, ModuleType) or callable(value) else None
    return None


def _mixed(function: Any, foreign: str) -> KernelError:
    """One sentence: which dialects meet, where, and what is understood."""
    code = function.__code__
    line = _line_of(function, foreign) or code.co_firstlineno
    return KernelSyntaxError(
        "mixed_dialects",
        f"{function.__name__} mixes the dialects neuronxcc.nki and nki, which no release of NKI "
        "compiles.",
        f"Write it in one: {' or '.join(NAMES.values())}; "
        "accelopt translate --to turns one into the other.",
        SourceLine(code.co_filename, line),
    )


def _line_of(function: Any, name: str) -> int | None:
    """The first line of a function that uses or imports a name."""
    try:
        lines, first = source_lines(function)
        tree = parse_python(textwrap.dedent("".join(lines)))
    except (OSError, TypeError, SyntaxError):
        return None
    found = [
        node.lineno
        for node in ast.walk(tree)
        if (isinstance(node, ast.Name) and node.id == name)
        or (isinstance(node, ast.Import) and name in [alias.name for alias in node.names])
        or (isinstance(node, ast.ImportFrom) and node.module == name)
    ]
    return first + min(found) - 1 if found else None
