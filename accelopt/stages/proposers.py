"""Who answers for each role: models behind their endpoints, or the offline rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from accelopt.agents.budget import Ledger
from accelopt.agents.calls import Exchanges, Provider, Tool
from accelopt.agents.configuration import ModelConfig
from accelopt.agents.developer import Developer, DeveloperPrompts
from accelopt.agents.executor import Executor, ExecutorPrompts
from accelopt.agents.experts import ExpertModel
from accelopt.agents.lister import Lister, LLMCandidateGenerator, LLMRelabeler
from accelopt.agents.offline import OfflineProposer
from accelopt.agents.planner import Planner, PlannerPrompts
from accelopt.agents.prompts import PromptPair, read_names, read_text
from accelopt.agents.proposer import (
    Configures,
    Develops,
    Implements,
    KernelView,
    ListsKernels,
    Plans,
    Summarizes,
)
from accelopt.agents.providers import PROVIDERS
from accelopt.agents.summarizer import Summarizer
from accelopt.agents.toolbox import Toolbox
from accelopt.kernels.language import Language
from accelopt.stages.together import together
from accelopt.stages.toolbox import analysis_tools

ASPECTS = "aspects.json"
DEVELOPER = "developer_prompts"
QUESTION = ("base_prompt.txt", "user_prompt_template.txt")


@dataclass
class Calls:
    """The endpoints of one run: one for each configuration, all with the same journal and ledger."""

    exchanges: Exchanges
    ledger: Ledger
    replay: bool = False
    traced: bool = False
    seed: int = 0
    _endpoints: dict[str, Provider] = field(default_factory=dict)

    def model(self, config: ModelConfig) -> Provider:
        """The endpoint of `config`, by the scheme of its URL."""
        name = config.model_dump_json()
        if name not in self._endpoints:
            module, _, provider = PROVIDERS[urlsplit(config.url).scheme].partition(":")
            self._endpoints[name] = getattr(import_module(module), provider)(
                config,
                self.exchanges,
                self.ledger,
                replay=self.replay,
                traced=self.traced,
                seed=self.seed,
            )
        return self._endpoints[name]

    async def greet(self, say: Callable[[str], None]) -> None:
        """Say what speaks against the endpoints' answering later. Raises ConfigError where nobody can
        be reached."""

        async def greet(endpoint: Provider) -> None:
            if said := await endpoint.greet():
                say(said)

        await together(map(greet, self._endpoints.values()))

    async def close(self) -> None:
        """Close all connections."""
        for endpoint in self._endpoints.values():
            await endpoint.close()


class PromptFolder(NamedTuple):
    """A folder of prompts in our layout: `prompts/` for NKI, another one for another language."""

    path: Path

    def pair(self, role: str, template: str = "user_prompt_template.txt") -> PromptPair:
        """The texts of `role`."""
        folder = self.path / f"{role}_prompts"
        return PromptPair.read(folder / "base_prompt.txt", folder / template)

    def planner(self) -> PlannerPrompts:
        """The planner's texts."""
        folder = self.path / "planner_prompts"
        return PlannerPrompts(
            self.pair("planner", "planner_prompt_template.txt"),
            tuple(read_names(folder / "displayed_profiles.json")),
            read_aspects(folder),
        )

    def executor(self) -> ExecutorPrompts:
        """The texts of executor and fixer."""
        return ExecutorPrompts(
            self.pair("executor"),
            self.pair("fixer"),
            tuple(read_names(self.path / "planner_prompts" / "displayed_profiles.json")),
        )

    def developer(self) -> DeveloperPrompts:
        """The texts of who develops by bottlenecks: what it must know of the language is the
        executor's. A folder without them shares those of the folder above."""
        folder = self._shared(DEVELOPER)

        def pair(question: str, system: str | None = None) -> PromptPair:
            template = read_text(folder / f"{question}.txt")
            return PromptPair(system or read_text(folder / f"{question}_base.txt"), template)

        return DeveloperPrompts(
            judge=pair("judge"),
            generate=pair("generate", self.pair("executor").system),
            reflect=pair("reflect"),
            displayed=tuple(read_names(self.path / "planner_prompts" / "displayed_profiles.json")),
        )

    def lister(self) -> PromptPair:
        """The texts of who lists kernels: what it must know of the language is the executor's."""
        base, template = (self._shared("lister_prompts") / name for name in QUESTION)
        return PromptPair(f"{self.pair('executor').system}\n{read_text(base)}", read_text(template))

    def relabeler(self) -> PromptPair:
        """The texts of who names methods."""
        base, template = (self._shared("relabeler_prompts") / name for name in QUESTION)
        return PromptPair.read(base, template)

    def expert(self) -> PromptPair:
        """The texts of who sets knobs."""
        base, template = (self._shared("expert_prompts") / name for name in QUESTION)
        return PromptPair.read(base, template)

    def _shared(self, name: str) -> Path:
        """A folder of prompts that hold for every language: here, or one folder above."""
        here = self.path if (self.path / name).is_dir() else self.path.parent
        return here / name


def read_aspects(folder: Path) -> tuple[str, ...]:
    """What the draws of a planner look at in turn; none when `folder` has no list of them."""
    path = folder / ASPECTS
    return tuple(read_names(path)) if path.exists() else ()


def planner_for(
    config: ModelConfig,
    calls: Calls,
    prompts: PlannerPrompts,
    offline: OfflineProposer,
    toolbox: Toolbox | None = None,
) -> Plans:
    """The planner that `config` selects."""
    if config.offline:
        return offline
    return Planner(
        calls.model(config), prompts, calls.seed, scheduled=offline.scheduled, toolbox=toolbox
    )


def executor_for(
    config: ModelConfig,
    fixer: ModelConfig,
    calls: Calls,
    prompts: ExecutorPrompts,
    offline: OfflineProposer,
    toolbox: Toolbox | None = None,
    language: Language | None = None,
) -> Implements:
    """The executor that `config` selects, with the fixer of another configuration. `language` has the
    documentation of its calls."""
    if config.offline:
        return offline
    executor = Executor(calls.model(config), calls.model(fixer), prompts, toolbox, by_rule=offline)
    if language is not None:
        executor.sheet = language.sheet
    return executor


def summarizer_for(
    config: ModelConfig, calls: Calls, prompts: PromptPair, offline: OfflineProposer
) -> Summarizes:
    """The summarizer that `config` selects."""
    if config.offline:
        return offline
    return Summarizer(calls.model(config), prompts)


def lister_for(
    lister: ModelConfig,
    relabeler: ModelConfig,
    calls: Calls,
    prompts: PromptFolder,
    language: Language,
) -> ListsKernels | None:
    """Who lists kernels for a graph search, by the configurations of two roles; None for the rules."""
    if lister.offline or relabeler.offline:
        return None

    async def tools(view: KernelView) -> tuple[Tool, ...]:
        return await analysis_tools(view, language)

    model = calls.model
    generator = LLMCandidateGenerator(model(lister), prompts.lister(), tools)
    return Lister(generator, LLMRelabeler(model(relabeler), prompts.relabeler()))


def expert_for(config: ModelConfig, calls: Calls, prompts: PromptFolder) -> Configures | None:
    """Who sets knobs; None for the rules."""
    return None if config.offline else ExpertModel(calls.model(config), prompts.expert())


def developer_for(
    judge: ModelConfig,
    writer: ModelConfig,
    reflector: ModelConfig,
    calls: Calls,
    prompts: PromptFolder,
    language: Language,
) -> Develops | None:
    """The developer that the configurations of its three roles select; None for the rules, which
    answer for all three where one of them has no model. `language` has the documentation of its calls."""
    if judge.offline or writer.offline or reflector.offline:
        return None
    model = calls.model
    texts = prompts.developer()
    return Developer(model(judge), model(writer), model(reflector), texts, language.sheet)
