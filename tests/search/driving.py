"""A strategy on a planted landscape without a loop around it: hundreds of searches a minute."""

import asyncio
from collections import deque

import landscape

from accelopt.evaluation import Evaluation, Status
from accelopt.nodes import Node, Result, Want
from accelopt.search.strategy import Settings, open_strategy


class Driven:
    """One search: its results in the order of telling, and its strategy."""

    def __init__(self, name, case, seed, evaluations, goal=0.0, learned=None, window=4, **options):
        planted = landscape.Planted.__new__(landscape.Planted)
        self.start = Node(case, landscape.kernel(), landscape.verdict(case, landscape.kernel()))
        self.strategy = open_strategy(self.start, Settings(strategy=name, options=options), seed)
        if learned is not None:
            self.strategy.learn(learned)
        diagnosis = asyncio.run(planted.diagnose(self.start))
        self.results, self.kernels, under_way = [], {}, deque()
        while len(self.kernels) < evaluations and self.strategy.best.latency > goal:
            while len(under_way) < window and (job := self.strategy.ask()) is not None:
                under_way.append(job)
            if not under_way:
                break
            job = under_way.popleft()
            if job.want is Want.ACTIONS:
                listed = tuple(asyncio.run(planted.actions(job.node)))
                self.tell(Result(job, listed, diagnosis=diagnosis))
            else:
                self.tell(Result(job, nodes=(self.made(job),)))

    def made(self, job):
        source, change = job.action.source or "", job.action.change
        verdict = Evaluation(status=Status.MISSING, message="nobody can")
        if source:
            verdict = landscape.verdict(job.node.case, source)
            assert source not in self.kernels, "a kernel was built twice"
            self.kernels[source] = verdict
        return Node(job.node.case, source, verdict, job.node, change, f"plan_{job.number}_0")

    def tell(self, result):
        self.results.append(result)
        self.strategy.tell(result)
