"""One run from the command line: from options to outcomes, with live progress and a clean stop."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from accelopt.agents.configuration import OFFLINE, ModelConfig, load_model_config
from accelopt.agents.roles import MODEL_ROLES, ModelRole
from accelopt.cli.report import REPORT
from accelopt.cli.watching import board_for, watcher_of
from accelopt.errors import ConfigError
from accelopt.evaluation import Case
from accelopt.interruption import stop
from accelopt.kernels.gpu.cases import language_of
from accelopt.loop import optimize_all
from accelopt.report.page import page
from accelopt.report.progress import LiveBoard
from accelopt.report.story import write_story
from accelopt.report.tables import ProblemResult, names_of
from accelopt.search.catalog import Learned, read_learned
from accelopt.search.strategy import Settings, refuse_wrong_options
from accelopt.shipped import shipped_folder
from accelopt.stages.findings import read_findings
from accelopt.stages.jobs import Knowledge
from accelopt.stages.proposers import proposer_for, read_prompts
from accelopt.stages.run import KernelFiles, Outcome, Run, at_other_shapes
from accelopt.stages.story import story_of
from accelopt.stages.tables import read_experiences
from accelopt.stages.together import attended
from accelopt.stages.toolbox import TOOLS, toolbox_for
from accelopt.stages.workshop import Workshop, WorkshopOptions, open_workshop
from accelopt.store import write_atomically

SHAPES = {"any": "any shapes that were tried", "these shapes": "these shapes"}


class SessionOptions(NamedTuple):
    """Everything that a run depends on, resolved once, handed down whole and saved with the run.

    `model_config` None is the offline proposer. `tools` is how many tool calls a planner or an executor
    may make for one answer. `findings` is an earlier run that this one learns from, `regraph` one from
    whose methods the strategy of that name does.
    """

    out: Path
    settings: Settings
    workshop: WorkshopOptions
    model_config: Path | None = None
    experiences: Path | None = None
    findings: Path | None = None
    regraph: Path | None = None
    tools: int = TOOLS
    prompts: Path | None = None

    def for_solution(self, path: Path) -> SessionOptions:
        """The same for a solution of FlashInfer-Bench, with the prompts for those."""
        prompts = base_folder() / "prompts" / "flb"
        return self.in_language(language_of(path))._replace(prompts=prompts)

    def in_language(self, name: str) -> SessionOptions:
        """The same for kernels of the language of that name."""
        language = self.workshop.language._replace(name=name)
        return self._replace(workshop=self.workshop._replace(language=language))


def base_folder() -> Path:
    """The folder with prompts and NKIBench: `ACCELOPT_BASE_DIR`, else what came with the package."""
    named = os.environ.get("ACCELOPT_BASE_DIR")
    return Path(named) if named else shipped_folder()


def neuron_cores() -> tuple[int, ...]:
    """The cores in `NEURON_RT_VISIBLE_CORES` (`0,2` or `0-3`), core 0 by default."""
    named = os.environ.get("NEURON_RT_VISIBLE_CORES", "0")
    cores: list[int] = []
    try:
        for part in named.split(","):
            first, _, last = part.partition("-")
            cores += range(int(first), int(last or first) + 1)
    except ValueError:
        raise ConfigError(f"NEURON_RT_VISIBLE_CORES={named!r} names no cores") from None
    return tuple(cores)


def hold_session(
    cases: Sequence[Case],
    options: SessionOptions,
    again: str = "the same command",
    files: KernelFiles | None = None,
) -> list[Outcome]:
    """Run the loop on `cases`. Ctrl-C stops it cleanly and exits with status 130; `again` is what
    then continues it. `files` are written beside the run's own."""
    try:
        return asyncio.run(_session(cases, options, files))
    except KeyboardInterrupt:
        stop(f"Stopped{_left(cases, options.out)}; {again} continues where this one stopped.")


def _left(cases: Sequence[Case], out: Path) -> str:
    """Where the best kernels so far lie, if anywhere."""
    places = [out / case.case_name / "best.py" for case in cases]
    there = [str(place) for place in places if place.is_file()]
    if len(there) > 1:
        return f" with the fastest kernels so far in {out}/*/best.py"
    return f" with the fastest kernel so far in {there[0]}" if there else ""


async def _session(
    cases: Sequence[Case], options: SessionOptions, files: KernelFiles | None
) -> list[Outcome]:
    refuse_wrong_options(cases[0], options.settings)
    folder = _prompt_folder(options)
    known = _known(options)
    configs = {role: _config(options, role) for role in MODEL_ROLES}
    saved = _saved(cases, options, configs)
    async with open_workshop(options.out, options.workshop, saved) as workshop:
        _keep_prompts(folder, options.out)
        toolbox = toolbox_for(workshop.evaluations, workshop.offline, options.tools)
        proposer = proposer_for(configs, read_prompts(folder, configs), workshop, toolbox)
        with LiveBoard(board_for(cases, options.settings, workshop.ledger)) as board:
            watcher = watcher_of(board, options.settings)
            seed = options.workshop.seed
            run = Run(workshop, proposer, options.settings, options.out, watcher, seed, files)
            outcomes = await attended(
                optimize_all(cases, run, known), _greeting(workshop, board.remark)
            )
        story = story_of(outcomes, run, device_of(outcomes), saved, board.moments)
        write_story(story, options.out)
        write_atomically(options.out / REPORT, page([story]))
        return outcomes


async def _greeting(workshop: Workshop, say: Callable[[str], None]) -> None:
    """Asks endpoints that have answered nothing so far whether they are there."""
    if not workshop.ledger.total.calls:
        await workshop.calls.greet(say)


def _known(options: SessionOptions) -> Knowledge:
    """What earlier runs left for this one."""
    experiences = read_experiences(options.experiences) if options.experiences else []
    findings = read_findings(options.findings) if options.findings else []
    learned = read_learned(options.regraph) if options.regraph else Learned()
    return Knowledge(experiences=tuple(experiences), earlier=tuple(findings), learned=learned)


def _config(options: SessionOptions, role: ModelRole) -> ModelConfig:
    if options.model_config is None:
        return ModelConfig(url=OFFLINE, model=OFFLINE)
    return load_model_config(options.model_config, role, os.environ)


def _prompt_folder(options: SessionOptions) -> Path:
    folder = options.prompts or base_folder() / "prompts"
    if not folder.is_dir():
        raise ConfigError(f"no prompts in {folder}; set ACCELOPT_BASE_DIR to the checkout")
    return folder


def _keep_prompts(prompts: Path, out: Path) -> None:
    """The prompts as they were used, beside what came of them. What a kill or a full disk has kept
    from being copied is copied when the run continues."""
    for path in sorted(prompts.rglob("*")):
        copy = out / "prompts" / path.relative_to(prompts)
        if path.is_file() and path.suffix not in (".py", ".pyc") and not copy.exists():
            write_atomically(copy, path.read_bytes())


def _saved(
    cases: Sequence[Case], options: SessionOptions, configs: dict[ModelRole, ModelConfig]
) -> dict[str, object]:
    """The configuration that a continued run must share: without secrets, money or machine."""
    language = options.workshop.language
    settings = {**options.settings._asdict(), "memory": options.settings.memory._asdict()}
    del settings["evaluations"]  # more of them continue the same search
    return {
        "problems": [case.service_name for case in cases],
        "backend": language.name,
        "target": language.target,
        "rel_tol": language.rel_tol,
        "precision": language.precision,
        "settings": settings,
        "models": {role: config.model for role, config in configs.items()},
        "tools": options.tools,
        "seed": options.workshop.seed,
        **({"machine": dict(language.constants)} if language.constants else {}),
    }


def result_rows(outcomes: Sequence[Outcome], out: Path) -> list[ProblemResult]:
    """The outcomes as rows of the final table."""
    names = names_of([outcome.start.case for outcome in outcomes])
    return [
        ProblemResult(
            problem=names[outcome.start.case.case_name],
            baseline_ms=outcome.start.latency,
            best_ms=outcome.best.latency if outcome.best else None,
            before=outcome.before.percent_of_peak,
            after=outcome.after.percent_of_peak,
            changes=outcome.changes,
            place=str(out / outcome.start.case.case_name / "best.py") if outcome.best else "",
            failure=outcome.failure,
            resolved=outcome.resolved,
            holds_for=_shapes(outcome),
            confirmed=outcome.confirmation is None or outcome.confirmation.confirmed,
            depends_on=outcome.confirmation.depends_on if outcome.confirmation else (),
            between=outcome.confirmation.between if outcome.confirmation else None,
        )
        for outcome in outcomes
    ]


def _shapes(outcome: Outcome) -> str:
    """For which shapes the best kernel holds, and how it does at others that were asked for."""
    own = SHAPES.get(outcome.holds_for, "")
    return "; ".join(filter(None, [own, *map(at_other_shapes, outcome.elsewhere)]))


def device_of(outcomes: Sequence[Outcome]) -> str:
    """On what the latencies were taken, in words."""
    profiles = (outcome.start.profile for outcome in outcomes)
    return next((profile.device for profile in profiles if profile), "no device")
