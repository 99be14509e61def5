"""Plain arguments of a kernel: what stands for them while it is lifted, and what a kernel by schedule
asks of them.

A Program has a plain argument's value built in, in whatever the kernel's Python made of it: a sign
that decided between a maximum and a minimum, a branch that was not taken. A lowered kernel names the
argument where its number stands, and says with an assert for which values nothing else would stand there.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from accelopt.kernels.nki.arguments import ParameterFacts, PlainValue
from accelopt.kernels.nki.kernel_function import kernel_in
from accelopt.parsing import parse_python

STEP = 2.0**-20
"""Stands-in for plain arguments are off by odd multiples of this: near them, and nobody's number."""
FIRST, AGAIN = 12583, 17389
"""The multiples for the first plain argument, in a kernel and in its twin."""
SIGNS = {True: ("> 0", "be positive"), False: ("< 0", "be negative")}
_PLAIN = (float, int, str, type(None))


def stand_in(value: float, number: int, first: int) -> float:
    """A number for the plain argument `number` that no other has, near its value; exact in fp32."""
    offset = (first + 2 * number) * STEP
    return float(np.float32(value * (1 + offset) if value else offset))


class PlainArguments(NamedTuple):
    """What the text of a kernel says of its plain arguments. `facts` are its parameters, those among
    them that callers leave to a default which a plain value says; `texts` the other defaults.
    Only `read` ones can matter; those `compared` are held against numbers other than 0 and 1;
    where nothing `branches`, no value is special."""

    facts: Mapping[str, ParameterFacts]
    texts: Mapping[str, str]
    read: frozenset[str]
    compared: frozenset[str]
    branches: bool

    @property
    def values(self) -> dict[str, PlainValue]:
        """The plain arguments."""
        return {name: what.value for name, what in self.facts.items() if not what.shape}

    @property
    def numbers(self) -> dict[str, float]:
        """Those that may stand for any number."""
        return {
            name: value
            for name, value in self.values.items()
            if isinstance(value, (float, int))
            and not isinstance(value, bool)
            and math.isfinite(stand_in(value, 0, AGAIN))
            and name in self.read - self.compared
        }


def plain_arguments(source: str, given: Mapping[str, ParameterFacts]) -> PlainArguments:
    """What a kernel's text says of the arguments that it is given, and of those that it is not."""
    kernel = kernel_in(source)
    if kernel is None:
        return PlainArguments(given, {}, frozenset(given), frozenset(), True)
    function = kernel.definition
    facts = dict(given)
    texts = dict(kernel.bound)
    for name, default, positional in _defaults(function):
        if name in given or name in kernel.bound:
            continue
        value = _literal(default)
        if positional and name in kernel.parameters and not texts and isinstance(value, _PLAIN):
            facts[name] = ParameterFacts((), value=value)
        else:
            texts[name] = ast.unparse(default)
    names = (n for statement in function.body for n in ast.walk(statement))
    read = frozenset(n.id for n in names if isinstance(n, ast.Name))
    tests = list(_tests(source))
    return PlainArguments(facts, texts, read, frozenset(_compared(tests)), bool(tests))


def _defaults(function: ast.FunctionDef) -> Iterator[tuple[str, ast.expr, bool]]:
    """Parameters with their defaults, and whether they may be given by position."""
    own = function.args
    places = [*own.posonlyargs, *own.args]
    behind = places[len(places) - len(own.defaults) :]
    for parameter, default in zip(behind, own.defaults, strict=True):
        yield parameter.arg, default, True
    for parameter, only in zip(own.kwonlyargs, own.kw_defaults, strict=True):
        if only is not None:
            yield parameter.arg, only, False


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return node


def _tests(source: str) -> Iterator[ast.AST]:
    """What decides anything in a module, but for its asserts."""
    tree = parse_python(source)
    asserted = {id(n) for a in ast.walk(tree) if isinstance(a, ast.Assert) for n in ast.walk(a)}
    for node in ast.walk(tree):
        deciding = isinstance(
            node, (ast.If, ast.IfExp, ast.While, ast.BoolOp, ast.Compare, ast.Match)
        )
        if deciding and id(node) not in asserted:
            yield node


def _compared(tests: list[ast.AST]) -> Iterator[str]:
    """The names that are held against numbers of their own, between which a kernel may change."""
    for node in tests:
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            if not all(_literal(side) in (0, 1, None) for side in sides if _is_literal(side)):
                yield from (side.id for side in sides if isinstance(side, ast.Name))


def _is_literal(node: ast.expr) -> bool:
    return isinstance(_literal(node), _PLAIN)


# What a kernel asks.


def asked(name: str, test: str, words: str) -> str:
    """An assert on a plain argument: `name` with a `test`, and what it must be in `words`."""
    return f'assert {name} {test}, "{name} must {words}"'


def assertion_message(name: str, value: PlainValue) -> str:
    """An assert that an argument has the one value that the kernel was written for."""
    alone = value is None or isinstance(value, bool)
    said = repr(value).replace('"', "'")
    return asked(name, f"{'is' if alone else '=='} {value!r}", f"be {said}")


def pinned(plain: PlainArguments, free: Sequence[str] = ()) -> Iterator[str]:
    """Asserts on arguments that have to be what they were drawn as: all that are read but for those that are `free`."""
    for name, value in plain.values.items():
        if name not in free and name in plain.read:
            yield assertion_message(name, value)
    for name, text in plain.texts.items():
        if name in plain.read:
            yield asked(name, f"== {text}", f"be {text.replace(chr(34), chr(39))}")
