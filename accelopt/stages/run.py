"""One run: its tools, settings and folder, who watches, and how each problem of it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from accelopt.agents.proposer import PlanDraft, Proposer
from accelopt.evaluation import Case, Confirmation, Evaluation, Profile, Status
from accelopt.experience import Development
from accelopt.hardware import TARGETS
from accelopt.kernels.language import Explanation
from accelopt.nodes import Job, Node, Result
from accelopt.script_file_columns import Experience
from accelopt.search.strategy import Settings

if TYPE_CHECKING:
    from accelopt.stages.spec_kernel_folder import KernelFolder
    from accelopt.stages.workshop import Workshop

SAME = 1e-3  # counters that differ by less are the same


class Watcher(NamedTuple):
    """Who hears of progress: each call names the case it is about, and perhaps the round."""

    planned: Callable[[str, int, PlanDraft], None] = lambda *_: None
    sampled: Callable[[str, int, Node], None] = lambda *_: None
    measured: Callable[[Node], None] = lambda *_: None
    verifying: Callable[[Node], None] = lambda *_: None
    turned_down: Callable[[Node, Evaluation], None] = lambda *_: None
    reported: Callable[[str, str], None] = lambda *_: None
    finished: Callable[[Outcome], None] = lambda *_: None


class Run(NamedTuple):
    """One run: its tools, who proposes, its settings, its folder, who watches, and who else writes files."""

    workshop: Workshop
    proposer: Proposer
    settings: Settings
    folder: Path
    watcher: Watcher = Watcher()
    seed: int = 0
    files: KernelFolder | None = None

    def folder_of(self, case: Case, iteration: int) -> Path:
        """Where the files of one round lie."""
        return self.folder / case.case_name / f"iteration_{iteration}"


class Iteration(NamedTuple):
    """What one round made and learned."""

    number: int
    results: Sequence[Result]
    experiences: Sequence[Experience]

    @property
    def expanded(self) -> list[Node]:
        """The kernels that its jobs started from."""
        return list(dict.fromkeys(result.job.node for result in self.results))

    def of(self, node: Node) -> Result:
        """What all jobs on one of them made, as one result."""
        mine = [result for result in self.results if result.job.node is node]
        return mine[0]._replace(nodes=tuple(made for result in mine for made in result.nodes))


class Elsewhere(NamedTuple):
    """How a best kernel does on another case of the same kernel, at other shapes."""

    case: Case
    evaluation: Evaluation


def at_other_shapes(found: Elsewhere) -> str:
    """A best kernel on another case, in words."""
    name, profile = found.case.case_name, found.evaluation.profile
    if profile is not None:
        return f"right for {name} too, {profile.latency:.4g} ms there"
    refused = found.evaluation.status is Status.COMPILE_ERROR
    return f"{'refuses' if refused else 'wrong for'} the shapes of {name}"


class OneKernel(NamedTuple):
    """A kernel for all shapes of a run: its `source`, in words `how`, and its latency in ms by case; or why
    there is none."""

    source: str = ""
    how: str = ""
    latencies: Mapping[str, float] = MappingProxyType({})
    refusal: str = ""


def times_of(alternatives: Mapping[str, object]) -> str:
    """Milliseconds by name, in words."""
    return ", ".join(f"{name} {float(str(ms)):.4g} ms" for name, ms in alternatives.items())


class Outcome(NamedTuple):
    """How one problem ended. `best` is the start when nothing faster was found.

    `confirmation` is a second measurement of both in turns; None where there is nothing to confirm.
    `nodes` are all kernels that were made, in the order in which they were told, `developments` how
    workers went about theirs, by job. `holds_for` says for which shapes the best was found right, where
    that is known, `elsewhere` how it does at others that were asked for, `one_kernel` what serves all of them. `ended` says why the
    search did not go on, `turned_down` what faster kernels did not pass. `alternatives` are what others take for the problem, in milliseconds by name.
    """

    start: Node
    best: Node | None = None
    confirmation: Confirmation | None = None
    before: Explanation = Explanation()
    after: Explanation = Explanation()
    nodes: tuple[Node, ...] = ()
    developments: tuple[tuple[Job, Development], ...] = ()
    holds_for: str = ""
    exactness: str = ""
    elsewhere: tuple[Elsewhere, ...] = ()
    one_kernel: OneKernel | None = None
    failure: str = ""
    ended: str = ""
    turned_down: str = ""
    alternatives: Mapping[str, float] = MappingProxyType({})

    @property
    def beside(self) -> str:
        """The best kernel beside the start and what others give for the problem, in a sentence; empty
        where nobody else was timed."""
        if not self.alternatives or self.best is None or not self.best.latency:
            return ""
        name, least = min(self.alternatives.items(), key=lambda one: one[1])
        ratio = self.best.latency / least
        told = f"{ratio:.2f} times faster" if ratio >= 1 else f"{1 / ratio:.2f} times slower"
        times = times_of(self.alternatives)
        return f"{self.speedup or 1.0:.3f} of the start; {name} is {told} than the best kernel ({times})"

    @property
    def correct(self) -> int:
        """How many of the kernels that were made passed the referee."""
        return sum(node.latency is not None for node in self.nodes)

    @property
    def speedup(self) -> float | None:
        """Baseline latency over best latency."""
        if self.best is None or not self.start.latency or not self.best.latency:
            return None
        return self.start.latency / self.best.latency

    @property
    def resolved(self) -> bool:
        """Whether the gain is one: measured on hardware, larger than what the simulated timing tells
        apart on a generation that was measured, or sure by its sign, because the winner does less of
        something and more of nothing."""
        from accelopt.sim.timing import UNRESOLVED  # only here: it brings the whole time model

        before, after = self.start.profile, self.best.profile if self.best else None
        if before is None or after is None or not after.simulated:
            return True
        known = TARGETS[after.target].was_measured if after.target in TARGETS else True
        told = known and after.latency < before.latency * (1 - UNRESOLVED)
        return told or _does_less(before, after)

    @property
    def source(self) -> str:
        """The text of the best kernel."""
        return self.best.source if self.best else ""

    @property
    def changes(self) -> list[str]:
        """What was changed from the start to the best kernel, in sentences."""
        steps = [*self.best.lineage()] if self.best else []
        return [node.change.sentence for node in reversed(steps) if node.change]


def _does_less(before: Profile, after: Profile) -> bool:
    """Whether no counter of work (bytes moved, operations, time of each engine) grew and one shrank."""
    pairs = [
        (_worked(name, before), _worked(name, after))
        for name in before.metrics.keys() & after.metrics.keys()
        if name.endswith(("_bytes", "_flops", "_active_time_percent"))
    ]
    return all(new <= old * (1 + SAME) for old, new in pairs) and any(
        new < old * (1 - SAME) for old, new in pairs
    )


def _worked(name: str, profile: Profile) -> float:
    share = profile.metrics[name]
    return share * profile.latency if name.endswith("_percent") else share
