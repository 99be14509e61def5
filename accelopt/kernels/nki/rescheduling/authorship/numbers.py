"""Numbers of a kernel by the names and expressions that its author has for them."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from accelopt.kernels.nki.kernel_function import name_of
from accelopt.kernels.nki.nests.statement_trees import base
from accelopt.kernels.nki.rescheduling.authorship.steps import Key, Steps, arrays, moves, transfers
from accelopt.kernels.nki.rescheduling.authorship.text import identifiers, replaced
from accelopt.parsing import names_stored, parse_expression, parse_python

NOBODYS = frozenset((0.0, 1.0, 2.0, 0.5))
"""Numbers, with either sign, that stand for themselves."""

LONG = 9
"""Characters of a decimal number that nobody wrote."""
LARGEST_WHOLE = 1e7
"""Of a fraction: larger ones are as good as any number."""


SMALL = 128
"""A width that tiles have for many reasons."""
TRANSFERS = ("load", "store", "dma_copy")
LAST = -1
"""The last dimension of an array."""


class Spelled(NamedTuple):
    """A number as the author says it, and what the statement that says it computes."""

    text: str
    value: float
    keys: frozenset[Key]


def with_expressions(text: str, made: Steps, author: Steps) -> str:
    """`text`, whose steps are `made`, with the author's expressions for its numbers, where they
    are the same in fp32; what an expression needs of the author's statements on shapes comes with it."""
    taken = identifiers(made.function) - set(made.shapes)
    known = [said for said in _said(author) if not identifiers(parse_python(said.text)) & taken]
    made_of = [_about(one, form) for form in ("-{}", "1 / {}", "-1 / {}") for one in known]
    changes: list[tuple[ast.expr, str]] = []
    for step in made.found:
        for node in _floats(step.statement):
            value = made.value(node)
            if value is None or abs(value) in NOBODYS:
                continue
            said = _chosen(value, (known, made_of), frozenset(step.keys))
            if said:
                changes.append((node, said))
    changes += _places(made, author)
    changes += _declared(made, author, taken)
    changes += _tile_shapes(made, author, taken)
    text = fractions(replaced(text, changes))
    return _carried(text, made, author, [said for _, said in changes])


def _said(author: Steps) -> Iterator[Spelled]:
    """The expressions of numbers in the author's kernel, those with a name in them; names alone
    first. Numbers alone are as many digits as the author gave them."""
    found: list[Spelled] = []
    for step in author.found:
        for node in ast.walk(step.statement):
            if isinstance(node, ast.Constant) and type(node.value) is float:
                found.append(Spelled(ast.unparse(node), node.value, frozenset(step.keys)))
            if not isinstance(node, (ast.Name, ast.BinOp, ast.UnaryOp, ast.Call)):
                continue
            names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
            value = author.value(node) if names and not names & author.loops else None
            if value is not None and isinstance(getattr(node, "ctx", ast.Load()), ast.Load):
                found.append(Spelled(ast.unparse(node), value, frozenset(step.keys)))

    def plainness(said: Spelled) -> tuple[bool, bool, int]:
        named = any(character.isalpha() for character in said.text.replace("e", ""))
        return not said.text.isidentifier(), not named, len(said.text)

    names_first = sorted(found, key=plainness)
    yield from dict.fromkeys(names_first)


def _about(said: Spelled, form: str) -> Spelled:
    """A number that is made of one: its negative or its inverse."""
    inner = said.text if said.text.isidentifier() else f"({said.text})"
    value = 1 / said.value if "/" in form and said.value else said.value
    return Spelled(form.format(inner), -value if form.startswith("-") else value, said.keys)


def _chosen(value: float, groups: Sequence[Sequence[Spelled]], keys: frozenset[Key]) -> str | None:
    """The text for a number, from the first group that has one: 1 / R is none for what the author calls RATE. Of
    several names with its value, one that is said in a step which computes the same."""
    for known in groups:
        same = [said for said in known if np.float32(said.value) == np.float32(value)]
        if value == int(value):
            same = [said for said in same if isinstance(said.value, float)]
        same = [said for said in same if said.keys & keys] or same
        first = {said.text for said in same if said.text.isidentifier()}
        if same:
            return None if len(first) > 1 else same[0].text
    return None


def _floats(statement: ast.stmt) -> Iterator[ast.expr]:
    """The numbers in a statement, with their signs."""
    inside: set[int] = set()
    for node in ast.walk(statement):
        if id(node) in inside:
            continue
        bare = node.operand if isinstance(node, ast.UnaryOp) else node
        if isinstance(bare, ast.Constant) and isinstance(bare.value, float):
            inside.add(id(bare))
            yield node  # type: ignore[misc]


def fractions(text: str) -> str:
    """`text` with its long decimal numbers as the fractions and roots of whole numbers that they are in
    fp32: 1 / 1536 in the place of 0.0006510417."""
    changes: list[tuple[ast.expr, str]] = []
    for node in ast.walk(parse_python(text)):
        if isinstance(node, ast.Constant) and type(node.value) is float:
            said = _fraction(node.value)
            if said and len(repr(node.value)) >= LONG:
                changes.append((node, said))
    return replaced(text, changes)


def _fraction(value: float) -> str | None:
    """A short decimal, 1 / n, n ** -0.5 or n ** 0.5 where a number is one of them in fp32."""
    if not 1e-30 < value < 1e30:
        return None
    short = repr(float(str(np.float32(value))))
    if len(short) < LONG:
        return short
    for text, guess, power in (("1 / {}", 1 / value, -1.0), ("{} ** -0.5", value**-2, -0.5),
                               ("{} ** 0.5", value**2, 0.5)):  # fmt: skip
        whole = round(guess) if guess < LARGEST_WHOLE else 0
        if whole > 2 and np.float32(whole**power) == np.float32(value):
            return text.format(whole)
    return None


def _declared(made: Steps, author: Steps, taken: Collection[str]) -> Iterator[tuple[ast.expr, str]]:
    """The author's declarations of arrays in HBM that both kernels have by one name and in one shape,
    with the author's names for sizes."""
    theirs = dict(arrays(author))
    modules = {"nl", "nki", "nisa"}
    for name, call in arrays(made):
        own = theirs.get(name)
        if own is None or not identifiers(own.args[0]) or identifiers(own) & set(taken) - modules:
            continue
        shape = made.extents(call.args[0])
        if shape is not None and shape == author.extents(own.args[0]):
            yield call, ast.unparse(own)


# Sizes of tiles.


def _places(made: Steps, author: Steps) -> Iterator[tuple[ast.expr, str]]:
    """The author's constants for sizes of tiles, along the dimensions of arrays in which both
    kernels cut them so, and along the last one of tiles of those."""
    names = _sizes(author)
    tiles = {tile: array for tile, array, _ in transfers(made)}  # loaded from, or stored to
    for step in made.found:
        for array, dimension, index in _subscripts(step.statement):
            last = dimension == LAST
            said = names.get((tiles.get(array, array) if last else array, dimension), {})
            for node in ast.walk(index):
                number = node.value if isinstance(node, ast.Constant) else None
                if isinstance(number, int) and number in said:
                    yield node, said[number]  # type: ignore[misc]


def _tile_shapes(
    made: Steps, author: Steps, taken: Collection[str]
) -> Iterator[tuple[ast.expr, str]]:
    """The author's constant for the partitions of tiles on the chip, and the author's names for the sizes
    of arguments where tiles are whole rows of them, and no other size is as large."""
    names: dict[tuple[int, float], set[str]] = {}
    fixed = {name for name in author.numbers if name in author.constants or _is_plain(author, name)}
    for _, sides in _tile_sides(author):
        for place, node in zip((0, LAST), sides, strict=True):
            value, own = author.value(node), identifiers(node)
            if value is not None and own and (place == LAST or own <= fixed):
                names.setdefault((place, value), set()).add(ast.unparse(node))
    rows, called = _whole_rows(made), Counter(author.numbers.values())
    for _, sides in _tile_sides(made):
        for place, node in zip((0, LAST), sides, strict=True):
            number = made.value(node) if isinstance(node, ast.Constant) else None
            said = names.get((place, number), ()) if number is not None else ()
            if (
                number is not None
                and len(said) == 1
                and (place == 0 or (number in rows and number > SMALL and called[number] < 2))
            ):
                (one,) = said
                if not identifiers(parse_expression(one)) & {*taken, *author.loops}:
                    yield node, one


def _is_plain(steps: Steps, name: str) -> bool:
    """Whether a kernel binds a name to a number alone."""
    bound = [s.statement for s in steps.found if name in names_stored(s.statement)]
    return all(isinstance(getattr(one, "value", None), ast.Constant) for one in bound)


def _whole_rows(made: Steps) -> set[object]:
    """The widths of the tiles of which all that are loaded or stored are whole rows of an array."""
    widths = {tile: getattr(sides[1], "value", None) for tile, sides in _tile_sides(made)}
    whole_ones, others = set[object](), set[object]()
    for function, parts in moves(made):
        for here, there in (parts[:2], parts[1::-1]) if function in TRANSFERS else ():
            if base(here) in widths and isinstance(there, ast.Subscript):
                index = there.slice.elts[-1] if isinstance(there.slice, ast.Tuple) else there.slice
                (whole_ones if ast.unparse(index) == ":" else others).add(widths[base(here)])
    return whole_ones - others


def _tile_sides(steps: Steps) -> Iterator[tuple[str, tuple[ast.expr, ast.expr]]]:
    """The tiles that a kernel declares, with the first and the last number of their shapes."""
    for step in steps.found:
        match step.statement:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=function, args=[ast.Tuple(elts=[first, *_, last])], keywords=k),
            ) if name_of(function) == "ndarray" and not any("hbm" in ast.unparse(o) for o in k):
                if isinstance(first, ast.Call) and first.args:
                    first = first.args[0]  # par_dim
                yield name, (first, last)


def _sizes(author: Steps) -> Mapping[tuple[str, int], Mapping[int, str]]:
    """What the author writes for numbers in the indices of each dimension of each array."""
    found: dict[tuple[str, int], dict[int, str]] = {}
    for step in author.found:
        for array, dimension, index in _subscripts(step.statement):
            for node in ast.walk(index):
                if not isinstance(node, (ast.Name, ast.BinOp)):
                    continue
                names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
                value = author.value(node) if names and names <= author.constants else None
                if isinstance(value, int) and value > 1:
                    found.setdefault((array, dimension), {}).setdefault(value, ast.unparse(node))
    return found


def _subscripts(statement: ast.stmt) -> Iterator[tuple[str, int, ast.expr]]:
    """Names that are indexed, with each index and its dimension."""
    for node in ast.walk(statement):
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            index = node.slice
            parts = index.elts if isinstance(index, ast.Tuple) else [index]
            for number, part in enumerate(parts, 1):
                yield node.value.id, LAST if number == len(parts) else number, part


# Sizes of arguments.


def with_sizes(text: str, made: Steps, author: Steps) -> str:
    """`text`, whose steps are `made`, with the author's names for dimensions of arguments that it reads,
    and with the author's expressions of those.

    before: rows = x.shape[0]                        after: M, N = x.shape
            for i in nl.affine_range(rows // 128):          for i in nl.affine_range(M // P):
    """
    own = {place: (name, node) for place, name, node in reversed([*_sizes_read(author)])}
    changes: dict[str, str] = {}
    lines = text.splitlines(keepends=True)
    known = {ast.unparse(node) for node in made.function.body}
    for place, name, statement in _sizes_read(made):
        if place not in own or name == own[place][0]:
            continue
        said, theirs = own[place][0], ast.unparse(own[place][1])
        if theirs not in known:
            if names_stored(own[place][1]) & identifiers(made.function):
                continue
            lines[statement.lineno - 1] = f"    {theirs}\n"
            known.add(theirs)
        else:
            lines[statement.lineno - 1] = ""
        changes[name] = said
    text = "".join(lines)
    for name, said in changes.items():
        text = re.sub(rf"\b{name}\b(?!\s*=[^=])", said, text)
    return _with_constants(text, made.function.name, author, set(changes.values()))


def _with_constants(text: str, kernel: str, author: Steps, sizes: set[str]) -> str:
    """`text` with the author's sums of sizes and constants where it has the same with numbers."""

    def number(name: re.Match[str]) -> str:
        return str(author.numbers[name[0]]) if name[0] in author.constants else name[0]

    said: dict[str, str] = {}
    for node in ast.walk(author.function):
        names = identifiers(node) if isinstance(node, ast.BinOp) else set()
        if names & sizes and names & author.constants and names <= sizes | author.constants:
            said.setdefault(re.sub(r"[A-Za-z_]\w*", number, ast.unparse(node)), ast.unparse(node))
    tree = parse_python(text)
    function = next(n for n in tree.body if getattr(n, "name", "") == kernel)
    found = [n for n in ast.walk(function) if isinstance(n, ast.BinOp) and ast.unparse(n) in said]
    return replaced(text, [(node, said[ast.unparse(node)]) for node in found])


def _sizes_read(steps: Steps) -> Iterator[tuple[tuple[str, int], str, ast.Assign]]:
    """The dimensions of arguments that a kernel reads, with its names for them."""
    bound = [name for step in steps.found for name in names_stored(step.statement)]
    for step in steps.found:
        if not isinstance(step.statement, ast.Assign):
            continue
        (target, *_), value = step.statement.targets, step.statement.value
        pairs = [(target, value)]
        if isinstance(target, ast.Tuple):
            whole = isinstance(value, ast.Tuple)
            values = value.elts if isinstance(value, ast.Tuple) else [value] * len(target.elts)
            pairs = [
                (one, part if whole else parse_expression(f"{ast.unparse(part)}[{n}]"))
                for n, (one, part) in enumerate(zip(target.elts, values, strict=False))
            ]
        for name, read in ((ast.unparse(one), ast.unparse(part)) for one, part in pairs):
            found = re.fullmatch(r"(\w+)\.shape\[(\d+)\]", read)
            if found and bound.count(name) == 1 and found[1] in steps.shapes:
                yield (found[1], int(found[2])), name, step.statement


# What expressions need.


def _carried(text: str, made: Steps, author: Steps, said: Sequence[str]) -> str:
    """`text` with the author's statements that give names in some expressions their numbers."""
    wanted = {name for one in said for name in identifiers(parse_python(one))}
    lines: list[str] = []
    for step in reversed(author.found):
        bound = names_stored(step.statement)
        if not bound & wanted or step.targets:
            continue
        lines.insert(0, ast.unparse(step.statement))
        wanted |= identifiers(step.statement)
    if not lines:
        return text
    at = _beginning(parse_python(text), made.function.name)
    before = text.splitlines(keepends=True)
    return "".join([*before[:at], *(f"    {line}\n" for line in lines), *before[at:]])


def _beginning(tree: ast.Module, name: str) -> int:
    """The number of lines before the first statement of a function, behind its docstring."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == name:
            body = node.body[1:] if ast.get_docstring(node) is not None else node.body
            return body[0].lineno - 1
    return 0
