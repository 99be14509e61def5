"""`accelopt optimize`: make one's own kernel faster."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from accelopt.cli.options import Shared, with_shared_options
from accelopt.cli.report import REPORT
from accelopt.cli.session import device_of, hold_session, result_rows
from accelopt.errors import ConfigError
from accelopt.evaluation import Case
from accelopt.kernels.nki.language import KERNEL_FILE
from accelopt.kernels.triton.language import case_of
from accelopt.report.console import output
from accelopt.report.tables import Results
from accelopt.stages.run import Outcome
from accelopt.store import write_atomically

NO_RULE = (
    " `accelopt profile` says where the time goes; with --model-config a model may rewrite what no "
    "rule does."
)


@with_shared_options(rounds=4, beam=3, plans=4, samples=2)
def optimize(
    kernel: Annotated[Path, typer.Argument(help="the kernel's file")],
    reference: Annotated[
        Path | None, typer.Option(help="NumPy module that says what the kernel computes")
    ] = None,
    definition: Annotated[
        Path | None, typer.Option(help="FlashInfer-Bench definition, for a Triton solution")
    ] = None,
    workload: Annotated[Path | None, typer.Option(help="FlashInfer-Bench workload")] = None,
    offline: Annotated[bool, typer.Option("--offline", help="rules only, no model")] = False,
    out: Annotated[Path | None, typer.Option(help="the run's folder")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out")] = False,
    *,
    shared: Shared,
) -> None:
    """Make KERNEL faster while it computes what REFERENCE says."""
    if offline and shared.model_config:
        raise ConfigError("--offline and --model-config exclude each other")
    start = starting_case(kernel, reference, definition, workload)
    folder = out or Path("runs") / kernel.stem
    mind_earlier_run(folder, resume)
    options = shared.session(folder)
    if definition is not None:
        options = options.for_triton()
    outcomes = hold_session([start], options, "the same command with --resume")
    show(outcomes, folder, by_rule=shared.model_config is None)


def starting_case(
    kernel: Path, reference: Path | None, definition: Path | None, workload: Path | None
) -> Case:
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
    return case_of(definition.resolve(), kernel.resolve(), workload.resolve())


def own_kernel(kernel: Path, reference: Path) -> Case:
    """A case of two files of one's own. Raises ConfigError when one is not there."""
    for path in (kernel, reference):
        if not path.is_file():
            raise ConfigError(f"{path} is not a file")
    return Case(
        service_name=f"{kernel.stem}_ID0",
        case_name=kernel.stem,
        problem=kernel.stem,
        values={},
        task=str(reference.resolve()),
        kernel=str(kernel.resolve()),
    )


def mind_earlier_run(folder: Path, resume: bool) -> None:
    """Raises ConfigError when `folder` holds a run that is not to be continued, or none that is."""
    there = (folder / "journal.jsonl").exists()
    if there and not resume:
        raise ConfigError(f"{folder} holds an earlier run; add --resume, or choose another --out")
    if resume and not there:
        raise ConfigError(f"there is no run to resume in {folder}")


def show(outcomes: list[Outcome], folder: Path, *, by_rule: bool) -> None:
    """The table, the diff, and how to get there again."""
    [outcome] = outcomes
    screen = output()
    screen.print(Results(result_rows(outcomes, folder), device_of(outcomes)))
    if outcome.best is None:
        said = outcome.failure.replace(KERNEL_FILE, Path(outcome.start.case.kernel).name)
        raise ConfigError(f"there is nothing to start from: {said}")
    place = folder / outcome.start.case.case_name
    command = shlex.join(["accelopt", *sys.argv[1:]])
    words = [w for w in shlex.split(command) if w != "--resume"]
    again = f"{shlex.join([*words, '--replay', str(folder)])}  # with another --out"
    text = f"Made by:\n  {command}\nThe same answers again, without a model:\n  {again}\n"
    write_atomically(place / "reproduce.txt", text)
    unchanged = f"No change.{NO_RULE if by_rule else ''}"
    difference = (place / "best.diff").read_text() or unchanged
    screen.print(difference, markup=False, highlight=False, soft_wrap=True)
    left = {"Kernel": place / "best.py", "Diff": place / "best.diff", "Report": folder / REPORT}
    for name, path in left.items():
        screen.print(f"{name}: {path}", markup=False, highlight=False, soft_wrap=True)
    screen.print(text, markup=False, highlight=False, soft_wrap=True)
