"""What the loop needs of a kind of kernel: how to evaluate one, and how to speak about it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple, Protocol

from accelopt.records import Candidate, Evaluation


class Explanation(NamedTuple):
    """What the profiler knows beyond the counters, in sentences, for planner and report.

    `percent_of_peak` is a fraction of the roofline bound; None where the bound is not known.
    """

    facts: tuple[str, ...] = ()
    percent_of_peak: float | None = None


class Backend(Protocol):
    """One kind of kernel (NKI on a NeuronCore, Triton on a GPU) and the device it runs on."""

    name: str

    async def evaluate(self, candidate: Candidate, source: str) -> Evaluation:
        """The verdict on `source` as a kernel for `candidate`'s problem; never raises for it."""

    async def explain(self, candidate: Candidate, source: str) -> Explanation:
        """Where the time of `source` goes. `candidate.profile` is its measured profile."""

    async def predict(self, candidate: Candidate, source: str) -> float | None:
        """Milliseconds that `source` would take, without running it; None where unknown."""

    def evaluation_key(self, candidate: Candidate, source: str) -> str:
        """Equal for evaluations that must have the same result: content, never paths."""

    def complete(self, source: str) -> str:
        """`source` as a file that runs by itself."""

    def reference(self, candidate: Candidate) -> str:
        """The text that says what a kernel must compute."""

    def source(self, candidate: Candidate) -> str:
        """The text of the candidate's kernel."""

    def gate(self, candidate: Candidate) -> str:
        """How results are judged, for the executor, in words."""

    def look_up(self, name: str) -> str:
        """Documentation of one name of the kernel language."""


def read_source(path: str) -> str:
    """The text of a kernel or reference file."""
    return Path(path).read_text()
