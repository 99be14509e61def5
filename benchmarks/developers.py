"""Ways to use a model, compared at equal tokens: one-shot roles, an agent at the bench, and no model.

    python benchmarks/developers.py [--out FOLDER] [--workers 2]

The model is a script: conversations that we wrote by hand (`benchmarks/conversations`, three kernels), in
which the same two kernels are written by a planner and an executor in two rounds, and by an agent. So the kernels say nothing of a
model; what is compared is what each way asks: tokens (four characters each, counted over all requests as
an endpoint bills them), calls, and kernels judged until each latency is reached. Times are simulated.
Prints a table in Markdown, with the ratios to the agent's tokens and to the start's latency.
"""

from __future__ import annotations

import json
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import accelopt
from accelopt.agents.calls import Exchange
from accelopt.agents.completion import CHARACTERS_PER_TOKEN
from accelopt.agents.scripted_server import Scripted, ScriptedServer
from accelopt.stages.run import Outcome
from accelopt.store import read_entries

CONVERSATIONS = Path(__file__).with_name("conversations")
Respond = Callable[[dict[str, Any]], Scripted]
ONE = {"beam": 1, "plans": 1, "samples": 1, "fixer_steps": 0}


class Way(NamedTuple):
    """A way to use a model: its options, and what the script answers; none of it without a model."""

    name: str
    options: dict[str, Any]
    script: Callable[[Path], Respond] | None = None


def agent(folder: Path) -> Respond:
    """The turns of one conversation; whatever else is asked is not answered."""
    turns = _filled(json.loads((folder / "agent.json").read_text()), folder)

    def respond(request: dict[str, Any]) -> Scripted:
        if "at a bench" not in request["messages"][0]["content"]:
            return Scripted("no optimization found")
        turn = turns[sum(message["role"] == "assistant" for message in request["messages"])]
        if isinstance(turn, str):
            return _counted(request, turn)
        calls = tuple((name, json.dumps(arguments)) for name, arguments in turn)
        return _counted(request, "", calls)

    return respond


def roles(folder: Path, plans: int = 1, samples: int = 1) -> Respond:
    """A plan for each round, and its kernel, as often as they are asked for."""
    recorded = _filled(json.loads((folder / "roles.json").read_text()), folder)
    planned = (text for text in recorded["plans"] for _ in range(plans))
    written = (text for text in recorded["kernels"] for _ in range(plans * samples))

    def respond(request: dict[str, Any]) -> Scripted:
        system = request["messages"][0]["content"]
        if "performance engineer" in system:
            return _counted(request, next(planned))
        if "You write NKI" in system:
            return _counted(request, f"```python\n{next(written)}```")
        return Scripted("no optimization found")

    return respond


WAYS = (
    Way("rules alone", {"iterations": 2, **ONE}),
    Way("planner and executor", {"iterations": 2, "tools": 0, **ONE}, roles),
    Way(
        "planner and executor, 4 plans of 2 samples",
        {"iterations": 2, "tools": 0, **ONE, "plans": 4, "samples": 2},
        partial(roles, plans=4, samples=2),
    ),
    Way("agent", {"iterations": 1, "developer": "agent", **ONE}, agent),
)


def _filled(value: Any, folder: Path) -> Any:
    """A recording with the files that it names in their place."""
    if isinstance(value, dict):
        if set(value) == {"file"} and value["file"].endswith(".py"):
            path = folder / value["file"]
            return path.read_text() if path.is_file() else value["file"]
        return {name: _filled(part, folder) for name, part in value.items()}
    return [_filled(part, folder) for part in value] if isinstance(value, list) else value


def _counted(
    request: dict[str, Any], text: str, calls: tuple[tuple[str, str], ...] = ()
) -> Scripted:
    asked = json.dumps([request["messages"], request.get("tools", ())])
    answered = text + "".join(map("".join, calls))
    tokens = len(asked) // CHARACTERS_PER_TOKEN, len(answered) // CHARACTERS_PER_TOKEN
    return Scripted(text, calls, input_tokens=tokens[0], output_tokens=tokens[1])


def run(way: Way, folder: Path, out: Path, workers: int) -> Outcome:
    """The run of one conversation's kernel in one way, in the folder `out`."""
    given = {**way.options, "out": out, "workers": workers}
    files = folder / "kernel.py", folder / "reference.py"
    if way.script is None:
        return accelopt.optimize(*files, **given)
    with ScriptedServer(way.script(folder)) as server:
        out.mkdir(parents=True)
        model = out / "model.json"
        model.write_text(json.dumps({"url": server.url, "model": "recorded"}))
        return accelopt.optimize(*files, model_config=model, **given)


class Spent(NamedTuple):
    """Of plans, kernels and conversations: calls, tokens, and those of them that were not part of the
    same conversation's request before (endpoints that cache prefixes bill the rest at a tenth)."""

    calls: int
    tokens: int
    new: int


def spent(out: Path) -> Spent:
    """What a run's folder says of its plans, kernels and conversations."""
    kept = [
        Exchange.model_validate(e.value)
        for e in read_entries(out / "journal.jsonl")
        if e.kind == "exchange"
    ]
    own = [one for one in kept if one.role in ("planner", "executor")]
    longest: dict[str, int] = {}
    for one in own:
        longest[one.label] = max(longest.get(one.label, 0), one.input_tokens)
    written = sum(one.output_tokens for one in own)
    last = sum(one.output_tokens for one in {one.label: one for one in own}.values())
    tokens = sum(one.input_tokens for one in own) + written
    return Spent(len(own), tokens, sum(longest.values()) + last)


class Row(NamedTuple):
    """What one way came to on one kernel; latencies in ms."""

    kernel: str
    way: str
    spent: Spent
    written: int
    start: float
    best: float | None
    last: float | None

    def text(self, agent: Spent) -> str:
        """The row of the table; tokens also as a multiple of the agent's."""
        calls, tokens, new = self.spent
        best = "" if self.best is None else f"{self.best:.4g} ({self.start / self.best:.2f}x)"
        last = "" if self.last is None else f"{self.last:.4g} ({self.start / self.last:.2f}x)"
        ratio = f"{tokens / agent.tokens:.2f}, {new / agent.new:.2f}"
        return (
            f"| {self.kernel} | {self.way} | {calls} | {tokens:,} | {new:,} | {ratio} | {self.written} | {best} | "
            f"{last} |"
        )


def made(folder: Path, way: Way, place: Path, workers: int) -> Row:
    """One way on one kernel."""
    outcome = run(way, folder, place, workers)
    written = [n for n in outcome.nodes if n.change and n.change.kind == "plan" and n.latency]
    best = min((node.latency or 0.0 for node in written), default=None)
    last = outcome.best.latency if outcome.best else None
    start = outcome.start.latency or 0.0
    return Row(folder.name, way.name, spent(place), len(written), start, best, last)


def rows(out: Path, workers: int) -> Iterator[str]:
    """The table, a row a way and conversation."""
    yield (
        "| kernel | way | calls | tokens | of them new | times the agent's, all and new | by the model | "
        "simulated ms | with the last pass of the rules |"
    )
    yield "|---|---|---|---|---|---|---|---|---|"
    for folder in sorted(path for path in CONVERSATIONS.iterdir() if path.is_dir()):
        found = [
            made(folder, way, out / folder.name / way.name.replace(" ", "_"), workers)
            for way in WAYS
        ]
        [agent] = [row.spent for row in found if row.way == "agent"]
        yield from (row.text(agent) for row in found)


def main() -> None:
    """Prints the table."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        for row in rows(given.out or Path(made), given.workers):
            print(row, flush=True)


if __name__ == "__main__":
    main()
