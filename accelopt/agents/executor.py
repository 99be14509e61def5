"""The executor writes the kernel that a plan describes; the fixer mends the one that failed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import NamedTuple

from accelopt.agents.calls import NO_ANSWER, Answer, Model, Question, Tool
from accelopt.agents.planner import NOTHING_MEASURED
from accelopt.agents.prompts import PromptPair, bullet_list, profile_lines, quote, render
from accelopt.agents.proposer import Draft, Failure, KernelView
from accelopt.kernel_source import kernel_source
from accelopt.nodes import Change

TEMPERATURES = (0.7, 1.0, 0.4)
UNANSWERED = "the model did not answer"
LONGEST_ERROR = 6000  # characters of a tool's message; its end says most


class ExecutorPrompts(NamedTuple):
    """The texts of executor and fixer, and the profile fields they are shown."""

    executor: PromptPair
    fixer: PromptPair
    displayed: tuple[str, ...]


class Toolbox(NamedTuple):
    """Function tools for one kernel, and how many calls of them one answer may use."""

    tools: Callable[[KernelView], tuple[Tool, ...]]
    limit: int


class Executor:
    """Writes and repairs kernels with a model; with a toolbox it may try them out itself."""

    def __init__(
        self, model: Model, fixer: Model, prompts: ExecutorPrompts, toolbox: Toolbox | None = None
    ) -> None:
        self.model = model
        self.fixer = fixer
        self.prompts = prompts
        self.toolbox = toolbox

    async def implement(self, view: KernelView, change: Change, draw: int, sample: int) -> Draft:
        """Implementation number `sample` of `change`."""
        question = Question(
            role="executor",
            label=f"executor/{view.iteration}/{view.service_name}/{draw}/{sample}",
            system=self.prompts.executor.system,
            user=render(self.prompts.executor.user_template, self._slots(view, change)),
            iteration=view.iteration,
            temperature=TEMPERATURES[sample % len(TEMPERATURES)],
        )
        return await self._draft(self.model, question, view)

    async def repair(
        self, view: KernelView, change: Change, draw: int, sample: int, failure: Failure
    ) -> Draft:
        """A mended version of `failure.source`."""
        slots = self._slots(view, change)
        slots["failed_code"] = quote(failure.source or "(the reply held no code)", "python")
        slots["error"] = quote(shorten(failure.error))
        question = Question(
            role="fixer",
            label=(f"fixer/{view.iteration}/{view.service_name}/{draw}/{sample}/{failure.round}"),
            system=self.prompts.fixer.system,
            user=render(self.prompts.fixer.user_template, slots),
            iteration=view.iteration,
        )
        return await self._draft(self.fixer, question, view)

    async def _draft(self, model: Model, question: Question, view: KernelView) -> Draft:
        try:
            answer = await self._ask(model, question, view)
        except NO_ANSWER as error:
            return Draft(None, f"{UNANSWERED}: {error}", failed=True)
        source = kernel_source(answer.text)
        return Draft(source, "" if source else "the reply held no code block with the kernel")

    async def _ask(self, model: Model, question: Question, view: KernelView) -> Answer:
        if self.toolbox is None:
            return await model.ask(question)
        return await model.ask(question, self.toolbox.tools(view), self.toolbox.limit)

    def _slots(self, view: KernelView, change: Change) -> dict[str, str]:
        metadata = view.profile.to_metadata() if view.profile else {}
        return {
            "problem_code": quote(view.reference, "python"),
            "kernel_code": quote(view.kernel, "python"),
            "profile": profile_lines(metadata, self.prompts.displayed, random.Random(0)),
            "facts": bullet_list(view.facts, NOTHING_MEASURED),
            "gate": view.gate,
            "optimization_plan": quote(change.sentence),
        }


def shorten(error: str, limit: int = LONGEST_ERROR) -> str:
    """`error` with its middle left out when it is longer than `limit` characters."""
    if len(error) <= limit:
        return error
    head = limit // 3
    left_out = len(error) - limit
    return f"{error[:head]}\n[... {left_out} characters left out ...]\n{error[head - limit :]}"
