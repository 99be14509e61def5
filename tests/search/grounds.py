"""Planted landscapes of other kinds than `landscape`: kernels are sets of moves, and what is hard about
finding the good ones is told apart by kind.

chain: three moves pay together, and bring nothing alone or by two.
failing: two of five kernels fail, whatever made them.
misled: promises say next to nothing about gains.
needle: one of many moves is all there is, and nothing tells which.
"""

import random
import re

import landscape
from timed_kernels import correct

from accelopt.evaluation import Diagnosis, Evaluation, Status
from accelopt.kernels.language import Configured
from accelopt.knob_space import KnobSpec, Space
from accelopt.nodes import Rewrite, made

KINDS = ("chain", "failing", "misled", "needle")
START = 100.0  # milliseconds


class Ground:
    """What one seed plants."""

    def __init__(self, kind, seed):
        self.kind, self.seed = kind, seed
        chance = random.Random(f"{kind} {seed}")
        self.moves = [f"move_{number}" for number in range(8 if kind == "chain" else 12)]
        least, most = {"chain": (0.97, 1.05), "needle": (0.99, 1.01)}.get(kind, (0.8, 1.1))
        self.gains = {move: chance.uniform(least, most) for move in self.moves}
        off = {"failing": 0.04, "misled": 0.2}.get(kind)
        self.promises = {
            move: chance.uniform(0, 0.1)
            if off is None
            else max(0.0, 1 - gain + chance.gauss(0, off))
            for move, gain in self.gains.items()
        }
        self.together = frozenset(chance.sample(self.moves, {"chain": 3, "needle": 1}.get(kind, 0)))
        self.gains |= dict.fromkeys(self.together, 1.0)

    @classmethod
    def of(cls, case):
        return cls(KINDS[case.values["kind"]], case.values["seed"])

    def fails(self, moves):
        luck = random.Random(f"{self.seed} {sorted(moves)}").random()
        return self.kind == "failing" and bool(moves) and luck < 0.4

    def milliseconds(self, moves):
        time = START
        for move in moves:
            time *= self.gains[move]
        return round(time * (0.4 if self.together and self.together <= moves else 1.0), 6)


def kernel(moves=()):
    return f"def kernel():\n    MADE = {sorted(moves)}\n"


def read(source):
    return frozenset(re.findall(r"move_\d+", source))


def case(folder, kind, seed):
    found = landscape.case(folder, seed, kernel=kernel())
    return found.model_copy(update={"values": {"seed": seed, "kind": KINDS.index(kind)}})


class Grounds(landscape.Planted):
    name = "grounds"

    async def evaluate(self, case, source):
        ground, moves = Ground.of(case), read(source)
        if ground.fails(moves):
            return Evaluation(status=Status.COMPILE_ERROR, message="it does not compile")
        return correct(ground.milliseconds(moves), "planted")

    async def actions(self, node, focus=""):
        ground, here = Ground.of(node.case), read(node.source)
        return [
            made(
                Rewrite(move=move, sentence=f"Make {move}."),
                kernel(here | {move}),
                promise=ground.promises[move],
                touches=("dma",),
            )
            for move in ground.moves
            if move not in here
        ]

    async def space(self, node):
        moves = Ground.of(node.case).moves
        knobs = tuple(KnobSpec(name=move, type="bool", allowed=(False, True)) for move in moves)
        return Space(kernel="planted", shape=node.case.values, knobs=knobs)

    async def configure(self, node, values):
        return Configured(kernel(move for move, on in values.items() if on))

    async def diagnose(self, node):
        return Diagnosis(origin="planted")
