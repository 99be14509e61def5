"""What the simulated NeuronCore says when it refuses a kernel."""

from __future__ import annotations

from typing import NamedTuple, Self

from accelopt.tables import packaged_table

UNDERSTOOD = (
    "It understands kernels that import neuronxcc.nki (Neuron SDK 2.21 to 2.29), or nki, "
    "nki.language and nki.isa (NKI 0.3 to 0.7, SDK 2.29 to 2.33)."
)
"""The dialects of NKI, in one sentence."""


class SourceLine(NamedTuple):
    """A place in a kernel's file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


NOWHERE = SourceLine("<unknown>", 0)


class KernelError(Exception):
    """A kernel that the NeuronCore or its compiler refuses.

    `identifier` is the documented error id (`err_...`, SDK 2.26.1 `nki.errors.rst`) or a short name
    of ours where the documentation gives none; `mend` says what to change.
    """

    def __init__(
        self, identifier: str, message: str, mend: str = "", source: SourceLine = NOWHERE
    ) -> None:
        self.identifier = identifier
        self.message = message
        self.mend = mend
        self.source = source
        super().__init__(str(self))

    def at(self, source: SourceLine) -> Self:
        """This error, of that line of the kernel."""
        self.source = source
        self.args = (str(self),)
        return self

    def __str__(self) -> str:
        where = "" if self.source == NOWHERE else f" at {self.source}"
        mend = f" {self.mend}" if self.mend else ""
        return f"[{self.identifier}]{where}: {self.message}{mend}"

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.identifier, self.message, self.mend, self.source))


class KernelSyntaxError(KernelError, SyntaxError):
    """Refusals that the real tracer raises as SyntaxError."""

    __str__ = KernelError.__str__


class KernelTypeError(KernelError, TypeError):
    """Refusals that the real tracer raises as TypeError."""


class KernelValueError(KernelError, ValueError):
    """Refusals that the real tracer raises as ValueError."""


class KernelAssertionError(KernelError, AssertionError):
    """Refusals that the real tracer raises as AssertionError."""


class KernelIndexError(KernelError, IndexError):
    """Run-time indices outside of their tensor."""


class Unsupported(KernelError, NotImplementedError):
    """Part of the NKI surface that the simulated core does not have."""

    def __init__(self, name: str, mend: str = "", source: SourceLine = NOWHERE) -> None:
        super().__init__(
            "unsupported", f"the simulated NeuronCore does not implement {name}.", mend, source
        )
        self.name = name

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.name, self.mend, self.source))


class UnsupportedDialect(Unsupported, ModuleNotFoundError):  # type: ignore[misc]
    """A kernel imports a module of NKI that the simulated core does not have, or mixes dialects."""

    def __init__(self, name: str, source: SourceLine = NOWHERE) -> None:
        what = f"`{name}`"
        super().__init__(what, UNDERSTOOD, source)
        self.name = name

    def __reduce__(self) -> tuple[object, ...]:
        return (type(self), (self.name, self.source))


class Rule(NamedTuple):
    """A rule that kernels break: called with what its sentences name, in their order, it is the error."""

    identifier: str
    message: str
    mend: str = ""
    kind: type[KernelError] = KernelError

    def __call__(self, *named: object) -> KernelError:
        """The error of a kernel that breaks it."""
        return self.kind(self.identifier, self.message.format(*named), self.mend.format(*named))


_KINDS = {
    "": KernelError,
    "syntax": KernelSyntaxError,
    "type": KernelTypeError,
    "value": KernelValueError,
}


def rules_in(module: str) -> dict[str, Rule]:
    """The rules of a module of `accelopt.sim.rules`, by name, as `rules.csv` has them."""
    return {
        row["rule"]: Rule(row["identifier"], row["message"], row["mend"], _KINDS[row["kind"]])
        for row in packaged_table("sim/rules/rules.csv")
        if row["module"] == module
    }
