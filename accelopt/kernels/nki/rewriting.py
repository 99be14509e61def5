"""What moves can do to a kernel in either dialect. They read and write `neuronxcc.nki`; a kernel in
`nki` is translated there and each moved one back, so the proposer answers in the dialect it was asked in.
A long kernel takes seconds, so a worker's child does it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from accelopt.evaluation import Row
from accelopt.kernels.nki.devices import KernelArgument, TensorArgument
from accelopt.kernels.nki.devices.tracing import arguments_to_json
from accelopt.kernels.nki.inspection import WARM
from accelopt.kernels.nki.knob_actions import rewrites_of
from accelopt.kernels.nki.moves.move import Facts
from accelopt.kernels.nki.parameters import ParameterFacts
from accelopt.kernels.nki.translation.translate import in_dialect
from accelopt.nodes import Action, Rewrite, made
from accelopt.sandbox.workers import Call
from accelopt.sim.dialects.dialect import dialect_of_source
from accelopt.time_limits import REWRITES_SECONDS

REWRITES = "accelopt.kernels.nki.rewriting:rewrites_job"
BYTES = 4 << 30
LINES = re.compile(r"\blines? \d+(?:(?:, | and )\d+)*")
NUMBER = re.compile(r"\d+")
MOST_TRANSLATED = 8
"""Moved kernels that are translated back: the most promising, for each one is traced twice."""


class Rewrites(Row):
    """Actions, the most promising first, each with the kernel that it makes."""

    found: tuple[tuple[Action, str], ...] = ()

    @property
    def actions(self) -> list[Action]:
        """The actions with their kernels."""
        return [action.with_source(source) for action, source in self.found]


def rewrites_call(source: str, facts: Facts, target: str) -> Call:
    """What a worker does to list the rewrites of a kernel."""
    payload = {
        "source": source,
        "metrics": dict(facts.metrics),
        "arguments": {
            name: [known.shape, known.dtype, known.value] for name, known in facts.arguments.items()
        },
        "sbuf_bytes": facts.sbuf_bytes,
        "target": target,
    }
    return Call(REWRITES, payload, REWRITES_SECONDS, BYTES, warm=WARM)


def rewrites_job(payload: Mapping[str, Any]) -> Rewrites:
    """The rewrites of the source in `payload`."""
    arguments = {
        name: ParameterFacts(tuple(shape), dtype, value)
        for name, (shape, dtype, value) in payload["arguments"].items()
    }
    facts = Facts(metrics=payload["metrics"], arguments=arguments, sbuf_bytes=payload["sbuf_bytes"])
    found = rewrites_in_dialect(payload["source"], facts, payload["target"])
    return Rewrites(found=tuple((action, action.source or "") for action in found))


def rewrites_in_dialect(source: str, facts: Facts, target: str) -> list[Action]:
    """What moves can do to the kernel, in its own dialect, the most promising first; nothing for a
    kernel of `nki` that has no counterpart in the other."""
    if dialect_of_source(source) == "neuronxcc":
        return rewrites_of(source, facts)
    arguments = arguments_to_json(_plain(facts))
    [twin] = in_dialect([source], "neuronxcc", arguments, target)
    if not twin:
        return []
    found = rewrites_of(twin, facts)[:MOST_TRANSLATED]
    back = in_dialect([str(action.source) for action in found], "nki", arguments, target)
    lines = lines_in(source, twin)
    return [_back(action, text, lines) for action, text in zip(found, back, strict=True) if text]


def lines_in(source: str, twin: str) -> list[int]:
    """Of each line of a translation the line of `source` that it came from, counted from 1: the same
    one, or where text was rewritten the most similar."""
    old, new = ([line.strip() for line in text.splitlines()] for text in (source, twin))
    lines: list[int] = []
    for kind, a, b, c, d in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if kind == "equal":
            lines += range(a + 1, b + 1)
            continue
        for text in new[c:d]:
            likest = max(range(a, b), key=lambda n: _likeness(old[n], text), default=a - 1)
            lines.append(likest + 1)
    return lines


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other, autojunk=False).ratio()


def _plain(facts: Facts) -> Sequence[KernelArgument]:
    """The kernel's arguments without data; different numbers stand for floating-point ones."""
    return [
        TensorArgument(what.shape, what.dtype)
        if what.shape
        else 0.5 + number
        if isinstance(what.value, float)
        else what.value
        for number, what in enumerate(facts.arguments.values())
    ]


def _back(action: Action, text: str, lines: Sequence[int]) -> Action:
    """The action with its kernel in the dialect it was asked in, and with that one's line numbers."""
    change = action.change
    assert isinstance(change, Rewrite)
    sentence = LINES.sub(
        lambda found: NUMBER.sub(lambda n: str(lines[int(n[0]) - 1]), found[0]), change.sentence
    )
    change = change.model_copy(update={"sentence": sentence})
    return made(change, text, promise=action.promise, method=action.method, touches=action.touches)
