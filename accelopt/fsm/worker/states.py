"""The fifteen states of a worker as a table: what each does, and where its answer leads."""

from __future__ import annotations

from accelopt.fsm.engine import TERMINAL, declared, state
from accelopt.fsm.worker import steps
from accelopt.fsm.worker.context import WorkerContext


def _screen(ctx: WorkerContext) -> str:
    """The state after the screen of the text: a violation in a refinement costs one attempt."""
    if steps.screen(ctx):
        return "RunTests"
    return "CheckAttempts" if ctx.refinements else "RecordFailure"


BenchmarkBaseline = state("BenchmarkBaseline", steps.time_parent, "ProfileKernel")
ProfileKernel = state("ProfileKernel", steps.profile_parent, "AnalyzeBottleneck")
AnalyzeBottleneck = state(
    "AnalyzeBottleneck", steps.choose_bottleneck, "GenerateKernel", "WorkerFinalize"
)
GenerateKernel = state("GenerateKernel", steps.write_kernel, "CheckPatterns", "RecordFailure")
CheckPatterns = state("CheckPatterns", _screen, "RunTests", "CheckAttempts", "RecordFailure")
RunTests = state("RunTests", steps.passes_tests, "BenchmarkNew", "CheckAttempts")
CheckAttempts = state("CheckAttempts", steps.may_refine, "RefineKernel", "RecordFailure")
RefineKernel = state("RefineKernel", steps.refine, "CheckPatterns")
BenchmarkNew = state("BenchmarkNew", steps.time_kernel, "ProfileSol")
ProfileSol = state("ProfileSol", steps.profile_kernel, "GenerateReflexion")
GenerateReflexion = state("GenerateReflexion", steps.reflect, "UpdateKernels", "WorkerFinalize")
UpdateKernels = state("UpdateKernels", steps.update_kernels, "CheckEarlyStop", "WorkerFinalize")
CheckEarlyStop = state("CheckEarlyStop", steps.decide_stop, "WorkerFinalize")
RecordFailure = state("RecordFailure", steps.record_failure, "GenerateReflexion")
WorkerFinalize = state("WorkerFinalize", steps.finish, TERMINAL)

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
