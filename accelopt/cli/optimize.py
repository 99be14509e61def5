"""`accelopt optimize`: make one's own kernel faster."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from accelopt.agents.budget import Budget
from accelopt.backends.flashinfer import candidate_of
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
    definition: Annotated[
        Path | None, typer.Option(help="FlashInfer-Bench definition, for a Triton solution")
    ] = None,
    workload: Annotated[Path | None, typer.Option(help="FlashInfer-Bench workload")] = None,
    model_config: ModelFile = None,
    offline: Annotated[bool, typer.Option("--offline", help="rules only, no model")] = False,
    iterations: Iterations = 4,
    beam: BeamWidth = 3,
    plans: Plans = 4,
    samples: Samples = 2,
    fixer_steps: FixerSteps = 2,
    tools: Tools = 0,
    target: Target = "trn1",
    out: Annotated[Path | None, typer.Option(help="the run's folder")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out")] = False,
    rel_tol: Annotated[float | None, typer.Option(help="bound of the relative L2 error")] = None,
    workers: Workers = 0,
    max_dollars: MaxDollars = None,
    max_tokens: MaxTokens = None,
    experience_list_path: Experiences = None,
    replay: Replay = None,
    logfire: Logfire = False,
) -> None:
    """Make KERNEL faster while it computes what REFERENCE says."""
    if offline and model_config:
        raise ConfigError("--offline and --model-config exclude each other")
    start = _start(kernel, reference, definition, workload)
    folder = out or Path("runs") / kernel.stem
    _mind_earlier_run(folder, resume)
    options = SessionOptions(
        out=folder,
        settings=Settings(iterations, beam, plans, samples, fixer_steps),
        model_config=model_config,
        backend="nki" if definition is None else "flashinfer",
        prompts=None if definition is None else checkout() / "prompts" / "flb",
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
    outcomes = hold_session([start], options)
    show(outcomes, folder)


def _start(
    kernel: Path, reference: Path | None, definition: Path | None, workload: Path | None
) -> Candidate:
    """An NKI kernel with its NumPy reference, or a Triton solution with its definition."""
    if definition is None and workload is None:
        if reference is None:
            raise ConfigError("--reference is needed: the NumPy module that says what to compute")
        return own_kernel(kernel, reference)
    if definition is None or workload is None or reference is not None:
        raise ConfigError("a Triton solution needs --definition and --workload, no --reference")
    for path in (kernel, definition, workload):
        if not path.is_file():
            raise ConfigError(f"{path} is not a file")
    return candidate_of(definition.resolve(), kernel.resolve(), workload.resolve())


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
