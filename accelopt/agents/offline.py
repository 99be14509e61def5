"""The offline proposer: plans, kernels and lessons from the rules of a kernel language, no model.

A plan is a change that the language offers, or a chain of them; carrying it out takes each step
among what the language offers then, so a plan that travelled in a file is carried out exactly.
"""

from __future__ import annotations

import asyncio
import difflib
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from math import inf, isfinite
from typing import Any, NamedTuple, TypeVar

from accelopt.agents.prompts import quote
from accelopt.agents.proposer import (
    Draft,
    Failure,
    KernelView,
    PlanDraft,
    Scheduled,
    SlowFastPair,
    Suggestion,
    no_schedule,
)
from accelopt.concurrency import contained
from accelopt.kernel_source import fingerprint
from accelopt.nodes import Action, Chain, Change, Node, Plan, Reschedule, Rewrite, method_of
from accelopt.script_file_columns import NO_OPTIMIZATION_TITLE, Experience

T = TypeVar("T")

LONGEST_SNIPPET = 24  # lines of a lesson's before and after
LONGEST_CHAIN = 2  # changes in one plan
MOST_PREDICTED = 6  # actions on one kernel whose time is predicted, or as many as are drawn
MOST_EXTENDED = 6  # of those, the fastest ones, that may begin a longer chain
MOST_FURTHER = 3  # the same for a kernel inside a chain
SPARE = 1  # chains looked at beyond those that were drawn or tried
GAIN = 0.01  # predicted share of the time that a plan, or a further change of a chain, must save
KINDS = 2  # of kernels by schedule that are judged at a time: the fastest predicted, and one of another kind

Actions = Callable[[Node, str], Awaitable[Sequence[Action]]]
Predict = Callable[[Node, str], Awaitable[float | None]]


class TimedAction(NamedTuple):
    """An action, and the milliseconds predicted for it where that is known."""

    action: Action
    predicted: float | None


async def _unknown(node: Node, source: str) -> float | None:
    return None


class OfflineProposer:
    """Planner, executor and summarizer in one, deterministic.

    `actions` lists what can be done to a kernel, most promising first. `predict` gives the
    milliseconds a source would take where that is known before it runs; it then decides the order
    of the actions, and how far a chain goes. `scheduled` reads a schedule, as a model may write one.
    """

    tries = 0

    def __init__(
        self,
        actions: Actions,
        predict: Predict = _unknown,
        scheduled: Scheduled = no_schedule,
    ) -> None:
        self.actions = actions
        self.predict = predict
        self.scheduled = scheduled
        self.fault = ""  # of the rules, in a sentence; they offer nothing then
        self._found: dict[str, asyncio.Task[list[Action]]] = {}
        self._ranked: dict[str, asyncio.Task[list[TimedAction]]] = {}

    async def stop(self) -> None:
        """End what is under way."""
        tasks = [*self._found.values(), *self._ranked.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def actions_on(self, node: Node, focus: str = "") -> list[Action]:
        """The actions on `node`, most promising first, one for each different result."""
        key = f"{focus}/{node.case.case_name}/{node.key}"
        return await _once(self._found, key, lambda: self._find_actions(node, focus))

    async def source_of(self, node: Node, action: Action) -> str | None:
        """The kernel that an action on `node` makes, for one that came without it."""
        return await self._made(node, action.change)

    async def suggestions(
        self, node: Node, most: int, latency: float | None = None
    ) -> tuple[Suggestion, ...]:
        """The rules' own first choices for `node`, by name, the fastest predicted first; none that is
        predicted to gain nothing over `latency` (ms; without it the node's own), none without a prediction
        where others were asked for theirs, and of one method's that are predicted to take the same only the
        first."""
        ranked = await self._rank(node, MOST_PREDICTED)
        if any(one.action.predicted is None and one.predicted is not None for one in ranked):
            ranked = [one for one in ranked if one.predicted is not None]
        likely: dict[object, TimedAction] = {}
        for number, one in enumerate(ranked):
            if not _hopeless(one.predicted, latency or node.latency or inf):
                same = number if one.predicted is None else (one.action.method, one.predicted)
                likely.setdefault(same, one)
        return tuple(
            Suggestion(f"R{number}", *option)
            for number, option in enumerate([*likely.values()][:most], 1)
        )

    async def _made(self, node: Node, change: Change) -> str | None:
        """The kernel that one change makes of `node`: by a rule, or by a schedule that somebody wrote;
        None where it does not have that change."""
        offered = await self.actions_on(node)
        source = next((item.source for item in offered if item.change == change), None)
        if source is None and isinstance(change, Reschedule):
            found = await self.scheduled(node, json.dumps(change.schedule))
            source = found.source if isinstance(found, Action) else None
        return source

    async def plan(self, view: KernelView, draw: int, draws: int) -> PlanDraft:
        """The chain that begins with the action of rank `draw`, among those not yet tried that make a new
        kernel, not predicted to miss the goal, and not seen to fail on a kernel that is the same there. What
        brought nothing on a kernel before this one comes last: with what was done since, it may."""
        own = {item.change.key for item in view.tried if not item.before}
        elsewhere = {item.change.key for item in view.tried}
        fresh = 0
        kinds: set[object] = set()
        ranked = await self._rank(view.node, max(MOST_PREDICTED, draws))
        for refused in (elsewhere, own):
            for place, option in enumerate(ranked[: draws + len(view.tried) + SPARE]):
                kind = None if option.predicted is None else _kind(option.action)
                if kind in kinds or (kind is not None and len(kinds) == KINDS):
                    continue
                # What a search of schedules found, single changes of it make no faster.
                longest = LONGEST_CHAIN if place < MOST_EXTENDED and kind is None else 1
                change, last = await self._chain(view.node, option, longest)
                closed = method_of(option.action.change) in view.closed
                made = last.action.key in view.known
                if closed or made or change.key in refused or _hopeless(last.predicted, view.goal):
                    continue
                if view.fails_again(option.action.source) or view.fails_again(last.action.source):
                    continue
                if fresh == draw:
                    return PlanDraft(change, reasoning=" ".join(view.facts))
                own.add(change.key)
                elsewhere.add(change.key)
                kinds |= {kind} - {None}
                fresh += 1
        return PlanDraft(None, reason=self.fault or _why_none(len(ranked)))

    async def implement(self, view: KernelView, change: Change, draw: int, sample: int) -> Draft:
        """The planned chain; sample k leaves out its last k changes, but not the first."""
        steps = _steps(change)
        node, done = view.node, list[Rewrite | Reschedule]()
        for step in steps[: max(1, len(steps) - sample)]:
            source = await self._made(node, step)
            if source is None:
                break
            node = replace(node, source=source, change=step, parent=node)
            done.append(step)
        if not done:
            said = "no rule of this language makes this change to this kernel"
            return Draft(None, f"{said}: {method_of(steps[0])}" if steps else said)
        return Draft(node.source, change=_together(done))

    async def repair(
        self, view: KernelView, change: Change, draw: int, sample: int, failure: Failure
    ) -> Draft:
        """None: a rewrite that failed is not mended by rule."""
        return Draft(None, "the offline proposer does not repair")

    async def summarize(self, pair: SlowFastPair) -> Experience:
        """The plan as a lesson, with the lines that differ."""
        slow, fast = pair.experience.slow_kernel, pair.experience.fast_kernel
        if not pair.plan or fingerprint(slow) == fingerprint(fast):
            return pair.learned(NO_OPTIMIZATION_TITLE)
        title = f"**{Plan.read(pair.plan).sentence.split('. ')[0].rstrip('.')}**"
        before, after = _difference(slow, fast)
        summary = "\n\n".join(
            [
                title,
                f"{pair.plan} Measured: {pair.experience.speedup:.2f} times as fast.",
                quote(f"# before\n{before}", "python"),
                quote(f"# after\n{after}", "python"),
            ]
        )
        return pair.learned(title, summary, summary)

    async def _chain(
        self, node: Node, first: TimedAction, longest: int
    ) -> tuple[Change, TimedAction]:
        """`first` and the changes that are predicted to help after it, and the last of them, which is
        predicted for all of them together."""
        steps, now = [*_steps(first.action.change)], first
        while len(steps) < longest and now.predicted is not None and isfinite(now.predicted):
            assert now.action.source is not None
            made = replace(node, source=now.action.source, change=now.action.change, parent=node)
            further = await self._rank(made, MOST_FURTHER)
            if not further or further[0].predicted is None:
                break
            if further[0].predicted > now.predicted * (1 - GAIN):
                break
            now = further[0]
            steps += _steps(now.action.change)
        return _together(steps), now

    async def _rank(self, node: Node, predicted: int) -> list[TimedAction]:
        """The actions on `node`: by prediction, those without one behind, in their order."""
        key = f"{predicted}/{node.case.case_name}/{node.key}"
        return await _once(self._ranked, key, lambda: self._predict(node, predicted))

    async def _predict(self, node: Node, predicted: int) -> list[TimedAction]:
        found = await self.actions_on(node)
        head = found[:predicted]
        times = await asyncio.gather(*(self._time(node, action) for action in head))
        options = [TimedAction(*pair) for pair in zip(head, times, strict=True)]
        known = [option for option in options if option.predicted is not None]
        known.sort(key=lambda option: option.predicted or 0.0)
        unknown = [option for option in options if option.predicted is None]
        return known + unknown + [TimedAction(action, None) for action in found[predicted:]]

    async def _time(self, node: Node, action: Action) -> float | None:
        if action.predicted is not None:
            return action.predicted
        return await self.predict(node, action.source or "")

    def _failed(self, said: str) -> Sequence[Action]:
        self.fault = said
        return ()

    async def _find_actions(self, node: Node, focus: str) -> list[Action]:
        distinct: dict[str, Action] = {}
        found = await contained(self.actions(node, focus), "listing changes by rule", self._failed)
        for action in sorted(found, key=lambda item: -item.promise):
            if action.key != node.key:
                distinct.setdefault(action.key, action)
        return list(distinct.values())


def _steps(change: Change) -> tuple[Rewrite | Reschedule, ...]:
    """The steps that a rule can make; none of a plan in words."""
    if isinstance(change, Chain):
        return change.steps
    return (change,) if isinstance(change, (Rewrite, Reschedule)) else ()


def _kind(action: Action) -> object:
    """What kernels by schedule have in common that differ in sizes alone; None for others."""
    if not isinstance(action.change, Reschedule):
        return None
    stages = action.change.schedule.get("stages", ())
    return action.method, tuple(tuple(stage.get("members", ())) for stage in stages)


def _together(steps: Sequence[Rewrite | Reschedule]) -> Change:
    return steps[0] if len(steps) == 1 else Chain(steps=tuple(steps))


def _why_none(actions: int) -> str:
    """Why there is no plan, or no further one, for the person who waits for it."""
    if not actions:
        return "no rewriting rule applies to this kernel"
    return f"of {actions} rewrites that apply, none is left that promises a faster kernel"


def _hopeless(predicted: float | None, goal: float | None) -> bool:
    return predicted is not None and goal is not None and predicted > goal * (1 - GAIN)


async def _once(
    tasks: dict[str, asyncio.Task[T]], key: str, work: Callable[[], Coroutine[Any, Any, T]]
) -> T:
    """The result of `work`, begun once for each key."""
    if key not in tasks:
        tasks[key] = asyncio.create_task(work())
    return await asyncio.shield(tasks[key])


def _difference(slow: str, fast: str) -> tuple[str, str]:
    """The lines that only one of the two kernels has, cut to a readable length."""
    before, after = [], []
    for line in difflib.ndiff(slow.splitlines(), fast.splitlines()):
        if line.startswith("- "):
            before.append(line[2:])
        elif line.startswith("+ "):
            after.append(line[2:])
    return "\n".join(before[:LONGEST_SNIPPET]), "\n".join(after[:LONGEST_SNIPPET])
