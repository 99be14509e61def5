"""The fifteen states of a worker as a table: what each does, and where its answer leads. Where there are two ways on,
the answer says which."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from typing import TYPE_CHECKING

from accelopt.agents.developer_by_rule import reflexion_by_rule
from accelopt.agents.proposer import Failure
from accelopt.errors import AcceloptError
from accelopt.evaluation import NO_VERDICTS, Diagnosis, Evaluation, Status
from accelopt.experience import Attempt
from accelopt.fsm.engine import TERMINAL, declared, state
from accelopt.fsm.worker.context import (
    LEAST_CHARACTERS,
    LONGEST_ERROR,
    MOST_BOTTLENECKS,
    Efficiency,
    WorkerContext,
)
from accelopt.fsm.worker.user_test import refusal
from accelopt.nodes import Node
from accelopt.parsing import tree_of
from accelopt.stages.failure_text import error_text, verdict_text
from accelopt.stages.samples import REPAIRABLE, ExecutorSettings, Workplace, judge
from accelopt.store import content_key, write_atomically, write_json

if TYPE_CHECKING:
    from accelopt.fsm.worker.context import WorkerContext


REMEASURED = "remeasured"


async def time_parent(ctx: WorkerContext) -> None:
    """The parent's known time, else measured; both bests are the parent."""
    if ctx.parent.profile is None:
        async with ctx.setup.benchmark():
            evaluations = ctx.run.workshop.evaluations
            evaluation = await evaluations.evaluate(ctx.parent.case, ctx.parent.source)
        ctx.parent = replace(ctx.parent, evaluation=evaluation)
        ctx.view = ctx.view._replace(node=ctx.parent)
    ctx.best_runtime = ctx.best_sol = ctx.current = ctx.parent


async def profile_parent(ctx: WorkerContext) -> None:
    """Where the parent's time goes."""
    ctx.diagnosis = ctx.view.diagnosis or await _diagnosed(ctx.parent, ctx)
    ctx.view = ctx.view._replace(diagnosis=ctx.diagnosis)
    ctx.sols[ctx.parent.key] = Efficiency.of(ctx.diagnosis)


async def choose_bottleneck(ctx: WorkerContext) -> bool:
    """The bottleneck of this worker's rank, else the worst; False when nothing can be said."""
    if ctx.parent.profile is None:
        return False
    most = max(MOST_BOTTLENECKS, ctx.rank)
    ctx.bottlenecks = await ctx.developer.judge(ctx.view, most)
    if not ctx.bottlenecks:
        return False
    chosen = ctx.bottlenecks[ctx.rank - 1 if ctx.rank <= len(ctx.bottlenecks) else 0]
    if ctx.setup.override:
        chosen = chosen.model_copy(update={"category": ctx.setup.override})
    ctx.bottleneck = chosen
    return True


async def write_kernel(ctx: WorkerContext) -> bool:
    """Whether somebody wrote a kernel of a kernel's size."""
    ctx.written = written = await ctx.developer.generate(ctx.brief)
    if written.source is None:
        ctx.error = written.reason
        return False
    least = min(LEAST_CHARACTERS, len(ctx.parent.source) // 2)
    if len(written.source) < least:
        ctx.error = f"the kernel has {len(written.source)} characters; at least {least} are needed"
        return False
    ctx.source = ctx.run.workshop.language.complete(written.source)
    return True


def screen(ctx: WorkerContext) -> bool:
    """Whether the text alone passes; a refinement without a text does not."""
    if ctx.source is None:
        return False
    refused = ctx.run.workshop.language.text_refused(ctx.parent.case, ctx.source)
    if refused:
        ctx.error, ctx.source = refused, None
    return not refused


async def passes_tests(ctx: WorkerContext) -> bool:
    """Whether the referee accepts the kernel, and the user's own test does not refuse it."""
    assert ctx.source is not None and ctx.written is not None and ctx.written.change is not None
    if ctx.node is not None:
        ctx.failed.append(ctx.node)
    run = ctx.run
    place = Workplace(
        run.proposer.executor,
        run.workshop.evaluations,
        ExecutorSettings(1, 0),
        evaluation_budget=ctx.view.evaluation_budget,
    )
    ctx.node = await judge(ctx.parent, ctx.written.change, ctx.label, ctx.source, place)
    if ctx.node.latency is not None and ctx.setup.test_code:
        said = await refusal(ctx.setup.test_code, ctx.node, run)
        if said:
            evaluation = Evaluation(status=Status.REFUSED, message=said)
            ctx.node = replace(ctx.node, evaluation=evaluation)
    if ctx.node.latency is None:
        ctx.error = await error_text(ctx.node, run.workshop.language)
    return ctx.node.latency is not None


def may_refine(ctx: WorkerContext) -> bool:
    """Whether a refinement, and the evaluation that it needs, is left; and a failure that one mends."""
    if ctx.refinements >= ctx.run.settings.fixer_steps:
        return False
    if ctx.node is not None and ctx.node.evaluation.status not in REPAIRABLE:
        return False
    return ctx.view.evaluation_budget is None or ctx.view.evaluation_budget.left >= 1


async def refine(ctx: WorkerContext) -> None:
    """The error goes to whoever repairs; without an answer there is no text to go on with."""
    assert ctx.written is not None and ctx.written.change is not None
    ctx.refinements += 1
    tested = ctx.node.source if ctx.node else ctx.written.source
    failure = Failure(tested, ctx.error, ctx.refinements)
    executor, number = ctx.run.proposer.executor, ctx.job.number
    draft = await executor.repair(ctx.view, ctx.written.change, number, 0, failure)
    ctx.source = None
    if draft.source is not None:
        ctx.source = ctx.run.workshop.language.complete(draft.source)


async def time_kernel(ctx: WorkerContext) -> None:
    """The time that the referee took; where that was not stable, it is measured once more."""
    node = ctx.node
    assert node is not None and node.profile is not None
    if node.profile.stable:
        return
    workshop = ctx.run.workshop
    key = content_key(workshop.language.evaluation_key(node.case, node.source))
    kept = workshop.journal.find(REMEASURED, key)
    if kept is None:
        async with ctx.setup.benchmark():
            again = await workshop.language.evaluate(node.case, node.source)
        if again.status not in NO_VERDICTS:
            workshop.journal.append(REMEASURED, key, again.model_dump(mode="json"))
    else:
        again = Evaluation.model_validate(kept)
    if again.profile is not None and again.profile.stable:
        ctx.node = replace(node, evaluation=again)


async def profile_kernel(ctx: WorkerContext) -> None:
    """How near the new kernel is to the peaks; 0 where that cannot be said."""
    assert ctx.node is not None
    ctx.efficiency = Efficiency.of(await _diagnosed(ctx.node, ctx))
    ctx.sols[ctx.node.key] = ctx.efficiency


def record_failure(ctx: WorkerContext) -> None:
    """The attempt failed, with its error."""
    ctx.error = (ctx.error or "no kernel was written")[:LONGEST_ERROR]


async def reflect(ctx: WorkerContext) -> bool:
    """Complete the attempt and say what it taught; whether the kernel passed."""
    assert ctx.written is not None
    ctx.attempt = _attempt(ctx)
    ctx.reflexion = await ctx.developer.reflect(ctx.brief, ctx.attempt, ctx.written)
    if ctx.reflexion is None:
        written = ctx.written
        ctx.reflexion = reflexion_by_rule(ctx.attempt, written.method, written.change)
    return ctx.attempt.passed_verification


def update_kernels(ctx: WorkerContext) -> bool:
    """Both bests, and what a next step would start from; whether the new kernel is the best by time
    and at the roofline."""
    assert ctx.node is not None and ctx.best_runtime is not None and ctx.best_sol is not None
    before, after = ctx.best_runtime.latency, ctx.node.latency
    assert before is not None and after is not None
    if ctx.efficiency.combined > ctx.sols[ctx.best_sol.key].combined:
        ctx.best_sol = ctx.node
    ctx.current = ctx.node
    if after < before:
        ctx.best_runtime = ctx.node
    elif 100 * (after - before) / before > ctx.setup.divergence:
        ctx.current = ctx.best_runtime
    return ctx.best_runtime is ctx.node and ctx.efficiency.at_roofline


def decide_stop(ctx: WorkerContext) -> None:
    """Why nothing is left to gain."""
    bound = ctx.efficiency.bound
    confirmed = f" and {bound:.0%} of the bound" if bound is not None else ""
    ctx.stop = f"at the roofline: {ctx.efficiency.combined:.1f}% of a peak rate{confirmed}"


def finish(ctx: WorkerContext) -> None:
    """The metrics of the step, and its files."""
    before, best = ctx.parent.latency, ctx.best_runtime
    after = best.latency if best else None
    sol = ctx.sols.get(best.key, Efficiency()) if best else Efficiency()
    ctx.metrics = {
        "baseline_time_ms": before,
        "best_time_ms": after,
        "best_runtime_sol_pct": sol.combined,
        "speedup": before / after if before and after else None,
        "rounds": ctx.job.round,
        "bottleneck_category": ctx.bottleneck.category if ctx.bottleneck else None,
        "memory_throughput": sol.memory,
        "compute_throughput": sol.compute,
        "early_stop_reason": ctx.stop or None,
        "last_attempt": ctx.attempt.model_dump(mode="json") if ctx.attempt else None,
        "last_reflexion": ctx.reflexion.model_dump(mode="json") if ctx.reflexion else None,
    }
    if ctx.best_sol is not None and ctx.best_sol is not best:
        ctx.metrics["best_sol_time_ms"] = ctx.best_sol.latency
        ctx.metrics["best_sol_sol_pct"] = ctx.sols[ctx.best_sol.key].combined
    write_artifacts(ctx)


async def _diagnosed(node: Node, ctx: WorkerContext) -> Diagnosis | None:
    if node.profile is None:
        return None
    try:
        async with ctx.setup.profiling():
            return await ctx.run.workshop.language.diagnose(node)
    except (AcceloptError, OSError) as error:
        ctx.setup.logger.warning("%s cannot be profiled: %s", node.name, error)
        return None


def _attempt(ctx: WorkerContext) -> Attempt:
    assert ctx.bottleneck is not None and ctx.written is not None
    return Attempt.timed(
        ctx.parent.latency,
        ctx.node.latency if ctx.node else None,
        round_num=ctx.job.round,
        worker_id=ctx.worker_id,
        bottleneck_category=ctx.bottleneck.category,
        root_cause=ctx.bottleneck.reason,
        recommended_fix="; ".join(ctx.bottleneck.methods),
        config_changes=setting_changes(ctx.parent.source, ctx.node.source if ctx.node else ""),
        compute_sol_pct=ctx.efficiency.compute,
        memory_sol_pct=ctx.efficiency.memory,
        combined_sol_pct=ctx.efficiency.combined,
        error_message=_error(ctx),
    )


def _error(ctx: WorkerContext) -> str:
    """What the attempt failed with; of one that was mended, with what it failed first."""
    if ctx.node is None or ctx.node.latency is None:
        return ctx.error
    return verdict_text(ctx.failed[0].evaluation)[:LONGEST_ERROR] if ctx.failed else ""


def _screen(ctx: WorkerContext) -> str:
    """The state after the screen of the text: a violation in a refinement costs one attempt."""
    if screen(ctx):
        return "RunTests"
    return "CheckAttempts" if ctx.refinements else "RecordFailure"


BenchmarkBaseline = state("BenchmarkBaseline", time_parent, "ProfileKernel")
ProfileKernel = state("ProfileKernel", profile_parent, "AnalyzeBottleneck")
AnalyzeBottleneck = state(
    "AnalyzeBottleneck", choose_bottleneck, "GenerateKernel", "WorkerFinalize"
)
GenerateKernel = state("GenerateKernel", write_kernel, "CheckPatterns", "RecordFailure")
CheckPatterns = state("CheckPatterns", _screen, "RunTests", "CheckAttempts", "RecordFailure")
RunTests = state("RunTests", passes_tests, "BenchmarkNew", "CheckAttempts")
CheckAttempts = state("CheckAttempts", may_refine, "RefineKernel", "RecordFailure")
RefineKernel = state("RefineKernel", refine, "CheckPatterns")
BenchmarkNew = state("BenchmarkNew", time_kernel, "ProfileSol")
ProfileSol = state("ProfileSol", profile_kernel, "GenerateReflexion")
GenerateReflexion = state("GenerateReflexion", reflect, "UpdateKernels", "WorkerFinalize")
UpdateKernels = state("UpdateKernels", update_kernels, "CheckEarlyStop", "WorkerFinalize")
CheckEarlyStop = state("CheckEarlyStop", decide_stop, "WorkerFinalize")
RecordFailure = state("RecordFailure", record_failure, "GenerateReflexion")
WorkerFinalize = state("WorkerFinalize", finish, TERMINAL)

# The states by the names under which the machine was published.
PUBLISHED = {
    "BENCHMARK_BASELINE": BenchmarkBaseline,
    "PROFILE_KERNEL": ProfileKernel,
    "ANALYZE_BOTTLENECK": AnalyzeBottleneck,
    "GENERATE_KERNEL": GenerateKernel,
    "CHECK_DISALLOWED_PATTERNS": CheckPatterns,
    "RUN_TESTS": RunTests,
    "CHECK_REFINE_ATTEMPTS": CheckAttempts,
    "REFINE_WITH_LLM": RefineKernel,
    "BENCHMARK_NEW_KERNEL": BenchmarkNew,
    "PROFILE_FOR_SOL": ProfileSol,
    "GENERATE_REFLEXION": GenerateReflexion,
    "UPDATE_BEST_KERNELS": UpdateKernels,
    "CHECK_EARLY_STOP": CheckEarlyStop,
    "RECORD_FAILURE": RecordFailure,
    "WORKER_FINALIZE": WorkerFinalize,
}
STATES = tuple(PUBLISHED.values())
PUBLISHED_NAMES = {published: made.name for published, made in PUBLISHED.items()}
INITIAL = BenchmarkBaseline.name
TRANSITIONS = declared(STATES)


def write_artifacts(ctx: WorkerContext) -> None:
    """Kernels, prompt, reply, strategy and reflexion of one step; the best kernel in `output/`."""
    folder, number = ctx.setup.folder, ctx.job.round
    if folder is None:
        return
    step = f"round{number:03d}"
    if ctx.written is not None:
        write_atomically(folder / f"{step}_opt_prompt.txt", ctx.written.prompt)
        write_atomically(folder / f"{step}_opt_reply.txt", ctx.written.reply)
    if ctx.bottleneck is not None:
        chosen = ctx.bottleneck.model_dump(mode="json")
        others = [one.model_dump(mode="json") for one in ctx.bottlenecks]
        write_json(
            folder / f"{step}_strategy.json",
            {"bottleneck": chosen, "rank": ctx.rank, "bottlenecks": others},
        )
    if ctx.reflexion is not None:
        text = json.dumps(ctx.reflexion.model_dump(mode="json"), indent=2)
        write_atomically(folder / f"{step}_reflexion.txt", text + "\n")
    if ctx.node is not None:
        write_atomically(folder / f"kernel_round_{number}.py", ctx.node.source)
    if ctx.best_sol is not None and ctx.best_sol is not ctx.best_runtime:
        write_atomically(folder / f"kernel_round_{number}_sol.py", ctx.best_sol.source)
    if ctx.best_runtime is not None:
        write_atomically(folder / "output" / "best_kernel.py", ctx.best_runtime.source)
    write_json(folder / "metrics.json", ctx.metrics)


def setting_changes(before: str, after: str) -> dict[str, str]:
    """The settings that both kernels have with another value, as `name: "old->new"`: arguments of the
    first `triton.Config` or launch, and names that are set to a number."""
    old, new = settings_of(before), settings_of(after)
    return {
        name: f"{old[name]}->{new[name]}" for name in old if new.get(name, old[name]) != old[name]
    }


def settings_of(source: str) -> dict[str, int | float]:
    """Every setting by name, the first of a name; none where the text cannot be parsed."""
    tree = tree_of(source)
    found: dict[str, int | float] = {}
    for node in ast.walk(tree):
        for name, value in _pairs(node):
            if not isinstance(value, ast.Constant) or isinstance(value.value, bool):
                continue
            if isinstance(value.value, (int, float)):
                found.setdefault(name, value.value)
    return found


def _pairs(node: ast.AST) -> list[tuple[str, ast.expr]]:
    if isinstance(node, ast.Assign):
        return [(t.id, node.value) for t in node.targets if isinstance(t, ast.Name)]
    if not isinstance(node, ast.Call):
        return []
    named = [(keyword.arg, keyword.value) for keyword in node.keywords if keyword.arg]
    if isinstance(node.func, ast.Attribute) and node.func.attr == "Config" and node.args:
        options = node.args[0]
        if isinstance(options, ast.Dict):
            keys = zip(options.keys, options.values, strict=True)
            named += [(str(k.value), v) for k, v in keys if isinstance(k, ast.Constant)]
        return named
    return named if isinstance(node.func, ast.Subscript) else []
