"""Who develops one kernel by one step: says what limits it, writes a faster one, and reflects on what
came of it. A model does, or the rules of a kernel language (`developer_by_rule`)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import TypeVar

from pydantic import ValidationError

from accelopt.agents.calls import Answer, Model
from accelopt.agents.executor import Sheet, kernel_or_patched, no_sheet, shorten
from accelopt.agents.experience_text import lessons_text, outcome_text
from accelopt.agents.prompts import bullet_list, quote, render_sections
from accelopt.agents.proposer import Brief, GeneratedKernel, KernelView
from accelopt.agents.questions import ask_and_read, kernel_slots, question_about
from accelopt.agents.roles import Prompts
from accelopt.evaluation import Bottleneck
from accelopt.experience import Attempt, Reflexion
from accelopt.nodes import Plan
from accelopt.replies import NO_JSON, json_in, object_in, rows_in, share_in

T = TypeVar("T")

CATEGORIES = ("memory", "compute", "latency")
NO_CAUSE = "no object in it has a `root_cause` in words"
NO_FIELDS = f"it holds no object with fields of these kinds: {', '.join(Reflexion.model_fields)}"
_METHOD = re.compile(r"^\W*method\W+(\w+)", re.IGNORECASE | re.MULTILINE)
_CHANGE = re.compile(r"^\W*change\W+(.+)$", re.IGNORECASE | re.MULTILINE)


class Developer:
    """Asks models: `judge` and `reflector` think, `writer` writes. `sheet` gives the documentation of the
    calls that some texts name."""

    def __init__(
        self,
        judge: Model,
        writer: Model,
        reflector: Model,
        prompts: Prompts,
        sheet: Sheet = no_sheet,
    ) -> None:
        self.models = {"judge": judge, "generator": writer, "reflector": reflector}
        self.prompts = prompts
        self.sheet = sheet
        self._judged: dict[str, asyncio.Task[tuple[Bottleneck, ...]]] = {}

    async def judge(self, view: KernelView, most: int) -> tuple[Bottleneck, ...]:
        """One answer for all workers on the same kernel in the same round; what the profiler says,
        where a model gives none that can be read."""
        key = f"{view.iteration}/{view.service_name}/{most}"
        if key not in self._judged:
            self._judged[key] = asyncio.create_task(self._judge(view, most))
        return await asyncio.shield(self._judged[key])

    async def _judge(self, view: KernelView, most: int) -> tuple[Bottleneck, ...]:
        slots = {**self._material(view), "most": str(most)}
        found = await self._read(
            "judge", slots, view, lambda text: read_bottlenecks(text) or _unread(text, NO_CAUSE)
        )
        known = view.diagnosis.bottlenecks if view.diagnosis else ()
        return known if isinstance(found, str) else found[:most] or known

    async def generate(self, brief: Brief) -> GeneratedKernel:
        """One reply: a method, the change in a sentence, and the kernel."""
        view, bottleneck = brief.view, brief.bottleneck
        slots = {
            **self._material(view),
            "bottleneck": bottleneck_text(bottleneck) + _siblings(brief),
            "methods": ", ".join(changes(brief.methods)) or "any",
            "sheet": self.sheet([view.kernel, *changes(brief.methods)]),
            "times": _times(brief),
            "attempts": lessons_text(view.findings, view.recalled),
        }
        prompt = self.prompts["generator"]  # workers on the same kernel are draws of one question
        question = question_about(view, "generator", prompt, slots, brief.worker, draw=brief.rank)
        found = await ask_and_read(self.models["generator"], question, lambda answer: answer)
        asked = render_sections(prompt.user_template, slots)
        if not isinstance(found, Answer):
            return GeneratedKernel(
                None, Plan(sentence=bottleneck.reason), "", found, failed=True, prompt=asked
            )
        source, reason = kernel_or_patched(found.text, view.kernel)
        return GeneratedKernel(
            source,
            Plan(
                sentence=_sentence(found.text) or f"Relieve {bottleneck.resource}.",
                method=_named(_METHOD, found.text),
            ),
            _named(_METHOD, found.text),
            reason,
            prompt=asked,
            reply=found.text,
        )

    async def reflect(
        self, brief: Brief, attempt: Attempt, written: GeneratedKernel
    ) -> Reflexion | None:
        """A JSON object with the fields of a Reflexion."""
        slots = {
            "bottleneck": bottleneck_text(brief.bottleneck),
            "change": quote(written.change.sentence if written.change else "(none)"),
            "before": quote(brief.view.kernel, "python"),
            "after": quote(written.source or "(no kernel)", "python"),
            "outcome": outcome_text(attempt),
            "error": quote(shorten(attempt.error_message) or "(none)"),
        }
        found = await self._read(
            "reflector",
            slots,
            brief.view,
            lambda text: read_reflexion(text, attempt) or _unread(text, NO_FIELDS),
            brief.worker,
        )
        return None if isinstance(found, str) else found

    async def _read(
        self,
        role: str,
        slots: dict[str, str],
        view: KernelView,
        read: Callable[[str], T | str],
        *label: int,
    ) -> T | str:
        """What is read of an answer, for which may be asked twice, or why there is none."""
        asked = question_about(view, role, self.prompts[role], slots, *label)
        return await ask_and_read(self.models[role], asked, lambda answer: read(answer.text))

    def _material(self, view: KernelView) -> dict[str, str]:
        found = view.diagnosis.bottlenecks if view.diagnosis else ()
        told = bullet_list([bottleneck_text(one) for one in found], "(none)")
        return {**kernel_slots(view, self.prompts.displayed), "diagnosis": told}


def bottleneck_text(one: Bottleneck) -> str:
    """A bottleneck in one line, with the changes that relieve it."""
    fixes = changes(one.methods)
    said = [
        f"{one.category}, {one.resource or 'resource unknown'}"
        f"{f' ({one.share:.0%})' if one.share else ''}: {one.reason.rstrip('.')}.",
        f"Lines {', '.join(map(str, one.lines))}." if one.lines else "",
        f"What relieves it: {'; '.join(fixes)}." if fixes else "",
    ]
    return " ".join(filter(None, said))


def changes(methods: Sequence[str]) -> list[str]:
    """The methods that somebody who writes a kernel can carry out: knobs are for the rules."""
    return [name for name in methods if name != "schedule" and not name.startswith("set_")]


def read_bottlenecks(reply: str) -> tuple[Bottleneck, ...]:
    """The bottlenecks in a judge's reply, a JSON list of objects: those that can be read, of each
    resource the first."""
    found: dict[str, Bottleneck] = {}
    for item in rows_in(json_in(reply), "bottlenecks"):
        category = str(item.get("category", "")).lower()
        reason = " ".join(str(item.get("root_cause") or item.get("reason") or "").split())
        fixes = item.get("fixes") or item.get("recommended_fix") or ()
        fixes = [*fixes.values()] if isinstance(fixes, dict) else fixes
        fixes = [fixes] if isinstance(fixes, str) else fixes
        if not reason or not isinstance(fixes, Sequence):
            continue
        resource = str(item.get("resource", "")).lower()
        found.setdefault(
            resource or category,
            Bottleneck(
                category=category if category in CATEGORIES else "latency",
                resource=resource,
                share=share_in(item.get("share")),
                reason=reason[:600],
                methods=tuple(str(fix)[:300] for fix in fixes),
            ),
        )
    return tuple(found.values())


def read_reflexion(reply: str, attempt: Attempt) -> Reflexion | None:
    """The reflexion in a reply; None when it holds none. What was measured is not the model's to say."""
    item = object_in(reply, *Reflexion.model_fields)
    if item is None:
        return None
    fields = {name: item[name] for name in Reflexion.model_fields if name in item}
    for name in ("lessons", "avoid_patterns", "try_patterns"):
        if isinstance(fields.get(name), str):
            fields[name] = (fields[name],)
    measured = {
        "round_num": attempt.round_num,
        "performance_delta_pct": attempt.improvement_pct,
        "was_fix_effective": attempt.is_improvement,
        "actual_outcome": outcome_text(attempt),
    }
    try:
        return Reflexion.model_validate({**fields, **measured})
    except ValidationError:
        return None


def _unread(reply: str, otherwise: str) -> str:
    """Why nothing was read of a reply."""
    return NO_JSON if json_in(reply) is None else otherwise


def _named(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found[1].strip() if found else ""


def _sentence(reply: str) -> str:
    """What the reply says that it does: its line `Change:`, else its first prose."""
    prose = reply.split("```")[0]
    said = _named(_CHANGE, prose) or " ".join(prose.split())
    return said[:400]


def _siblings(brief: Brief) -> str:
    """What tells workers apart that are after the same bottleneck."""
    if brief.rank <= len(brief.bottlenecks):
        return ""
    return (
        "\n\nOthers work against it at the same time: choose another change than the first that comes "
        "to mind."
    )


def _times(brief: Brief) -> str:
    view, lines = brief.view, []
    if view.node.latency is not None:
        lines.append(f"This kernel takes {view.node.latency:.4g} ms.")
    if brief.best is not None:
        lines.append(f"The fastest one so far takes {brief.best:.4g} ms.")
    if brief.eager != float("inf"):
        lines.append(f"PyTorch takes {brief.eager:.4g} ms.")
    return " ".join(lines)
