"""Rounds of a loop that overlap: a modulo schedule of its statements, so that no engine waits within a round for another.

before: for i in nl.affine_range(4):
            tile = load(i); compute(tile); store(i, tile)
after:  for i_round in nl.static_range(4 + 1):
            if i_round < 4:
                i_now = i_round
                tile = load(i_now); compute(tile)
            if i_round >= 1:
                i_now = i_round - 1
                store(i_now, tile_before)
            tile_before = tile
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from accelopt.hardware import Hardware
from accelopt.kernels.nki.nests.axis_positions import FreeNames
from accelopt.kernels.nki.nests.statement_trees import names_in, renamed, text_of, written
from accelopt.kernels.nki.nests.statements import (
    Comment,
    For,
    If,
    Line,
    NestNode,
    line,
    names_of,
    settled,
    walk,
    with_names,
)

MOST_ROUNDS = 64
"""Rounds of a loop that is written so: each is traced on its own."""
MOST_STAGES = 6
"""Rounds that are under way at once."""
STEPS = 41
"""Of a twentieth of a round of the busiest engine, that rounds follow one another later."""
FASTER = 0.003
"""Of a loop's time, by which another order of its statements is faster."""
SIMULATED = 8
"""Rounds of a loop, after those that begin it, and of one inside of a statement, that tell how long all of them take."""
RESULT_NS = 200.0
"""From an instruction's end to the start of one on another engine that waits for it."""
ROUNDING_NS = 1e-3
"""Of sums of times, that no engine is busy for."""
WORTH = 0.05
"""Of a kernel's work, that a loop has to be to overlap."""
INNER = 0.8
"""Of a round's time, from which on a loop inside of it overlaps in its place."""


class _Step(NamedTuple):
    """An instruction: its engine and time, what it reads and writes by name."""

    engine: str
    ns: float
    read: frozenset[str]
    written: frozenset[str]


_Spans = Mapping[str, tuple[float, float]]


@dataclass
class _Unit:
    """Statements that stay together: what they bind, read and write by name, their `steps` in order, how long they
    take each engine, and when after their start each is theirs alone (`spans`), its queue being in order; in a loop of
    loops, the `condition` on which a round has them, and the `share` of rounds that do."""

    nodes: list[NestNode]
    bound: set[str]
    named: set[str]
    written: set[str]
    steps: list[_Step]
    costs: dict[str, float]
    spans: _Spans
    condition: str = ""
    share: float = 1.0


class _Placed(NamedTuple):
    """A unit by its number, and how many rounds after its own began it is."""

    stage: int
    unit: int


_Order = tuple[_Placed, ...]


def overlapped(nodes: Sequence[NestNode], names: FreeNames, spec: Hardware) -> list[NestNode]:
    """Statements in which those loops overlap that are meant to and can."""
    if not any(isinstance(node, For) and node.overlaps for node in nodes):
        return list(nodes)
    found = settled(list(nodes))
    times = [sum(item.forms[0].ns * n for item, n in walk([node])) for node in found]
    made: list[NestNode] = []
    for node, ns in zip(found, times, strict=True):
        worth = isinstance(node, For) and node.overlaps and ns > WORTH * sum(times)
        loop = _Overlap(node, names, spec) if worth and isinstance(node, For) else None
        made += loop.nodes() if loop and loop.schedule() else [node]
    return made


class _Overlap:
    """One loop, with the loops in it that take most of its time."""

    def __init__(self, loop: For, names: FreeNames, spec: Hardware) -> None:
        self.names, self.spec = names, spec
        self.loops = [loop]
        self.units: list[_Unit] = []
        self.open(loop)
        self.rounds = math.prod(int(one.extent) for one in self.loops)
        self.private = set().union(*(unit.bound for unit in self.units))
        self.round_ns = 0.0
        self.order: _Order = ()
        pairs = (
            [(n, o, u) for n, o in enumerate(self.units[:m])] for m, u in enumerate(self.units)
        )
        self.before = [
            [
                (n, bool(o.written & u.named))
                for n, o, u in own
                if o.written & u.named or u.written & o.named
            ]
            for own in pairs
        ]
        """Units before each that it waits for, and whether it takes what they make."""

    def open(self, loop: For) -> None:
        """Takes the statements of a loop as units, those of the loop that takes most of its time in its place."""
        units = list(_units(loop.body))
        whole = sum(sum(unit.costs.values()) for unit in units)
        for at, unit in enumerate(units):
            *declared, inner = unit.nodes
            if not isinstance(inner, For) or not inner.variable or inner.count:
                continue
            before, after = [*units[:at], *([_unit(declared)] if declared else [])], units[at + 1 :]
            given = set().union(*(one.bound for one in before))
            sums = any(one.written & given for one in _units(inner.body))
            if sums or sum(unit.costs.values()) <= INNER * whole:
                continue
            level = len(self.loops)
            self.loops.append(inner)
            self.units += before
            self.open(inner)
            self.units += after
            for some, last in ((before, False), (after, True)):
                ends = [(one, int(one.extent) - 1 if last else 0) for one in self.loops[level:]]
                count = math.prod(int(one.extent) for one, _ in ends)
                for one in some:
                    one.condition = " and ".join(f"{own.variable} == {end}" for own, end in ends)
                    one.share, one.costs = 1 / count, {e: ns / count for e, ns in one.costs.items()}
                    one.spans = {e: (a / count, b / count) for e, (a, b) in one.spans.items()}
            return
        self.units += units

    def schedule(self) -> bool:
        """Chooses, of orders by several periods, the one by which all rounds end first; whether rounds overlap then.
        Each reserves all engines of a statement, or the one alone that it takes longest."""
        if not 2 < self.rounds <= MOST_ROUNDS or self.loops[0].count:
            return False
        if sum(len(unit.bound) for unit in self.units) > len(self.private):
            return False
        outer = [unit.written - self.private for unit in self.units]
        if any(one.kind != "affine_range" for one in self.loops):
            # What one round leaves for the next is one statement's business.
            for name in set().union(*outer):
                if sum(name in unit.named for unit in self.units) > 1:
                    return False
        engines = {engine for unit in self.units for engine in unit.costs}
        least = max((sum(u.costs.get(e, 0.0) for u in self.units) for e in engines), default=0.0)
        most, best, seen = min(MOST_STAGES, self.rounds), math.inf, set[_Order]()
        for alone in (True, False) if least else ():
            for step in range(STEPS):
                self.round_ns = least * (1 + step / 20)
                order = self.place(alone)
                if (self.rounds - 1) * self.round_ns > best or not (last := max(order).stage):
                    break
                if last < most and order not in seen:
                    seen.add(order)
                    if (ns := self.time(order)) < best * (1 - FASTER):
                        best, self.order = ns, order
        return bool(self.order)

    def place(self, alone: bool) -> _Order:
        """The order in which each unit starts when what it takes is there and its engines are free in all rounds, or
        the one `alone` that it takes longest; loads stand before the first that takes them, so that their tiles are
        there for few rounds."""
        taken: dict[str, list[tuple[float, float]]] = {}
        ends, issued = list[float](), list[float]()
        for unit, before in zip(self.units, self.before, strict=True):
            own = _longest(unit) if alone else unit.spans
            earliest = max((ends[n] if takes else issued[n] for n, takes in before), default=0.0)
            start = self.free(own, earliest, taken)
            if alone:
                ns = sum(unit.costs.values())
            else:
                ns = max((high for _, high in own.values()), default=0.0)
                ns += unit.costs.get("dma", 0.0)
            late = self.spec.dma_latency_ns if "dma" in unit.costs else RESULT_NS if ns else 0.0
            ends.append(start + ns + late)
            # In the order of the program as the last of their engines begins.
            issued.append(start + max((begin for begin, _ in own.values()), default=0.0))
        for n, unit in enumerate(self.units):
            takers = [issued[m] for m, b in enumerate(self.before) if (n, True) in b]
            if "dma" in unit.costs and not unit.spans and takers:
                issued[n] = min(takers)
        order = sorted(range(len(issued)), key=lambda n: issued[n] % self.round_ns)
        return tuple(_Placed(math.floor(issued[n] / self.round_ns), n) for n in order)

    def free(
        self, own: _Spans, earliest: float, taken: dict[str, list[tuple[float, float]]]
    ) -> float:
        """The first moment from the earliest on at which a unit's engines are free in all rounds; the earliest itself
        where there is none."""
        period = self.round_ns
        spans = [(taken.setdefault(e, []), *span) for e, span in own.items()]

        def is_free(at: float) -> bool:
            return all(
                (at + low - begin) % period > end - begin - ROUNDING_NS
                and (begin - at - low) % period > high - low - ROUNDING_NS
                for busy, low, high in spans
                for begin, end in busy
            )

        waits = sorted((end - earliest - low) % period for busy, low, _ in spans for _, end in busy)
        start = next((earliest + w for w in (0.0, *waits) if is_free(earliest + w)), earliest)
        for busy, low, high in spans:
            busy.append((start + low, start + high))
        return start

    def time(self, order: _Order) -> float:
        """Nanoseconds of all rounds, each engine taking its instructions in this order, as what they read is there."""
        delay = max(order).stage
        rounds = min(self.rounds, delay + SIMULATED)
        free, there, marks = dict[str, float](), dict[tuple[str, int], tuple[float, str]](), [0.0]
        end = 0.0
        for now in range(rounds + delay):
            for stage, n in order:
                at = now - stage
                if not 0 <= at < rounds:
                    continue
                for engine, ns, read, into in self.units[n].steps:
                    ready = 0.0
                    for name in read:
                        when, by = there.get((name, at), (0.0, engine))
                        ready = max(ready, when if by == engine else when + RESULT_NS)
                    ns *= self.units[n].share
                    done = max(ready, free.get(engine, 0.0)) + ns
                    if engine == "dma":
                        # A transfer that waits holds up no other.
                        free[engine] = free.get(engine, 0.0) + ns
                        done = (ready + ns if ready else free[engine]) + self.spec.dma_latency_ns
                    elif engine != "none":
                        free[engine] = done
                    for name in into:
                        there[name, at] = done, engine
                    end = max(end, done)
            if now in (rounds - 4, rounds - 1):
                marks.append(max(free.values(), default=0.0))
        return end + (self.rounds - rounds) * (marks[-1] - marks[-2]) / 3

    def nodes(self) -> list[NestNode]:
        """The loop whose rounds overlap."""
        count = max(self.order).stage
        at = self.names.new(f"{self.loops[0].variable}_round")
        called = {one.variable: self.names.new(f"{one.variable}_now") for one in self.loops}
        stages = {name: stage for stage, n in self.order for name in self.units[n].bound}
        delayed: dict[str, list[str]] = {}
        body: list[NestNode] = []

        def late(name: str, stage: int) -> str:
            before = delayed.setdefault(name, [])
            rounds = stage - stages[name]
            while len(before) < rounds:
                before.append(self.names.new(f"{name}_before"))
            return before[rounds - 1] if rounds else name

        for stage, group in itertools.groupby(self.order, key=lambda placed: placed.stage):
            inside: list[NestNode] = []
            for unit in (self.units[placed.unit] for placed in group):
                late_names = {n: late(n, stage) for n in sorted(unit.named) if n in stages}
                made = [with_names(node, called | late_names) for node in unit.nodes]
                if unit.condition:
                    said = text_of(renamed(unit.condition, called))
                    last = inside[-1] if inside else None
                    if isinstance(last, If) and last.condition == said:
                        last.body += made
                        continue
                    made = [If(said, made, unit.share)]
                inside += made
            used = names_of(*inside)
            numbers = [one for one in self.numbers(at, stage, called) if one[0] in used]
            inside = [*(line(f"{name} = {text}") for name, text in numbers), *inside]
            guard = f"{stage} <= {at} < {self.rounds + stage}"
            if stage in (0, count):
                guard = f"{at} >= {stage}" if stage else f"{at} < {self.rounds}"
            body.append(If(guard, inside, self.rounds / (self.rounds + count)))
        none: list[str] = []
        for name, before in delayed.items():
            pairs = [*zip(before, [name, *before], strict=False)]
            body += [line(f"{then} = {sooner}") for then, sooner in pairs[::-1]]
            none += [*before[:-1], name][: len(before) if stages[name] else -1]
        some = (none[n : n + 3] for n in range(0, len(none), 3))
        return [
            *(line(f"{' = '.join(names)} = None") for names in some),
            For(at, self.rounds + count, body, "static_range"),
        ]

    def numbers(self, at: str, stage: int, called: Mapping[str, str]) -> Iterator[tuple[str, str]]:
        """What the variables of the loops are, of the round that a stage is of."""
        step, own = self.rounds, f"{at} - {stage}" if stage else at
        for n, one in enumerate(self.loops):
            step //= int(one.extent)
            text = f"({own})" if stage and len(self.loops) > 1 else own
            text += f" // {step}" if step > 1 else ""
            yield called[one.variable], f"{text} % {int(one.extent)}" if n else text


def _units(nodes: Sequence[NestNode]) -> Iterator[_Unit]:
    """Statements with the declarations of what they are the first to use."""
    waiting: dict[str, NestNode] = {}
    for node in nodes:
        form = node.forms[0] if isinstance(node, Line) else None
        if form and form.engine == "none" and (bound := names_in(form.text, stored=True)):
            waiting[min(bound)] = node
            continue
        used = names_of(node)
        own = [waiting.pop(name) for name in [*waiting] if name in used]
        yield _unit([*own, node])
    if waiting:
        yield _unit([*waiting.values()])


def _unit(nodes: list[NestNode]) -> _Unit:
    texts = [item.forms[0].text for item, _ in walk(nodes)]
    bound = {name for text in texts for name in names_in(text, stored=True)}
    parts = {name for text in texts for name in written(text)}
    costs, first, last, rounds = dict[str, float](), dict[str, int](), dict[str, int](), math.inf
    for n, (item, times) in enumerate(walk(nodes)):
        form = item.forms[0]
        if form.engine != "none":
            costs[form.engine] = costs.get(form.engine, 0.0) + form.ns * times
            first.setdefault(form.engine, n)
            last[form.engine] = n
            rounds = min(rounds, max(times, 1))
    others = {e: ns for e, ns in costs.items() if e != "dma"}
    busiest = max(others, key=lambda e: costs[e], default="")
    busy = others.pop(busiest, 0.0)
    # Of a loop, one round's work of others comes before that of the busiest, and one round's after it.
    begin = sum(ns for e, ns in others.items() if first[e] < first[busiest]) / rounds
    end = sum(ns for e, ns in others.items() if last[e] > last[busiest]) / rounds + begin + busy
    low = {e: 0.0 if first[e] < first[busiest] else end - ns for e, ns in others.items()}
    low |= {busiest: begin} if busiest else {}
    spans = {e: (at, max(at + costs[e], *low.values())) for e, at in low.items()}
    return _Unit(nodes, bound, names_of(*nodes), parts | bound, [*_steps(nodes)], costs, spans)


def _steps(nodes: Sequence[NestNode]) -> Iterator[_Step]:
    """Instructions in order, those of a loop for some of its rounds."""
    for node in nodes:
        if isinstance(node, Line):
            text, engine, ns = node.forms[0]
            into = names_in(text, stored=True).union(written(text))
            yield _Step(engine, ns, names_in(text) - into, into)
        elif not isinstance(node, Comment):
            (_, own), *_ = walk([replace(node, body=[line("")])])
            rounds = min(max(int(own), 1), SIMULATED)
            body = [step._replace(ns=step.ns * own / rounds) for step in _steps(node.body)]
            yield from body * rounds


def _longest(unit: _Unit) -> _Spans:
    """The time of what alone a unit takes longest; none where that is DMA, which holds up no other."""
    longest = max(unit.costs, key=lambda e: unit.costs[e], default="dma")
    return {longest: (0.0, unit.costs[longest])} if longest != "dma" else {}
