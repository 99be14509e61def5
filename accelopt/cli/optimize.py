"""`accelopt optimize`: make one's own kernel faster."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from accelopt.cli.kernel_file import (
    DefinitionOption,
    ReferenceOption,
    WorkloadOption,
    default_target,
)
from accelopt.cli.options import Shared, with_shared_options
from accelopt.cli.report import REPORT
from accelopt.cli.session import device_of, hold_session, result_rows
from accelopt.errors import ConfigError, printable
from accelopt.evaluation import Case
from accelopt.kernels.gpu.cases import case_of
from accelopt.kernels.language import LANGUAGES
from accelopt.kernels.nki.placeless import KERNEL_FILE
from accelopt.kernels.nki.sizes import at_sizes, sizes_in
from accelopt.report.console import output
from accelopt.report.tables import ResultsTable
from accelopt.stages.run import Outcome
from accelopt.store import came_to_something, read_text, write_atomically

NO_RULE = (
    " `accelopt profile` says where the time goes; with --model-config a model may rewrite what no "
    "rule does."
)


@with_shared_options(rounds=4, beam=3, plans=4, samples=2)
def optimize(
    kernel: Annotated[Path, typer.Argument(help="the kernel's file")],
    reference: ReferenceOption = None,
    definition: DefinitionOption = None,
    workload: WorkloadOption = None,
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
    *,
    shared: Shared,
) -> None:
    """Make KERNEL faster while it computes what REFERENCE says."""
    if offline and shared.model_config:
        raise ConfigError("--offline and --model-config exclude each other")
    start = starting_case(kernel, reference, definition, workload)
    if also and reference is None:
        raise ConfigError("--also is for an NKI kernel with its --reference")
    folder = out or Path("runs") / kernel.stem
    mind_earlier_run(folder, resume)
    cases = [start, *elsewhere(start, also or [], folder)]
    options = aimed(shared, kernel).session(folder)
    if definition is not None:
        options = options.for_solution(kernel)
    if backend is not None:
        options = options.in_language(backend)
    outcomes = hold_session(cases, options, "the same command with --resume")
    show(outcomes, folder, by_rule=shared.model_config is None)


def aimed(shared: Shared, kernel: Path) -> Shared:
    """The options with the generation that the kernel is for, where neither target nor machine is
    given."""
    return shared.at(default_target(kernel))


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


def elsewhere(start: Case, also: Sequence[str], folder: Path) -> list[Case]:
    """The same kernel at other shapes: by other references, or by other sizes in its own, of which
    copies are written into `folder`. Raises ConfigError."""
    cases: list[Case] = []
    for said in also:
        if Path(said).is_file():
            label, task = Path(said).stem, Path(said)
        else:
            sizes = sizes_in(said)
            label = "_".join(f"{name}{number}" for name, number in sizes.items())
            text = at_sizes(read_text(start.task), sizes, start.task)
            task = folder / "references" / f"{Path(start.task).stem}_{label}.py"
            write_atomically(task, text)
        name = f"{start.case_name}_{label}"
        update = {"case_name": name, "service_name": f"{name}_ID0", "task": str(task.resolve())}
        cases.append(start.model_copy(update=update))
    names = [case.case_name for case in cases]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"--also says {twice[0].removeprefix(start.case_name + '_')} twice")
    return cases


def mind_earlier_run(folder: Path, resume: bool) -> None:
    """Raises ConfigError when `folder` holds a run that is not to be continued, or none that is."""
    journal = folder / "journal.jsonl"
    there = journal.exists()
    if there and came_to_something(journal) and not resume:
        raise ConfigError(f"{folder} holds an earlier run; add --resume, or choose another --out")
    if resume and not there:
        raise ConfigError(f"there is no run to resume in {folder}")


def show(outcomes: list[Outcome], folder: Path, *, by_rule: bool) -> None:
    """The table, the diffs, and how to get there again."""
    screen = output()
    screen.print(ResultsTable(result_rows(outcomes, folder), device_of(outcomes)))
    first = outcomes[0]
    if first.best is None:
        said = first.failure.replace(KERNEL_FILE, Path(first.start.case.kernel).name)
        raise ConfigError(f"there is nothing to start from: {said}")
    command = shlex.join(["accelopt", *sys.argv[1:]])
    words = [w for w in shlex.split(command) if w != "--resume"]
    again = f"{shlex.join([*words, '--replay', str(folder)])}  # with another --out"
    text = f"Made by:\n  {command}\nThe same answers again, without a model:\n  {again}\n"
    left: dict[str, Path] = {}
    for outcome in (outcome for outcome in outcomes if outcome.best is not None):
        name = outcome.start.case.case_name if len(outcomes) > 1 else ""
        place = folder / outcome.start.case.case_name
        write_atomically(place / "reproduce.txt", text)
        unchanged = f"No change.{NO_RULE if by_rule else ''}"
        difference = printable((place / "best.diff").read_text())
        screen.print(difference or unchanged, markup=False, highlight=False, soft_wrap=True)
        if why := outcome.before.unscheduled:
            said = f"No kernel by schedule{f' for {name}' if name else ''}: {why}."
            screen.print(said, markup=False, highlight=False, soft_wrap=True)
        left |= {f"Kernel {name}".strip(): place / "best.py"}
        left |= {f"Diff {name}".strip(): place / "best.diff"} if difference else {}
    for said, path in {**left, "Report": folder / REPORT}.items():
        screen.print(f"{said}: {path}", markup=False, highlight=False, soft_wrap=True)
    screen.print(text, markup=False, highlight=False, soft_wrap=True)
