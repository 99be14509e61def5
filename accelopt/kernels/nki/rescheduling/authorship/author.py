"""The door: a lowered kernel in the place of the author's."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import NamedTuple

from accelopt.kernels.nki.kernel_function import kernel_in, name_of
from accelopt.kernels.nki.rescheduling.authorship.comments import with_comments
from accelopt.kernels.nki.rescheduling.authorship.expression_numbers import Meanings
from accelopt.kernels.nki.rescheduling.authorship.kernel_replacement import parts, with_kernel
from accelopt.kernels.nki.rescheduling.authorship.layout import laid_out
from accelopt.kernels.nki.rescheduling.authorship.numbers import with_expressions, with_sizes
from accelopt.kernels.nki.rescheduling.authorship.steps import Steps
from accelopt.kernels.nki.rescheduling.authorship.variable_names import with_loop_names, with_names
from accelopt.parsing import parse_expression, parse_python, tree_of
from accelopt.sim.dialects.dialect import dialect_of_source


class Author(NamedTuple):
    """Who wrote a kernel: the module `source` with the function `kernel`, called with arguments of
    these shapes (empty for plain numbers)."""

    source: str
    kernel: str
    shapes: Mapping[str, tuple[int, ...]]

    def with_kernel(self, made: str) -> str:
        """The module with a lowered kernel in the place of the author's: that of the module `made`,
        which has the same name and computes the same.

        Instructions and their order are those of `made`. Variables have the names that the author
        gave the same values, numbers are the author's expressions, comments stand by the steps that
        they speak of, the function's docstring is the author's, and what the old kernel alone used
        is gone.
        """
        theirs = self._theirs()
        if theirs is None or _function(made, self.kernel) is None:
            return made
        try:
            text = self._changed(made, ast.get_docstring(theirs, clean=False))
            parse_python(text)
        except (SyntaxError, ValueError, RecursionError):
            return made  # a lowered kernel is whole without its author
        return text

    def _changed(self, made: str, docstring: str | None) -> str:
        text = _with_docstring(made, self.kernel, docstring)
        text = with_names(text, *self._steps(text))
        text = with_expressions(text, *self._steps(text))
        text = with_sizes(text, *self._steps(text))
        text = self._with_range(text)
        text = with_loop_names(text, *self._steps(text))
        text = laid_out(text, self.source)
        text = with_comments(text, *self._steps(text), self.source)
        text = self._with_header(text)
        return self._said(with_kernel(self.source, self.kernel, text))

    def _with_header(self, text: str) -> str:
        """The text with the author's decorators and the author's line of the function."""
        theirs, own = self._theirs(), _function(text, self.kernel)
        assert theirs is not None and own is not None
        names = (
            [node.arg for node in ast.walk(f.args) if isinstance(node, ast.arg)]
            for f in (theirs, own)
        )
        if theirs.col_offset or len({tuple(n) for n in names}) > 1:
            return text
        lines, made = self.source.splitlines(keepends=True), text.splitlines(keepends=True)
        first, start = (
            min([f.lineno, *(n.lineno for n in f.decorator_list)]) - 1 for f in (theirs, own)
        )
        for last in range(theirs.lineno, theirs.body[0].lineno):
            header = lines[first:last]
            try:
                parse_python(f"{''.join(header)}    ...\n")
            except SyntaxError:
                continue
            return "".join([*made[:start], *header, *made[own.lineno :]])
        return text

    def _with_range(self, text: str) -> str:
        """The text with Python's range where the author's loops have it: in `nki` all ranges are it."""
        theirs = self._theirs()
        assert theirs is not None
        called = {name_of(loop.iter.func) for loop in ast.walk(theirs)
                  if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call)}  # fmt: skip
        plain = called == {"range"} and dialect_of_source(self.source) == "nki"
        return re.sub(r"\bnl\.(affine|sequential)_range\(", "range(", text) if plain else text

    def _said(self, text: str) -> str:
        """The module with a line that says which function is its kernel, where that is not clear any
        more: one that the old kernel called stays when others call it, and the new one does not."""
        own = kernel_in(text)
        return text if own and own.name == self.kernel else f"{text}\n\nkernel = {self.kernel}\n"

    def _theirs(self) -> ast.FunctionDef | None:
        """The author's function; None where the module has no such kernel at its top, or in a
        function that makes it."""
        found = kernel_in(self.source)
        if found and len(found.path) > 1 and found.name == self.kernel:
            return found.definition
        return _function(self.source, self.kernel)

    def _steps(self, text: str) -> tuple[Steps, Steps]:
        """The steps of a lowered kernel, and the author's, in the same meanings."""
        meanings, numbers = Meanings(), _constants(self.source)
        made, author = _function(text, self.kernel), self._theirs()
        assert made is not None and author is not None
        own = Steps(author, meanings, dict(numbers), self.shapes, _functions(self.source)).read()
        return Steps(made, meanings, dict(numbers), self.shapes).read(), own


def _function(source: str, name: str) -> ast.FunctionDef | None:
    return _functions(source).get(name)


def _functions(source: str) -> dict[str, ast.FunctionDef]:
    """The functions of a module; none of a text that is no module."""
    return {node.name: node for node in tree_of(source).body if isinstance(node, ast.FunctionDef)}


def _constants(source: str) -> dict[str, float | tuple[float, ...]]:
    """The module's names for numbers."""
    nothing = parse_python("def nothing(): ...").body[0]
    assert isinstance(nothing, ast.FunctionDef)
    reader = Steps(nothing, Meanings())
    for part in parts(source):
        match part.node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    reader.numbers |= reader.numbers_of(target, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                reader.numbers |= reader.numbers_of(target, value)
    return reader.numbers


def _with_docstring(text: str, kernel: str, said: str | None) -> str:
    """`text` with the author's docstring for the kernel, or none where the author has none."""
    function = _function(text, kernel)
    if function is None or ast.get_docstring(function) is None:
        return text
    first = function.body[0]
    lines = text.splitlines(keepends=True)
    quoted = f'    """{said}"""\n'
    if said is None:
        quoted = ""
    elif ast.literal_eval(parse_expression(quoted.strip())) != said:
        quoted = f"    {said!r}\n"
    lines[first.lineno - 1 : first.end_lineno] = [quoted]
    return "".join(lines)
