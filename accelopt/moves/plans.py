"""Plans as text: sentences for people, with the exact steps in brackets behind them.

    Load w_tile once, before the loop over m ... [moves: {"steps": [...], "arguments": {...}}]

Plans travel through plans.json, where only text survives; the bracket lets the executor carry out
exactly what was planned, and a person or a model may ignore it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from accelopt.errors import AcceloptError
from accelopt.moves.move import Site
from accelopt.moves.source import Argument

MARK = "[moves: "


class NoSteps(AcceloptError):
    """A plan's text holds no machine-readable steps: somebody else wrote it."""


def write_plan(steps: Sequence[Site], arguments: Mapping[str, Argument]) -> str:
    """Sentences, then the steps. Several steps are carried out in order."""
    sentences = [site.text for site in steps]
    text = sentences[0] if len(sentences) == 1 else " Then: ".join(sentences)
    machine = {
        "steps": [{"move": site.move, **site.parameters} for site in steps],
        "arguments": {name: [list(a.shape), a.dtype] for name, a in arguments.items()},
    }
    return f"{text} {MARK}{json.dumps(machine)}]"


def read_plan(text: str) -> tuple[list[Site], dict[str, Argument]]:
    """The steps and argument shapes of `write_plan`'s text. Raises NoSteps when there are none."""
    start = text.rfind(MARK)
    if start < 0:
        raise NoSteps("the plan names no move that can be carried out without a model")
    try:
        machine, _ = json.JSONDecoder().raw_decode(text[start + len(MARK) :])
        steps = [
            Site(str(step["move"]), {k: v for k, v in step.items() if k != "move"}, text[:start])
            for step in machine["steps"]
        ]
        arguments = {
            name: Argument(tuple(int(n) for n in shape), str(dtype))
            for name, (shape, dtype) in machine.get("arguments", {}).items()
        }
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoSteps(f"the steps of the plan cannot be read: {error}") from error
    return steps, arguments
