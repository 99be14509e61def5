"""The parts of a kernel that split-K needs: around its loop, carried by it, and scratch for that."""

from __future__ import annotations

import ast
from itertools import pairwise
from typing import NamedTuple

from accelopt.kernels.triton.moves.loop_state import States, states_of
from accelopt.kernels.triton.moves.loops import is_plain
from accelopt.kernels.triton.moves.source import (
    add_parameter,
    assigned_in,
    called,
    names_in,
    read_first,
)

SPLITS, STEPS, IS_SPLIT = "SPLITS", "STEPS_OF_SPLIT", "IS_SPLIT"
LEAST = "-3.0e+38"  # in the place of minus infinity, whose difference to itself is no number


class Parts(NamedTuple):
    """A kernel's statements around its loops, what these carry, and the shapes of that."""

    before: list[ast.stmt]
    loops: list[ast.For]
    after: list[ast.stmt]
    states: States
    shapes: dict[str, tuple[str, ...]]


def parts_of(node: ast.FunctionDef) -> Parts | None:
    """A kernel's parts where all its loops are one from zero on, or pieces of one."""
    at = [i for i, s in enumerate(node.body) if isinstance(s, (ast.For, ast.While))]
    found = [node.body[i] for i in at]
    if not at or at != list(range(at[0], at[-1] + 1)):
        return None
    loops = [s for s in found if isinstance(s, ast.For) and is_plain(s)]
    if len(loops) < len(found) or not _are_chained(loops):
        return None
    before, after = node.body[: at[0]], node.body[at[-1] + 1 :]
    states = [states_of(loop, before) for loop in loops]
    if any(_text_of(other) != _text_of(states[0]) for other in states) or not states[0].names:
        return None
    inner = assigned_in([*loops]) - set(states[0].names)
    if any(isinstance(n, ast.Return) for s in after for n in ast.walk(s)):
        return None
    if read_first(after) & inner or any(
        names_in(loop.iter) & assigned_in(loop.body) for loop in loops
    ):
        return None
    shapes = {name: _shape(name, before) for name in states[0].names}
    known = {name: shape for name, shape in shapes.items() if shape is not None}
    return Parts(before, loops, after, states[0], known) if len(known) == len(shapes) else None


def _text_of(states: States) -> str:
    """States as text, equal for equal ones."""
    sums = {name: ast.dump(f) if f is not None else "" for name, f in states.sums.items()}
    return f"{states.maximum} {sorted(sums.items())}"


def _are_chained(loops: list[ast.For]) -> bool:
    ranges = [[ast.unparse(a) for a in loop.iter.args] for loop in loops]  # type: ignore[attr-defined]
    return (
        ranges[0][0] == "0"
        and len({r[2] for r in ranges}) == 1
        and all(one[1] == other[0] for one, other in pairwise(ranges))
    )


def _shape(name: str, before: list[ast.stmt]) -> tuple[str, ...] | None:
    """The shape of what a name holds at first, as text."""
    made = [
        s.value
        for s in before
        if isinstance(s, ast.Assign) and [ast.unparse(t) for t in s.targets] == [name]
    ]
    if len(made) != 1:
        return None
    shapes = []
    for call in ast.walk(made[0]):
        if called(call) in ("tl.zeros", "tl.full"):
            assert isinstance(call, ast.Call)
            shape = call.args[0] if call.args else None
            if not isinstance(shape, (ast.Tuple, ast.List)):
                return None
            shapes.append(tuple(ast.unparse(size) for size in shape.elts))
    if shapes:
        return max(shapes, key=len)
    if isinstance(made[0], ast.Name):
        return _shape(made[0].id, before)
    return (
        ()
        if names_in(made[0]) <= {"float", "tl"} and not called(made[0]).endswith("load")
        else None
    )


def row_extent(parts: Parts) -> str | None:
    """The extent of the rows that all states have, as text, where each row's part can be joined
    alone: nothing before or behind the loop mixes rows."""
    behind = [*parts.before, *parts.after]
    mixing = ("tl.dot", "tl.sum", "tl.max", "tl.min", "tl.trans")
    calls = [called(n) for s in behind for n in ast.walk(s)]
    if any(name in mixing for name in calls):
        return None
    first = {shape[:1] for shape in parts.shapes.values()}
    if len(first) > 1 or () in first or any(first & {shape[1:]} for shape in parts.shapes.values()):
        return None
    return first.pop()[0]


def places(parts: Parts, axis: int, split: str, lane: str = "") -> dict[str, str]:
    """The address of each state's part, as text; with a `lane`, of that lane in all of `split`."""
    programs = " * ".join(f"tl.num_programs({i})" for i in range(axis))
    place = "tl.program_id(0)"
    for i in range(1, axis):
        place += f" + tl.program_id({i}) * " + " * ".join(f"tl.num_programs({j})" for j in range(i))
    found = {}
    for name, shape in parts.shapes.items():
        size = " * ".join(shape) or "1"
        inner = shape[1:] if lane and row_extent(parts) else shape
        own = f"({split} * ({programs}) + {place}) * ({size})"
        if lane:
            own += f" + {lane} * {' * '.join(inner) or '1'}" if inner is not shape else ""
            own = f"({own}){'[:, None]' if inner else ''}"
        offsets = ""
        axes = len(inner) + bool(lane)
        for i, extent in enumerate(inner):
            index = ", ".join(":" if i + bool(lane) == j else "None" for j in range(axes))
            spread = f"[{index}]" if axes > 1 else ""
            behind = "".join(f" * {later}" for later in inner[i + 1 :])
            offsets += f" + tl.arange(0, {extent}){spread}{behind}"
        found[name] = f"{name}_parts + {own}{offsets}"
    return found


def steps_text(whole: str, step: str) -> str:
    """How far each program goes, as text."""
    return f"tl.maximum(tl.cdiv(tl.cdiv({whole}, {step}), {SPLITS}), {STEPS}) * {step}"


def add_parameters(node: ast.FunctionDef, parts: Parts) -> None:
    """What both kernels are given: where pieces are kept, how many there are, and how long."""
    for name in parts.shapes:
        add_parameter(node.args, f"{name}_parts", constant=False)
    add_parameter(node.args, SPLITS, constant=False)
    add_parameter(node.args, STEPS, constant=False)
    add_parameter(node.args, IS_SPLIT, constant=True)
