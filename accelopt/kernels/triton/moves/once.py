"""Products that another product reads, computed once, while the next step's loads are under way."""

from __future__ import annotations

import ast
import copy
from typing import NamedTuple

from accelopt.kernels.triton.moves.loops import bodies, fresh_name, is_plain
from accelopt.kernels.triton.moves.source import (
    JitFunction,
    assigned_in,
    called,
    names_in,
    target_of,
)
from accelopt.kernels.triton.moves.totals import summed_behind
from accelopt.parsing import parse_expression, parse_python

STAGES = 2
MOST_PRODUCTS = 5
"""Products that are added up behind their condition, each in registers of its own: 16 a thread."""


class Product(NamedTuple):
    """`target = target + tl.dot(...)`."""

    target: str
    call: ast.Call


def scores_once(kernel: JitFunction) -> ast.FunctionDef | None:
    """Compute the product that another one reads once, and load the next step's tiles meanwhile.

    Before: `for at in range(a, e, B): x = tl.load(...); s = zeros; s = s + tl.dot(q, tl.trans(x));
    ...; o = o + tl.dot(p, x)`. After: the loads stand first, all that computes in `if at < e:`, and
    the rest of s in a condition within it; both always hold. Triton (3.6, sm_90) cuts a product by
    rows alone where it sees that a product reads the result, and 64 rows are one warp group's: of
    two, both would compute all of it. It does not look behind the end of a branch, so the columns
    are shared out instead. And it starts the copies of the next step before a branch, but behind
    products that stand in the loop itself. Legal where no load of a step needs what it computes.
    """
    node = copy.deepcopy(kernel.node)
    changed = False
    for body in bodies(node):
        for place, loop in reversed(list(enumerate(body))):
            if not (isinstance(loop, ast.For) and is_plain(loop) and not loop.orelse):
                continue
            scores = scores_of(loop)
            if scores is not None:
                # Rows lie across both warp groups then: a sum along them takes barriers.
                summed_behind(body, place, node)
                _apart(loop, scores, node)
                changed = True
    return node if changed else None


class Scores(NamedTuple):
    """What a step loads, the products that add up to its scores, and their shape."""

    loads: list[ast.stmt]
    products: list[ast.stmt]
    shape: str


def scores_of(loop: ast.For) -> Scores | None:
    """The scores of a loop's steps, where they can be computed once."""
    first = _loads_first(loop)
    if first is None or any(called(n) == "tl.static_range" for n in ast.walk(loop)):
        return None
    rest = [s for s in loop.body if s not in first]
    chained = _chained(rest)
    if not chained or len(chained) > MOST_PRODUCTS:
        return None
    targets = {product_of(s).target for s in chained}  # type: ignore[union-attr]
    shape = _shape(rest, *targets) if len(targets) == 1 else None
    if shape is None or any(isinstance(s, (ast.If, ast.While, ast.For)) for s in rest):
        return None
    return Scores(first, chained, shape)


def _apart(loop: ast.For, scores: Scores, node: ast.FunctionDef) -> None:
    """Puts the loads of a loop first, and its products into a condition."""
    assert isinstance(loop.target, ast.Name) and isinstance(loop.iter, ast.Call)
    rest = [s for s in loop.body if s not in scores.loads]
    at, end = loop.target.id, ast.unparse(loop.iter.args[1])
    made, sums, transposed = [], [], []
    for number, statement in enumerate(scores.products):
        product = product_of(statement)
        assert product is not None
        name = fresh_name(f"product_{number}", node)
        for place, operand in enumerate(product.call.args[:2]):
            loaded = assigned_in(scores.loads) | {"tl"}
            if called(operand) == "tl.trans" and names_in(operand) <= loaded:
                turned = fresh_name(f"turned_{number}", node)
                transposed += parse_python(f"{turned} = {ast.unparse(operand)}").body
                product.call.args[place] = ast.Name(turned, ast.Load())
        made.append(f"{name} = {ast.unparse(product.call)}")
        sums.append((name, product.target))
    lines = [f"{name} = tl.zeros({scores.shape}, dtype=tl.float32)" for name, _ in sums]
    lines.append(f"if {at} <= {end}:")
    lines += [f"    {line}" for line in made]
    lines += [f"{target} = {target} + {name}" for name, target in sums]
    index = next(i for i, s in enumerate(rest) if s is scores.products[0])
    inner = [s for s in rest if s not in scores.products]
    inner[index:index] = parse_python("\n".join(lines)).body
    branch = parse_python(f"if {at} < {end}:\n    pass").body[0]
    assert isinstance(branch, ast.If)
    branch.body = inner
    loop.body = [*scores.loads, *transposed, branch]
    bounds = ", ".join(ast.unparse(argument) for argument in loop.iter.args)
    loop.iter = parse_expression(f"tl.range({bounds}, num_stages={STAGES})")


def _loads_first(loop: ast.For) -> list[ast.stmt] | None:
    """The loads of a step and what they need, in their order; None where they need what the step
    computes, or where it stores."""
    body = loop.body
    if not any(called(n) == "tl.load" for s in body for n in ast.walk(s)):
        return None
    if any(called(n).startswith(("tl.store", "tl.atomic")) for s in body for n in ast.walk(s)):
        return None
    needed: set[int] = set()
    wanted = [i for i, s in enumerate(body) if "tl.load" in ast.unparse(s)]
    while wanted:
        place = wanted.pop()
        if place in needed:
            continue
        needed.add(place)
        read = names_in(body[place])
        # What a step before it made counts as well, for that is found behind the branch.
        wanted += [i for i, s in enumerate(body) if assigned_in([s]) & read]
    first = [s for i, s in enumerate(body) if i in needed]
    if any("tl.dot" in ast.unparse(s) or target_of(s) is None for s in first):
        return None
    for place, statement in enumerate(body):
        if place in needed:
            continue
        # What now stands before a statement may not change what it reads, nor it what that reads.
        after = [s for i, s in enumerate(body) if i > place and i in needed]
        made = assigned_in([statement])
        if assigned_in(after) & names_in(statement) or made & {
            n for s in first for n in names_in(s)
        }:
            return None
    return first


def product_of(statement: ast.stmt) -> Product | None:
    """The product that a statement adds to what it assigns."""
    name = target_of(statement)
    if name is None or not isinstance(statement, ast.Assign):
        return None
    value = statement.value
    if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)):
        return None
    call = value.right
    if ast.unparse(value.left) != name or not isinstance(call, ast.Call):
        return None
    is_sum = called(call) == "tl.dot" and len(call.args) == 2 and not call.keywords
    return Product(name, call) if is_sum else None


def _chained(body: list[ast.stmt]) -> list[ast.stmt]:
    """The products, added to what the step sets to zero, that a product of another name reads;
    none where one of them is of another form."""
    found: list[ast.stmt] = []
    for place, statement in enumerate(body):
        made = assigned_in([statement])
        if "tl.dot" not in ast.unparse(statement):
            continue
        reached = False
        for later in body[place + 1 :]:
            if names_in(later) & made:
                reached |= any(
                    names_in(operand) & made
                    for call in ast.walk(later)
                    if isinstance(call, ast.Call) and called(call) == "tl.dot"
                    for operand in call.args[:2]
                )
                made |= assigned_in([later])
        if reached:
            if product_of(statement) is None:
                return []
            found.append(statement)
    if not found:
        return []
    # They stand together: what reads their sum comes behind the last.
    inside = body[body.index(found[0]) : body.index(found[-1]) + 1]
    return found if inside == found else []


def _shape(body: list[ast.stmt], name: str) -> str | None:
    """The shape of the zeros that a name begins a step with."""
    for statement in body:
        if target_of(statement) == name and isinstance(statement, ast.Assign):
            call = statement.value
            is_zero = called(call) == "tl.zeros" and isinstance(call, ast.Call) and call.args
            return ast.unparse(call.args[0]) if is_zero else None  # type: ignore[attr-defined]
    return None
