"""A rewritten kernel as its author would have it: familiar names, no aliases, lines that a formatter
leaves alone. Nothing that is computed changes, and what the author wrote stays as it is."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TypeGuard

from accelopt.kernels.nki.lift.authorship.layout import laid_out
from accelopt.kernels.nki.lift.authorship.text import replaced
from accelopt.kernels.nki.moves.surgery.author_constants import spelled
from accelopt.kernels.nki.moves.surgery.shape_assertions import hold_to_shapes
from accelopt.kernels.nki.parameters import ParameterFacts
from accelopt.parsing import parse_python

WORD = re.compile(r"[^\W\d]\w*")
MADE = re.compile(r"(_row)?(_transposed)?(_tiles?)?$")
"""What moves put behind the name of a tile for several of it, or for it the other way round."""
NUMBERED = re.compile(r"(?P<base>.*[^\d_])_\d+")


def reviewed(text: str, before: str, arguments: Mapping[str, ParameterFacts]) -> str:
    """`text`, made of `before`, for a reviewer, and held to the shapes of its arguments."""
    try:
        text = given_again(familiar(without_aliases(text, before)), before)
        text = spelled(text, before)
        return laid_out(hold_to_shapes(with_comments(text, before), arguments), before)
    except (SyntaxError, ValueError, RecursionError):
        return text


def with_comments(text: str, before: str) -> str:
    """`text` with the comments of `before` that it lost with their statements, above the first one that
    gives a value to a name which was made of theirs.

    before: # by rows             after: # by rows
            tile = nl.load(...)          tiles = nl.ndarray(...); ...
    """
    lines, old = text.splitlines(), before.splitlines()
    bound = {number: name for name, number in reversed(list(_bound(parse_python(before))))}
    block: list[str] = []
    for number, line in enumerate(old, 1):
        if line.lstrip().startswith("#"):
            block.append(line.strip())
            continue
        lost = [said for said in block if not any(said == other.strip() for other in lines)]
        block = [] if line.strip() else block
        name = bound.get(number)
        if not lost or name is None:
            continue
        made = (at for other, at in _bound(parse_python("\n".join(lines))) if _made_of(other, name))
        at = min(made, default=0)
        if at:
            pad = lines[at - 1][: len(lines[at - 1]) - len(lines[at - 1].lstrip())]
            lines[at - 1 : at - 1] = [pad + said for said in lost]
    return "\n".join(lines) + "\n"


def _bound(tree: ast.Module) -> Iterator[tuple[str, int]]:
    """The names that statements give a value to, with the lines of those."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            target = node.targets[0]
            while isinstance(target, ast.Subscript):
                target = target.value
            if isinstance(target, ast.Name):
                yield target.id, node.lineno


def _made_of(name: str, old: str) -> bool:
    """Whether a move calls several of a tile so, or the tile another way round."""
    return MADE.sub("", name) == MADE.sub("", old)


def told(sentence: str, source: str) -> str:
    """A sentence on `source` that names its variables as the author does: not `k_1` where that is the
    second of two loops over `k`."""
    own = set(WORD.findall(source))

    def author_s(word: re.Match[str]) -> str:
        found = NUMBERED.fullmatch(word[0])
        return found["base"] if found and word[0] not in own and found["base"] in own else word[0]

    return WORD.sub(author_s, sentence)


def without_aliases(text: str, before: str) -> str:
    """`text` where a value that has two names, of which the author wrote one, has that one.

    before: row_sum = nl.ndarray(...); ...; total = row_sum      after: total = nl.ndarray(...); ...
    """
    own = _identifiers(parse_python(before))
    for node in ast.walk(parse_python(text)):
        match node:
            case ast.Assign(targets=[ast.Name(id=kept)], value=ast.Name(id=made)):
                tree = parse_python(text)
                if made in own or kept not in own or not _alias(tree, kept, made, node.lineno):
                    continue
                lines = text.splitlines(keepends=True)
                del lines[node.lineno - 1]
                return without_aliases(_renamed("".join(lines), made, kept), before)
    return text


def _alias(tree: ast.Module, kept: str, made: str, line: int) -> bool:
    """Whether `kept`, bound once, in that line, is another name for `made`, bound once and before."""
    names = [node for node in ast.walk(tree) if isinstance(node, ast.Name)]
    bound = {
        name: [n.lineno for n in names if n.id == name and isinstance(n.ctx, ast.Store)]
        for name in (kept, made)
    }
    first = min(node.lineno for node in names if node.id == kept)
    arguments = {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    alone = sum(getattr(n, "lineno", 0) == line for n in ast.walk(tree) if isinstance(n, ast.stmt))
    single = bound[kept] == [line] and len(bound[made]) == 1 and bound[made][0] < line
    return single and first == line and alone == 1 and not {kept, made} & arguments


def familiar(text: str) -> str:
    """`text` in which a loop that follows another one has its variable's name again, where nothing
    can take the one for the other.

    before: for k in ...: a(k)        after: for k in ...: a(k)
            for k_1 in ...: b(k_1)           for k in ...: b(k)
    """
    tree = parse_python(text)
    for loop in _loops(tree):
        name = loop.target.id  # type: ignore[attr-defined]
        found = NUMBERED.fullmatch(name)
        if found and _free(tree, loop, name, found["base"]):
            return familiar(_renamed(text, name, found["base"]))
    return text


def _loops(tree: ast.AST) -> Iterator[ast.For]:
    for node in ast.walk(tree):
        if isinstance(node, ast.For) and isinstance(node.target, ast.Name):
            yield node


def _free(tree: ast.Module, loop: ast.For, name: str, base: str) -> bool:
    """Whether the variable of `loop` may be called `base`: all else that has this name are variables
    of other loops, used within those alone, and none of them is inside or outside of this one."""
    inside = set(map(id, ast.walk(loop)))
    if any(id(node) not in inside for node in _named(tree, name)):
        return False
    others = [other for other in _loops(tree) if other.target.id == base]  # type: ignore[attr-defined]
    within = {id(node) for other in others for node in ast.walk(other)}
    apart = id(loop) not in within and not any(id(other) in inside for other in others)
    return apart and all(id(node) in within for node in _named(tree, base))


def given_again(text: str, before: str) -> str:
    """`text` in which a value takes its author's name again, where the author gave that name to value
    after value and nobody asks for an earlier one any more.

    before: b = nl.add(a, c)                 after: b = nl.add(a, c)
            b_2 = nl.maximum(b, 0)                  b = nl.maximum(b, 0)
    """
    stored = [n.id for n in ast.walk(parse_python(before)) if _is_stored(n)]
    tree = parse_python(text)
    for body in _bodies(tree):
        for at, statement in enumerate(body):
            match statement:
                case ast.Assign(targets=[ast.Name(id=made)]) if made not in stored:
                    found = NUMBERED.fullmatch(made)
                    base = found["base"] if found else made
                    if stored.count(base) > 1 and _over(tree, body, at, base, made):
                        return given_again(_renamed(text, made, base), before)
    return text


def _over(tree: ast.Module, body: Sequence[ast.stmt], at: int, base: str, made: str) -> bool:
    """Whether `made`, which statement `at` of `body` binds, may be called `base`: that name is bound and
    used in the same body before, and it is nobody else's."""
    before = [node for statement in body[:at] for node in _named(statement, base)]
    within = [*before, *_named(body[at], base)]
    after = [node for statement in body[at:] for node in _named(statement, made)]
    first = next((s for s in body[:at] if any(_named(s, base))), None)
    return (
        len(within) == len([*_named(tree, base)])
        and len(after) == len([*_named(tree, made)])
        and sum(map(_is_stored, after)) == 1
        and isinstance(first, ast.Assign)
        and [node for node in _named(first, base) if _is_stored(node)] == [first.targets[0]]
        and not any(_named(first.value, base))
    )


def _is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


def _bodies(tree: ast.Module) -> Iterator[list[ast.stmt]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.For)):
            yield node.body


def _named(tree: ast.AST, name: str) -> Iterator[ast.AST]:
    """All that has this name, in whatever sense."""
    for node in ast.walk(tree):
        if name in (getattr(node, "id", None), getattr(node, "arg", None)) or (
            isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.alias)) and node.name == name
        ):
            yield node


def _identifiers(tree: ast.AST) -> set[str]:
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}


def _renamed(text: str, name: str, wanted: str) -> str:
    """`text` with another name for a variable; keywords and attributes of that name stay."""
    places = [n for n in ast.walk(parse_python(text)) if isinstance(n, ast.Name) and n.id == name]
    return replaced(text, [(place, wanted) for place in places])
