"""Loops and reductions as people write them: heads that count, sums and maxima that a body gathers,
and the trees in shared memory that put a block's parts together."""

from __future__ import annotations

import re
from typing import NamedTuple

from tree_sitter import Node

from accelopt.kernels.cuda.programs.quantities import Known, Quantity, named, number, quantity
from accelopt.kernels.cuda.programs.syntax import (
    Unread,
    assigned,
    bare,
    declared,
    field,
    said,
    tight,
    walk,
)

_LARGEST = ("fmaxf", "fmax", "max", "__hmax", "fminf", "fmin", "min", "__hmin")
_ZERO = re.compile(
    r"[-+]?(?:0+\.?0*|\.0+)(?:[eE][-+]?\d+)?[fFlLuUhH]*|\((?:float|double|int|half|__half)\)0(?:\.0*)?[fF]?"
    r"|(?:__float2half(?:_rn)?|__float2bfloat16|half|__half|float)\(0(?:\.0*)?[fF]?\)"
)
_ONE = re.compile(r"1(\.0*)?[fFlLuU]*")


class Head(NamedTuple):
    """A loop's variable with its type, where it starts, what it stays below, and its step."""

    variable: str
    type: str
    low: Quantity
    high: Node
    step: Quantity


def head(loop: Node, known: Known) -> Head:
    """The head of a loop that counts upwards. Raises Unread for any other."""
    start = field(loop, "initializer")
    if start.type != "declaration":
        raise Unread("a loop whose variable is declared elsewhere")
    made = declared(start)
    if len(made) != 1 or made[0].value is None or made[0].pointer:
        raise Unread("a loop over several variables")
    variable = made[0].name
    condition, update = bare(field(loop, "condition")), bare(field(loop, "update"))
    if condition is None or condition.type != "binary_expression":
        raise Unread("a loop without a plain bound")
    left, sign, right = (field(condition, side) for side in ("left", "operator", "right"))
    if said(left) == variable and sign.type == "<":
        high = right
    elif said(right) == variable and sign.type == ">":
        high = left
    else:
        raise Unread("a loop without a plain bound")
    if variable in assigned(field(loop, "body")):
        raise Unread("a loop that moves its own variable")
    low = quantity(made[0].value, known)
    return Head(variable, made[0].type, low, high, _step(update, variable, known))


def _step(update: Node | None, variable: str, known: Known) -> Quantity:
    kind = "" if update is None else update.type
    if kind == "update_expression" and said(field(update, "argument")) == variable:
        if "++" in said(update):
            return number(1)
    elif kind == "assignment_expression" and said(field(update, "left")) == variable:
        right, sign = field(update, "right"), field(update, "operator").type
        if sign == "+=":
            return quantity(right, known)
        if sign == "=":
            inside = {name: one for name, one in known.items() if name != variable}
            return quantity(right, inside).plus(quantity(field(update, "left"), inside), -1)
    raise Unread("a loop that does not count upwards")


class Gathered(NamedTuple):
    """What a statement does to a variable: with places for two values, and the node of what comes in."""

    name: str
    combined: str


def gathered(node: Node) -> Gathered | None:
    """How `a += e`, `a = a + e`, `a = max(a, e)` or `a = e > a ? e : a` gathers; None for all else.

    The variable must stand nowhere in `e`.
    """
    if node.type == "if_statement":
        return _kept_if(node)
    if node.type != "assignment_expression":
        return None
    left, sign, right = (
        field(node, "left"),
        field(node, "operator").type,
        bare(field(node, "right")),
    )
    if left.type != "identifier" and left.type != "subscript_expression":
        return None
    if right is None:
        return None
    name = tight(left)
    if sign in ("+=", "*=", "-="):
        if _holds(right, name):
            return None
        return Gathered(name, "{} * {}" if sign == "*=" else "{} + {}")
    if sign != "=":
        return None
    if right.type == "binary_expression":
        return _of_sum(right, name)
    if right.type == "call_expression":
        return _of_call(right, name)
    if right.type == "conditional_expression":
        return _of_choice(right, name)
    return None


def _of_sum(right: Node, name: str) -> Gathered | None:
    one, other = field(right, "left"), field(right, "right")
    sign = field(right, "operator").type
    if sign not in ("+", "*", "-") or (sign == "-" and tight(one) != name):
        return None
    sides = [tight(bare(one)), tight(bare(other))]
    if sides.count(name) != 1:
        if sign == "+" and one.type == "binary_expression" and not _holds(other, name):
            return _of_sum(one, name)
        return None
    rest = other if sides[0] == name else one
    if _holds(rest, name):
        return None
    return Gathered(name, "{} * {}" if sign == "*" else "{} + {}")


def _of_call(right: Node, name: str) -> Gathered | None:
    function, given = said(field(right, "function")), field(right, "arguments").named_children
    if function in ("fmaf", "fma", "__fmaf_rn") and len(given) == 3 and tight(given[2]) == name:
        return None if any(_holds(one, name) for one in given[:2]) else Gathered(name, "{} + {}")
    if function == "__hadd" and len(given) == 2:
        combined = "__hadd({}, {})"
    elif function in _LARGEST and len(given) == 2:
        combined = f"{function}({{}}, {{}})"
    else:
        return None
    sides = [tight(one) for one in given]
    if sides.count(name) != 1 or _holds(given[1 - sides.index(name)], name):
        return None
    return Gathered(name, combined)


def _of_choice(right: Node, name: str) -> Gathered | None:
    """`a > e ? a : e` and its kin."""
    condition = bare(field(right, "condition"))
    if condition is None or condition.type != "binary_expression":
        return None
    sign = field(condition, "operator").type[:1]
    sides = [tight(bare(field(condition, "left"))), tight(bare(field(condition, "right")))]
    chosen = [tight(bare(field(right, "consequence"))), tight(bare(field(right, "alternative")))]
    if sign not in "<>" or sides.count(name) != 1 or sorted(sides) != sorted(chosen):
        return None
    if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", sides[1 - sides.index(name)]):
        return None
    largest = (sign == ">") == (chosen[0] == sides[0])
    sign = ">" if largest else "<"
    return Gathered(name, f"({{0}} {sign} {{1}} ? {{0}} : {{1}})")


def _kept_if(node: Node) -> Gathered | None:
    """`if (e > a) a = e;`."""
    condition, then = bare(field(node, "condition")), bare(field(node, "consequence"))
    if node.child_by_field_name("alternative") or condition is None or then is None:
        return None
    if condition.type != "binary_expression" or then.type != "assignment_expression":
        return None
    name, value = tight(field(then, "left")), tight(bare(field(then, "right")))
    sides = [tight(bare(field(condition, "left"))), tight(bare(field(condition, "right")))]
    sign = field(condition, "operator").type[:1]
    if sign not in "<>" or sorted(sides) != sorted([name, value]) or name == value:
        return None
    if field(then, "operator").type != "=" or field(then, "left").type != "identifier":
        return None
    sign = ">" if (sign == ">") == (sides[0] == value) else "<"
    return Gathered(name, f"({{0}} {sign} {{1}} ? {{0}} : {{1}})")


def _holds(node: Node, name: str) -> bool:
    return any(
        one.type in ("identifier", "subscript_expression") and tight(one) == name
        for one in walk(node)
    )


def is_zero(value: str) -> bool:
    """Whether a text says 0, in whatever format."""
    return _ZERO.fullmatch(value.replace(" ", "")) is not None


def starts_neutral(combined: str, value: str) -> bool:
    """Whether each thread may begin with this value and the whole is still right."""
    if "+" in combined or "hadd" in combined:
        return is_zero(value)
    if "*" in combined:
        return _ONE.fullmatch(value) is not None
    return True


class Part(NamedTuple):
    """A shared array that a tree reduces, and how."""

    array: str
    combined: str


def halved(loop: Node, known: Known, threads: int) -> tuple[str, bool] | None:
    """The variable of a loop over the halves of a power of two, `threads / 2` down to 1, and False; or
    from 1 up, and True. None for any other loop."""
    start = field(loop, "initializer")
    made = declared(start) if start.type == "declaration" else []
    if len(made) != 1 or made[0].value is None:
        return None
    step, first = made[0].name, quantity(made[0].value, known)
    bound, update = bare(field(loop, "condition")), tight(field(loop, "update"))
    if first == number(threads // 2) and tight(bound) in (
        f"{step}>0", f"{step}>=1", f"{step}!=0", step, f"0<{step}"
    ):  # fmt: skip
        ways = (f"{step}>>=1", f"{step}/=2", f"{step}={step}/2", f"{step}={step}>>1")
        return (step, False) if update in ways else None
    if first != number(1) or bound is None or bound.type != "binary_expression":
        return None
    sign, last = field(bound, "operator").type, quantity(field(bound, "right"), known)
    whole = (sign, last) in (("<", number(threads)), ("<=", number(threads // 2)))
    ways = (f"{step}*=2", f"{step}<<=1", f"{step}={step}*2", f"{step}+={step}")
    return (step, True) if whole and said(field(bound, "left")) == step and update in ways else None


def tree(loop: Node, known: Known, threads: int) -> list[Part]:
    """The shared arrays that a loop of halves reduces over all threads of a block, into element 0.

    Before: `for (s = blockDim.x / 2; s > 0; s >>= 1) { if (t < s) a[t] += a[t + s]; __syncthreads(); }`,
    or from `s = 1` upwards with `t % (2 * s) == 0`. Raises Unread for any other loop, and where the
    block's threads are no power of two.
    """
    if loop.type != "for_statement" or threads & (threads - 1):
        raise Unread("no tree")
    found = halved(loop, known, threads)
    if found is None:
        raise Unread("no tree")
    step, doubles = found
    body = field(loop, "body")
    inside = [one for one in body.named_children if one.type != "preproc_call"]
    syncs = [one for one in inside if is_sync(one)]
    work = [one for one in inside if not is_sync(one)]
    if body.type != "compound_statement" or not syncs or inside[-1] != syncs[-1]:
        raise Unread("a tree without barriers")
    if (
        len(work) != 1
        or work[0].type != "if_statement"
        or work[0].child_by_field_name("alternative")
    ):
        raise Unread("a tree of another kind")
    return _parts(work[0], step, known, doubles)


def _parts(guard: Node, step: str, known: Known, doubles: bool) -> list[Part]:
    condition = bare(field(guard, "condition"))
    if condition is None or condition.type != "binary_expression":
        raise Unread("a tree of another kind")
    thread = named("threadIdx.x")
    left, right = field(condition, "left"), field(condition, "right")
    sign = field(condition, "operator").type
    if doubles:
        inner = bare(left)
        fits = (
            inner is not None
            and inner.type == "binary_expression"
            and field(inner, "operator").type == "%"
            and quantity(field(inner, "left"), known) == thread
            and quantity(field(inner, "right"), known) == named(step).times(number(2))
            and sign == "=="
            and quantity(right, known) == number(0)
        )
    else:
        fits = quantity(left, known) == thread and sign == "<" and tight(right) == step
    if not fits:
        raise Unread("a tree of another kind")
    then = field(guard, "consequence")
    lines = then.named_children if then.type == "compound_statement" else [then]
    parts = []
    for line in lines:
        inner = line if line.type == "if_statement" else bare(line)
        found = gathered(inner) if inner is not None else None
        if inner is None or found is None or inner.type != "assignment_expression":
            raise Unread("a tree of another kind")
        target = field(inner, "left")
        if target.type != "subscript_expression":
            raise Unread("a tree of another kind")
        array = said(field(target, "argument"))
        others = [
            quantity(next(iter(field(one, "indices").named_children), None), known)
            for one in walk(inner)
            if one.type == "subscript_expression"
        ]
        there = thread.plus(named(step))
        arrays = {said(field(one, "argument")) for one in walk(inner)
                  if one.type == "subscript_expression"}  # fmt: skip
        if (
            arrays != {array}
            or set(others) != {thread, there}
            or field(inner, "operator").type == "-="
        ):
            raise Unread("a tree of another kind")
        parts.append(Part(array, found.combined))
    return parts


def is_sync(node: Node) -> bool:
    """Whether a statement is a block's barrier."""
    return node.type == "expression_statement" and tight(node) == "__syncthreads();"
