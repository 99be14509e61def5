"""`accelopt translate`: a kernel of an older SDK in the NKI of today."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from accelopt.cli.child_process import Said, ask
from accelopt.cli.kernel_file import KernelFile, Seconds, existing
from accelopt.cli.profile import ReferenceFile
from accelopt.errors import ConfigError
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.translation.translate import Translation, translate_file
from accelopt.store import write_atomically
from accelopt.time_limits import TRACE_SECONDS


def translate(
    kernel: KernelFile,
    reference: ReferenceFile,
    to: Annotated[str, typer.Option(help="nki, the dialect of today's SDK")] = "nki",
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="the translation; by default KERNEL_nki.py"),
    ] = None,
    seconds: Seconds = TRACE_SECONDS,
) -> None:
    """Write KERNEL in today's NKI, and compare both on the arguments of REFERENCE."""
    if to != "nki":
        raise ConfigError(
            f"--to {to}: kernels are translated to nki; `accelopt write` writes one for an older SDK"
        )
    place = output or kernel.with_name(f"{kernel.stem}_{to}.py")
    asked = {
        "kernel": str(existing(kernel).resolve()),
        "reference": str(existing(reference).resolve()),
        "output": str(place.absolute()),
        "seconds": seconds,
    }
    said = ask(translate_job, asked, seconds, kernel, reference)
    typer.echo(said.text + f"{place} has the translation.")
    if not said.passed:
        raise typer.Exit(1)


def translate_job(asked: Mapping[str, Any]) -> Said:
    """The work of `translate`, in a child process."""
    problem = Reference(Path(asked["reference"]))
    arguments = problem.kernel_inputs(problem.inputs(0))
    found = translate_file(Path(asked["kernel"]), arguments, asked["seconds"])
    write_atomically(Path(asked["output"]), found.source)
    return Said(text=told(found, Path(asked["kernel"])), passed=found.complete)


def told(found: Translation, kernel: Path) -> str:
    """What became of the translation, in lines."""
    lines = [f"{kernel}:{line}: not translated: {said}" for line, said in found.problems]
    named = [
        re.findall(r"(?m)^def (\w+)", text)
        for text in (kernel.read_text("utf-8-sig"), found.source)
    ]
    if gone := [name for name in named[0] if name not in named[1]]:
        lines.append(f"Left out, since the kernel does not use them: {', '.join(gone)}.")
    if found.proof is None:
        lines.append(f"The translation does not run: {found.failure}")
        return "".join(f"{line}\n" for line in lines)
    proof = found.proof
    same = "equal" if proof.difference == 0 else f"equal to {proof.difference:.1e} of the largest"
    lines.append(
        f"Results: {same if proof.equal_results else f'differ by {proof.difference:.1e}'}."
    )
    if proof.equal_programs:
        lines.append("Programs: the same instructions.")
    for opcode, count in proof.before.items():
        lines.append(f"Programs: {opcode} {count} times before, {proof.after[opcode]} times after.")
    return "".join(f"{line}\n" for line in lines)
