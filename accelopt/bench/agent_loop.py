"""`--developer agent`: one conversation with the tools of a bench develops a kernel.

What the model answered is in the run's journal, and what the tools answer follows from that and from
the journalled verdicts. So a conversation that is continued or replayed begins anew in an empty folder,
is answered from the journal as far as it went, and spends its budgets again without paying twice.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from math import inf
from typing import TYPE_CHECKING

from accelopt.agents.bench_agent import AgentEnd
from accelopt.agents.budget import EvaluationBudget
from accelopt.agents.calls import Tool
from accelopt.agents.proposer import KernelView
from accelopt.bench.bench import Bench
from accelopt.bench.folder import BenchFolder
from accelopt.bench.folder_setup import learned_elsewhere
from accelopt.bench.tools import BenchTool, bench_tools
from accelopt.concurrency import contained
from accelopt.errors import printable
from accelopt.nodes import Job, Node, Result
from accelopt.script_file_columns import plan_id
from accelopt.stages import plans_and_samples
from accelopt.stages.jobs import by_rule

if TYPE_CHECKING:
    from accelopt.stages.run import Run

LAST_ANSWER = "the kernel of its author's last answer"
TRIED_OUT = "the fastest that was tried out, and not handed in by its author"


async def develop(job: Job, view: KernelView, run: Run) -> Result:
    """A node of each version that the run's agent hands in, and of the fastest that it only tried out.

    A conversation without an answer of which nothing came counts as unanswered, and the rules develop the
    kernel in its place.
    """
    agent = run.proposer.agent
    assert agent is not None
    case, paying = view.node.case.case_name, view.evaluation_budget or EvaluationBudget()
    most = agent.budget.evaluations
    budget = EvaluationBudget(most if job.limit is None else min(most, job.limit), paying.paid)
    session = AgentSession(
        _bench(job, view, run, budget),
        lambda node: run.watcher.sampled(case, view.iteration, node),
    )
    worked = agent.work(view, job.number, session.tools)
    end = await contained(worked, "working at a bench", AgentEnd)
    await contained(session.hand_in(end.kernel), "handing in a kernel", lambda _: None)
    for key in sorted(budget.bought):
        paying.pay(key)
    said = printable(end.said)
    if end.failed and not session.nodes:
        made = await plans_and_samples.develop(job, view, by_rule(run))
        return made._replace(remarks=(said, *made.remarks), asked=1, unanswered=(said,))
    if said:
        run.watcher.reported(case, f"iteration {view.iteration}, the agent ended: {said}")
    if not session.nodes:
        run.watcher.reported(case, f"iteration {view.iteration}: the agent handed in nothing")
    nothing = not session.nodes
    return Result(
        job, nodes=tuple(session.nodes), remarks=(said,) if said else (), asked=1, again=nothing
    )


class AgentSession:
    """The bench in one conversation. `nodes` are the versions that were handed in, in their order; `told`
    hears of each at once."""

    def __init__(self, bench: Bench, told: Callable[[Node], None]) -> None:
        self.bench = bench
        self.told = told
        self.nodes: list[Node] = []
        self.tools = tuple(map(self._tool, bench_tools()))
        self._turn = asyncio.Lock()

    def _tool(self, tool: BenchTool) -> Tool:
        """The tool for a model. Calls of one answer are made one after the other, in the order of the
        answer: it may write a kernel, check it and hand it in, and a replay must find the same."""

        async def call(arguments: str) -> str:
            async with self._turn:
                answer = tool.call(self.bench, json.loads(arguments))
                said = await contained(answer, f"answering {tool.name}", str)
                self._tell()
                return said

        return Tool(tool.name, tool.description, "", call, tool.schema)

    async def hand_in(self, last: str | None) -> None:
        """Hands in the kernel of the `last` answer, then what was judged right and faster than all that was
        accepted, the fastest first, until one is accepted: nothing that was paid for is lost."""
        handed_in = {self.bench.start.source, *(node.source for node in self.bench.submitted)}
        if last is not None and self.bench.kernels.complete(last) not in handed_in:
            await self.bench.submit_text(last, LAST_ANSWER)
            self._tell()
            handed_in.add(self.bench.kernels.complete(last))
        timed = [
            (one.latency, one.source)
            for one in self.bench.kernels.session.checked
            if one.latency is not None and one.source not in handed_in
        ]
        for latency, source in sorted(timed):
            if latency >= (self.bench.best.latency or inf):
                break
            await self.bench.submit_text(source, TRIED_OUT)
            self._tell()

    def _tell(self) -> None:
        """Makes nodes of what was handed in since the last call."""
        for number in range(len(self.nodes), len(self.bench.submitted)):
            node = replace(self.bench.submitted[number], label=plan_id(number, 0))
            self.nodes.append(node)
            self.told(node)


def _bench(job: Job, view: KernelView, run: Run, budget: EvaluationBudget) -> Bench:
    """The bench with the viewed kernel in a new folder, which takes the place of one that was left by an
    interrupted run."""
    place = run.folder_of(view.node.case, job.round) / f"bench_{job.number}"
    shutil.rmtree(place, ignore_errors=True)
    known = learned_elsewhere((*view.findings, *view.recalled), view.experiences)
    bench = Bench(BenchFolder(place), view.node, run.workshop, budget, known)
    bench.fill()
    return bench
