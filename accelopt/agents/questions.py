"""The question that a role is asked: its prompts, filled in with what is known of a kernel."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from accelopt.agents.calls import NO_ANSWER, UNANSWERED, Answer, Model, Question, Tool
from accelopt.agents.experience_text import lessons_text, with_experiences
from accelopt.agents.prompts import (
    PromptPair,
    bullet_list,
    numbered,
    profile_lines,
    quote,
    render,
    render_sections,
)
from accelopt.agents.proposer import KernelView
from accelopt.agents.roles import ROLES

T = TypeVar("T")

UNREAD = "Your answer could not be read: {}. Answer again in the form that was asked for, and nothing else."
NOTHING_MEASURED = "(no analysis of this kernel)"
LESSONS_HEADING = "# Attempts on this kernel and others like it, and what they taught"
BRIEF = "advice limits lines memory compiler prices schedules primitives".split()
"""Slots that a language fills in its brief; where it says nothing, their sections are left out."""


def question_about(
    view: KernelView,
    role: str,
    prompt: PromptPair,
    slots: Mapping[str, str],
    *label: int,
    draw: int = 0,
) -> Question:
    """What `role` is asked of a kernel, as draw number `draw`. `label` tells questions about the same
    view apart; the same view, slots and draw give the same question."""
    name = "/".join(map(str, (role, view.iteration, view.service_name, *label)))
    nothing = dict.fromkeys(("machine", "language", "dialect"), "")
    system = render(prompt.system, {**nothing, **view.background})
    if ROLES[role].experiences:
        system = with_experiences(system, view.experiences)
    if ROLES[role].lessons and (view.findings or view.recalled):
        lessons = lessons_text(view.findings, view.recalled)
        system = "\n\n".join([system.rstrip(), LESSONS_HEADING, lessons]) + "\n"
    return question(role, prompt, name, slots, view.iteration, draw=draw, system=system)


def question(
    role: str,
    prompt: PromptPair,
    label: str,
    slots: Mapping[str, str],
    iteration: int,
    *,
    draw: int = 0,
    system: str | None = None,
) -> Question:
    """What `role` is asked, as its row in `ROLES` says; `system` in place of the prompt's own."""
    known = ROLES[role]
    return Question(
        role=known.model,
        label=label,
        system=prompt.system if system is None else system,
        user=render_sections(prompt.user_template, slots),
        iteration=iteration,
        temperature=known.temperature(draw),
        max_tokens=known.tokens,
    )


async def ask_and_read(
    model: Model,
    question: Question,
    read: Callable[[Answer], T | str],
    tools: tuple[Tool, ...] = (),
    limit: int = 0,
) -> T | str:
    """What `read` makes of the answer. Where that is a sentence on what could not be read, the model is
    told it and asked once more. Without an answer the sentence that says so."""
    try:
        found = read(await model.ask(question, tools, limit))
        if isinstance(found, str):
            again = f"{question.user}\n\n{UNREAD.format(found)}"
            asked = question._replace(label=f"{question.label}/again", user=again)
            found = read(await model.ask(asked, tools, limit))
    except NO_ANSWER as error:
        return f"{UNANSWERED}: {error}"
    return found


def kernel_slots(
    view: KernelView, displayed: Sequence[str] = (), order: random.Random | None = None
) -> dict[str, str]:
    """What prompts show of a kernel: text, reference, brief, and where that does not say it better, the
    `displayed` counters of its profile in an order drawn by `order`."""
    metadata = view.profile.to_metadata() if view.profile else {}
    briefed = bool(view.profile and view.profile.simulated and view.brief)
    counters = profile_lines(metadata, displayed, order or random.Random(0))
    return {
        **dict.fromkeys(BRIEF, ""),
        **view.brief,
        "problem_code": quote(view.reference, "python"),
        "kernel_code": quote(view.kernel, "python"),
        "numbered_kernel": quote(numbered(view.kernel)),
        "profile": "" if briefed else counters,
        "facts": "" if briefed else bullet_list(view.facts, NOTHING_MEASURED),
        "gate": view.gate,
    }
