"""Configurations of a kernel's knobs by a model: several experts, each with a belief of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import cast

from accelopt.agents.calls import Answer, Model, Question
from accelopt.agents.prompts import PromptPair, bullet_list, quote_words
from accelopt.agents.proposer import KernelView, Proposed
from accelopt.agents.questions import ask_and_read, kernel_slots, question
from accelopt.knob_space import Configuration, KnobSpec, Space, name_of, values_in
from accelopt.nodes import Job

LONGEST_REPLY = 160  # characters of one that cannot be read, in its reason
FIRST = "(nothing yet)"
MOST_TOLD = 8  # prices of closed forms that are told
MOST_ALIKE = 4  # points of one price that are named


class ExpertModel:
    """Asks a model for one configuration at a time."""

    def __init__(self, model: Model, prompt: PromptPair) -> None:
        self.model = model
        self.prompt = prompt

    async def propose(self, job: Job, space: Space, view: KernelView) -> Proposed:
        """A point of `space`, or in one sentence why there is none."""

        def read(answer: Answer) -> Configuration | str:
            found = values_in(answer.text, [knob.name for knob in space.knobs])
            if found is None:
                said = quote_words(answer.text, LONGEST_REPLY)
                return f"the reply of {job.focus} holds no JSON object: {said}"
            known = {k.name: k.meant(found[k.name]) for k in space.knobs if k.name in found}
            # Texts under other keys are remarks beside values of knobs; what else there is means knobs.
            words = {value for knob in space.knobs for value in knob.values}
            others = {k: v for k, v in found.items()
                      if not (known and isinstance(v, str) and v not in words)}  # fmt: skip
            values = cast(Configuration, {**space.default, **others, **known})
            if faults := space.faults(values):
                return f"{job.focus} proposed what there is not: {'; '.join(faults)}"
            if name_of(values) in job.trials.tried:
                return f"{job.focus} proposed what was tried: {json.dumps(space.changes(values))}"
            return values

        found = await ask_and_read(self.model, self.question(job, space, view), read)
        return Proposed(None, found) if isinstance(found, str) else Proposed(found)

    def question(self, job: Job, space: Space, view: KernelView) -> Question:
        """The prompt of the expert that a job names."""
        trials = job.trials
        sizes = ", ".join(f"{name} = {size}" for name, size in space.shape.items())
        slots = {
            **kernel_slots(view),
            "kernel": f"{space.kernel}{f', {sizes}' if sizes else ''}",
            "knobs": _told(space.knobs),
            "belief": trials.belief,
            "foretold": _foretold(space),
            "history": bullet_list(trials.latest, FIRST),
            "refused": bullet_list(trials.refused, FIRST),
            "symptoms": bullet_list(trials.symptoms, "(none)"),
            "example": json.dumps(dict([*space.default.items()][-2:])),
        }
        label = f"expert/{job.round}/{job.focus}/{job.node.case.service_name}/{job.number}"
        return question("expert", self.prompt, label, slots, job.round)


def _foretold(space: Space) -> str:
    """The cheapest prices of closed forms, each with the first points that have it."""
    priced: dict[str, list[str]] = {}
    for point, ms in space.foretold:
        priced.setdefault(f"{ms:.4g}", []).append(json.dumps(space.changes(point)))
    rows = [
        f"{ms} ms: {'; '.join(points[:MOST_ALIKE])}{'; others' * (len(points) > MOST_ALIKE)}"
        for ms, points in priced.items()
    ]
    return bullet_list(rows[:MOST_TOLD], "")


def _told(knobs: Sequence[KnobSpec]) -> str:
    """The knobs with their values, those that mean the same below what they mean."""
    meant: dict[str, list[str]] = {}
    for knob in knobs:
        values = ", ".join(json.dumps(value) for value in knob.values)
        said = f"{knob.name} ({knob.type}): one of {values}; {json.dumps(knob.start)} by default"
        meant.setdefault(knob.meaning, []).append(said)
    return "\n".join(
        "\n".join([meaning, bullet_list(said, "")]).strip() for meaning, said in meant.items()
    )
