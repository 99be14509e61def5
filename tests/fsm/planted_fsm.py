"""A toy language with resources: a kernel is a COST, shared out among what it does, and each resource
can be relieved once. What is planted in a kernel's text decides what the profiler says of it."""

import asyncio
import re

import toy

from accelopt.evaluation import Bottleneck, Diagnosis
from accelopt.nodes import Rewrite, made

PAD = "# " + "a comment that makes it as long as kernels are " * 3


def kernel(cost, extra="pass", done=()):
    return f"def kernel():\n    {PAD}\n    COST = {cost}\n    DONE = {sorted(done)}\n    {extra}\n"


def start(folder, cost=100.0, extra="pass"):
    case = toy.start(folder, cost)
    (folder / "toy.py").write_text(kernel(cost, extra))
    return case


def done_of(source):
    found = re.search(r"DONE = \[(.*)\]", source)
    return re.findall(r"\w+", found[1]) if found else []


def planted(source, name, default):
    found = re.search(rf"{name} = ([\d.]+)", source)
    return float(found[1]) if found else default


class Resources(toy.ToyLanguage):
    """`gain_X`, `lose_X` and `break_X` are moves on the resource X."""

    resources = ("dma", "tensor", "vector")

    async def evaluate(self, case, source):
        if "SLEEPS" in source:
            await asyncio.sleep(3600)
        return await super().evaluate(case, source)

    def text_refused(self, case, source):
        return "torch.nn is refused" if "torch.nn" in source else ""

    async def diagnose(self, node):
        if node.profile is None:
            return None
        sol = planted(node.source, "SOL", 50.0) / 100
        shares = {name: sol / rank for rank, name in enumerate(self.resources, 1)}
        return Diagnosis(
            origin="planted",
            utilisation=shares,
            bottlenecks=[
                Bottleneck(
                    category="memory" if name == "dma" else "compute",
                    resource=name,
                    share=share,
                    reason=f"{name} is busy",
                    methods=(f"gain_{name}",),
                )
                for name, share in shares.items()
            ],
            memory_sol=sol,
            compute_sol=sol / 2,
            fraction_of_peak=sol if "BOUND" in node.source else None,
        )

    async def actions(self, node, focus=""):
        cost, done = toy.cost_of(node.source), done_of(node.source)
        offers = []
        for name in self.resources:
            for kind, factor, extra, promise in (
                ("gain", 0.9, "pass", 0.1), ("lose", 1.2, "pass", 0.3), ("break", 1, "BROKEN", 0.2),
            ):  # fmt: skip
                move = f"{kind}_{name}"
                if move in done:
                    continue
                source = kernel(round(cost * factor, 6), extra, [*done, move])
                change = Rewrite(move=move, sentence=f"{kind} on {name}.")
                offers.append(made(change, source, promise=promise, touches=(name,)))
        return offers
