"""`accelopt run`: optimise problems of a benchmark folder and show what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelopt.agents.budget import Budget
from accelopt.cli.options import (
    BeamWidth,
    Experiences,
    FixerSteps,
    Iterations,
    Logfire,
    MaxDollars,
    MaxTokens,
    ModelFile,
    Plans,
    Replay,
    Samples,
    Target,
    Tools,
    Workers,
)
from accelopt.cli.session import (
    SessionOptions,
    checkout,
    device_of,
    hold_session,
    neuron_cores,
    result_rows,
)
from accelopt.errors import ConfigError
from accelopt.nkibench import read_benchmark
from accelopt.records import Candidate
from accelopt.report.console import output
from accelopt.report.tables import result_table
from accelopt.stages.collect import start_of
from accelopt.stages.iteration import Settings

FIRST_THREE = "silu,rmsnorm_matmul,matmul"


def run(
    problems: Annotated[
        str, typer.Option(help="names with commas between, or `all`")
    ] = FIRST_THREE,
    out: Annotated[Path, typer.Option(help="the run's folder; run again to continue")] = Path(
        "runs/first"
    ),
    benchmark: Annotated[Path | None, typer.Option(help="another summary.json or folder")] = None,
    model_config: ModelFile = None,
    iterations: Iterations = 2,
    beam: BeamWidth = 2,
    plans: Plans = 2,
    samples: Samples = 1,
    fixer_steps: FixerSteps = 2,
    tools: Tools = 0,
    selection: Annotated[str, typer.Option(help="elitist or published")] = "elitist",
    target: Target = "trn1",
    workers: Workers = 0,
    max_dollars: MaxDollars = None,
    max_tokens: MaxTokens = None,
    experience_list_path: Experiences = None,
    replay: Replay = None,
    logfire: Logfire = False,
) -> None:
    """Optimise problems of NKIBench; the same command continues an interrupted run."""
    options = SessionOptions(
        out=out,
        settings=Settings(iterations, beam, plans, samples, fixer_steps, selection),
        model_config=model_config,
        target=target,
        workers=workers,
        cores=neuron_cores(),
        budget=Budget(max_dollars, max_tokens),
        experiences=experience_list_path,
        replay=replay,
        tools=tools,
        traced=logfire,
    )
    outcomes = hold_session(chosen(problems, benchmark or checkout()), options)
    screen = output()
    screen.print(result_table(result_rows(outcomes, out), device_of(outcomes)))
    screen.print(f"Results, kernels, diffs and the journal lie in {out}.")


def chosen(problems: str, benchmark: Path) -> list[Candidate]:
    """The starting candidates of the named problems. Raises ConfigError for an unknown name."""
    cases = read_benchmark(benchmark).cases
    known = {name: [c for c in cases if name in (c.problem, c.case_name)] for c in cases
             for name in (c.problem, c.case_name)}  # fmt: skip
    if problems == "all":
        return [start_of(case) for case in cases]
    names = [name.strip() for name in problems.split(",") if name.strip()]
    if unknown := [name for name in names if name not in known]:
        problems_known = ", ".join(dict.fromkeys(case.problem for case in cases))
        raise ConfigError(f"no problem {unknown[0]!r}; there are {problems_known}")
    return [start_of(case) for name in names for case in known[name]]
