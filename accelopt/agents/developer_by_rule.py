"""One step of development by the rules of a kernel language, without a model."""

from __future__ import annotations

from collections.abc import Sequence

from accelopt.agents.experience_text import outcome_text
from accelopt.agents.offline import OfflineProposer
from accelopt.agents.proposer import Brief, GeneratedKernel, KernelView
from accelopt.evaluation import Bottleneck
from accelopt.experience import Attempt, Reflexion, avoided
from accelopt.nodes import Action, Change

UNKNOWN = Bottleneck(
    category="unknown", resource="", share=0.0, reason="nothing is known of where the time goes"
)


class DeveloperByRule:
    """The profiler's bottlenecks; the most promising rewrite that nobody tried and that relieves them,
    last what brought nothing on a kernel before; lessons by what was measured."""

    def __init__(self, offline: OfflineProposer) -> None:
        self.offline = offline

    async def judge(self, view: KernelView, most: int) -> tuple[Bottleneck, ...]:
        """The profiler's own."""
        return (view.diagnosis.bottlenecks if view.diagnosis else ())[:most] or (UNKNOWN,)

    async def generate(self, brief: Brief) -> GeneratedKernel:
        """The rewrite that this bottleneck's worker chooses after those of the ranks before it."""
        action = self._chosen(brief, await self.offline.actions_on(brief.view.node))
        if action is None:
            return GeneratedKernel(None, reason="no rewrite that applies is left")
        source = action.source or await self.offline.source_of(brief.view.node, action)
        reason = "" if source else "the rules do not offer this change any more"
        return GeneratedKernel(source, action.change, action.method, reason)

    async def reflect(self, brief: Brief, attempt: Attempt, written: GeneratedKernel) -> Reflexion:
        """Whether it paid, and what to do or to leave the next time."""
        return reflexion_by_rule(attempt, written.method, written.change)

    def _chosen(self, brief: Brief, actions: Sequence[Action]) -> Action | None:
        view = brief.view
        before = {tried.change.sentence for tried in view.tried if tried.before}
        tried = {tried.change.sentence for tried in view.tried if not tried.before}
        tried |= {f.change for f in view.findings if f.kernel == view.node.key}
        left = [a for a in actions if a.sentence not in tried and a.key not in view.known]
        left = [a for a in left if not view.fails_again(a.source)]
        chosen = None
        for rank in range(1, brief.rank + 1):
            resource = _of_rank(brief, rank).resource
            lost = avoided((*reversed(view.recalled), *view.findings), resource)
            left = [action for action in left if action is not chosen]
            chosen = min(
                left, key=lambda a: (a.sentence in before, *_order(a, resource, lost)), default=None
            )
        return chosen


def _of_rank(brief: Brief, rank: int) -> Bottleneck:
    """What the worker of this rank is after: its own bottleneck where it is this brief's."""
    if rank == brief.rank:
        return brief.bottleneck
    return brief.bottlenecks[rank - 1] if rank <= len(brief.bottlenecks) else brief.bottlenecks[0]


def _order(action: Action, resource: str, lost: frozenset[str]) -> tuple[bool, bool, float]:
    """What lost against this bottleneck comes last, what relieves it first, then by promise."""
    return action.method in lost, resource not in action.touches, -action.promise


def reflexion_by_rule(attempt: Attempt, method: str, change: Change | None) -> Reflexion:
    """Whether a change paid against a bottleneck, and what to do or to leave the next time."""
    done = change.sentence if change else ""
    pattern = method or done
    told = outcome_text(attempt)
    won = attempt.is_improvement
    return Reflexion(
        round_num=attempt.round_num,
        root_cause_diagnosed=attempt.root_cause,
        fix_applied=done,
        expected_outcome=f"less time lost to {attempt.bottleneck_category}",
        actual_outcome=told,
        performance_delta_pct=attempt.improvement_pct,
        was_diagnosis_correct=won,
        was_fix_effective=won,
        reasoning="by what was measured, without a model",
        lessons=(f"{pattern}: {told}",) if pattern else (),
        avoid_patterns=() if won or not pattern else (pattern,),
        try_patterns=(pattern,) if won and pattern else (),
    )
