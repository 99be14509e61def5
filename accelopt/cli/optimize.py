"""`accelopt optimize`: make one's own kernel faster; with `--apply N` by one piece of the advice of
`accelopt profile`, carried out and judged."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from accelopt.api import DEFAULTS, ROUNDS, optimize_kernel, starting_case
from accelopt.cli import kernel_file
from accelopt.cli.child_process import Said, ask
from accelopt.cli.kernel_file import named, order, rewrite_of, simulated
from accelopt.cli.options import with_shared_options
from accelopt.cli.results import results_table
from accelopt.errors import ConfigError, printable
from accelopt.kernels.language import LANGUAGES
from accelopt.kernels.nki.advice import Advice, advice
from accelopt.kernels.nki.referee.precision import formats_of
from accelopt.kernels.nki.text_without_paths import KERNEL_FILE
from accelopt.report.console import output, paragraph
from accelopt.report.diffs import patch_of
from accelopt.report.page import REPORT
from accelopt.report.rule_check import check, check_text
from accelopt.sim.timing.occupancy import memory_use
from accelopt.sim.timing.what_if import what_ifs
from accelopt.stages.config import Options
from accelopt.stages.run import Outcome
from accelopt.store import read_text, write_atomically
from accelopt.time_limits import TRACE_SECONDS

BY_HAND = (
    "No rewrite by rule makes this change: it is an edit by hand. The time is that of the same\n"
    "instructions with the change, scheduled again; the edit may give more or less. Where to edit:"
)


def apply_advice(
    kernel: Path, reference: Path | None, number: int, options: Options, folder: Path
) -> None:
    """Writes the kernel that advice `number` stands for to `folder`, judges it, and shows the difference;
    where nobody knows such a kernel, says what to edit. Exits with 1 where no right kernel was written.
    Raises ConfigError."""
    if reference is None:
        raise ConfigError("--apply is for an NKI kernel with its --reference")
    given = options.target, TRACE_SECONDS, options.compiler, options.machine
    asked = order(kernel, reference, *given)
    written = folder / f"{kernel.stem}_advice_{number}.py"
    asked |= {
        "number": number,
        "written": str(written.absolute()),
        "rel_tol": options.rel_tol,
        "precision": formats_of(options.precision),
    }
    said = ask(apply_job, asked, TRACE_SECONDS, kernel, reference)
    typer.echo(named(said.text, kernel, reference, written), nl=False)
    if not said.passed:
        raise typer.Exit(1)


def apply_job(asked: Mapping[str, Any]) -> Said:
    """The work of `apply_advice`, in a child process."""
    kernel, written = Path(asked["kernel"]), Path(asked["written"])
    found, rewrite = simulated(asked), rewrite_of(asked).rewrite
    listed = advice(found, what_ifs(found), memory_use(found.run.program), rewrite)
    if asked["number"] > len(listed):
        raise ConfigError(f"there is no advice {asked['number']}: there are {len(listed)}")
    chosen = listed[asked["number"] - 1]
    said = f"{chosen.before_ms:.4g} to {chosen.after_ms:.4g} ms: {chosen.change}.\n"
    if not chosen.source:
        return Said(text=f"{said}{BY_HAND}\n{_places(chosen, kernel)}", passed=False)
    write_atomically(written, chosen.source)
    report = check(
        written,
        Path(asked["reference"]),
        asked["target"],
        rel_tol=asked["rel_tol"],
        precision=asked["precision"],
    )
    difference = printable(patch_of(read_text(kernel), chosen.source, kernel.name))
    where = f"It is in {written}.\n"
    return Said(text=f"{said}{difference}\n{check_text(report)}{where}", passed=report.passed)


def _places(chosen: Advice, kernel: Path) -> str:
    """The lines that it concerns, with their numbers."""
    text = read_text(kernel).splitlines()
    lines = [line for line in sorted(chosen.lines) if 0 < line <= len(text)]
    return "".join(f"{line:5d}  {printable(text[line - 1])}\n" for line in lines)


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
    output().print(results_table(outcomes, folder))
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
        typer.echo(difference or paragraph(unchanged))
        if why := outcome.before.unscheduled:
            said = f"No kernel by schedule{f' for {name}' if name else ''}: {why}."
            typer.echo(paragraph(said))
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
