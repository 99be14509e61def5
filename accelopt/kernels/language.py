"""What the loop needs of a kind of kernel: how to evaluate one, and how to speak about it."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import NamedTuple, Protocol

from accelopt.errors import ConfigError
from accelopt.evaluation import Confirmation, Evaluation, Scrutiny
from accelopt.published import Candidate
from accelopt.store import read_text
from accelopt.workers import WorkerPool


class Explanation(NamedTuple):
    """What the profiler knows beyond the counters, in sentences, for planner and report.

    `percent_of_peak` is a fraction of the roofline bound; None where the bound is not known.
    """

    facts: tuple[str, ...] = ()
    percent_of_peak: float | None = None


class Rewrite(NamedTuple):
    """One rewrite of one kernel: its sentence, the new source, and its promise (larger first)."""

    sentence: str
    source: str
    promise: float


class BackendOptions(NamedTuple):
    """What the command line says about evaluations, for any backend.

    `folder` takes sources that are evaluated. `rel_tol` None is the published bound of each
    problem. `precision` names formats below float32 that are allowed besides those of the inputs.
    `traceset_root` is for backends whose problems live in a trace set. `scrutiny` is how
    much is asked of a kernel, where the backend's referee knows degrees.
    """

    folder: Path
    save_fields: tuple[str, ...] = ()
    target: str = "trn1"
    rel_tol: float | None = None
    precision: tuple[str, ...] = ()
    traceset_root: Path | None = None
    scrutiny: Scrutiny = Scrutiny.FULL


class Backend(Protocol):
    """One kind of kernel (NKI on a NeuronCore, Triton on a GPU) and the device it runs on."""

    name: str

    async def evaluate(self, candidate: Candidate, source: str) -> Evaluation:
        """The verdict on `source` as a kernel for `candidate`'s problem; never raises for it."""

    async def explain(self, candidate: Candidate, source: str) -> Explanation:
        """Where the time of `source` goes. `candidate.profile` is its measured profile."""

    async def predict(self, candidate: Candidate, source: str) -> float | None:
        """Milliseconds that `source` would take, without running it: infinity for one that would be
        refused, None where unknown."""

    async def confirm(self, candidate: Candidate, winner: str, parent: str) -> Confirmation:
        """Whether the source `winner` is faster than `parent` beyond noise, measured again."""

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

    def rewrites(self, candidate: Candidate, source: str) -> Sequence[Rewrite]:
        """What the rules of this kernel language can do to `source`, for the offline proposer."""

    def look_up(self, name: str) -> str:
        """Documentation of one name of the kernel language."""


BACKENDS = {
    "nki": "accelopt.kernels.nki.language:NKIBackend",
    "flashinfer": "accelopt.kernels.triton.language:FlashInferBackend",
}


def open_backend(name: str, pool: WorkerPool, options: BackendOptions) -> Backend:
    """The backend called `name`, or of the class `module:Class`, evaluating on `pool`.

    Raises ConfigError for another name.
    """
    place = BACKENDS.get(name, name)
    if ":" not in place:
        raise ConfigError(f"there is no backend {name!r}; choose from {', '.join(BACKENDS)}")
    module, _, backend = place.partition(":")
    opened: Backend = getattr(import_module(module), backend)(pool, options)
    return opened


def read_source(path: str) -> str:
    """The text of a kernel or reference file. Raises ConfigError when it cannot be read."""
    return read_text(path)
