"""`accelopt optimize`: make one's own kernel faster."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from accelopt.api import DEFAULTS, ROUNDS, device_of, optimize_kernel, starting_case
from accelopt.cli import kernel_file
from accelopt.cli.apply import apply_advice
from accelopt.cli.options import with_shared_options
from accelopt.cli.results import result_rows
from accelopt.errors import ConfigError, printable
from accelopt.kernels.language import LANGUAGES
from accelopt.kernels.nki.text_without_paths import KERNEL_FILE
from accelopt.report.console import output
from accelopt.report.page import REPORT
from accelopt.report.result_table import ResultsTable
from accelopt.stages.config import Options
from accelopt.stages.run import Outcome
from accelopt.store import write_atomically

NO_RULE = (
    " `accelopt profile` says where the time goes; with --model-config a model may rewrite what no "
    "rule does."
)


@with_shared_options(ROUNDS, DEFAULTS)
def optimize(
    kernel: Annotated[Path, typer.Argument(help="the kernel's file")],
    reference: kernel_file.ReferenceOption = None,
    definition: kernel_file.DefinitionOption = None,
    workload: kernel_file.WorkloadOption = None,
    also: Annotated[
        list[str] | None,
        typer.Option(
            metavar="N=8192,...|FILE",
            help="other sizes of the reference's, or another reference: tuned and tried there too",
        ),
    ] = None,
    backend: Annotated[
        str | None,
        typer.Option(
            help=f"the kernel's language ({', '.join(LANGUAGES)}, or module:Class); without it, by "
            "its file"
        ),
    ] = None,
    offline: Annotated[bool, typer.Option("--offline", help="rules only, no model")] = False,
    out: Annotated[Path | None, typer.Option(help="the run's folder")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out")] = False,
    apply: Annotated[
        int | None,
        typer.Option(
            min=1, help="carry out this piece of `accelopt profile`'s advice, and no search"
        ),
    ] = None,
    *,
    shared: Options,
) -> None:
    """Make KERNEL faster while it computes what REFERENCE says."""
    if offline and shared.model_config:
        raise ConfigError("--offline and --model-config exclude each other")
    folder = out or Path("runs") / kernel.stem
    if apply is not None:
        apply_advice(kernel, reference, apply, shared, folder)
        return
    first, *_ = optimize_kernel(
        kernel,
        starting_case(kernel, reference, definition, workload, folder),
        shared,
        folder,
        also=also or (),
        backend=backend,
        resume=resume,
        again="the same command with --resume",
        told=lambda outcomes: show(
            outcomes, folder, ["accelopt", *sys.argv[1:]], by_rule=shared.model_config is None
        ),
    )
    if first.best is None:
        said = first.failure.replace(KERNEL_FILE, kernel.name)
        what = "no kernel is right" if first.start.profile else "there is nothing to start from"
        raise ConfigError(f"{what}: {said}")


def replaying(words: list[str], folder: Path) -> list[str]:
    """The words of a command that replays the run in `folder` into a folder beside it."""
    kept = list[str]()
    for before, word in zip(["", *words], words, strict=False):
        if before not in ("--out", "--replay") and not word.startswith(
            ("--out", "--replay", "--resume")
        ):
            kept.append(word)
    beside = folder.resolve().parent / f"{folder.resolve().name}_replayed"
    return [*kept, "--replay", str(folder.resolve()), "--out", str(beside)]


def show(outcomes: list[Outcome], folder: Path, made: list[str], *, by_rule: bool = True) -> None:
    """The table, the diffs, and how to get there again: by `made`, a command."""
    output().print(ResultsTable(result_rows(outcomes, folder), device_of(outcomes)))
    first = outcomes[0]
    if first.best is None:
        return
    again = shlex.join(replaying(made, folder))
    text = f"Made by:\n  {shlex.join(made)}\nThe same answers again, without a model:\n  {again}\n"
    left: dict[str, Path] = {}
    for outcome in (outcome for outcome in outcomes if outcome.best is not None):
        name = outcome.start.case.case_name if len(outcomes) > 1 else ""
        place = folder / outcome.start.case.case_name
        unchanged = f"No change.{NO_RULE if by_rule else ''}"
        difference = printable((place / "best.diff").read_text())
        typer.echo(difference or unchanged)
        if why := outcome.before.unscheduled:
            typer.echo(f"No kernel by schedule{f' for {name}' if name else ''}: {why}.")
        left |= {f"Kernel {name}".strip(): place / "best.py"}
        left |= {f"Diff {name}".strip(): place / "best.diff"} if difference else {}
    if one := first.one_kernel:
        place = folder / "best.py"
        times = ", ".join(f"{ms:.4g} ms for {case}" for case, ms in one.latencies.items())
        said = f"{place} ({one.how}): {times}" if one.source else f"none: {one.refusal}"
        typer.echo(f"One kernel for all shapes: {said}")
    for said, path in {**left, "Report": folder / REPORT}.items():
        typer.echo(f"{said}: {path}")
    typer.echo(text)
    for path in left.values():
        if path.name == "best.py":
            write_atomically(path.with_name("reproduce.txt"), text)
