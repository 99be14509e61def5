"""Triton solutions on a GPU: their changes, knobs and names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accelopt.algorithm.ir import Algorithm
from accelopt.algorithm.traced_array import NotTraced
from accelopt.concurrency import in_thread
from accelopt.evaluation import Case
from accelopt.hardware.gpus import GPU, GPUS
from accelopt.kernels.gpu.bench.judging.baselines import write_inductor
from accelopt.kernels.gpu.bench.process.entry_points import passes_destination
from accelopt.kernels.gpu.bench.roofline import Bound
from accelopt.kernels.gpu.language import Solutions
from accelopt.kernels.language import Explanation, LanguageOptions
from accelopt.kernels.moves import METHODS
from accelopt.kernels.notes import notes_in
from accelopt.kernels.triton.configurations.proposals import proposals
from accelopt.kernels.triton.configurations.tile_space import tile_space, with_values
from accelopt.kernels.triton.emission.schedule import NotEmitted
from accelopt.kernels.triton.emission.solutions import candidates
from accelopt.kernels.triton.inductor import Unread, Written, solution_source
from accelopt.kernels.triton.lift.problem import problem_algorithm, problem_bound
from accelopt.kernels.triton.shipped_kernels import SCHEMAS, schema_of, solution_text
from accelopt.knob_space import Parameter, Space
from accelopt.nodes import Action, Node, Rewrite, made
from accelopt.sandbox.workers import Pool

MOST_PROPOSALS = 48
MOST_WRITTEN, WORTH_TIMING = 6, 3.0
"""Kernels written anew that are timed, and times the solution's latency that they may be expected to take."""
COMPILED, WRITTEN, PROMISE = "take_compiled_reference", "write_anew", 2.0
NEXT = 0.9
"""Of the promise of the one before it, another way of writing the same."""


class Triton(Solutions):
    """Solutions whose work is done by Triton kernels."""

    name = "triton"
    notes = notes_in("kernels/triton/notes.json")
    work = "by Triton kernels"

    def __init__(self, pool: Pool, options: LanguageOptions) -> None:
        super().__init__(pool, options)
        self._compiled_references: dict[str, str | Unread] = {}
        self._not_written: dict[str, str] = {}
        self._algorithms: dict[str, Algorithm | None] = {}

    async def actions(self, node: Node, focus: str = "") -> Sequence[Action]:
        """Other configurations, the most promising ones; of the kernel that was given also kernels written anew
        and those that `torch.compile` writes for the reference."""
        found = await in_thread(proposals, node.source, MOST_PROPOSALS)
        if node.parent is not None or node.profile is None or self._devices == ("cpu",):
            return found
        found = [*await self._written_anew(node), *found]
        name = node.case.case_name
        if name not in self._compiled_references:
            self._compiled_references[name] = await in_thread(self._compiled_reference, node.case)
        source = self._compiled_references[name]
        if isinstance(source, Unread):
            return found
        sentence = "Take the Triton kernels that torch.compile writes for the reference."
        change = Rewrite(move=COMPILED, parameters={}, sentence=sentence)
        touches = METHODS[COMPILED].touches
        return [made(change, source, promise=PROMISE, method=COMPILED, touches=touches), *found]

    async def _written_anew(self, node: Node) -> list[Action]:
        """Kernels written from what those of the given solution compute, the fastest by their prices first;
        none where they are not lifted or not written, which `explain` says."""
        problem = self._problem(node.case)
        gpu = GPUS[self.target]
        try:
            made_anew = await in_thread(
                candidates, problem.solution(node.source), problem.definition,
                problem.workload.workload, gpu, MOST_WRITTEN,
            )  # fmt: skip
        except (NotTraced, NotEmitted) as refusal:
            self._not_written[node.case.case_name] = str(refusal)
            return []
        latency, actions, share = node.latency or 1.0, list[Action](), 1.0
        if made_anew[0].milliseconds > WORTH_TIMING * latency:
            self._not_written[node.case.case_name] = (
                f"they are expected to take {made_anew[0].milliseconds:.3g} ms"
            )
        for candidate in made_anew:
            if candidate.milliseconds > WORTH_TIMING * latency:
                continue
            kernels = len(candidate.schedule.kernels)
            change = Rewrite(
                move=WRITTEN, parameters={"schedule": candidate.schedule.model_dump_json()},
                sentence=f"Write what it computes as {kernels} kernel{'s' * (kernels > 1)}, expected to "
                f"take {candidate.milliseconds:.3g} ms.",
            )  # fmt: skip
            promise = share * min(PROMISE, latency / candidate.milliseconds)
            share *= NEXT
            actions.append(made(change, candidate.source, promise=promise, method=WRITTEN,
                                touches=METHODS[WRITTEN].touches))  # fmt: skip
        return actions

    def bound(self, case: Case, target: GPU) -> Bound:
        """By what the reference computes, or the kernel that the case begins with."""
        problem = self._problem(case)
        definition, workload = problem.definition, problem.workload.workload
        if case.case_name not in self._algorithms:
            found = problem_algorithm(problem.template, definition, workload)
            self._algorithms[case.case_name] = found
        return problem_bound(self._algorithms[case.case_name], definition, workload, target)

    async def explain(self, node: Node) -> Explanation:
        """As of any solution, and why its kernels are not written anew or `torch.compile` gives no candidate,
        where that was tried."""
        found, name = await super().explain(node), node.case.case_name
        compiled, reasons = self._compiled_references.get(name), list[str]()
        if name in self._not_written:
            reasons.append(f"its kernels are not written anew: {self._not_written[name]}")
        if isinstance(compiled, Unread):
            reasons.append(f"torch.compile gives no candidate: {compiled}")
        return found._replace(unscheduled="; ".join(reasons)) if reasons else found

    def _compiled_reference(self, case: Case) -> str | Unread:
        """The solution of Inductor's kernels for a problem, or why there is none."""
        problem = self._problem(case)
        template, definition = problem.template, problem.definition
        if passes_destination(template, definition, None):
            return Unread("outputs are the solution's parameters")
        given = problem.workload.workload.inputs
        numbers = {name: one.value for name, one in given.items() if one.value is not None}
        found = write_inductor(self.task(case, template))
        entry = template.spec.entry_point.rpartition("::")[2]
        written = Written(found.text, found.origins, found.chosen, [*definition.inputs], numbers)
        try:
            return Unread(found.failure) if found.failure else solution_source(written, entry)
        except Unread as reason:
            return reason

    async def space(self, node: Node) -> Space | None:
        """The knobs of a shipped kernel, else tiles and launch options of every launch."""
        if name := schema_of(node.source):
            sizes = self._problem(node.case).workload.workload.axes
            return SCHEMAS[name].space(name).model_copy(update={"shape": sizes})
        return await in_thread(tile_space, node.source, node.case.problem)

    def with_values(self, source: str, values: Mapping[str, Parameter]) -> str:
        """The solution with these tiles and launch options."""
        if name := schema_of(source):
            return solution_text(name, values)
        return with_values(source, values)
