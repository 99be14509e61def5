"""What a move is: a named change of kernel source with a place, a sentence and a legality check."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from accelopt.hardware import TRN1
from accelopt.kernels.nki.moves.reading.source import IllegalMove, ParsedKernel
from accelopt.kernels.nki.parameters import ParameterFacts
from accelopt.knob_space import Parameter

__all__ = ["Facts", "IllegalMove", "Move", "Option", "Parameter", "Site", "ready"]


@dataclass(frozen=True)
class Facts:
    """What is known about a kernel besides its text.

    `metrics`: the profile's fields by the profiler's names (`latency` in milliseconds, the
    `..._percent` fields as fractions). `line_costs`: busy time by source line, any unit.
    `arguments`: shapes and dtypes of the kernel's parameters; without them moves that need sizes
    stay silent. `sbuf_bytes`: what a kernel may keep in one partition of the target's SBUF.
    """

    metrics: Mapping[str, float] = field(default_factory=dict)
    line_costs: Mapping[int, float] = field(default_factory=dict)
    arguments: Mapping[str, ParameterFacts] = field(default_factory=dict)
    sbuf_bytes: int = TRN1.sbuf_usable_bytes


@dataclass(frozen=True)
class Site:
    """One place where a move applies.

    `parameters` are plain JSON values that name loops and values of the kernel; with the kernel's
    text they reproduce the change exactly. `text` is the plan in one sentence. `benefit` is the
    share of the run time that is expected to go away.
    """

    move: str
    parameters: Mapping[str, Parameter]
    text: str
    benefit: float = 0.0


class Option(NamedTuple):
    """What a move can do at one place. `make` does it, once; it raises IllegalMove when a condition
    does not hold after all. What was made to find the site is not made again."""

    site: Site
    make: Callable[[], ParsedKernel]


def ready(kernel: ParsedKernel) -> Callable[[], ParsedKernel]:
    """The `make` of an option whose kernel had to be made to find out what it gains."""
    return lambda: kernel


class Move(Protocol):
    """A source-to-source change. Implementations document before, after and when it is legal."""

    name: str

    def options(self, kernel: ParsedKernel, facts: Facts) -> Iterator[Option]:
        """What can be done, at every place where it can."""
        ...
