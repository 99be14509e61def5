"""`accelopt run`: optimise problems of a benchmark folder and show what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelopt.agents.budget import Budget
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
    model_config: Annotated[
        Path | None, typer.Option(help="model configuration; without it no model is used")
    ] = None,
    iterations: Annotated[int, typer.Option(help="T")] = 2,
    beam: Annotated[int, typer.Option(help="B, kernels kept")] = 2,
    plans: Annotated[int, typer.Option(help="N, plans for each kernel")] = 2,
    samples: Annotated[int, typer.Option(help="K, implementations of each plan")] = 1,
    fixer_steps: Annotated[int, typer.Option(help="F, repair rounds of a sample")] = 2,
    tools: Annotated[int, typer.Option(help="tool calls an executor may make per answer")] = 0,
    selection: Annotated[str, typer.Option(help="elitist or published")] = "elitist",
    target: Annotated[str, typer.Option(help="trn1 or trn2")] = "trn1",
    workers: Annotated[int, typer.Option(help="evaluations at a time; 0: one for each CPU")] = 0,
    max_dollars: Annotated[float | None, typer.Option(help="stop in good order there")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="stop in good order there")] = None,
    experience_list_path: Annotated[
        Path | None, typer.Option(help="start from the memory of another run")
    ] = None,
    replay: Annotated[Path | None, typer.Option(help="answer from this run's journal")] = None,
    logfire: Annotated[bool, typer.Option("--logfire", help="trace model calls")] = False,
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
