"""`accelopt run`: optimise problems of a benchmark folder and show what came of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from accelopt.api import base_folder, config_of, run_search
from accelopt.cli.options import with_shared_options
from accelopt.cli.results import results_table
from accelopt.errors import ConfigError
from accelopt.evaluation import Case
from accelopt.hardware.front_ends import FRONT_ENDS
from accelopt.kernels.nki.benchmark import read_benchmark
from accelopt.kernels.nki.default_target import checked_front_end, dialect_of_file
from accelopt.report.console import output
from accelopt.report.page import REPORT
from accelopt.sim.dialects.dialect import DEFAULT_TARGETS, DIALECTS, NAMES, Dialect
from accelopt.stages.config import Options
from accelopt.stages.run import Outcome

MOST_SAID = 5  # faults of a benchmark
FIRST_THREE = "silu,rmsnorm_matmul,rope_single_freq_apply"


@with_shared_options()
def run(
    problems: Annotated[
        str, typer.Option(help="names with commas between, or `all`")
    ] = FIRST_THREE,
    out: Annotated[Path, typer.Option(help="the run's folder; run again to continue")] = Path(
        "runs/first"
    ),
    benchmark: Annotated[Path | None, typer.Option(help="another summary.json or folder")] = None,
    dialect: Annotated[
        str,
        typer.Option(
            help="the baselines' NKI",
            show_default="nki; neuronxcc of --target trn1 and of its --compiler; a --benchmark's own",
        ),
    ] = "",
    *,
    shared: Options,
) -> None:
    """Optimise problems of NKIBench; the same command continues an interrupted run."""
    written_in = meant_dialect(dialect, shared) if dialect or benchmark is None else None
    cases = chosen(problems, benchmark or baselines(written_in or "nki"))
    written_in = written_in or dialect_of_file(Path(cases[0].kernel))
    shared = shared.at(DEFAULT_TARGETS[written_in])
    checked_front_end(shared.compiler, written_in)
    named = ", ".join(case.problem for case in cases)
    typer.echo(f"{named}: kernels of {NAMES[written_in]}, for {shared.target}", err=True)

    def told(outcomes: list[Outcome]) -> None:
        screen = output()
        screen.print(results_table(outcomes, out))
        said = f"Kernels, diffs and the journal lie in {out}; {out / REPORT} shows all of it."
        screen.print(said)

    outcomes = run_search(cases, config_of(shared, out), told=told)
    if all(outcome.best is None for outcome in outcomes):
        raise ConfigError(f"there is nothing to start from: {outcomes[0].failure}")


def meant_dialect(word: str, shared: Options) -> Dialect:
    """The dialect of that name; without one `nki`, or the older one where generation or front end are of
    its time. Raises ConfigError for another word."""
    if not word:
        front_end = FRONT_ENDS.get(shared.compiler)
        word = front_end.dialect if front_end else "nki"
        word = "neuronxcc" if shared.at("").target == DEFAULT_TARGETS["neuronxcc"] else word
    for dialect in DIALECTS:
        if word == dialect:
            return dialect
    raise ConfigError(f"--dialect {word}: there are {' and '.join(DIALECTS)}")


def baselines(dialect: Dialect) -> Path:
    """The folder of NKIBench with kernels in `dialect`."""
    return base_folder() / "NKIBench" / "nki" if dialect == "nki" else base_folder()


def chosen(problems: str, benchmark: Path) -> list[Case]:
    """The cases of the named problems. Raises ConfigError for an unknown name."""
    cases, broken = read_benchmark(benchmark)
    if not cases:
        raise ConfigError(
            "; ".join([f"no problem in {benchmark} can be used", *broken[:MOST_SAID]])
        )
    known = {name: [c for c in cases if name in (c.problem, c.case_name)] for c in cases
             for name in (c.problem, c.case_name)}  # fmt: skip
    if problems == "all":
        return list(cases)
    names = [name.strip() for name in problems.split(",") if name.strip()]
    if unknown := [name for name in names or [problems] if name not in known]:
        problems_known = ", ".join(dict.fromkeys(case.problem for case in cases))
        faults = [
            fault for fault in broken if fault.startswith((f"{unknown[0]},", f"{unknown[0]}:"))
        ]
        why = f"it cannot be used ({faults[0]})" if faults else f"there are {problems_known}"
        raise ConfigError(f"no problem {unknown[0]!r}; {why}")
    return [case for name in names for case in known[name]]
