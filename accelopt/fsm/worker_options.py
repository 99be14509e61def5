"""From the arguments of a manager or a worker's process to a run with everything in its place."""

from __future__ import annotations

import os
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from accelopt.agents.configuration import OFFLINE, ModelConfig, load_model_config
from accelopt.agents.roles import ModelRole
from accelopt.errors import ConfigError
from accelopt.evaluation import Case, language_called
from accelopt.fsm.worker.context import DIVERGENCE_PERCENT, MOST_REFINEMENTS
from accelopt.kernels.gpu.cases import language_of
from accelopt.kernels.gpu.problems import case_of_problem, is_torch_problem
from accelopt.shipped import shipped_folder
from accelopt.stages.config import PROMPTS, Options
from accelopt.stages.run import Run
from accelopt.stages.run_setup import open_run as open_configured
from accelopt.store import JsonObject, existing
from accelopt.time_limits import WORKERS_SECONDS

OPENAI = "https://api.openai.com/v1"
KEY = "OPENAI_API_KEY"


FSM_ROLES: tuple[ModelRole, ...] = (
    "planner",
    "executor",
    "fixer",
    "summarizer",
    "judge",
    "reflector",
)


class WorkerOptions(NamedTuple):
    """What a manager's `worker_kwargs` may say.

    `backend` is a kernel language (empty: by the problem's file), `workload` a FlashInfer-Bench
    workload, `model_config` a path, a ModelConfig or its fields. `isolation` is `task` or `process`.
    `workers` is how many kernels are judged at a time, 0 one for each CPU; `deadline` the seconds
    that the workers of a round have together. `findings` is the folder of an earlier run to learn from.
    With `profile` a GPU's kernels are profiled by Nsight Compute where that can be.
    """

    backend: str = ""
    target: str = ""
    workload: str | Path | None = None
    rel_tol: float | None = None
    model_config: str | Path | ModelConfig | Mapping[str, Any] | None = None
    divergence_threshold: float = DIVERGENCE_PERCENT
    max_refine_attempts: int = MOST_REFINEMENTS
    isolation: str = "task"
    seed: int = 0
    workers: int = 0
    deadline: float = WORKERS_SECONDS
    findings: str | Path | None = None
    profile: bool = True

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> WorkerOptions:
        """Raises ValueError for a name that is none of these, and for an unknown isolation."""
        unknown = set(given) - set(cls._fields)
        if unknown:
            known = ", ".join(cls._fields)
            raise ValueError(f"no worker option {min(unknown)!r}; there are {known}")
        options = cls(**given)
        if options.isolation not in ("task", "process"):
            raise ValueError(f"isolation={options.isolation!r}; it is task or process")
        return options

    @property
    def language_target(self) -> str:
        """The machine: the given one, or trn1 for NKI and an H200 for Triton."""
        return self.target or ("h200" if self.on_gpu else "trn1")

    @property
    def on_gpu(self) -> bool:
        """Whether kernels are solutions on a GPU."""
        return self.backend in PROMPTS


class ModelChoice(NamedTuple):
    """Which model thinks, and how hard."""

    model: str = OFFLINE
    high_effort: bool = True

    def config(self, options: WorkerOptions, role: ModelRole) -> ModelConfig:
        """The configuration of a role: the given one, else OpenAI's endpoint with the model's name."""
        given = options.model_config
        if isinstance(given, ModelConfig):
            return given
        if isinstance(given, Mapping):
            return ModelConfig.model_validate(given)
        if given is not None:
            return load_model_config(Path(given), role, os.environ)
        if self.model == OFFLINE:
            return ModelConfig(url=OFFLINE, model=OFFLINE)
        key = os.environ.get(KEY, "")
        if not key:
            raise ConfigError(
                f"the model {self.model} needs a key in {KEY}; openai_model='offline' needs none"
            )
        config = ModelConfig(url=OPENAI, model=self.model, api_key=key)
        return (
            config.model_copy(update={"reasoning_effort": "high"}) if self.high_effort else config
        )


def case_of(kernel: Path, problem_file: Path, options: WorkerOptions, folder: Path) -> Case:
    """The case of a kernel's file: an NKI kernel with its NumPy reference, or a Triton solution with
    its definition; what has to be written for it goes into `folder`.

    Raises ConfigError for a file that is not there."""
    kernel, problem_file = existing(kernel), existing(problem_file)
    if options.on_gpu:
        workload = Path(options.workload) if options.workload else None
        return case_of_problem(problem_file, kernel, workload, folder / "problem")
    problem, values = _named(problem_file.stem)
    name = problem_file.stem if not values else ""
    return Case(
        case_name=name,
        problem=problem,
        values=values,
        task=str(problem_file.resolve()),
        kernel=str(kernel.resolve()),
    )


def _named(stem: str) -> tuple[str, dict[str, int]]:
    """The problem and the sizes in the name of a reference, as NKIBench names them:
    `silu_M4096_N7168_numpy`."""
    words = stem.removesuffix("_numpy").split("_")
    sizes: dict[str, int] = {}
    while len(words) > 1 and (found := re.fullmatch(r"([A-Z]+)(\d+)", words[-1])):
        sizes[found[1]] = int(found[2])
        words.pop()
    return "_".join(words), dict(sorted(sizes.items()))


def with_backend(options: WorkerOptions, problem_file: Path, kernel: Path) -> WorkerOptions:
    """The options with a backend: NKI for a NumPy reference, else the language of the solution."""
    if options.backend:
        return options._replace(backend=language_called(options.backend))
    torch = problem_file.suffix == ".json" or is_torch_problem(problem_file)
    return options._replace(backend=language_of(kernel) if torch else "nki")


@asynccontextmanager
async def open_run(
    folder: Path, options: WorkerOptions, thinking: ModelChoice, saved: JsonObject | None = None
) -> AsyncIterator[Run]:
    """A run in `folder`, continued where there is one already with the same `saved` configuration."""
    config = Options(
        fixer_steps=options.max_refine_attempts,
        strategy="fsm",
        target=options.language_target,
        rel_tol=options.rel_tol,
        workers=options.workers,
        tools=0,
        backend=options.backend,
        seed=options.seed,
        profile_every=int(options.profile),
    ).config(folder, shipped_folder())
    models = {role: thinking.config(options, role) for role in FSM_ROLES}
    async with open_configured(config, models, saved) as run:
        yield run
