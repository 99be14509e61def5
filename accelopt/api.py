"""The functions for programs, which the command line and the scripts use too: `optimize` does what the
command of that name does, `run_search` searches any cases with any configuration.

What the process's environment says (the folder of prompts, cores, keys of models) is read here, and
nowhere below.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from accelopt.agents.configuration import OFFLINE, ModelConfig, load_model_config
from accelopt.agents.roles import MODEL_ROLES, ModelRole
from accelopt.concurrency import attended
from accelopt.errors import ConfigError, sentence
from accelopt.evaluation import Case
from accelopt.hardware import TARGETS
from accelopt.interruption import stop
from accelopt.kernels.gpu.cases import case_of, language_of
from accelopt.kernels.gpu.problems import case_of_problem, is_torch_problem
from accelopt.kernels.nki.calibration.machine import target_of
from accelopt.kernels.nki.default_target import checked_front_end, default_target, dialect_of_file
from accelopt.kernels.nki.kernel_from_reference import Written, WrittenKernel
from accelopt.kernels.nki.sizes import at_sizes, sizes_in
from accelopt.loop import optimize_all
from accelopt.report.page import REPORT, page
from accelopt.report.progress import Board, LiveBoard
from accelopt.report.story import write_story
from accelopt.sandbox import fork_with_server, workers
from accelopt.sandbox.workers import Call, Fault
from accelopt.search.method_catalog import Learned, read_learned
from accelopt.search.strategy import refuse_wrong_options
from accelopt.shipped import shipped_folder
from accelopt.sim.dialects.dialect import DEFAULT_TARGETS
from accelopt.stages.config import Config, Options
from accelopt.stages.experience import read_findings
from accelopt.stages.jobs import Knowledge
from accelopt.stages.live_board import board_for, watcher_of
from accelopt.stages.record_files import read_experiences
from accelopt.stages.run import Outcome
from accelopt.stages.run_setup import open_run
from accelopt.stages.run_story import story_of
from accelopt.stages.workshop import Workshop
from accelopt.store import came_to_something, existing, read_text, write_atomically
from accelopt.time_limits import WRITE_SECONDS

if TYPE_CHECKING:
    from accelopt.stages.spec_kernel_folder import KernelFolder

ROUNDS = 4
WRITE_BYTES = 24 << 30
"""Memory of the process that writes a kernel."""
SHOWN = 4000
"""Characters of what such a process had printed that gave no answer."""
DEFAULTS = Options(beam=3, plans=4, samples=2)
"""What `optimize` does where nothing is said of it."""


def optimize(
    kernel: str | Path,
    reference: str | Path | None = None,
    *,
    definition: str | Path | None = None,
    workload: str | Path | None = None,
    out: str | Path | None = None,
    also: Sequence[str] = (),
    backend: str | None = None,
    resume: bool = False,
    iterations: int | None = ROUNDS,
    **options: Any,
) -> Outcome:
    """Make the kernel in the file `kernel` faster while it computes what `reference` says (a NumPy
    module, for NKI; a PyTorch module of KernelBench's form, for Triton), or what `definition` does (of
    FlashInfer-Bench, for Triton and CUDA, judged on `workload`).

    `out` is the run's folder (by default `runs/` and the kernel's name), which `resume` continues.
    `also` are other sizes of the reference's (`"N=8192"`) or paths of other references: the kernel is
    made faster there too, each winner is tried at all of them, and the outcome's `elsewhere` says how
    this one did. `backend` is the kernel's language, without it by its file. `iterations` None is
    as many as `evaluations` allow. `options` are those of the
    command by their names (`accelopt.stages.config.Options`): `target` (without it trn2 for kernels of
    `nki.*`, trn1 for others), `strategy`, `evaluations` (distinct kernels that are judged, at most),
    `beam`, `plans`, `samples`, `workers`, `rel_tol`, `database` and so on. Without `model_config`, the
    path of a model's configuration, no model is called.

    Returns the outcome: `best` (a node with `source` and `latency` in ms; None where the baseline
    fails, and `failure` says why), `speedup`, `changes` in sentences. Everything that the command
    writes is in `out`. Call it outside of a running event loop.

    Raises ConfigError for input that cannot be used, in one sentence, TypeError for an option that
    there is not.
    """
    given = DEFAULTS.replaced(iterations=iterations, **options).with_rounds(ROUNDS)
    kernel = Path(kernel)
    folder = Path(out) if out is not None else Path("runs") / kernel.stem
    said, defined, measured = (
        None if path is None else Path(path) for path in (reference, definition, workload)
    )
    return optimize_kernel(
        kernel,
        starting_case(kernel, said, defined, measured, folder),
        given,
        folder,
        also=also,
        backend=backend,
        resume=resume,
    )[0]


def write(
    reference: str | Path,
    *,
    dialect: str = "nki",
    target: str | None = None,
    machine: str | Path | None = None,
    seconds: float = WRITE_SECONDS,
    watch: Callable[[str], None] = lambda _: None,
) -> WrittenKernel:
    """The fastest NKI kernel of a NumPy `reference` (its `get_inputs` and `forward`) that the search of
    `optimize` finds and the referee accepts, in a `dialect`: `nki` or `neuronxcc`. Without `target` it
    is for trn2 or, in `neuronxcc`, trn1, or for that of a calibrated `machine`'s file, whose times it
    then has. The result has its `source`, `latency_ms` on the simulated
    core and the `bound_ms` of the problem. It takes at most so many `seconds`, and tells `watch` what it
    is doing.

    Raises ConfigError, in one sentence: for a reference with an operation that has no definition as an
    Algorithm, with file, line and NumPy's function; where no kernel is written, or accepted, why.
    """
    job = "accelopt.kernels.nki.kernel_from_reference:write_job"
    return _written(job, {"reference": reference}, dialect, target, machine, seconds, watch)


def translate(
    kernel: str | Path,
    reference: str | Path,
    *,
    target: str | None = None,
    machine: str | Path | None = None,
    seconds: float = WRITE_SECONDS,
    watch: Callable[[str], None] = lambda _: None,
) -> WrittenKernel:
    """As `write` in `nki`, but of what `kernel` computes, which is in an older dialect, in its author's
    module and words. Raises ConfigError also for a kernel that does not lift, with line and reason."""
    job = "accelopt.kernels.nki.kernel_translation:translate_job"
    files = {"kernel": kernel, "reference": reference}
    return _written(job, files, "nki", target, machine, seconds, watch)


def _written(
    job: str, files: Mapping[str, str | Path], dialect: str, target: str | None,
    machine: str | Path | None, seconds: float, watch: Callable[[str], None],
) -> WrittenKernel:  # fmt: skip
    """What a job writes in a process of its own. Raises ConfigError."""
    if dialect not in DEFAULT_TARGETS:
        raise ConfigError(f"no dialect {dialect!r}; there are {', '.join(DEFAULT_TARGETS)}")
    for path in files.values():
        existing(path)
    target = target_of(Path(machine), target) if machine else target or DEFAULT_TARGETS[dialect]
    if target not in TARGETS:
        raise ConfigError(f"no target {target!r}; there are {', '.join(TARGETS)}")
    paths = {name: str(Path(path).resolve()) for name, path in files.items()}
    payload = {**paths, "dialect": dialect, "target": target}
    payload["machine"] = str(Path(machine).resolve()) if machine else ""
    call = Call(job, payload, seconds, WRITE_BYTES)
    found = workers.perform(call, Written, watch=watch, start=fork_with_server)
    if isinstance(found, Fault):
        raise ConfigError(f"{found.message}\n{found.output.strip()[-SHOWN:]}".strip())
    if found.kernel is None:
        for name, path in paths.items():
            found = found.model_copy(update={"error": found.error.replace(path, str(files[name]))})
        raise ConfigError(found.error)
    return found.kernel


def optimize_kernel(
    kernel: Path,
    start: Case,
    options: Options,
    folder: Path,
    *,
    also: Sequence[str] = (),
    backend: str | None = None,
    resume: bool = False,
    again: str = "the same command",
    told: Callable[[list[Outcome]], None] = lambda _: None,
) -> list[Outcome]:
    """The outcomes of one kernel, in its case and at the other shapes, of which `told` hears before the
    report is written. Raises ConfigError."""
    if (also or options.compiler) and "definition" in start.values:
        raise ConfigError("--also and --compiler are for an NKI kernel with its --reference")
    refuse_earlier_run(folder, resume)
    checked_front_end(options.compiler, dialect_of_file(kernel))
    cases = [start, *other_shapes(start, also, folder)]
    options = options.at(default_target(kernel))._replace(
        backend=backend or language_of_case(start)
    )
    return run_search(cases, config_of(options, folder), again, told=told)


def config_of(options: Options, out: Path) -> Config:
    """The configuration of a run on this machine, with what its environment says."""
    return options.config(out, base_folder(), neuron_cores())


def language_of_case(case: Case) -> str:
    """NKI, but of a solution of FlashInfer-Bench the language that it is written in."""
    return language_of(Path(case.kernel)) if "definition" in case.values else "nki"


def starting_case(
    kernel: Path,
    reference: Path | None,
    definition: Path | None,
    workload: Path | None,
    folder: Path,
) -> Case:
    """An NKI kernel with its NumPy reference, or a Triton solution with its definition or with a
    PyTorch module, which is written as a definition into `folder`. Raises ConfigError."""
    if definition is None and workload is None:
        if reference is None:
            raise ConfigError("--reference is needed: the NumPy module that says what to compute")
        case = own_kernel(kernel, reference)
        if is_torch_problem(reference):
            return case_of_problem(reference, kernel, None, folder / "problem")
        return case
    if definition is None or workload is None or reference is not None:
        raise ConfigError("a Triton solution needs --definition and --workload, no --reference")
    kernel, definition, workload = map(existing, (kernel, definition, workload))
    return case_of(definition.resolve(), kernel.resolve(), workload.resolve())


def own_kernel(kernel: Path, reference: Path) -> Case:
    """A case of two files of one's own. Raises ConfigError when one is not there."""
    return Case(
        service_name=f"{kernel.stem}_ID0",
        case_name=kernel.stem,
        problem=kernel.stem,
        values={},
        kernel=str(existing(kernel).resolve()),
        task=str(existing(reference).resolve()),
    )


def other_shapes(start: Case, also: Sequence[str], folder: Path) -> list[Case]:
    """The same kernel at other shapes: by other references, or by other sizes in its own, of which
    copies are written into `folder`. Raises ConfigError."""
    cases: list[Case] = []
    for said in also:
        if Path(said).is_file():
            label, task = Path(said).stem, Path(said)
        else:
            sizes = sizes_in(said)
            label = "_".join(f"{name}{number}" for name, number in sizes.items())
            text = at_sizes(read_text(start.task), sizes, start.task)
            task = folder / "references" / f"{Path(start.task).stem}_{label}.py"
            write_atomically(task, text)
        name = f"{start.case_name}_{label}"
        update = {"case_name": name, "service_name": f"{name}_ID0", "task": str(task.resolve())}
        cases.append(start.model_copy(update=update))
    names = [case.case_name for case in cases]
    if twice := [name for name in names if names.count(name) > 1]:
        raise ConfigError(f"--also says {twice[0].removeprefix(start.case_name + '_')} twice")
    return cases


def refuse_earlier_run(folder: Path, resume: bool) -> None:
    """Raises ConfigError when `folder` holds a run that is not to be continued, or none that is."""
    journal = folder / "journal.jsonl"
    there = journal.exists()
    if there and came_to_something(journal) and not resume:
        raise ConfigError(
            f"{folder} holds an earlier run; continue that with --resume, or choose another --out for another"
        )
    if resume and not there:
        raise ConfigError(f"there is no run to resume in {folder}")


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


def run_search(
    cases: Sequence[Case],
    config: Config,
    again: str = "the same command",
    files: KernelFolder | None = None,
    told: Callable[[list[Outcome]], None] = lambda _: None,
) -> list[Outcome]:
    """Run the loop on `cases`. Ctrl-C stops it cleanly and exits with status 130; `again` is what
    then continues it. `files` are written beside the run's own. `told` hears of the outcomes before the
    report is written, which a full disk may refuse."""
    try:
        return asyncio.run(_search(cases, config, files, told))
    except KeyboardInterrupt:
        stop(f"Stopped{_left(cases, config.out)}; {again} continues where this one stopped.")
    except OSError as error:
        if not (there := _left(cases, config.out)):
            raise
        said = f"stopped{there}; {again} continues where this one stopped"
        raise ConfigError(f"{sentence(error)}; {said}") from error


def _left(cases: Sequence[Case], out: Path) -> str:
    """Where the best kernels so far lie, if anywhere."""
    places = [out / case.case_name / "best.py" for case in cases]
    there = [str(place) for place in places if place.is_file()]
    if len(there) > 1:
        return f" with the fastest kernels so far in {out}/*/best.py"
    return f" with the fastest kernel so far in {there[0]}" if there else ""


async def _search(
    cases: Sequence[Case],
    config: Config,
    files: KernelFolder | None,
    told: Callable[[list[Outcome]], None],
) -> list[Outcome]:
    refuse_wrong_options(cases[0], config.settings)
    if not config.prompts.is_dir():
        raise ConfigError(f"no prompts in {config.prompts}; set ACCELOPT_BASE_DIR to the checkout")
    known = _known(config)
    models = {role: _model(config, role) for role in MODEL_ROLES}
    saved = config.saved(cases, models)
    async with open_run(config, models, saved, files) as run:
        _keep_prompts(config.prompts, config.out)
        workshop = run.workshop
        with LiveBoard(board_for(cases, config.settings, workshop.ledger)) as board:
            run = run._replace(watcher=watcher_of(board, config.settings))
            workshop.calls.say = board.remark
            outcomes = await attended(optimize_all(cases, run, known), _beside(workshop, board))
        told(outcomes)
        story = story_of(outcomes, run, device_of(outcomes), saved, board.judged_after)
        write_story(story, config.out)
        write_atomically(config.out / REPORT, page([story]))
        return outcomes


async def _beside(workshop: Workshop, board: Board) -> None:
    """Asks endpoints that have answered nothing so far whether they are there, then minds silence."""
    if not workshop.ledger.total.calls:
        await workshop.calls.greet(board.remark)
    await board.remind()


def _known(config: Config) -> Knowledge:
    """What earlier runs left for this one."""
    experiences = read_experiences(config.experiences) if config.experiences else []
    findings = read_findings(config.findings) if config.findings else []
    learned = read_learned(config.regraph) if config.regraph else Learned()
    return Knowledge(experiences=tuple(experiences), earlier=tuple(findings), learned=learned)


def _model(config: Config, role: ModelRole) -> ModelConfig:
    if config.model_config is None:
        return ModelConfig(url=OFFLINE, model=OFFLINE)
    return load_model_config(config.model_config, role, os.environ)


def _keep_prompts(prompts: Path, out: Path) -> None:
    """The prompts as they were used, beside what came of them. What a kill or a full disk has kept
    from being copied is copied when the run continues."""
    for path in sorted(prompts.rglob("*")):
        copy = out / "prompts" / path.relative_to(prompts)
        if path.is_file() and path.suffix not in (".py", ".pyc") and not copy.exists():
            write_atomically(copy, path.read_bytes())


def device_of(outcomes: Sequence[Outcome]) -> str:
    """On what the latencies were taken, in words; empty where none was."""
    profiles = (outcome.start.profile for outcome in outcomes)
    return next((profile.device for profile in profiles if profile), "")
