"""The options that `run` and `optimize` share, as the command line explains them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Annotated, Any, get_args, get_type_hints

import typer

from accelopt.cli.kernel_file import CompilerOption, MachineOption, RelTol
from accelopt.search.candidate_selection import SELECTIONS
from accelopt.search.strategy import STRATEGIES
from accelopt.stages.config import DEVELOPERS, FEW_ROUNDS, Options
from accelopt.stages.script_options import MOST_WORKERS

HELP: Mapping[str, Any] = {
    "model_config": typer.Option(help="model configuration; without it no model is used"),
    "iterations": typer.Option(
        min=0,
        help="rounds of planning and judging; by default a few, or as many as --evaluations allow",
    ),
    "beam": typer.Option(min=1, help="kernels kept from round to round"),
    "plans": typer.Option(min=1, help="plans for each kernel kept"),
    "samples": typer.Option(min=1, help="implementations of each plan"),
    "fixer_steps": typer.Option(min=0, help="rounds of repair of a sample"),
    "tools": typer.Option(min=0, help="tool calls a planner or executor may make for one answer"),
    "developer": typer.Option(
        help=f"{' or '.join(DEVELOPERS)}: planner and executor, or one conversation with tools"
    ),
    "agent_evaluations": typer.Option(min=1, help="kernels an agent may have judged, each time"),
    "agent_tokens": typer.Option(min=1, help="tokens an agent may spend on a kernel, each time"),
    "selection": typer.Option(help=" or ".join(sorted(SELECTIONS))),
    "strategy": typer.Option(help=" or ".join(STRATEGIES)),
    "strategy_option": typer.Option(metavar="KEY=VALUE", help="the strategy's own"),
    "evaluations": typer.Option(min=1, help="distinct kernels judged for each problem, at most"),
    "window": typer.Option(min=1, help="jobs under way, on any machine"),
    "target": typer.Option(
        help="trn1 or trn2 (without it, by the kernel's dialect: trn2 for `nki.*`); h200, h100 "
        "or a100 for a Triton solution"
    ),
    "compiler": get_args(CompilerOption)[1],
    "lnc": typer.Option(
        min=1, max=2, help="cores of a logical NeuronCore that a schedule may use (`nki`, trn2 on)"
    ),
    "machine": get_args(MachineOption)[1],
    "rel_tol": get_args(RelTol)[1],
    "precision": typer.Option(help="formats allowed below the inputs' own, such as bfloat16"),
    "workers": typer.Option(
        min=0, max=MOST_WORKERS, help="evaluations at a time; 0: one for each CPU"
    ),
    "cluster": typer.Option(
        metavar="ADDRESS", help="evaluate on a Ray cluster; `local` is this machine"
    ),
    "database": typer.Option(
        metavar="URL", help="keep what is found there: a SQLite file, postgresql://"
    ),
    "warm_start": typer.Option("--warm-start", help="begin from what the database knows"),
    "max_dollars": typer.Option(min=0, help="stop in good order there"),
    "max_tokens": typer.Option(min=0, help="stop in good order there"),
    "experience_list_path": typer.Option(help="start from the memory of another run"),
    "findings": typer.Option(help="learn from the attempts of another run: its folder"),
    "regraph": typer.Option(help="what methods brought in another run: its folder"),
    "replay": typer.Option(help="answer from this run's journal"),
    "logfire": typer.Option("--logfire", help="trace model calls with logfire"),
}
"""What is said of the fields of `Options` that are options of a command, in this order."""


def with_shared_options(
    rounds: int = FEW_ROUNDS, defaults: Options | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Gives a command's parameter `shared` as options of its own, with other `defaults` for some, and
    as many `rounds` where neither those nor the evaluations are said."""

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        def called(**given: Any) -> None:
            shared = Options(**{name: given.pop(name) for name in HELP})
            command(**given, shared=shared.with_rounds(rounds))

        hints = {**get_type_hints(command, include_extras=True), **_shared_hints()}
        standing = (defaults or Options())._asdict()
        own = inspect.signature(command).parameters.values()
        parameters = [parameter for parameter in own if parameter.name != "shared"]
        parameters += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=standing[name])
            for name in HELP
        ]
        called.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
            [parameter.replace(annotation=hints[parameter.name]) for parameter in parameters]
        )
        called.__annotations__ = {p.name: hints[p.name] for p in parameters}
        called.__name__, called.__doc__ = command.__name__, command.__doc__
        return called

    return decorate


def _shared_hints() -> dict[str, Any]:
    types = get_type_hints(Options)
    return {name: Annotated[types[name], option] for name, option in HELP.items()}
