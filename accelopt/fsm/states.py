"""The seven states of the manager as a table: what each does, and where its answer leads."""

from __future__ import annotations

from accelopt.fsm import steps
from accelopt.fsm.engine import TERMINAL, declared, state

VerifyInitialKernel = state(
    "VerifyInitialKernel", steps.verify_initial, "BenchmarkBaselines", "Finalize"
)
BenchmarkBaselines = state("BenchmarkBaselines", steps.benchmark_baselines, "SelectCandidates")
SelectCandidates = state("SelectCandidates", steps.select_candidates, "RunWorkers", "Finalize")
RunWorkers = state("RunWorkers", steps.run_workers, "UpdateStrategy")
UpdateStrategy = state("UpdateStrategy", steps.update_strategy, "CheckTermination")
CheckTermination = state(
    "CheckTermination", steps.check_termination, "SelectCandidates", "Finalize"
)
Finalize = state("Finalize", steps.finalize, TERMINAL)

STATES = (
    VerifyInitialKernel,
    BenchmarkBaselines,
    SelectCandidates,
    RunWorkers,
    UpdateStrategy,
    CheckTermination,
    Finalize,
)
INITIAL = VerifyInitialKernel.name
TRANSITIONS = declared(STATES)
