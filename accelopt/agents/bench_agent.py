"""One conversation at the bench: a model with tools that makes a kernel faster until it sees nothing more."""

from __future__ import annotations

from typing import NamedTuple

from accelopt.agents.calls import NO_ANSWER, Model, TokensSpent, Tool
from accelopt.agents.planner import tried_list
from accelopt.agents.proposer import KernelView
from accelopt.agents.questions import kernel_slots, question_about
from accelopt.agents.roles import Prompts
from accelopt.replies import kernel_like

MOST_CALLS = 400  # of tools; tokens and evaluations end a conversation before


class AgentBudget(NamedTuple):
    """What one conversation may spend: kernels judged, and tokens in and out."""

    evaluations: int
    tokens: int


class AgentEnd(NamedTuple):
    """How a conversation ended, in words; `failed` where the model did not answer at all. `kernel` is one
    that stands in its last answer."""

    said: str
    failed: bool = False
    kernel: str | None = None


class Agent:
    """Asks one model. `budget` is that of each conversation."""

    def __init__(self, model: Model, prompts: Prompts, budget: AgentBudget) -> None:
        self.model = model
        self.prompts = prompts
        self.budget = budget

    async def work(self, view: KernelView, job: int, tools: tuple[Tool, ...]) -> AgentEnd:
        """The conversation about the viewed kernel, with the tools of its bench."""
        aspects = self.prompts.aspects
        slots = {
            **kernel_slots(view),
            "tried": tried_list(view.tried),
            "aspect": aspects[view.turn % len(aspects)] if aspects else "whatever limits it most.",
            "budget": f"{self.budget.evaluations} kernels judged, {self.budget.tokens:,} tokens.",
        }
        asked = question_about(view, "agent", self.prompts["agent"], slots, job)
        try:
            answer = await self.model.ask(
                asked._replace(tokens=self.budget.tokens), tools, MOST_CALLS
            )
        except TokensSpent as spent:
            return AgentEnd(str(spent))
        except NO_ANSWER as error:
            return AgentEnd(str(error), failed=True)
        said = " ".join(answer.text.split())[:400]
        return AgentEnd(said, kernel=kernel_like(answer.text, view.kernel))
