"""Indices and sizes as the author writes them: by the author's constants, and by new ones where they
became multiples of those."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from accelopt.kernels.nki.lift.authorship.text import replaced
from accelopt.kernels.nki.moves.surgery.text import one_line_of
from accelopt.parsing import parse_python

ProductTerms = dict[tuple[str, ...], int]
"""A polynomial: the factor of each product of names."""
Dimension = tuple[str, int]
"""A dimension of an array or a tile, counted from the last."""

NEW_NAMES = ("WIDE_{}", "WIDER_{}", "WIDEST_{}")
OURS = re.compile(r"^WIDE(R|ST)?_")
DECLARED = frozenset("ndarray zeros full ones empty".split())


class Sizes(NamedTuple):
    """The author's constants with their numbers, and which of them stand in indices of which dimension."""

    constants: Mapping[str, int]
    used: Mapping[Dimension, frozenset[str]]


def spelled(text: str, before: str) -> str:
    """`text`, a rewrite of `before`, with the author's expressions for sums that are the same, and the
    author's constants for sizes and steps of the same dimensions.

    before: weight[128 * t : 128 * t + 128, 0:512]      after: weight[t * TILE : (t + 1) * TILE, 0:WIDE]
    """
    old, tree = parse_python(before), parse_python(text)
    sizes = Sizes(_constants(old), {})
    sizes = sizes._replace(used=_used(old, sizes.constants))
    written = _written(before, old, sizes.constants)
    known = set(before.splitlines())
    lines = text.splitlines()
    new: dict[str, str] = {}  # constants to be made, by name
    changes: list[tuple[ast.expr, str]] = []
    free = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | set(sizes.constants)
    for place, node in _indexed(tree):
        if lines[node.lineno - 1] in known:
            continue
        for part in _bounds(node):
            said = _said(part, place, sizes, written, new, free)
            if said is not None and said != ast.unparse(part):
                changes.append((part, said))
    return _without_unused(_defined(replaced(text, changes), new), old, sizes.constants)


def _without_unused(text: str, old: ast.Module, constants: Mapping[str, int]) -> str:
    """`text` without those constants that the author used and it does not, and the comments on them."""
    used, tree = _loaded(old), parse_python(text)
    lines = text.splitlines(keepends=True)
    for node in reversed(tree.body):
        names = _targets(node) if isinstance(node, ast.Assign) else set()
        if not names or not names <= set(constants) or not names <= used or names & _loaded(tree):
            continue
        first = node.lineno - 1
        while first and lines[first - 1].startswith("#"):
            first -= 1
        del lines[first : node.end_lineno]
    return "".join(lines)


def _loaded(tree: ast.AST) -> set[str]:
    names = (node for node in ast.walk(tree) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, ast.Load)}


def _bounds(node: ast.expr) -> Iterator[ast.expr]:
    """The sums of one index."""
    match node:
        case ast.Slice(lower=lower, upper=upper):
            yield from (bound for bound in (lower, upper) if bound is not None)
        case ast.Call(func=ast.Attribute(attr="ds" | "par_dim"), args=arguments):
            yield from arguments
        case ast.BinOp() | ast.Constant() | ast.Name():
            yield node


def _indexed(tree: ast.AST) -> Iterator[tuple[Dimension, ast.expr]]:
    """The indices of subscripted names and the sizes of declared tiles, with their places."""
    for node in ast.walk(tree):
        match node:
            case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=parts)):
                yield from (((name, n - len(parts)), part) for n, part in enumerate(parts))
            case ast.Subscript(value=ast.Name(id=name), slice=part):
                yield (name, -1), part
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(func=ast.Attribute(attr=function), args=[ast.Tuple(elts=parts), *_]),
            ) if function in DECLARED:
                yield from (((name, n - len(parts)), part) for n, part in enumerate(parts))


def _said(
    node: ast.expr,
    place: Dimension,
    sizes: Sizes,
    written: Mapping[tuple[object, ...], str],
    new: dict[str, str],
    free: set[str],
) -> str | None:
    """How the author would write a sum of products in an index of a dimension; None for what is none,
    or has no other form."""
    terms = _terms(node, sizes.constants)
    if terms is None:
        return None
    same = written.get(_key(terms))
    if same is not None:
        return same
    number = terms.pop((), 0)
    if not terms:
        return _number(number, place, sizes, new, free) if number > 1 else None
    if len(terms) > 1:
        return None
    ((names, factor),) = terms.items()
    if len(names) != 1 or factor < 2 or number % factor:
        return None
    step = _number(factor, place, sizes, new, free) or str(factor)
    times = number // factor
    return f"({names[0]} + {times}) * {step}" if times > 0 else f"{names[0]} * {step}"


def _number(
    number: int, place: Dimension, sizes: Sizes, new: dict[str, str], free: set[str]
) -> str | None:
    """The author's constant for a number in this dimension, or a new one for a multiple of it."""
    names = sorted(sizes.used.get(place, ()), key=lambda name: -sizes.constants[name])
    for name in names:
        if sizes.constants[name] == number:
            return name
    for name in (OURS.sub("", name) for name in names):
        if sizes.constants.get(name, 0) < 2 or number % sizes.constants[name]:
            continue
        times = number // sizes.constants[name]
        said = f"{times} * {name}"
        for form in NEW_NAMES:
            made = form.format(name)
            if new.get(made) == said or (made not in new and made not in free):
                new[made] = said
                return made
    return None


def _defined(text: str, new: Mapping[str, str]) -> str:
    """`text` with new constants below those that they are multiples of."""
    for made, said in new.items():
        base = said.rpartition(" ")[2]
        for node in parse_python(text).body:
            if isinstance(node, ast.Assign) and base in _targets(node):
                lines = text.splitlines(keepends=True)
                lines.insert(node.end_lineno or node.lineno, f"{made} = {said}\n")
                text = "".join(lines)
                break
    return text


# What the author has.


def _targets(node: ast.Assign) -> set[str]:
    return {target.id for target in node.targets if isinstance(target, ast.Name)}


def _constants(tree: ast.Module) -> dict[str, int]:
    """The module's names for whole numbers that nothing changes."""
    found: dict[str, int] = {}
    bound = [
        n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)
    ]
    for node in tree.body:
        if isinstance(node, ast.Assign):
            terms = _terms(node.value, found)
            for name in _targets(node):
                if terms is not None and not set(terms) - {()} and bound.count(name) == 1:
                    found[name] = terms.get((), 0)
    return found


def _used(tree: ast.AST, constants: Mapping[str, int]) -> dict[Dimension, frozenset[str]]:
    found: dict[Dimension, frozenset[str]] = {}
    for place, node in _indexed(tree):
        names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)} & set(constants)
        found[place] = found.get(place, frozenset()) | names
    return found


def _written(
    text: str, tree: ast.AST, constants: Mapping[str, int]
) -> dict[tuple[object, ...], str]:
    """The author's texts for sums in indices, by what they are."""
    found: dict[tuple[object, ...], str] = {}
    lines = text.encode().splitlines()
    for _, node in _indexed(tree):
        for part in _bounds(node):
            terms = _terms(part, constants)
            said = one_line_of(lines, part)
            if terms and set(terms) - {()} and said:
                found.setdefault(_key(terms), said)
    return found


# Polynomials.


def _key(terms: ProductTerms) -> tuple[object, ...]:
    return tuple(sorted(terms.items()))


def _terms(node: ast.expr, constants: Mapping[str, int]) -> ProductTerms | None:
    """A sum of products of names and numbers; None for anything else."""
    match node:
        case ast.Constant(value=int() as number) if not isinstance(number, bool):
            return {(): number} if number else {}
        case ast.Name(id=name):
            return {(): constants[name]} if name in constants else {(name,): 1}
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() as op, right=right):
            one, other = _terms(left, constants), _terms(right, constants)
            if one is None or other is None:
                return None
            if isinstance(op, ast.Mult):
                return _product(one, other)
            sign = 1 if isinstance(op, ast.Add) else -1
            names = {**one, **other}
            summed = {name: one.get(name, 0) + sign * other.get(name, 0) for name in names}
            return {name: factor for name, factor in summed.items() if factor}
    return None


def _product(one: ProductTerms, other: ProductTerms) -> ProductTerms:
    found: ProductTerms = {}
    for left, factor in one.items():
        for right, times in other.items():
            names = tuple(sorted((*left, *right)))
            found[names] = found.get(names, 0) + factor * times
    return {names: factor for names, factor in found.items() if factor}
