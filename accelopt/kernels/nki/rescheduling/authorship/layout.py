"""Lines in the layout of a formatter: up to 100 characters, and spaces around the colon of a slice between sums. In a
module that is not in this layout statements are compact, in lines as long as its author's."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator

from accelopt.kernels.nki.nests.wrapping import LONGEST, compact, wrapped
from accelopt.parsing import parse_python

MOST = 120
"""Characters of a line, however long the author's are."""


def laid_out(text: str, beside: str = "") -> str:
    """`text` in this layout, or for the module `beside` in that one's."""
    longest = max((len(line) for line in beside.splitlines() if not _said(line)), default=0)
    width = min(MOST, max(LONGEST, longest)) if beside and laid_out(beside) != beside else 0
    text = _spaced(text)
    lines = text.splitlines()
    for first, last in sorted(_simple(text), reverse=True):
        statement = lines[first - 1 : last]
        if any("#" in line for line in statement[:-1]):
            continue
        code, _, comment = _joined(statement).partition("  #")
        made = wrapped(code, f"  #{comment}" if comment else "")
        if width and not comment:
            made = compact(code, width)
        if made != statement and _same(statement, made):
            lines[first - 1 : last] = made
    return "\n".join(lines) + ("\n" if text.endswith("\n") else "")


def _said(line: str) -> bool:
    """Whether a line is text for a reader."""
    return line.lstrip().startswith(("#", '"'))


def _simple(text: str) -> Iterator[tuple[int, int]]:
    """First and last line of every statement that is neither a block nor beside another one."""
    kinds = (ast.Assign, ast.AugAssign, ast.AnnAssign, ast.Expr, ast.Return)
    nodes = [node for node in ast.walk(parse_python(text)) if isinstance(node, ast.stmt)]
    starts = [node.lineno for node in nodes]
    for node in nodes:
        if isinstance(node, kinds) and starts.count(node.lineno) == 1:
            yield node.lineno, node.end_lineno or node.lineno


def _joined(statement: list[str]) -> str:
    """A statement on one line, without the commas that a formatter puts behind last elements."""
    found = statement[0]
    for line in (line.strip() for line in statement[1:]):
        if line[:1] in tuple(")]}"):
            found = found.removesuffix(",") + line
        else:
            found += line if found.endswith(("(", "[", "{")) else f" {line}"
    return found


def _same(statement: list[str], made: list[str]) -> bool:
    try:
        first, second = (parse_python(textwrap.dedent("\n".join(s))) for s in (statement, made))
        return ast.dump(first) == ast.dump(second)
    except SyntaxError:
        return False


def _spaced(text: str) -> str:
    """Slices with spaces around their colon where a bound is more than a name or a number."""
    lines = [line.encode() for line in text.splitlines(keepends=True)]
    found = (
        (n.lower, n.upper, n.step) for n in ast.walk(parse_python(text)) if isinstance(n, ast.Slice)
    )
    bounds = [(lower, upper) for lower, upper, step in found if lower and upper and step is None]
    for lower, upper in sorted(bounds, key=lambda pair: pair[0].end_col_offset or 0, reverse=True):
        row, start, end = lower.lineno, lower.end_col_offset or 0, upper.col_offset
        if upper.end_lineno != row or all(map(_plain, (lower, upper))):
            continue
        line = lines[row - 1]
        between = line[start:end].replace(b" ", b"")
        if between.strip(b"()") == b":":  # brackets of the bounds belong to neither
            left, _, right = between.partition(b":")
            lines[row - 1] = line[:start] + left + b" : " + right + line[end:]
    return b"".join(lines).decode()


def _plain(bound: ast.expr) -> bool:
    if isinstance(bound, ast.UnaryOp):
        return _plain(bound.operand)
    return isinstance(bound, (ast.Name, ast.Constant))
