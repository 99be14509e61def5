"""A kernel language with a planted landscape: what every strategy is tried on.

A kernel is a set of moves that were made and a tile. Its time follows from them, for each seed in
another way, with everything that a search meets: moves that gain, a trap (slower alone, faster with
its partner), a pair of which one breaks the kernel and the other mends it, the same kernel on several
ways, kernels that do not compile or compute wrong, tiles that are refused, an action that cannot be
carried out and one that changes nothing. All of it can be set as knobs, too.
"""

import asyncio
import json
import random
import re
from itertools import chain, combinations
from pathlib import Path
from typing import ClassVar

from timed_kernels import correct

from accelopt.evaluation import Bottleneck, Case, Confirmation, Diagnosis, Evaluation, Status
from accelopt.kernels.language import Configured, Explanation, Language
from accelopt.knob_space import KnobSpec, Space
from accelopt.nodes import Action, Reschedule, Rewrite, made
from accelopt.store import content_key

MOVES = ("hoist", "block", "fuse", "widen", "transpose", "pack", "inline", "split")
TILES = (1, 2, 4, 8)
START = 100.0  # milliseconds


class Interrupted(Exception):
    """The machine went away in the middle of an evaluation."""


def kernel(moves=(), tile=1):
    return f"def kernel():\n    MADE = {sorted(moves)}\n    TILE = {tile}\n"


def case(folder, seed=0, twin=0, kernel=kernel()):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "start.py").write_text(kernel)
    (folder / "reference.py").write_text("def forward():\n    return 0\n")
    return Case(
        problem="planted",
        values={"seed": seed, **({"twin": twin} if twin else {})},
        task=str(folder / "reference.py"),
        kernel=str(folder / "start.py"),
    )


class Landscape:
    """What one seed plants. A twin is another kernel of the same kind: methods play the same parts and
    gain nearly as much, but tiles and promises are its own."""

    def __init__(self, seed, twin=0):
        chance = random.Random(seed)
        order = list(MOVES)
        chance.shuffle(order)
        self.trap, self.partner, self.broken, self.mended, self.wrong, *self.plain = order
        self.gains = {move: chance.uniform(0.8, 1.1) for move in self.plain}
        self.gains |= {self.trap: 1.2, self.partner: 0.95, self.mended: 1.05}
        self.tiles = dict(zip(TILES, (1.0, *(chance.uniform(0.85, 1.15) for _ in TILES[1:]))))
        # What is promised is near what is gained; of the rest nobody knows anything.
        self.promise = {move: chance.uniform(0, 0.1) for move in (*MOVES, "lost")}
        for move in self.plain:
            self.promise[move] = 1 - self.gains[move] + chance.uniform(-0.05, 0.05)

        # What limits a kernel is mostly known: three of four moves that gain relieve it.
        touched = {
            move: chance.random() < 0.75 for move in (*self.plain, self.partner, self.mended)
        }
        self.touches = {move: "dma" if touched.get(move) else "vector" for move in MOVES}
        if twin:
            own = random.Random(f"{seed}/{twin}")
            self.gains = {move: gain * own.uniform(0.97, 1.03) for move, gain in self.gains.items()}
            self.tiles = dict(zip(TILES, (1.0, *(own.uniform(0.85, 1.15) for _ in TILES[1:]))))
            self.promise = {move: own.uniform(0, 0.1) for move in self.promise}

    @classmethod
    def of(cls, case):
        return cls(case.values["seed"], case.values.get("twin", 0))

    @property
    def optimum(self):
        """The least time of all kernels that are right."""
        subsets = chain.from_iterable(combinations(MOVES, n) for n in range(len(MOVES) + 1))
        kernels = [(frozenset(moves), tile) for moves in subsets for tile in TILES]
        return min(self.milliseconds(*one) for one in kernels if not self.fault(*one))

    def fault(self, moves, tile):
        """Why a kernel has no time; None where it has."""
        if self.broken in moves and self.mended not in moves:
            return Status.COMPILE_ERROR, "it is broken"
        if tile == 8 and self.plain[0] in moves:
            return Status.REFUSED, "such a tile does not fit"
        if self.wrong in moves:
            return Status.WRONG_NUMBERS, "row 3 is off"
        return None

    def milliseconds(self, moves, tile):
        time = START * self.tiles[tile]
        for move in moves:
            time *= self.gains.get(move, 1.0)
        if {self.trap, self.partner} <= moves:
            time *= 0.5
        if {self.broken, self.mended} <= moves:
            time *= 0.7
        return round(time, 6)


class Planted(Language):
    """The language; what is evaluated, and when it fails, is for a test to say."""

    name = "planted"
    evaluated: ClassVar[list[str]] = []  # of all instances, in the order they were finished
    dies_after = None  # evaluations until the machine goes away
    slow = 0.0  # seconds, at most, that an evaluation takes by chance

    def __init__(self, pool, options):
        self.slots = asyncio.Semaphore(pool.count)

    async def evaluate(self, case, source):
        async with self.slots:
            await asyncio.sleep(random.random() * self.slow)
        if self.dies_after is not None and len(self.evaluated) >= self.dies_after:
            raise Interrupted
        self.evaluated.append(self.evaluation_key(case, source))
        return verdict(case, source)

    async def explain(self, node):
        return Explanation(("It is slow.",))

    async def space(self, node):
        knobs = [KnobSpec(name=move, type="bool", allowed=(False, True)) for move in MOVES]
        tile = KnobSpec(name="tile", type="int", allowed=TILES)
        return Space(kernel="planted", shape=node.case.values, knobs=(*knobs, tile))

    async def configure(self, node, values):
        land = Landscape.of(node.case)
        if values["tile"] == 8 and values[land.plain[0]]:
            return Configured(None, "such a tile does not fit")
        return Configured(kernel({move for move in MOVES if values[move]}, values["tile"]))

    async def diagnose(self, node):
        shares = {"dma": 0.8, "tensor": 0.5}
        ranked = [Bottleneck(category="memory", resource="dma", share=0.8, reason="It is slow.")]
        return Diagnosis(origin="planted", utilisation=shares, bottlenecks=ranked)

    async def confirm(self, case, winner, parent):
        return Confirmation(confirmed=True, speedup=1.0)

    def evaluation_key(self, case, source):
        return content_key(json.dumps(case.values), source)

    def gate(self, case):
        return "It must be right."

    async def actions(self, node, focus=""):
        land, (moves, tile) = Landscape.of(node.case), read(node.source)
        found = []
        for move in (move for move in MOVES if move not in moves):
            change = Rewrite(move=move, sentence=f"{move} it.")
            source, touches = kernel(moves | {move}, tile), (land.touches[move],)
            found.append(made(change, source, promise=land.promise[move], touches=touches))
        for to in (to for to in TILES if to != tile):
            change = Reschedule(schedule={"tile": to}, sentence=f"Set the tile to {to}.")
            found.append(made(change, kernel(moves, to), promise=0.05, touches=("dma",)))
        nothing = Rewrite(move="nothing", sentence="Change nothing.")
        lost = {"change": Rewrite(move="lost", sentence="Do what nobody can."), "method": "lost"}
        return [
            *found,
            made(nothing, node.source, promise=0.02),
            Action(**lost, promise=land.promise["lost"], key=f"lost from {node.key}"),
        ]


def read(source):
    found = re.search(r"MADE = (\[.*\])\n    TILE = (\d+)", source)
    return frozenset(re.findall(r"\w+", found[1])), int(found[2])


def verdict(case, source):
    land, (moves, tile) = Landscape.of(case), read(source)
    fault = land.fault(moves, tile)
    if fault is not None:
        return Evaluation(status=fault[0], message=fault[1])
    return correct(land.milliseconds(moves, tile), "planted")
