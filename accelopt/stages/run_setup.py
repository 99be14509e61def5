"""From a configuration to a run with everything in its place, and with who answers for its roles: models behind
their endpoints, or the offline rules."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from accelopt.agents.analysis_tools import tools_for
from accelopt.agents.bench_agent import Agent, AgentBudget
from accelopt.agents.calls import Provider, Tool
from accelopt.agents.configuration import ModelConfig
from accelopt.agents.developer import Developer
from accelopt.agents.executor import Executor
from accelopt.agents.knob_expert_model import ExpertModel
from accelopt.agents.lister import Lister
from accelopt.agents.model_tools import Toolbox
from accelopt.agents.planner import Planner
from accelopt.agents.proposer import KernelView, Proposer
from accelopt.agents.roles import ROLES, ModelRole, Prompts
from accelopt.agents.summarizer import Summarizer
from accelopt.kernels.gpu.compiler_output import Compiles
from accelopt.kernels.language import Language
from accelopt.stages.checking_tools import toolbox_for
from accelopt.stages.config import Config
from accelopt.stages.run import Run
from accelopt.stages.run_files import write_spending
from accelopt.stages.workshop import Workshop, open_workshop
from accelopt.store import JsonObject

if TYPE_CHECKING:
    from accelopt.stages.spec_kernel_folder import KernelFolder


Configs = Mapping[ModelRole, ModelConfig]
"""The model configuration of each role; the rules answer for one that has none."""


def read_prompts(folder: Path, configs: Configs) -> Prompts:
    """The prompts of those who may answer: of roles that languages share, where a model does."""
    return Prompts.read(
        folder,
        [name for name, role in ROLES.items() if not role.shared or _has_models(configs, name)],
    )


def proposer_for(
    configs: Configs,
    prompts: Prompts,
    workshop: Workshop,
    toolbox: Toolbox | None = None,
    agent: AgentBudget | None = None,
) -> Proposer:
    """The roles of one run; an agent where it is given a budget and a model. Planner, executor and summarizer are models where `configs` has one for
    them, else the rules; the others are there where all of their questions have a model."""
    calls, rules, language = workshop.calls, workshop.offline, workshop.language

    def model(role: str) -> Provider:
        return calls.model(configs[ROLES[role].model])

    def has(*roles: str) -> bool:
        return _has_models(configs, *roles)

    return Proposer(
        Planner(model("planner"), prompts, calls.seed, scheduled=rules.scheduled, toolbox=toolbox)
        if has("planner")
        else rules,
        Executor(
            model("executor"),
            model("fixer"),
            prompts,
            toolbox,
            by_rule=rules,
            sheet=language.sheet,
        )
        if has("executor")
        else rules,
        Summarizer(model("summarizer"), prompts["summarizer"]) if has("summarizer") else rules,
        Developer(model("judge"), model("generator"), model("reflector"), prompts, language.sheet)
        if has("judge", "generator", "reflector")
        else None,
        Lister(model("lister"), model("relabeler"), prompts, _analysis(language))
        if has("lister", "relabeler")
        else None,
        ExpertModel(model("expert"), prompts["expert"]) if has("expert") else None,
        Agent(model("agent"), prompts, agent) if agent and has("agent") else None,
    )


def _has_models(configs: Configs, *roles: str) -> bool:
    """Whether each of `roles` is answered by a model."""
    found = [configs.get(ROLES[role].model) for role in roles]
    return all(config is not None and not config.offline for config in found)


def _analysis(language: Language) -> Callable[[KernelView], Awaitable[tuple[Tool, ...]]] | None:
    """Functions about the kernel in view, of a language that is compiled to PTX."""
    if not isinstance(language, Compiles):
        return None

    async def tools(view: KernelView) -> tuple[Tool, ...]:
        return tools_for(await language.compiler_output(view.node))

    return tools


@asynccontextmanager
async def open_run(
    config: Config,
    models: Configs,
    saved: JsonObject | None = None,
    files: KernelFolder | None = None,
) -> AsyncIterator[Run]:
    """A run in `config.out`, continued where there is one already with the same `saved`
    configuration (ConfigError where that was another). `files` are written beside the run's own."""
    async with open_workshop(config.out, config.workshop, saved) as workshop:
        toolbox = toolbox_for(workshop.evaluations, workshop.offline, config.tools)
        proposer = proposer_for(
            models, read_prompts(config.prompts, models), workshop, toolbox, config.agent
        )
        seed = config.workshop.seed
        run = Run(workshop, proposer, config.settings, config.out, seed=seed, files=files)

        def spent() -> None:
            with suppress(OSError):  # what ends the run is what is told
                write_spending(workshop.ledger, run)

        spent()
        workshop.ledger.changed = spent
        try:
            yield run
        finally:
            spent()
