"""A language whose kernels are one number: quick, deterministic, with every kind of verdict.

A toy kernel is `def kernel():` with `COST = <milliseconds>` and perhaps `WRONG`, `BROKEN` in it.
"""

import asyncio
import re
from pathlib import Path

from timed_kernels import correct

from accelopt.evaluation import Case, Confirmation, Evaluation, Scrutiny, Status
from accelopt.kernel_source import functions
from accelopt.kernels.language import Configured, Explanation, Language
from accelopt.knob_space import KnobSpec, Space
from accelopt.nodes import Rewrite, made
from accelopt.store import content_key

REFERENCE = "def forward():\n    return 0\n"


def kernel(cost, extra=""):
    return f"def kernel():\n    COST = {cost}\n    {extra or 'pass'}\n"


def start(folder, cost=100.0, problem="toy"):
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{problem}.py").write_text(kernel(cost))
    (folder / f"{problem}_numpy.py").write_text(REFERENCE)
    return Case(
        service_name=f"{problem}_N4_ID0",
        case_name=f"{problem}_N4",
        problem=problem,
        values={"N": 4},
        task=str(folder / f"{problem}_numpy.py"),
        kernel=str(folder / f"{problem}.py"),
    )


class ToyLanguage(Language):
    name = "toy"
    falls_late = ""  # text of kernels that only full scrutiny finds wrong
    seconds = 0.0
    log: Path | None = None

    def __init__(self, pool, options):
        self.slots = asyncio.Semaphore(pool.count)
        self.evaluated = []
        self.scrutiny = options.scrutiny

    async def evaluate(self, case, source):
        async with self.slots:
            await asyncio.sleep(self.seconds)
        self.evaluated.append(source)
        if self.log:
            with self.log.open("a") as file:
                file.write(self.evaluation_key(case, source) + "\n")
        if self.falls_late and self.falls_late in source and self.scrutiny is Scrutiny.FULL:
            return Evaluation(status=Status.WRONG_NUMBERS, message="wrong on a later seed")
        return verdict(source)

    async def explain(self, node):
        cost = cost_of(node.source)
        return Explanation((f"COST is {cost:g}.",), 1.0 / cost)

    async def space(self, node):
        by = KnobSpec(name="by", type="int", allowed=(1, 2, 3, 4, 6))
        less = KnobSpec(name="less", type="int", allowed=(0, 2, 5))
        return Space(kernel="toy", shape=node.case.values, knobs=(by, less))

    async def configure(self, node, values):
        if values["by"] == 6 and values["less"]:
            return Configured(None, "that is too little")
        return Configured(kernel(cost_of(node.source) / values["by"] - values["less"]))

    async def confirm(self, case, winner, parent):
        speedup = cost_of(parent) / cost_of(winner)
        return Confirmation(confirmed=speedup > 1.02, speedup=speedup)

    def evaluation_key(self, case, source):
        return content_key(case.problem, source, self.scrutiny.value)

    def gate(self, case):
        return "COST must be a number."

    async def actions(self, node, focus=""):
        cost = cost_of(node.source)
        return [
            made(
                Rewrite(
                    move="divide", parameters={"by": n}, sentence=f"Divide COST {cost:g} by {n}."
                ),
                kernel(cost / n),
                promise=float(n),
            )
            for n in (1.5, 2, 3)
            if cost / n >= 10
        ]

    def look_up(self, name, kernel):
        return f"{name} is a number."

    def sheet(self, texts):
        return "- COST: a number of milliseconds." if any("COST" in text for text in texts) else ""

    def background(self, kernel):
        return {"machine": "- A machine that takes COST milliseconds."}

    async def brief(self, node):
        return {"limits": f"COST limits it: {cost_of(node.source):g} ms."}

    async def what_if(self, node, question):
        return f"half of COST would be {cost_of(node.source) / 2:g} ms"

    async def faults(self, node):
        return "line 3: WRONG" if "WRONG" in node.source else ""


def cost_of(source):
    found = re.search(r"COST = ([\d.]+)", source)
    return float(found[1]) if found else 1.0


def verdict(source):
    if "kernel" not in functions(source) or "BROKEN" in source:
        return Evaluation(status=Status.COMPILE_ERROR, message="it does not compile: BROKEN")
    if "WRONG" in source:
        return Evaluation(status=Status.WRONG_NUMBERS, message="row 3 is off by 0.5")
    if "HANGS" in source:
        return Evaluation(status=Status.TIMEOUT, message="no end after 60 seconds")
    cost = cost_of(source)
    return correct(cost, "toy", hbm_read_bytes=1000 * cost)


class Ruleless(ToyLanguage):
    """Toys that only a model can change."""

    async def actions(self, node, focus=""):
        return []


class Stumbling(ToyLanguage):
    """Toys with a rewrite that fails wherever it stands, and that is called otherwise each time."""

    async def actions(self, node, focus=""):
        place = int(cost_of(node.source) * 1000)
        fall = Rewrite(move="fall", parameters={"at": place}, sentence=f"Fall at {place}.")
        broken = node.source.replace("pass", "BROKEN")
        return [made(fall, broken, promise=9.0), *await super().actions(node, focus)]


class SlyLanguage(Ruleless):
    falls_late = "SLY"


class Faulty(ToyLanguage):
    """Toys whose rules fail by a fault of their own."""

    async def actions(self, node, focus=""):
        raise KeyError("no such axis")
