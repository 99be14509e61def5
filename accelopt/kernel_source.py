"""Kernel source text: taking it out of a model's reply, completing it, recognising a duplicate."""

from __future__ import annotations

import ast
import builtins
import hashlib
import re
import textwrap
from collections.abc import Collection, Iterator
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple

from accelopt.parsing import parse_python

KERNEL_NAMES = ("kernel", "optimized_kernel")
CUDA_TAGS = {"cuda", "cu", "cpp", "c++", "c"}
PYTHON_TAGS = {"", "python", "python3", "py", "py3", "nki", "triton"}
NKI_IMPORTS = {
    "np": "import numpy as np",
    "nki": "import neuronxcc.nki as nki",
    "nl": "import neuronxcc.nki.language as nl",
    "nt": "import neuronxcc.nki.typing as nt",
    "nisa": "import neuronxcc.nki.isa as nisa",
    "trace": "from neuronxcc.nki import trace",
    "par_dim": "from neuronxcc.nki.language import par_dim",
}

STANDALONE_IMPORTS = {
    "np": "import numpy as np",
    "nki": "import nki",
    "nl": "import nki.language as nl",
    "nt": "import nki.typing as nt",
    "nisa": "import nki.isa as nisa",
}
"""The same for kernels of the `nki` package."""

QUOTES = str.maketrans("\u201c\u201d\u2018\u2019\u00a0\ufeff", "\"\"''  ")
"""What pages put into code."""
_NUMBER = re.compile(r"^ *\d+(?:  | ?[|:\t] ?|$)", re.MULTILINE)
_FENCE = re.compile(r"^(\s*)(`{3,}|~{3,})\s*([\w+.#-]*)[^`\n]*$")


class FencedBlock(NamedTuple):
    """One fenced block of a reply; `closed` is False when the reply ended inside it."""

    tag: str
    text: str
    closed: bool


def fenced_blocks(reply: str) -> list[FencedBlock]:
    """The fenced blocks of `reply` in order, also those of a list's entries, read line by line (linear in
    the reply's length). A fence that stands more than three columns further in closes nothing."""
    blocks: list[FencedBlock] = []
    fence, tag, indent, lines = "", "", 0, list[str]()
    for line in reply.splitlines():
        match = _FENCE.match(line)
        if not fence:
            if match:
                indent, fence, tag, lines = len(match[1]), match[2], match[3].lower(), []
        elif match and not match[3] and match[2].startswith(fence) and len(match[1]) <= indent + 3:
            blocks.append(FencedBlock(tag, "\n".join(lines), closed=True))
            fence = ""
        elif line.endswith(fence) and line.count(fence[0]) == len(fence) and not match:
            blocks.append(FencedBlock(tag, "\n".join([*lines, line[: -len(fence)]]), closed=True))
            fence = ""
        else:
            lines.append(line)
    if fence:
        blocks.append(FencedBlock(tag, "\n".join(lines), closed=False))
    return blocks


def kernel_source(reply: str, names: Collection[str] = KERNEL_NAMES) -> str | None:
    """The source that `reply` proposes, or None when it holds no code.

    Of several blocks the last that parses and defines one of `names` wins (models correct
    themselves downwards), then the last that parses and defines any function, then the longest
    Python block, so that a syntax error is reported on the code it stands in. What it uses and another
    block defines is taken from there. A reply without a fence is taken whole when it parses, or from its
    first import or definition on. Of CUDA the last block with a kernel is taken.
    """
    if (native := _cuda_source(reply)) is not None:
        return native
    blocks = [(block.tag, _plain(block.text)) for block in fenced_blocks(reply)]
    # A tag says little: what parses and defines a function is Python.
    texts = [text for tag, text in blocks if text and (tag in PYTHON_TAGS or functions(text))]
    if not texts:
        return _unfenced(reply, names)
    defining = [(text, functions(text)) for text in reversed(texts)]
    chosen = next((text for text, defined in defining if defined & {*names}), None) or next(
        (text for text, defined in defining if defined and "def " in text), None
    )
    if chosen is not None:
        return with_definitions(chosen, *reversed(texts)) + "\n"
    longest = max(texts, key=len)
    return longest + "\n" if "def " in longest else None


def _plain(block: str) -> str:
    """The text of a block; of one that does not parse, without the numbers of its lines, or with plain
    signs for those of pages, where that does."""
    text = textwrap.dedent(block).strip("\n")
    if functions(text):
        return text
    numbered = all(map(_NUMBER.match, text.splitlines()))
    plain = _NUMBER.sub("", text) if numbered else text.translate(QUOTES)
    return plain if functions(plain) else text


def _cuda_source(reply: str) -> str | None:
    """The last block of C++ that defines a kernel, tagged so or without a tag; None where there is none."""
    found = [
        block.text.strip("\n") + "\n"
        for block in fenced_blocks(reply)
        if "__global__" in block.text
        and (block.tag in CUDA_TAGS or (not block.tag and _parse(block.text) is None))
    ]
    return found[-1] if found else None


def _unfenced(reply: str, names: Collection[str]) -> str | None:
    """Code in a reply without a (closed or opened) Python fence."""
    text = textwrap.dedent(reply).strip("\n")
    starts = [0]
    starts += [match.start() for match in re.finditer(r"^(?:@|def |import |from )", text, re.M)][:8]
    for start in starts:
        body = text[start:]
        if functions(body) & set(names):
            return body + "\n"
        ended = _longest_prefix(body)
        if ended and functions(ended) & set(names):
            return ended + "\n"
    return None


def _longest_prefix(text: str) -> str | None:
    """`text` up to the line where Python stops understanding it, when that prefix parses."""
    try:
        parse_python(text)
    except SyntaxError as error:
        lines = text.splitlines()[: max((error.lineno or 1) - 1, 0)]
        prefix = "\n".join(lines)
        return prefix if functions(prefix) else None
    except (ValueError, RecursionError, MemoryError):
        return None
    return text


def functions(source: str) -> set[str]:
    """Names of the functions that `source` defines at its top level, but for those that leave something out
    with `...`; empty when it does not parse."""
    tree = _parse(source)
    if tree is None or _leaves_out(tree):
        return set()
    defining = (node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.Assign)))
    return set().union(*map(_binds, defining))


def entries(source: str) -> set[str]:
    """The functions of `source` that nothing in it uses."""
    tree = _parse(source)
    defined = functions(source)
    return defined - _used(tree) or defined if tree else defined


def with_definitions(source: str, *others: str) -> str:
    """`source` with the statements of `others`, the first one first, that define names which it uses and
    never binds."""
    for other in others:
        tree, donor = _parse(source), _parse(other)
        if tree is None or donor is None:
            continue
        missing, taken = _used(tree) - _bound_names(tree) - {*dir(builtins)}, list[str]()
        for node in reversed(donor.body):
            if missing & _binds(node):
                missing |= _used(node) - _bound_names(tree)
                first = min(one.lineno for one in (node, *getattr(node, "decorator_list", ())))
                taken[:0] = other.splitlines()[first - 1 : node.end_lineno]
        lines, at = source.splitlines(), _after_preamble(tree)
        source = "\n".join([*lines[:at], *taken, *lines[at:]]) + "\n" if taken else source
    return source


def _used(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _binds(statement: ast.stmt) -> set[str]:
    """The names of functions, classes, modules and values that a statement at the top defines."""
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return {statement.name}
    if isinstance(statement, (ast.Import, ast.ImportFrom, ast.Assign)):
        return _bound_names(ast.Module([statement], []))
    return set()


def _leaves_out(tree: ast.Module) -> bool:
    """Whether `...` stands in place of statements."""
    said = (node.value for node in ast.walk(tree) if isinstance(node, ast.Expr))
    return any(isinstance(one, ast.Constant) and one.value is ... for one in said)


def complete_imports(source: str, imports: dict[str, str] | None = None) -> str:
    """`source` with an import line for each usual NKI name that it uses and never binds.

    The published runner puts all of them in front of every kernel; adding only the missing ones
    leaves a file that also runs by itself.
    """
    tree = _parse(source)
    if tree is None:
        return source
    used = _used(tree)
    bound = _bound_names(tree) | set(dir(builtins))
    missing = [
        line
        for name, line in (NKI_IMPORTS if imports is None else imports).items()
        if name in used and name not in bound
    ]
    if not missing:
        return source
    lines = source.splitlines(keepends=True)
    at = _after_preamble(tree)
    return "".join([*lines[:at], *(line + "\n" for line in missing), *lines[at:]])


def _bound_names(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            names |= {(alias.asname or alias.name).split(".")[0] for alias in node.names}
        elif isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    return names


def _after_preamble(tree: ast.Module) -> int:
    """The line index behind the module's docstring and `__future__` imports."""
    at = 0
    for index, node in enumerate(tree.body):
        docstring = (
            index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        )
        future = isinstance(node, ast.ImportFrom) and node.module == "__future__"
        if not (docstring or future):
            break
        at = node.end_lineno or at
    return at


class SourceEdit(NamedTuple):
    """What a change does to a text, wherever that stands in it: lines that go, lines that come, and
    those that stay and name the same values. Two edits are equal where one would do to one text what
    the other did to another."""

    gone: tuple[str, ...]
    come: tuple[str, ...]
    around: frozenset[str]


_NAME = re.compile(r"(?<![\w.])[A-Za-z_]\w*(?!\w*\s*[.(])")
_COUNTER = re.compile(r"\s*for (\w+) in ")


def edit_of(before: str, after: str, whole: bool = False) -> SourceEdit:
    """The edit that makes `after` of `before`. With `whole`, all lines that stay count: for what a
    kernel has of a resource, each of them matters."""
    old, new = _statements(before), _statements(after)
    gone, come, kept = list[str](), list[str](), list[str]()
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            kept += old[a:b]
        else:
            gone += old[a:b]
            come += new[c:d]
    counters = {found[1] for line in (*old, *new) if (found := _COUNTER.match(line))}
    names = {name for line in (*gone, *come) for name in _NAME.findall(line)} - counters
    around = (line for line in kept if whole or names.intersection(_NAME.findall(line)))
    return SourceEdit(tuple(gone), tuple(come), frozenset(around))


def _statements(source: str) -> list[str]:
    """The lines of a text without indentation, blank lines and comments."""
    lines = (line.strip() for line in source.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


@lru_cache(maxsize=4096)
def fingerprint(source: str) -> str:
    """A hash that is equal for sources differing only in layout, comments, docstrings and the
    names of local variables; the raw text's hash when it does not parse.

    For recognising repetitions. It is no ground for a verdict: a kernel can read its own docstring,
    or the names in its code, and do something else for each.
    """
    tree = _parse(source)
    if tree is not None:
        try:
            return hashlib.sha256(_normal_form(tree).encode()).hexdigest()[:32]
        except RecursionError:  # an expression of thousands of terms; compared as text
            pass
    return hashlib.sha256(source.encode("utf-8", "replace")).hexdigest()[:32]


def _normal_form(tree: ast.Module) -> str:
    scopes = [
        n for n in ast.walk(tree) if isinstance(n, (ast.FunctionDef, ast.ClassDef, ast.Module))
    ]
    for node in scopes:
        _drop_docstring(node)
    for node in scopes:
        if isinstance(node, ast.FunctionDef):
            _number_locals(node)
    return ast.dump(tree)


def _drop_docstring(node: ast.FunctionDef | ast.ClassDef | ast.Module) -> None:
    first = node.body[0] if node.body else None
    if (
        isinstance(first, ast.Expr)
        and isinstance(first.value, ast.Constant)
        and isinstance(first.value.value, str)
    ):
        node.body = node.body[1:] or [ast.Pass()]


def _number_locals(function: ast.FunctionDef) -> None:
    """Name the variables that `function` assigns by their order of appearance.

    Parameters keep their names (callers may pass them by keyword), and so do names that a nested
    scope declares global or nonlocal.
    """
    kept, names = set[str](), list[ast.Name]()
    for node in ast.walk(function):
        if isinstance(node, ast.Name):
            names.append(node)
        elif isinstance(node, ast.arg):
            kept.add(node.arg)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            kept.update(node.names)
    numbers: dict[str, str] = {}
    for name in names:
        if isinstance(name.ctx, ast.Store) and name.id not in kept:
            numbers.setdefault(name.id, f"%{len(numbers)}")
    for name in names:
        name.id = numbers.get(name.id, name.id)


def _parse(source: str) -> ast.Module | None:
    try:
        return parse_python(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


_HUNK = re.compile(r"@@(?: -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@|$| @@| \.\.\. @@)")


_EDIT = re.compile(
    r"^<{5,9} ?SEARCH\n((?:.*\n)*?)={5,9}\n((?:.*\n)*?)>{5,9} ?REPLACE", re.MULTILINE
)


def edits_as_diff(text: str) -> str:
    """The blocks of a text that say what to search for and what to put there, as a unified diff without line
    numbers; the text itself where it has none."""
    hunks = [
        "\n".join(["@@ @@", *(f"-{line}" for line in before.splitlines()),
                   *(f"+{line}" for line in after.splitlines())])
        for before, after in _EDIT.findall(text)
    ]  # fmt: skip
    return "\n".join(hunks) or text


def is_patch(text: str) -> bool:
    """Whether a text is a unified diff: every line but a heading belongs to a hunk."""
    lines = text.strip("\n").splitlines()
    start = next((at for at, line in enumerate(lines) if _HUNK.match(line)), None)
    return start is not None and all(
        line[:3] in ("---", "+++", "***") or line.startswith(("diff ", "index "))
        for line in lines[:start]
    )


def apply_patch(source: str, diff: str) -> str | None:
    """`source` with a unified diff of one file applied; None where any of its lines is not where it says,
    or stands in several places where it says wrongly. Nothing is guessed: context holds exactly."""
    lines, found = source.splitlines(keepends=True), list[str]()
    at = 0
    for start, before, after in _hunks(diff):
        plain = [line.rstrip("\r\n") for line in lines]
        places = [
            place
            for place in range(at, len(plain) - len(before) + 1)
            if plain[place : place + len(before)] == before
        ]
        if start not in places and (len(places) != 1 or not before):
            return None
        place = start if start in places else places[0]
        found += lines[at:place]
        if after and found and not found[-1].endswith("\n"):
            found[-1] += "\n"
        found += [f"{line}\n" for line in after]
        at = place + len(before)
    if at == 0 and not found:
        return None
    if at == len(lines) and found and not source.endswith("\n"):
        found[-1] = found[-1].rstrip("\n")
    return "".join([*found, *lines[at:]])


def _hunks(diff: str) -> Iterator[tuple[int, list[str], list[str]]]:
    """Of each hunk the line that it begins at (from 0), and what it wants there before and after."""
    start, before, after = None, list[str](), list[str]()
    for line in [*diff.strip("\n").splitlines(), "@@ -1 +1 @@"]:
        if heading := _HUNK.match(line):
            if start is not None:
                yield start, before, after
            # With no line before it, a hunk counts from the line that it comes behind. One without numbers
            # stands nowhere.
            start = int(heading[1] or -9) - (not re.match(r"@@ -\d+,0 ", line))
            before, after = [], []
        elif start is not None and line[:1] in ("-", " ", ""):
            before.append(line[1:])
            if line[:1] != "-":
                after.append(line[1:])
        elif start is not None and line[:1] == "+":
            after.append(line[1:])
