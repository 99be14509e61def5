"""What a run depends on: options as a person says them, and the configuration that they come to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from accelopt.agents.bench_agent import AgentBudget
from accelopt.agents.budget import Budget
from accelopt.agents.configuration import ModelConfig
from accelopt.agents.prompts import read_names
from accelopt.agents.roles import ModelRole
from accelopt.errors import ConfigError
from accelopt.evaluation import Case, Scrutiny, language_called
from accelopt.kernels.language import LanguageOptions
from accelopt.kernels.nki.calibration.machine import read_machine, target_of
from accelopt.kernels.nki.default_target import checked_front_end
from accelopt.kernels.nki.referee.precision import formats_of
from accelopt.search.candidate_selection import SELECTIONS
from accelopt.search.strategy import STRATEGIES, UNBOUNDED, Settings
from accelopt.sim.dialects.dialect import DEFAULT_TARGETS
from accelopt.stages.checking_tools import TOOLS
from accelopt.stages.deadline import Deadline
from accelopt.stages.workshop import WorkshopOptions
from accelopt.store import JsonObject

FEW_ROUNDS = 2
DEVELOPERS = ("roles", "agent")
"""Who develops a kernel: a planner and an executor in turn, or one agent at a bench."""
PROMPTS = {"triton": "flb", "cuda": "flb"}
"""Languages with prompts of their own, and where those lie in the folder `prompts`."""


class Config(NamedTuple):
    """Everything that a run depends on, resolved once, handed down whole and saved with the run.

    `model_config` None is the offline proposer. `agent` is what an agent may spend on a kernel, where
    one develops kernels in place of the roles. `tools` is how many tool calls a planner or an executor
    may make for one answer. `findings` is an earlier run that this one learns from, `regraph` one from
    whose methods the strategy of that name does. `prompts` is a folder of prompts, of a language's own
    where it is one below `prompts/`.
    """

    out: Path
    settings: Settings
    workshop: WorkshopOptions
    prompts: Path
    model_config: Path | None = None
    experiences: Path | None = None
    findings: Path | None = None
    regraph: Path | None = None
    tools: int = TOOLS
    agent: AgentBudget | None = None

    def saved(self, cases: Sequence[Case], models: dict[ModelRole, ModelConfig]) -> JsonObject:
        """What a continued run must share, as the run's folder keeps it: without secrets, money or
        machine."""
        language = self.workshop.language
        settings = {**self.settings._asdict(), "memory": self.settings.memory._asdict()}
        del settings["evaluations"]  # more of them continue the same search
        return {
            "problems": [case.service_name for case in cases],
            "backend": language.name,
            "target": language.target,
            "rel_tol": language.rel_tol,
            "precision": language.precision,
            "settings": settings,
            "models": {role: config.model for role, config in models.items()},
            "tools": self.tools,
            "seed": self.workshop.seed,
            **({"agent": self.agent._asdict()} if self.agent else {}),
            **({"machine": dict(language.constants)} if language.constants else {}),
            **({"compiler": language.compiler} if language.compiler else {}),
            **({"lnc": language.lnc} if language.lnc > 1 else {}),
        }


class Options(NamedTuple):
    """What a run may be told. The command line's options (`accelopt optimize --help`) by their names,
    and below them what commands and programs alone say.

    `iterations` None is a few. `compiler` is the version of the front end, empty for the default; `lnc` are the
    physical cores of a logical one that a schedule may use. `target` None is that of `machine`, a calibrated machine's file, else the
    default of the command. `strategy_option` are texts KEY=VALUE. `seconds` is the time after which no
    evaluation begins; `save_fields` None are those of `prompts/profile_list.json`. `traceset_root` is
    the trace set that solutions of FlashInfer-Bench belong to; what the runs in the folders `spent_in`
    spent counts too. `screening` is what is asked of every kernel; a winner is asked for everything.
    """

    model_config: Path | None = None
    iterations: int | None = None
    beam: int = 2
    plans: int = 2
    samples: int = 1
    fixer_steps: int = 2
    tools: int = TOOLS
    developer: str = "roles"
    agent_evaluations: int = 40
    agent_tokens: int = 200_000
    selection: str = "elitist"
    strategy: str = "beam"
    strategy_option: list[str] | None = None
    evaluations: int | None = None
    window: int = 4
    target: str | None = None
    compiler: str = ""
    lnc: int = 1
    machine: Path | None = None
    rel_tol: float | None = None
    precision: str = "float32"
    workers: int = 0
    cluster: str | None = None
    database: str | None = None
    warm_start: bool = False
    max_dollars: float | None = None
    max_tokens: int | None = None
    experience_list_path: Path | None = None
    findings: Path | None = None
    regraph: Path | None = None
    replay: Path | None = None
    logfire: bool = False
    # ---
    backend: str = "nki"
    seed: int = 0
    least_gain: float = 0.0
    profile_every: int = 0
    gpus: tuple[int, ...] = (0,)
    seconds: float | None = None
    save_fields: tuple[str, ...] | None = None
    traceset_root: Path | None = None
    spent_in: tuple[Path, ...] = ()
    screening: Scrutiny = Scrutiny.QUICK

    def replaced(self, **given: Any) -> Options:
        """The same with some options of another value, paths as text or as paths. Raises TypeError for
        a name that is no option."""
        unknown = set(given) - set(self._fields)
        if unknown:
            raise TypeError(f"no option {min(unknown)!r}; there are {', '.join(self._fields)}")
        for name in set(given) & PATHS:
            given[name] = None if given[name] is None else Path(given[name])
        return self._replace(**given)

    def with_rounds(self, rounds: int) -> Options:
        """The options with this many iterations where they say none; as many as the evaluations
        allow where those are bounded."""
        if self.iterations is not None:
            return self
        most = rounds if self.evaluations is None else UNBOUNDED
        return self._replace(iterations=most)

    def at(self, default: str) -> Options:
        """The options with the target that is meant: the one given, that of the machine, or this.
        Raises ConfigError."""
        if self.machine is not None:
            return self._replace(target=target_of(self.machine, self.target))
        return self._replace(target=self.target or default)

    def config(self, out: Path, base: Path, cores: tuple[int, ...] = ()) -> Config:
        """The configuration of a run in the folder `out`. `base` has the folder `prompts`, `cores` are
        the NeuronCores of this machine. Raises ConfigError for an option that cannot be used."""
        if self.strategy not in STRATEGIES:
            known = ", ".join(STRATEGIES)
            raise ConfigError(f"no strategy {self.strategy!r}; there are {known}")
        if self.selection not in SELECTIONS:
            known = ", ".join(sorted(SELECTIONS))
            raise ConfigError(f"no selection {self.selection!r}; there are {known}")
        fields = self.save_fields
        if fields is None:
            fields = tuple(read_names(base / "prompts" / "profile_list.json"))
        language = LanguageOptions(
            folder=out / "kernels",
            name=language_called(self.backend),
            constants=read_machine(self.machine).constants if self.machine else None,
            **self._of(LanguageOptions)
            | {
                "save_fields": fields,
                "target": self.at(DEFAULT_TARGETS["neuronxcc"]).target or "",
                "precision": formats_of(self.precision),
                "compiler": checked_front_end(self.compiler),
            },
        )
        if self.warm_start and self.database is None:
            raise ConfigError("--warm-start begins from a database: name it with --database")
        rounds = FEW_ROUNDS if self.iterations is None else self.iterations
        return Config(
            out=out,
            settings=Settings(
                options=key_values(self.strategy_option or []),
                **self._of(Settings) | {"iterations": rounds},
            ),
            workshop=WorkshopOptions(
                language,
                cores=cores,
                budget=Budget(self.max_dollars, self.max_tokens),
                traced=self.logfire,
                deadline=None if self.seconds is None else Deadline(self.seconds),
                **self._of(WorkshopOptions),
            ),
            prompts=base / "prompts" / PROMPTS.get(language.name, ""),
            experiences=self.experience_list_path,
            agent=self._agent(),
            **self._of(Config),
        )

    def _of(self, kind: type[NamedTuple]) -> dict[str, Any]:  # type: ignore[valid-type]
        """The options that go by the same names in another tuple."""
        return {name: getattr(self, name) for name in self._fields if name in kind._fields}  # type: ignore[attr-defined]

    def _agent(self) -> AgentBudget | None:
        """What an agent may spend on one kernel; None where roles develop. Raises ConfigError."""
        if self.developer not in DEVELOPERS:
            raise ConfigError(f"no developer {self.developer!r}; there are {', '.join(DEVELOPERS)}")
        if self.developer == "roles":
            return None
        if self.strategy != "beam":
            raise ConfigError(
                f"--developer agent develops kernels of the strategy beam; {self.strategy} asks for "
                "single changes, which are made by --developer roles"
            )
        return AgentBudget(self.agent_evaluations, self.agent_tokens)


PATHS = frozenset(
    "model_config machine experience_list_path findings regraph replay traceset_root".split()
)


def key_values(texts: list[str]) -> dict[str, str]:
    """The options of a strategy. Raises ConfigError for one that is not KEY=VALUE."""
    pairs = [text.partition("=") for text in texts]
    if wrong := [
        text for text, (key, sign, _) in zip(texts, pairs, strict=True) if not key or not sign
    ]:
        raise ConfigError(f"--strategy-option {wrong[0]!r} is not KEY=VALUE")
    return {key: value for key, _, value in pairs}
