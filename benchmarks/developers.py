"""Ways to use a model, compared at equal tokens: one-shot roles, an agent at the bench, and no model.

    python benchmarks/developers.py [KERNEL ...] [--out FOLDER] [--workers 2]

The model is a script: conversations that we wrote by hand (`benchmarks/conversations`: kernels of everyday
forms), in which the same two kernels are written by a planner and an executor in two rounds, and by an
agent. So the kernels say nothing of a model; what is compared is how far each way comes with as many tokens
(four characters each, counted over all requests as an endpoint bills them). What the rules find costs none.
Times are simulated. (`agents.py` would hide openai-agents from all scripts here.) Prints a table in Markdown: the fastest kernel that the model had written by then.
"""

from __future__ import annotations

import json
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Callable, Collection, Iterator
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from scripted_server import Scripted, ScriptedServer  # noqa: E402

import accelopt  # noqa: E402
from accelopt.agents.calls import Exchange  # noqa: E402
from accelopt.agents.completion import CHARACTERS_PER_TOKEN  # noqa: E402
from accelopt.evaluation import Evaluation  # noqa: E402
from accelopt.stages.run import Outcome  # noqa: E402
from accelopt.store import read_entries  # noqa: E402

CONVERSATIONS = Path(__file__).with_name("conversations")
Respond = Callable[[dict[str, Any]], Scripted]
TOKENS = (5_000, 10_000, 20_000, 40_000, 80_000)
"""Budgets at which the ways are compared."""
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


class Found(NamedTuple):
    """One kernel of the model's, and what was spent until it was judged: tokens in and out, and those of
    them that were not part of the same conversation's request before (endpoints that cache prefixes bill
    the rest at a tenth)."""

    tokens: int
    new: int
    latency: float


def found(out: Path, sources: Collection[str]) -> list[Found]:
    """What a run's journal says of these kernels, in the order in which they were judged; the last entry is all
    that was spent, with the fastest."""
    rows, longest = [], dict[str, int]()
    tokens = new = 0
    for entry in read_entries(out / "journal.jsonl"):
        if entry.kind == "exchange":
            one = Exchange.model_validate(entry.value)
            if one.role not in ("planner", "executor"):
                continue
            tokens += one.input_tokens + one.output_tokens
            new += one.input_tokens + one.output_tokens - longest.get(one.label, 0)
            longest[one.label] = one.input_tokens + one.output_tokens
        elif entry.kind == "evaluation":
            judged = Evaluation.model_validate(entry.value).profile
            file = out / "kernels" / f"{entry.key}.py"  # as it was evaluated
            if judged is not None and file.is_file() and file.read_text() in sources:
                rows.append(Found(tokens, new, judged.latency))
    return [*rows, Found(tokens, new, min((row.latency for row in rows), default=inf))]


def row(folder: Path, way: Way, place: Path, workers: int) -> str:
    """One way on one kernel: what it had found by each number of tokens, and in the end."""
    outcome = run(way, folder, place, workers)
    start = outcome.start.latency or inf
    written = {n.source for n in outcome.nodes if n.change and n.change.kind == "plan"}
    judged = found(place, written)
    told = []
    for most in TOKENS:
        best = min((one.latency for one in judged if one.tokens <= most), default=inf)
        told.append(f"{best:.4g}" if best < start else "")
    rules = outcome.best.latency if outcome.best and outcome.best.latency else start
    *_, (tokens, new, _) = judged
    return (
        f"| {folder.name}, {start:.4g} | {way.name} | {' | '.join(told)} | {tokens:,} | {new:,} | "
        f"{rules:.4g} ({start / rules:.2f}x) |"
    )


def rows(kernels: Collection[str], out: Path, workers: int) -> Iterator[str]:
    """The table, a row a way and conversation."""
    by = " | ".join(f"by {most:,} tokens" for most in TOKENS)
    yield f"| kernel, ms | way | {by} | tokens in all | of them new | with the rules |"
    yield "|---" * (len(TOKENS) + 5) + "|"
    for folder in sorted(path for path in CONVERSATIONS.iterdir() if path.is_dir()):
        if not kernels or folder.name in kernels:
            for way in WAYS:
                yield row(folder, way, out / folder.name / way.name.replace(" ", "_"), workers)


def main() -> None:
    """Prints the table."""
    parser = ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kernels", nargs="*")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        for line in rows(given.kernels, given.out or Path(made), given.workers):
            print(line, flush=True)


if __name__ == "__main__":
    main()
