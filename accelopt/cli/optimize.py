"""`accelopt optimize`: make one's own kernel faster."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from accelopt.agents.budget import Budget
from accelopt.cli.session import (
    SessionOptions,
    device_of,
    hold_session,
    neuron_cores,
    result_rows,
)
from accelopt.errors import ConfigError
from accelopt.records import Candidate
from accelopt.report.console import output
from accelopt.report.tables import result_table
from accelopt.stages.iteration import Outcome, Settings
from accelopt.store import write_atomically


def optimize(
    kernel: Annotated[Path, typer.Argument(help="the kernel's file")],
    reference: Annotated[
        Path | None, typer.Option(help="NumPy module that says what the kernel computes")
    ] = None,
    model_config: Annotated[
        Path | None, typer.Option(help="model configuration; without it no model is used")
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="rules only, no model")] = False,
    iterations: Annotated[int, typer.Option(help="T")] = 4,
    beam: Annotated[int, typer.Option(help="B, kernels kept")] = 3,
    plans: Annotated[int, typer.Option(help="N, plans for each kernel")] = 4,
    samples: Annotated[int, typer.Option(help="K, implementations of each plan")] = 2,
    fixer_steps: Annotated[int, typer.Option(help="F, repair rounds of a sample")] = 2,
    tools: Annotated[int, typer.Option(help="tool calls an executor may make per answer")] = 0,
    target: Annotated[str, typer.Option(help="trn1 or trn2")] = "trn1",
    out: Annotated[Path | None, typer.Option(help="the run's folder")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out")] = False,
    rel_tol: Annotated[float | None, typer.Option(help="bound of the relative L2 error")] = None,
    workers: Annotated[int, typer.Option(help="evaluations at a time; 0: one for each CPU")] = 0,
    max_dollars: Annotated[float | None, typer.Option(help="stop in good order there")] = None,
    max_tokens: Annotated[int | None, typer.Option(help="stop in good order there")] = None,
    experience_list_path: Annotated[
        Path | None, typer.Option(help="start from the memory of another run")
    ] = None,
    replay: Annotated[Path | None, typer.Option(help="answer from this run's journal")] = None,
    logfire: Annotated[bool, typer.Option("--logfire", help="trace model calls")] = False,
) -> None:
    """Make KERNEL faster while it computes what REFERENCE says."""
    if offline and model_config:
        raise ConfigError("--offline and --model-config exclude each other")
    if reference is None:
        raise ConfigError("--reference is needed: the NumPy module that says what to compute")
    folder = out or Path("runs") / kernel.stem
    _mind_earlier_run(folder, resume)
    options = SessionOptions(
        out=folder,
        settings=Settings(iterations, beam, plans, samples, fixer_steps),
        model_config=model_config,
        target=target,
        rel_tol=rel_tol,
        workers=workers,
        cores=neuron_cores(),
        budget=Budget(max_dollars, max_tokens),
        experiences=experience_list_path,
        replay=replay,
        tools=tools,
        traced=logfire,
    )
    outcomes = hold_session([own_kernel(kernel, reference)], options)
    show(outcomes, folder)


def own_kernel(kernel: Path, reference: Path) -> Candidate:
    """A candidate of two files of one's own. Raises ConfigError when one is not there."""
    for path in (kernel, reference):
        if not path.is_file():
            raise ConfigError(f"{path} is not a file")
    return Candidate(
        service_name=f"{kernel.stem}_ID0",
        case_name=kernel.stem,
        problem=kernel.stem,
        values={},
        task=str(reference.resolve()),
        kernel=str(kernel.resolve()),
    )


def _mind_earlier_run(folder: Path, resume: bool) -> None:
    there = (folder / "journal.jsonl").exists()
    if there and not resume:
        raise ConfigError(f"{folder} holds an earlier run; add --resume, or choose another --out")
    if resume and not there:
        raise ConfigError(f"there is no run to resume in {folder}")


def show(outcomes: list[Outcome], folder: Path) -> None:
    """The table, the diff, and how to get there again."""
    [outcome] = outcomes
    screen = output()
    screen.print(result_table(result_rows(outcomes, folder), device_of(outcomes)))
    if outcome.best is None:
        raise ConfigError(f"the kernel does not pass its own reference: {outcome.failure}")
    place = folder / outcome.start.case_name
    command = shlex.join(["accelopt", *sys.argv[1:]])
    words = [w for w in shlex.split(command) if w != "--resume"]
    again = f"{shlex.join([*words, '--replay', str(folder)])}  # with another --out"
    text = f"Made by:\n  {command}\nThe same answers again, without a model:\n  {again}\n"
    write_atomically(place / "reproduce.txt", text)
    screen.print((place / "best.diff").read_text() or "No change.", markup=False, highlight=False)
    screen.print(f"Kernel: {place / 'best.py'}\nDiff: {place / 'best.diff'}", highlight=False)
    screen.print(text, markup=False, highlight=False)
