"""Kernels of spec files, one search each, and the folders that they leave."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from accelopt.api import base_folder, refuse_earlier_run, run_search
from accelopt.cli.run import baselines, chosen
from accelopt.contract.spec import read_specs
from accelopt.evaluation import Case
from accelopt.hardware.gpus import DEFAULT_GPU
from accelopt.kernels.specs.solutions import case_of_spec
from accelopt.search.method_catalog import DATASET, GRAPH, ReGraphDataset
from accelopt.search.strategy import UNBOUNDED, Settings
from accelopt.stages.config import Config, Options
from accelopt.stages.run import Outcome
from accelopt.stages.run_files import write_tactics
from accelopt.stages.spec_kernel_folder import KernelFolder
from accelopt.store import write_atomically

NKI = "nki"
SPEC_WIDTHS = {
    name: Settings._field_defaults[name] for name in ("beam", "plans", "samples", "fixer_steps")
}
"""The widths of a search of spec files: those of `Settings`."""


class SpecRun(NamedTuple):
    """What is asked of the kernels in `source`: a spec file, a folder of them, or, for the backend `nki`,
    names of NKIBench's problems or another folder like it. `budget` are evaluations of each, failures
    included; `seconds` the time for all of them, which those to come share evenly. `regraph` is what
    another run learned of methods; without it the kernels of this folder that were searched before
    count."""

    source: str
    out: Path
    gpus: tuple[int, ...] = (0,)
    budget: int = 20
    profile_every: int = 0
    resume: bool = False
    backend: str = ""
    target: str = ""
    compiler: str = ""
    window: int = 0
    seed: int = 0
    strategy: str = "mcgs"
    options: Mapping[str, str] = {}
    least_gain: float = 0.0
    regraph: Path | None = None
    model_config: Path | None = None
    seconds: float | None = None


class Subject(NamedTuple):
    """One kernel: its folder, its case, the language of its text, and what was said of it."""

    name: str
    kind: str
    folder: Path
    case: Case
    spec: dict[str, Any]


class SearchedKernel(NamedTuple):
    """One kernel, where its files lie, and how its search went."""

    name: str
    folder: Path
    outcome: Outcome


def optimize_specs(run: SpecRun) -> list[SearchedKernel]:
    """Search each kernel in turn, and write its folder; those that fail at the start, too.

    Raises ConfigError for a file or an option that cannot be used, before anything is evaluated.
    """
    subjects = list(_subjects(run))
    for subject in subjects:
        refuse_earlier_run(subject.folder / "run", run.resume and _begun(subject))
    begun = time.monotonic()
    found: list[SearchedKernel] = []
    for number, subject in enumerate(subjects):
        seconds = run.seconds
        if seconds is not None:
            left = max(0.0, seconds - (time.monotonic() - begun))
            seconds = left / (len(subjects) - number)
        found.append(_search(subject, run._replace(seconds=seconds)))
    return found


def _search(subject: Subject, run: SpecRun) -> SearchedKernel:
    """One kernel's search and its files, in `run.seconds`."""
    write_tactics(run.out, subject.kind)
    learned = _learned(subject, run)
    name, folder = subject.name, subject.folder
    files = KernelFolder(folder, name, subject.kind, subject.spec, run.profile_every > 0)
    [outcome] = run_search([subject.case], _session(subject, run, learned), "--resume", files)
    files.close(outcome, _state(subject))
    gather_transitions(run.out)
    return SearchedKernel(name, folder, outcome)


def gather_transitions(out: Path) -> int:
    """`regraph_dataset.jsonl` and `regraph.json` of all kernels searched in a folder; returns how many
    transitions there are."""
    found = ReGraphDataset()
    for path in sorted(out.glob(f"kernels/*/run/{DATASET}")):
        more = ReGraphDataset.load(path)
        found = ReGraphDataset((*found.rows, *more.rows), found.malformed + more.malformed)
    write_atomically(out / DATASET, found.to_text())
    write_atomically(out / GRAPH, found.build().model_dump_json(indent=1) + "\n")
    return len(found.rows)


def _learned(subject: Subject, run: SpecRun) -> Path | None:
    """The transitions that a kernel's search begins with, kept so that it can be continued alike."""
    if run.strategy != "regraph":
        return None
    kept, known = subject.folder / DATASET, run.out / DATASET
    if run.regraph is not None:
        return run.regraph
    if not kept.exists() and known.exists() and not _begun(subject):
        write_atomically(kept, known.read_text())
    return kept if kept.exists() else None


def _subjects(run: SpecRun) -> Iterator[Subject]:
    if run.backend == NKI:
        folder = Path(run.source)
        there = folder.exists()
        for case in chosen(
            "all" if there else run.source, folder if there else baselines("neuronxcc")
        ):
            folder = run.out / "kernels" / case.case_name
            yield Subject(case.case_name, NKI, folder, case, case.model_dump(mode="json"))
        return
    path = Path(run.source)
    for spec in read_specs(path):
        folder = run.out / "kernels" / spec.safe_name
        near = path if path.is_dir() else path.parent
        case = case_of_spec(spec, folder / "problem", near)
        yield Subject(
            spec.name, spec.kernel.kernel_type, folder, case, spec.model_dump(mode="json")
        )


def _begun(subject: Subject) -> bool:
    return (subject.folder / "run" / "journal.jsonl").exists()


def _session(subject: Subject, run: SpecRun, learned: Path | None) -> Config:
    on_gpu = subject.kind != NKI
    options = Options(
        iterations=UNBOUNDED,
        strategy=run.strategy,
        strategy_option=[f"{name}={value}" for name, value in run.options.items()],
        evaluations=run.budget,
        least_gain=run.least_gain,
        window=run.window or (len(run.gpus) if on_gpu else 4),
        **SPEC_WIDTHS,
        target=run.target or (DEFAULT_GPU if on_gpu else "trn1"),
        compiler="" if on_gpu else run.compiler,
        workers=len(run.gpus) if on_gpu else 0,
        regraph=learned,
        model_config=run.model_config,
        backend=subject.kind,
        seed=run.seed,
        profile_every=run.profile_every,
        gpus=run.gpus,
        seconds=run.seconds,
        save_fields=() if on_gpu else None,
    )
    return options.config(subject.folder / "run", base_folder())


def _state(subject: Subject) -> dict[str, Any]:
    path = subject.folder / "run" / subject.case.case_name / "search_state.json"
    state: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    return state
