"""A kernel's file from the command line, simulated with the arguments that its reference makes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from accelopt.errors import ConfigError
from accelopt.evaluation import Row
from accelopt.hardware import TARGETS
from accelopt.hardware.front_ends import FRONT_ENDS
from accelopt.kernels.nki.advice import Rewrite
from accelopt.kernels.nki.calibration.machine import core_of, target_of
from accelopt.kernels.nki.default_target import checked_front_end, default_target, dialect_of_file
from accelopt.report.kernel_simulation import Simulation, as_given, simulate
from accelopt.sandbox.progress import note
from accelopt.sandbox.workers import Call, Fault, perform
from accelopt.sim import timing
from accelopt.sim.dialects.nki.versions import NEWEST, VERSIONS
from accelopt.store import existing
from accelopt.time_limits import REWRITE_SECONDS

REWRITE_BYTES = 8 << 30
"""Memory of the process that looks for a faster loop nest."""

KernelFile = Annotated[Path, typer.Argument(help="the kernel's file")]
ReferenceOption = Annotated[
    Path | None, typer.Option(help="NumPy module that says what the kernel computes")
]
DefinitionOption = Annotated[
    Path | None, typer.Option(help="FlashInfer-Bench definition, for a Triton solution")
]
WorkloadOption = Annotated[Path | None, typer.Option(help="FlashInfer-Bench workload")]
TargetOption = Annotated[
    str | None,
    typer.Option(help="trn1, trn2 or trn3; without it trn2 for `nki.*`, trn1 for `neuronxcc.nki`"),
]
CompilerOption = Annotated[
    str,
    typer.Option(
        help="front end that is emulated: " + ", ".join(FRONT_ENDS),
        show_default="the one that kernels of the dialect were measured with on the target",
    ),
]
MachineOption = Annotated[
    Path | None,
    typer.Option(help="the simulated core's constants that `accelopt calibrate --machine` kept"),
]
NkiVersion = Annotated[
    str,
    typer.Option(
        help="version of `nki` that the kernel is for, " + " to ".join((VERSIONS[0], NEWEST)),
        show_default="what it uses tells; else the newest",
    ),
]
RelTol = Annotated[
    float | None,
    typer.Option(min=0, max=1, help="bound of the relative L2 error; by default the problem's own"),
]
Seconds = Annotated[
    float,
    typer.Option("--timeout", min=1, max=86400, help="seconds that tracing the kernel may take"),
]


def known(target: str) -> str:
    """`target`. Raises ConfigError when there is no such generation."""
    if target not in TARGETS:
        raise ConfigError(f"no target {target!r}; there are {', '.join(TARGETS)}")
    return target


def known_version(nki: str) -> str:
    """`nki`, a version of it or nothing. Raises ConfigError when it is none that is understood."""
    if nki and nki not in VERSIONS:
        raise ConfigError(f"--nki {nki}: there are {', '.join(VERSIONS)}")
    return nki


def order(
    kernel: Path,
    reference: Path | None,
    target: str | None,
    seconds: float,
    compiler: str = "",
    machine: Path | None = None,
) -> dict[str, object]:
    """What a child process is told of the files on the command line, as they are named there and as
    they are found from anywhere; a calibrated `machine` says the target. Raises ConfigError where one is
    no file, and for a front end that does not take the kernel."""
    if machine is not None:
        target = target_of(machine, target)
    return {
        "machine": None if machine is None else str(machine.absolute()),
        "compiler": checked_front_end(compiler, dialect_of_file(kernel)),
        "kernel": str(existing(kernel).resolve()),
        "reference": None if reference is None else str(existing(reference).resolve()),
        "target": known(target or default_target(kernel)),
        "seconds": seconds,
    }


@contextlib.contextmanager
def naming(*given: Path | None) -> Iterator[None]:
    """What is wrong names these files as the command line does."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(named(str(error), *given)) from None


def named(text: str, *given: Path | None) -> str:
    """`text` with these files named as the command line names them."""
    for path in given:
        text = text if path is None else as_given(text, path)
    return text


def simulated(order: Mapping[str, Any]) -> timing.KernelProfile:
    """The simulated profile of a kernel. Raises ConfigError where there can be none."""
    return simulation_of(order).profile


def simulation_of(order: Mapping[str, Any]) -> Simulation:
    """The simulation of a kernel, on a calibrated machine or the table's. Raises ConfigError."""
    core = core_of(Path(order["machine"])) if order["machine"] else None
    kernel, reference = Path(order["kernel"]), Path(order["reference"])
    target, seconds = str(order["target"]), float(order["seconds"])
    return simulate(kernel, reference, target, seconds, str(order["compiler"]), core)


class Written(Row):
    """The answer of `rewrite_job`: the kernel by another loop nest, where there is one."""

    change: str = ""
    source: str = ""
    latency_ms: float = 0.0


class Sought(NamedTuple):
    """A kernel by another loop nest, None where there is none; `given_up` says why that is not known."""

    rewrite: Rewrite | None = None
    given_up: str = ""


def rewrite_of(
    order: Mapping[str, Any], seconds: float = REWRITE_SECONDS, known: str = ""
) -> Sought:
    """The kernel by another loop nest, looked for in a process of its own for at most so many seconds.
    Whoever waits is told what is `known` already."""
    note(f"{known}looking for a faster loop nest for {seconds:.0f} s or less")
    call = Call("accelopt.cli.kernel_file:rewrite_job", order, seconds, REWRITE_BYTES)
    found = perform(call, Written)
    if isinstance(found, Fault):
        reason = found.message.replace("the evaluation's process", "that")
        return Sought(given_up=f"looking for a faster loop nest was given up: {reason}")
    made = Rewrite(found.change, found.source, found.latency_ms) if found.source else None
    return Sought(made)


def rewrite_job(order: Mapping[str, Any]) -> Written:
    """The work of `rewrite_of`."""
    from accelopt.kernels.nki.actions.rewrite_for_advice import rewritten

    made = simulation_of(order)
    found = rewritten(Path(order["kernel"]), made.arguments, made.profile)
    return Written(**found._asdict()) if found else Written()
