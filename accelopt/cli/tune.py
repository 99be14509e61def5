"""`accelopt tune`: set the knobs of one kernel, by experts or a sampler."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from accelopt.api import config_of, language_of_case, refuse_earlier_run, run_search, starting_case
from accelopt.cli import kernel_file
from accelopt.cli.options import HELP
from accelopt.errors import ConfigError, require
from accelopt.evaluation import Case
from accelopt.kernels.nki.default_target import checked_front_end, default_target, dialect_of_file
from accelopt.kernels.nki.sizes import sizes_in
from accelopt.kernels.triton.shipped_kernels import SCHEMAS, shipped_case
from accelopt.knob_space import sentence
from accelopt.report.page import REPORT
from accelopt.search.knob_experts import EXPERTS
from accelopt.search.knob_samplers import SAMPLERS
from accelopt.search.strategy import UNBOUNDED
from accelopt.stages.config import Options
from accelopt.stages.run import Outcome
from accelopt.store import read_text, write_json

STATE, TUNED = "search_state.json", "tuning_state.json"


def tune(
    kernel: Annotated[
        Path,
        typer.Argument(help=f"the kernel's file, a Triton solution, or {' or '.join(SCHEMAS)}"),
    ],
    reference: kernel_file.ReferenceOption = None,
    definition: kernel_file.DefinitionOption = None,
    workload: kernel_file.WorkloadOption = None,
    shape: Annotated[
        str, typer.Option(help=f"sizes of {' or '.join(SCHEMAS)}, such as M=1024,N=512")
    ] = "",
    search: Annotated[
        str, typer.Option(help=f"experts, or a sampler: {', '.join(SAMPLERS)}")
    ] = "experts",
    experts: Annotated[
        str, typer.Option(help=f"who proposes, with commas; there are {', '.join(EXPERTS)}")
    ] = "",
    max_iterations: Annotated[
        int, typer.Option(min=0, help="iterations at most; 0: as many as --evaluations allow")
    ] = 5,
    patience: Annotated[
        int, typer.Option(min=0, help="iterations without a gain of 2% that end it; 0: never")
    ] = 1,
    evaluations: Annotated[int | None, HELP["evaluations"]] = None,
    model_config: Annotated[
        Path | None, typer.Option(help="who proposes for the experts; without it they follow rules")
    ] = None,
    sequential: Annotated[
        bool, typer.Option("--sequential", help="each expert sees what came of the one before")
    ] = False,
    target: kernel_file.TargetOption = None,
    compiler: kernel_file.CompilerOption = "",
    machine: kernel_file.MachineOption = None,
    workers: Annotated[int, HELP["workers"]] = 0,
    seed: Annotated[int, typer.Option(min=0, help="of the experts' choices")] = 0,
    out: Annotated[Path | None, typer.Option(help="the run's folder")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="continue the run in --out")] = False,
) -> None:
    """Find the fastest configuration of KERNEL's knobs: tiles, fields of schedules, primitives of nests."""
    folder = out or Path("runs") / f"{kernel.stem}_tuned"
    refuse_earlier_run(folder, resume)
    case = _case(kernel, reference, definition, workload, shape, folder)
    given = {
        "search": search,
        "experts": experts,
        "patience": str(patience),
        "iterations": str(max_iterations),
    }
    options = Options(
        iterations=UNBOUNDED,
        strategy="experts",
        strategy_option=[f"{name}={value}" for name, value in given.items() if value],
        evaluations=evaluations,
        window=1 if sequential else Options().window,
        target=target,
        machine=machine,
        compiler=checked_front_end(compiler, dialect_of_file(kernel)),
        model_config=model_config,
        workers=workers,
        backend=language_of_case(case),
        seed=seed,
    ).at(default_target(kernel))
    run_search(
        [case],
        config_of(options, folder),
        "the same command with --resume",
        told=lambda outcomes: _show(case, outcomes[0], folder),
    )


def _case(
    kernel: Path,
    reference: Path | None,
    definition: Path | None,
    workload: Path | None,
    shape: str,
    folder: Path,
) -> Case:
    """A kernel of one's own, or one that comes with us, whose files are written into `folder`."""
    name, own = str(kernel), reference or definition or workload
    if name in SCHEMAS and not own:
        require("flashinfer", torch="torch", triton="triton")
        return shipped_case(name, sizes_in(shape) if shape else {}, folder / "problem")
    if shape:
        raise ConfigError(f"--shape is for kernels that come with us: {', '.join(SCHEMAS)}")
    return starting_case(kernel, reference, definition, workload, folder)


def _show(case: Case, outcome: Outcome, folder: Path) -> None:
    """The configuration, what it gives, and where it lies."""
    if outcome.start.latency is None:
        raise ConfigError(f"there is nothing to start from: {outcome.failure}")
    place = folder / case.case_name
    state = json.loads(read_text(place / STATE))
    write_json(place / TUNED, state)
    left = {"Kernel": place / "best.py", "State": place / TUNED, "Report": folder / REPORT}
    lines = [f"{name}: {path}" for name, path in left.items()]
    typer.echo("\n".join([*report(state, outcome.start.latency), *lines]))


def report(state: dict[str, Any], start_ms: float) -> list[str]:
    """What a tuning came to, in sentences; speedups are factors."""
    history = state["history"]
    correct = [entry for entry in history if entry["median_ms"] is not None]
    refused = [entry for entry in history if entry["median_ms"] is None]
    lines = [
        f"{len(history)} configurations in {state['iteration']} iterations: {len(correct)} correct, "
        f"{len(refused)} refused or wrong. {state['converged'] or state['ended']}."
    ]
    for reason in dict.fromkeys(entry["reason"] for entry in refused):
        count = sum(entry["reason"] == reason for entry in refused)
        lines.append(f"  {count} times: {reason}")
    if not correct:
        return [*lines, "No configuration is correct; the kernel stays as it is."]
    best = min(correct, key=lambda entry: entry["median_ms"])
    default = {knob["name"]: knob["default"] for knob in state["knobs"]}
    of_default = [e["median_ms"] for e in correct if json.dumps(e["cfg"]) == json.dumps(default)]
    lines.append(f"Best: {sentence(best['cfg'])} {best['median_ms']:.4g} ms")
    lines.append(f"  {start_ms / best['median_ms']:.3f} times as fast as the kernel given")
    lines.append(f"  {correct[0]['median_ms'] / best['median_ms']:.3f} times as the first tried")
    if of_default:
        lines.append(f"  {of_default[0] / best['median_ms']:.3f} times as the defaults")
    return lines
