"""The author's comments on steps, put above the lines that carry the same steps out."""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping

from accelopt.kernels.nki.rescheduling.authorship.steps import Key, Steps
from accelopt.kernels.nki.rescheduling.authorship.text import AuthorsComment, comments

LONGEST = 100


def with_comments(text: str, made: Steps, author: Steps, source: str) -> str:
    """`text`, whose steps are `made`, with those comments of the author's `source` that speak of
    steps which it has as well. One on a loop stays with the loop over the same results."""
    above: dict[int, list[str]] = {}
    function = author.function
    last = function.end_lineno or function.lineno
    blocks = _blocks(function)
    first = next(iter(_written(function)), None)
    for comment in comments(source, function.lineno, last):
        statement = blocks.get(comment.about)
        place = None if statement is None else _place(statement, made, author)
        if place is None and statement is first and not _computes(first, author):
            place = min((node.lineno for node in _written(made.function)), default=None)
        if place is not None:
            above.setdefault(place, []).extend(_worded(comment, text.splitlines()[place - 1]))
    lines = text.splitlines()
    for place in sorted(above, reverse=True):
        lines[place - 1 : place - 1] = above[place]
    return "\n".join(lines) + "\n"


def _written(function: ast.FunctionDef) -> list[ast.stmt]:
    """The statements of a function below its docstring."""
    return function.body[ast.get_docstring(function) is not None :]


def _computes(statement: ast.stmt | None, steps: Steps) -> bool:
    """Whether a statement is a step, or holds some: a comment goes with what it says of those. What
    stands above the first name for a size speaks of the kernel."""
    within = set(map(id, ast.walk(statement))) if statement else set()
    return any(step.keys for step in steps.found if id(step.statement) in within)


def _blocks(function: ast.FunctionDef) -> Mapping[int, ast.stmt]:
    """The statement that each line belongs to; of a block its first line."""
    found: dict[int, ast.stmt] = {}
    for node in ast.walk(function):
        if isinstance(node, ast.stmt):
            simple = not hasattr(node, "body")
            last = (node.end_lineno or node.lineno) if simple else node.lineno
            found.update(dict.fromkeys(range(node.lineno, last + 1), node))
    return found


def _place(statement: ast.stmt, made: Steps, author: Steps) -> int | None:
    """The line of a lowered kernel that does what a statement of the author's does."""
    if isinstance(statement, ast.For):
        return _loop(statement, made, author)
    step = next((step for step in author.found if step.statement is statement), None)
    if step is None:
        return None
    for key in _told(step.keys, author):
        found = made.computed(key, author.fractions(step))
        if found is not None:
            return found.statement.lineno
    for meaning in (
        {m for name in step.targets for m in author.named[name]} if not step.keys else ()
    ):
        found = made.computed((meaning, ""))
        if found is not None:  # what is declared here is computed there
            return found.statement.lineno
    return None


def _told(keys: tuple[Key, ...], author: Steps) -> Iterator[Key]:
    """What a comment may be about: values that are new first, and reads and writes where there are
    none."""
    new = [key for key in keys if not key[1]]
    yield from new[:1] or keys[:1]


def _loop(loop: ast.For, made: Steps, author: Steps) -> int | None:
    """The line of the loop that stands for one of the author's: outermost ones around the writing of
    the same results, and those that sum the same terms."""
    keys = _inside(loop, author)
    for other in ast.walk(made.function):
        if not isinstance(other, ast.For):
            continue
        outermost = loop in author.function.body and other in made.function.body
        if outermost and _writes(loop) and _writes(other):
            return other.lineno
        sums = _sums(loop) and _sums(other) and not _writes(other)
        if sums and keys & _inside(other, made):
            return other.lineno
    return None


def _inside(loop: ast.For, steps: Steps) -> set[Key]:
    within = set(map(id, ast.walk(loop)))
    return {
        key
        for step in steps.found
        if id(step.statement) in within
        for key in step.keys
        if not key[1]
    }


def _writes(loop: ast.For) -> bool:
    called = (node.func for node in ast.walk(loop) if isinstance(node, ast.Call))
    return any(isinstance(f, ast.Attribute) and f.attr in ("store", "dma_copy") for f in called)


def _sums(loop: ast.For) -> bool:
    return any(isinstance(statement, ast.AugAssign) for statement in loop.body)


def _worded(comment: AuthorsComment, line: str) -> list[str]:
    """A comment above a line, wrapped where it does not fit there."""
    pad = " " * (len(line) - len(line.lstrip()))
    found: list[str] = []
    for said in comment.lines:
        if len(pad + said) <= LONGEST:
            found.append(pad + said)
        else:
            found += textwrap.wrap(said[1:].strip(), LONGEST, initial_indent=f"{pad}# ",
                                   subsequent_indent=f"{pad}# ")  # fmt: skip
    return found
