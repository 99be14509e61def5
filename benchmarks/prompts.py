"""How long the prompts are: tokens by part, for the problems of NKIBench.

    .venv/bin/python benchmarks/prompts.py [PROBLEM ...]

Tokens are counted as four characters each. Prints the first round's planner prompt (system and user,
section by section) for each problem, and the executor's for a plan that names a few calls; then both as
the tables of docs/agents.md. Nothing is judged and no model is asked, but what the rules would do is predicted: minutes where no cache knows it.
"""

from __future__ import annotations

import asyncio
import re
import tempfile
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from accelopt.agents.calls import Answer, CallFailed, Question, Tool
from accelopt.agents.completion import CHARACTERS_PER_TOKEN
from accelopt.agents.executor import Executor
from accelopt.agents.planner import Planner
from accelopt.agents.proposer import KernelView
from accelopt.agents.roles import Prompts
from accelopt.evaluation import Case, Evaluation, Profile, Status
from accelopt.kernels.language import LanguageOptions
from accelopt.kernels.nki.benchmark import read_benchmark, summary_path
from accelopt.nodes import Node, Plan
from accelopt.stages.checking_tools import TOOLS, toolbox_for
from accelopt.stages.planning import view_kernel
from accelopt.stages.workshop import Workshop, WorkshopOptions, open_workshop

ROOT = Path(__file__).resolve().parents[1]
NAMED = Plan.read(
    "Title: Drain PSUM with the function\nChange: cheaper_instruction line 1\n\n"
    "Use nisa.nc_matmul with nisa.activation_reduce, and `nisa.tensor_scalar`."
)


COLUMNS = {
    "kernel, reference": ("Reference", "The kernel"),
    "figures": ("What to change", "What limits", "Where the time", "What its instr", "Memory", "What the comp", "Its counters"),
    "rules": ("What rules can",),
    "schedules": ("What it computes",),
    "calls": ("The calls",),
}  # fmt: skip


class Silent:
    """A model that is never asked: prompts are only made."""

    async def ask(self, question: Question, tools: tuple[Tool, ...] = (), limit: int = 0) -> Answer:
        """No answer."""
        raise CallFailed("no model is asked")


async def measure(case: Case, shop: Workshop) -> KernelView:
    """What a planner sees of the starting kernel in the first round; nothing is judged."""
    source = shop.language.complete(shop.language.source(case))
    predicted = await shop.language.predict(
        Node(case, source, Evaluation(status=Status.MISSING)), source
    )
    profile = Profile(
        latency=predicted or 1.0,
        min_ms=0.0,
        max_ms=0.0,
        rel_diffs=0.0,
        target="trn1",
        simulated=True,
    )
    node = Node(case, source, Evaluation(status=Status.CORRECT, profile=profile))
    return await view_kernel(node, shop.language, rules=shop.offline)


def parts(text: str) -> dict[str, int]:
    """Tokens by section, the text before the first heading under `start`; headings inside of fences
    are the material's own."""
    found: dict[str, int] = {}
    name, fenced = "start", ""
    for line in text.splitlines():
        fence = re.match(r"(`{3,})", line)
        if fence and not fenced:
            fenced = fence[1]
        elif fence and line.strip() == fenced:
            fenced = ""
        elif not fenced and line.startswith("# "):
            name = line[2:]
        found[name] = found.get(name, 0) + len(line) + 1
    return {name: size // CHARACTERS_PER_TOKEN for name, size in found.items()}


async def main(args: Namespace) -> None:
    """Print the parts of the prompts of the chosen problems."""
    cases = read_benchmark(summary_path(ROOT)).cases
    chosen = [case for case in cases if not args.problems or case.problem in args.problems]
    prompts = Prompts.read(ROOT / "prompts")
    with tempfile.TemporaryDirectory() as folder:
        options = WorkshopOptions(LanguageOptions(Path(folder) / "kernels"), workers=1)
        async with open_workshop(Path(folder) / "run", options) as shop:
            toolbox = toolbox_for(shop.evaluations, shop.offline, TOOLS)
            model, texts = Silent(), prompts
            planner = Planner(model, prompts, toolbox=toolbox)
            executor = Executor(model, model, texts, toolbox, sheet=shop.language.sheet)
            found: dict[str, dict[str, Size]] = {}
            for case in chosen:
                view = await measure(case, shop)
                asked = planner.question(view, 0, 2)
                written = executor.question(view, NAMED, 0, 0)
                for role, prompt in (("planner", asked), ("executor", written)):
                    report(case.problem, role, prompt.system, prompt.user)
                    sizes = size_of(prompt.system, prompt.user)
                    found.setdefault(case.problem, {})[role] = sizes
            print("\n".join(["", *tables(found)]))


class Size(NamedTuple):
    """Tokens of a prompt: in all, of its system text, of each group of sections, and of the rest."""

    total: int
    system: int
    groups: dict[str, int]
    rest: int


def size_of(system: str, user: str) -> Size:
    """The tokens of a prompt."""
    sizes = parts(user)
    groups = {
        group: sum(size for name, size in sizes.items() if name.startswith(prefixes))
        for group, prefixes in COLUMNS.items()
    }
    fixed = len(system) // CHARACTERS_PER_TOKEN
    rest = sum(sizes.values()) - sum(groups.values())
    return Size(fixed + sum(sizes.values()), fixed, groups, rest)


def tables(found: Mapping[str, Mapping[str, Size]]) -> Iterator[str]:
    """The two tables of docs/agents.md, of what each problem's planner and executor are sent."""
    planner, executor = next(iter(found.values())).values()
    yield "| | planner | executor |\n|---|---:|---:|"
    yield f"| system | {planner.system:,} | {executor.system:,} |"
    yield f"| task and tools | {planner.rest:,} | {executor.rest:,} |"
    shown = [name for name in COLUMNS if name != "calls"]
    yield f"\n| problem | planner | {' | '.join(shown)} | executor | calls |\n|---|{'---:|' * 7}"
    for problem, sizes in found.items():
        asked, written = sizes["planner"], sizes["executor"]
        numbers = [asked.total, *(asked.groups[name] for name in shown), written.total]
        numbers.append(written.groups["calls"])
        yield f"| {problem} | {' | '.join(f'{number:,}' for number in numbers)} |"


def report(problem: str, role: str, system: str, user: str) -> None:
    """One line a section, and the sum."""
    total = (len(system) + len(user)) // CHARACTERS_PER_TOKEN
    print(
        f"{problem} {role}: {total} tokens, of which {len(system) // CHARACTERS_PER_TOKEN} system"
    )
    for name, size in parts(user).items():
        print(f"  {size:6d}  {name}")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="*")
    asyncio.run(main(parser.parse_args()))
