"""A kernel of an older SDK in the newest `nki`: `accelopt translate`.

The kernel is lifted to its Algorithm, and written anew: by the fastest schedule that the search behind
`optimize` finds, in its author's module and words, without what the module has in the older dialect.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from accelopt.errors import ConfigError
from accelopt.evaluation import Status
from accelopt.hardware import Hardware
from accelopt.kernels.nki.arguments import ParameterFacts, argument_of, by_parameter
from accelopt.kernels.nki.default_target import default_target
from accelopt.kernels.nki.devices.protocol import KernelArgument, KernelFailure
from accelopt.kernels.nki.devices.simulated import SimulatedDevice
from accelopt.kernels.nki.kernel_from_reference import (
    Written,
    WrittenKernel,
    fastest_kernel,
    written,
)
from accelopt.kernels.nki.lift.failure import NotLifted
from accelopt.kernels.nki.referee.reference import Reference
from accelopt.kernels.nki.rescheduling.authorship.kernel_replacement import (
    Part,
    bound,
    is_import,
    parts,
)
from accelopt.kernels.nki.rescheduling.authorship.text import identifiers
from accelopt.kernels.nki.rescheduling.lifted_kernel import lifted_kernel
from accelopt.parsing import names_stored
from accelopt.sandbox.progress import note
from accelopt.sim.dialects.dialect import Dialect, imported_dialect
from accelopt.sim.dialects.nki.versions import NEWEST
from accelopt.store import read_text

DIALECT: Dialect = "nki"


def translate_job(asked: Mapping[str, Any]) -> Written:
    """The work of `accelopt translate`, in a child process."""
    kernel, reference = Path(asked["kernel"]), Path(asked["reference"])
    return written(asked, lambda core: translate_kernel(kernel, reference, core))


def translate_kernel(
    kernel: Path, reference: Path, core: Hardware, *, cache: Path | None = None
) -> WrittenKernel:
    """The fastest kernel in the newest `nki` that computes what `kernel` does and that the referee accepts
    for `reference`. Raises ConfigError: for a kernel that needs no translation, and with line and reason for
    one that does not lift, or of which no kernel is written or accepted."""
    note("reading the kernel")
    source, problem = read_text(kernel), Reference(reference)
    arguments = [argument_of(value) for value in problem.kernel_inputs(problem.inputs(0))]
    given = by_parameter(source, [ParameterFacts.of(value) for value in arguments])
    try:
        if _is_newest(kernel, source, arguments, core.name):
            newer = f"`accelopt check --nki {NEWEST}` says what of it NKI {NEWEST} refuses"
            raise ConfigError(f"the kernel is in the dialect {DIALECT} already; {newer}")
        lifted = lifted_kernel(source, kernel, given, default_target(kernel))
    except (NotLifted, KernelFailure) as refusal:
        raise ConfigError(f"{kernel} is not translated: {refusal}") from None
    twins = tuple(twin._replace(dialect=DIALECT) for twin in lifted.twins)
    lifted = lifted._replace(dialect=DIALECT, twins=twins)
    name = lifted.interface.name

    def texts(made: str) -> Iterator[str]:
        yield without_older(lifted.authored(made), made, name)
        yield made

    return fastest_kernel(lifted, texts, kernel, reference, core, cache)


def _is_newest(kernel: Path, source: str, arguments: list[KernelArgument], target: str) -> bool:
    if imported_dialect(source) != DIALECT:
        return False
    try:
        SimulatedDevice(target, version=NEWEST).compile(str(kernel), arguments)
    except KernelFailure as failure:
        if failure.status is Status.TIMEOUT:
            raise
        return False
    return True


def without_older(module: str, made: str, kernel: str) -> str:
    """`module`, in which the function `kernel` is that of the module `made` in its author's words, with
    `made`'s header and imports, and without what needs imports of an older dialect, and what needs that."""
    ours, theirs = list(parts(made)), list(parts(module))
    new, own = (
        next(p for p in each if isinstance(p.node, ast.FunctionDef) and p.node.name == kernel)
        for each in (ours, theirs)
    )
    imports = "".join(part.text for part in ours if is_import(part.node))
    older = [p for p in theirs if is_import(p.node) and imported_dialect(ast.unparse(p.node))]
    kept = [p for p in theirs if p not in older]
    lost = set[str]().union(*(bound(part.node) for part in older))
    staying = identifiers(own.node) - names_stored(own.node)
    while gone := [
        p
        for p in kept
        if p is not own and identifiers(p.node) & lost and not bound(p.node) & staying
    ]:
        kept = [part for part in kept if part not in gone]
        lost |= set[str]().union(*(bound(part.node) for part in gone)) - {kernel}
    text = ""
    for part in theirs:
        if part is own:
            text += part.above + _split(new)[0] + _split(part)[1]
        elif part in kept:
            text += part.above + part.text
        elif part is older[0]:
            text += part.above + imports
    return re.sub(r"\n{4,}", "\n\n\n", text if older else imports + text)


def _split(part: Part) -> tuple[str, str]:
    """A function's decorators and signature, and its body."""
    function = part.node
    assert isinstance(function, ast.FunctionDef)
    top = min([function.lineno, *(node.lineno for node in function.decorator_list)])
    lines = part.text.splitlines(keepends=True)
    at = function.body[0].lineno - top
    return "".join(lines[:at]), "".join(lines[at:])
