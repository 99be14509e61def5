"""A run's compilations, each made once and without a GPU."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Mapping, Sequence

from accelopt.concurrency import in_thread
from accelopt.kernels.gpu.bench.judging.compile_check import CompilerPool, CompileVerdict
from accelopt.kernels.gpu.cases import ProblemFiles


class CompileCache:
    """Compiles each kernel once, where the compiler could say something of it.

    `needed` are the packages that it takes; `environment` is that of evaluations.
    """

    def __init__(self, needed: Sequence[str], target: str, environment: Mapping[str, str]) -> None:
        self.needed = needed
        self.target = target
        self.environment = dict(environment)
        self._compilers: CompilerPool | None = None
        self._found: dict[tuple[str, str], CompileVerdict] = {}  # by case and source

    async def of(self, case_name: str, problem: ProblemFiles, source: str) -> CompileVerdict:
        """The verdict on a source; nothing where what compiling needs is absent."""
        key = case_name, source
        if key in self._found:
            return self._found[key]
        found = await self._checked(problem, source)
        if not found.unknown:
            self._found[key] = found
        return found

    async def _checked(self, problem: ProblemFiles, source: str) -> CompileVerdict:
        if any(importlib.util.find_spec(name) is None for name in self.needed):
            absent = " and ".join(self.needed)
            return CompileVerdict(failure=f"compiling takes {absent}", unknown=True)
        if self.environment.get("TRITON_INTERPRET") == "1":
            return CompileVerdict(failure="kernels are interpreted, not compiled", unknown=True)
        if self._compilers is None:
            count = max(1, (os.cpu_count() or 2) - 4)
            self._compilers = CompilerPool(count, self.target, self.environment)
        return await in_thread(
            self._compilers.check, problem.definition, problem.workload, problem.solution(source)
        )
