"""The options that `run` and `optimize` share: named, explained and used in this one place."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from accelopt.agents.budget import Budget
from accelopt.agents.prompts import read_names
from accelopt.cli.kernel_file import MachineOption, RelTol, target_of
from accelopt.cli.session import SessionOptions, base_folder, neuron_cores
from accelopt.errors import ConfigError
from accelopt.evaluation import Scrutiny
from accelopt.kernels.language import LanguageOptions
from accelopt.kernels.nki.calibration.machine import read_machine
from accelopt.kernels.nki.referee.precision import formats_of
from accelopt.search.selection import SELECTIONS
from accelopt.search.strategy import STRATEGIES, UNBOUNDED, Settings
from accelopt.sim.dialects import DEFAULT_TARGETS
from accelopt.stages.command_line import MOST_WORKERS
from accelopt.stages.toolbox import TOOLS
from accelopt.stages.workshop import WorkshopOptions

FEW_ROUNDS = 2


class Shared(NamedTuple):
    """What a run may be told on the command line; each field's annotation is its option."""

    model_config: Annotated[
        Path | None, typer.Option(help="model configuration; without it no model is used")
    ] = None
    iterations: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="rounds of planning and judging; by default a few, or as many as "
            "--evaluations allow",
        ),
    ] = None
    beam: Annotated[int, typer.Option(min=1, help="kernels kept from round to round")] = 2
    plans: Annotated[int, typer.Option(min=1, help="plans for each kernel kept")] = 2
    samples: Annotated[int, typer.Option(min=1, help="implementations of each plan")] = 1
    fixer_steps: Annotated[int, typer.Option(min=0, help="rounds of repair of a sample")] = 2
    tools: Annotated[
        int, typer.Option(min=0, help="tool calls a planner or executor may make for one answer")
    ] = TOOLS
    selection: Annotated[str, typer.Option(help=" or ".join(sorted(SELECTIONS)))] = "elitist"
    strategy: Annotated[str, typer.Option(help=" or ".join(STRATEGIES))] = "beam"
    strategy_option: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="the strategy's own")
    ] = None
    evaluations: Annotated[
        int | None, typer.Option(min=1, help="distinct kernels judged for each problem, at most")
    ] = None
    window: Annotated[int, typer.Option(min=1, help="jobs under way, on any machine")] = 4
    target: Annotated[
        str | None,
        typer.Option(
            help="trn1 or trn2 (without it, by the kernel's dialect: trn2 for `nki.*`); h200, h100 "
            "or a100 for a Triton solution"
        ),
    ] = None
    machine: MachineOption = None
    rel_tol: RelTol = None
    precision: Annotated[
        str, typer.Option(help="formats allowed below the inputs' own, such as bfloat16")
    ] = "float32"
    workers: Annotated[
        int,
        typer.Option(min=0, max=MOST_WORKERS, help="evaluations at a time; 0: one for each CPU"),
    ] = 0
    cluster: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="evaluate on a Ray cluster; `local` is this machine"),
    ] = None
    database: Annotated[
        str | None,
        typer.Option(metavar="URL", help="keep what is found there: a SQLite file, postgresql://"),
    ] = None
    warm_start: Annotated[
        bool, typer.Option("--warm-start", help="begin from what the database knows")
    ] = False
    max_dollars: Annotated[float | None, typer.Option(min=0, help="stop in good order there")] = (
        None
    )
    max_tokens: Annotated[int | None, typer.Option(min=0, help="stop in good order there")] = None
    experience_list_path: Annotated[
        Path | None, typer.Option(help="start from the memory of another run")
    ] = None
    findings: Annotated[
        Path | None, typer.Option(help="learn from the attempts of another run: its folder")
    ] = None
    regraph: Annotated[
        Path | None, typer.Option(help="what methods brought in another run: its folder")
    ] = None
    replay: Annotated[Path | None, typer.Option(help="answer from this run's journal")] = None
    logfire: Annotated[bool, typer.Option("--logfire", help="trace model calls with logfire")] = (
        False
    )

    def at(self, default: str) -> Shared:
        """The options with the target that is meant: the one given, that of the machine, or this.
        Raises ConfigError."""
        if self.machine is not None:
            return self._replace(target=target_of(self.machine, self.target))
        return self._replace(target=self.target or default)

    def session(self, out: Path) -> SessionOptions:
        """A session of the simulated or real NeuronCore in the folder `out`. Raises ConfigError."""
        if self.strategy not in STRATEGIES:
            known = ", ".join(STRATEGIES)
            raise ConfigError(f"no strategy {self.strategy!r}; there are {known}")
        if self.selection not in SELECTIONS:
            known = ", ".join(sorted(SELECTIONS))
            raise ConfigError(f"no selection {self.selection!r}; there are {known}")
        language = LanguageOptions(
            folder=out / "kernels",
            save_fields=tuple(read_names(base_folder() / "prompts" / "profile_list.json")),
            target=self.at(DEFAULT_TARGETS["neuronxcc"]).target or "",
            constants=read_machine(self.machine).constants if self.machine else None,
            rel_tol=self.rel_tol,
            precision=formats_of(self.precision),
        )
        if self.warm_start and self.database is None:
            raise ConfigError("--warm-start begins from a database: name it with --database")
        return SessionOptions(
            out=out,
            settings=Settings(
                iterations=FEW_ROUNDS if self.iterations is None else self.iterations,
                beam=self.beam,
                plans=self.plans,
                samples=self.samples,
                fixer_steps=self.fixer_steps,
                selection=self.selection,
                strategy=self.strategy,
                options=key_values(self.strategy_option or []),
                evaluations=self.evaluations,
                window=self.window,
            ),
            workshop=WorkshopOptions(
                language,
                workers=self.workers,
                cluster=self.cluster,
                database=self.database,
                warm_start=self.warm_start,
                cores=neuron_cores(),
                budget=Budget(self.max_dollars, self.max_tokens),
                replay=self.replay,
                traced=self.logfire,
                screening=Scrutiny.QUICK,
            ),
            model_config=self.model_config,
            experiences=self.experience_list_path,
            findings=self.findings,
            regraph=self.regraph,
            tools=self.tools,
        )


def key_values(texts: list[str]) -> dict[str, str]:
    """The options of a strategy. Raises ConfigError for one that is not KEY=VALUE."""
    pairs = [text.partition("=") for text in texts]
    if wrong := [
        text for text, (key, sign, _) in zip(texts, pairs, strict=True) if not key or not sign
    ]:
        raise ConfigError(f"--strategy-option {wrong[0]!r} is not KEY=VALUE")
    return {key: value for key, _, value in pairs}


def with_shared_options(
    rounds: int = FEW_ROUNDS, **defaults: int
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command's parameter `shared` as options of its own, with other `defaults` for some, and
    as many `rounds` where neither those nor the evaluations are said."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def called(**given: Any) -> None:
            shared = Shared(**{name: given.pop(name) for name in Shared._fields})
            if shared.iterations is None:
                most = rounds if shared.evaluations is None else UNBOUNDED
                shared = shared._replace(iterations=most)
            command(**given, shared=shared)

        hints = {**get_type_hints(command, include_extras=True), **_shared_hints()}
        standing = {**Shared._field_defaults, **defaults}
        own = inspect.signature(command).parameters.values()
        parameters = [parameter for parameter in own if parameter.name != "shared"]
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=standing[name])
            for name in Shared._fields
        ]
        called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [parameter.replace(annotation=hints[parameter.name]) for parameter in parameters]
        )
        called.__annotations__ = {p.name: hints[p.name] for p in parameters}
        called.__name__, called.__doc__ = command.__name__, command.__doc__
        return called

    return decorate


def _shared_hints() -> dict[str, Any]:
    return get_type_hints(Shared, include_extras=True)
