"""`accelopt optimize --apply N`: one piece of the advice of `accelopt profile`, carried out and judged."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from accelopt.cli.child_process import Said, ask
from accelopt.cli.kernel_file import named, order, rewrite_of, simulated
from accelopt.errors import ConfigError, printable
from accelopt.kernels.nki.advice import Advice, advice
from accelopt.kernels.nki.referee.precision import formats_of
from accelopt.report.diffs import patch_of
from accelopt.report.rule_check import check, check_text
from accelopt.sim.timing.occupancy import memory_use
from accelopt.sim.timing.what_if import what_ifs
from accelopt.stages.config import Options
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
