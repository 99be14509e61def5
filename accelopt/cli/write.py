"""`accelopt write`: a kernel from a NumPy reference alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from accelopt.cli.child_process import Said, ask, said_by
from accelopt.cli.kernel_file import existing, known, named, naming
from accelopt.errors import ConfigError
from accelopt.evaluation import exactness_words
from accelopt.sim.dialects.dialect import DEFAULT_TARGETS
from accelopt.store import write_atomically
from accelopt.time_limits import WRITE_SECONDS

NUMPY_MODULE = "the NumPy module with get_inputs and forward"


def write(
    reference: Annotated[Path, typer.Argument(help=NUMPY_MODULE)],
    target: Annotated[
        str | None,
        typer.Option(help="trn1, trn2 or trn3; without it trn2 for nki, trn1 for neuronxcc"),
    ] = None,
    dialect: Annotated[str, typer.Option(help="nki or neuronxcc")] = "nki",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="the kernel; by default kernel.py")
    ] = None,
    seconds: Annotated[
        float, typer.Option("--timeout", min=1, max=86400, help="seconds that all of it may take")
    ] = WRITE_SECONDS,
) -> None:
    """Write the fastest kernel of REFERENCE that a search finds and the referee accepts."""
    if dialect not in DEFAULT_TARGETS:
        raise ConfigError(f"no dialect {dialect!r}; there are {', '.join(DEFAULT_TARGETS)}")
    place = output or Path("kernel.py")
    if place.exists() and output is None:
        raise ConfigError(f"{place} is there already; choose a file with -o")
    asked = {
        "reference": str(existing(reference).resolve()),
        "target": known(target or DEFAULT_TARGETS[dialect]),
        "dialect": dialect,
        "output": str(place.absolute()),
    }
    with naming(reference):
        said = ask("accelopt.cli.write:write_job", asked, seconds)
    typer.echo(named(said.text, reference) + f"{place} has the kernel.")


def write_job(asked: Mapping[str, Any]) -> Said:
    """The work of `write`, in a child process."""
    from accelopt.kernels.nki.reference_kernels import write_kernel

    def work() -> Said:
        found = write_kernel(Path(asked["reference"]), asked["target"], asked["dialect"])
        write_atomically(Path(asked["output"]), found.source)
        share = found.bound_ms / found.latency_ms
        lines = [
            f"{found.sentence}.",
            f"{found.latency_ms:.4g} ms on the simulated {found.target}; no kernel of this problem "
            f"takes less than {found.bound_ms:.4g} ms ({share:.0%} of bound).",
            f"Correct: {len(found.verdict.checks)} checks of the referee"
            + (f"; {exactness_words(found.verdict.exactness)}" if found.verdict.exactness else "")
            + ".",
        ]
        return Said(text="".join(f"{line}\n" for line in lines))

    return said_by(work)
